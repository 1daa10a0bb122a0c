"""A CSV of the agency's own, as somebody typed it or saved it from a spreadsheet.

Belongs here: its rows, and what can be wrong with a file as a whole. Doesn't: what a column means.
"""

import csv
from io import StringIO
from pathlib import Path

from leads_pipeline.errors import SettingsError


def csv_rows(path: Path, name: str) -> list[list[str]]:
    """Return the header and the rows. A file without a row has an empty header.

    A line break or two spaces within a cell are slips of the one who typed it, and become a space.
    Raises SettingsError that begins with the file's name for people.
    """
    try:
        # Excel begins its "CSV UTF-8" with a byte order mark.
        text = path.read_bytes().decode("utf-8-sig")
        rows = [*csv.reader(StringIO(text, newline=""), strict=True)]
    except OSError as error:
        message = f"can't be read: {error.strerror}. Put it there, or correct the path."
        raise SettingsError(f"{name} {message}") from None
    except UnicodeDecodeError:
        message = "isn't in UTF-8. In Excel, save it as CSV UTF-8."
        raise SettingsError(f"{name} {message}") from None
    except csv.Error as error:
        message = f"is no CSV: {error}. Save it as CSV UTF-8, with commas between the columns."
        raise SettingsError(f"{name} {message}") from None

    return [[" ".join(cell.split()) for cell in row] for row in rows] or [[]]
