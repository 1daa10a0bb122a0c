"""What the branches are called: the CSV that LEADS_BRANCHES_FILE names, read and checked.

Belongs here: what the file may hold, and a scope's name. Doesn't: the table `branches` (sql/branches.sql).
"""

import csv
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

from leads_pipeline.domain.window import Scope
from leads_pipeline.errors import SettingsError

# Columns of the table `branches` that aren't the file's to give.
_TAKEN = {"scope", "branch_id"}


@dataclass(frozen=True, slots=True)
class Branches:
    """Names by scope key, and in `more` what the file has in its further `columns`."""

    names: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    more: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)

    def shown(self, scope: str) -> str:
        """The scope for a person to read: `branch-101 (York)`, or its key alone where it has no name."""
        return shown(scope, self.names.get(scope))

    def shown_window(self, key: str) -> str:
        """The window of that partition key for a person to read: `2026-11-19|branch-101 (York)`."""
        day, separator, scope = key.rpartition("|")
        return f"{day}{separator}{self.shown(scope)}"


def shown(scope: str, name: str | None) -> str:
    """The scope with its name, where it has one of its own."""
    return scope if name in (None, scope) else f"{scope} ({name})"


def read_branches(path: Path | None) -> Branches:
    """The names in the file; none where no file is set. Raises SettingsError, with the line at fault."""
    if path is None:
        return Branches()
    lines = _lines(path)
    try:
        rows = list(csv.reader(lines, strict=True))
    except csv.Error as error:
        raise _wrong(path, f"is no CSV: {error}. Save it as CSV, with commas between the columns.") from None
    header = [column.strip() for column in rows[0]] if rows else []
    id_at, name_at = _positions(path, header)
    more_at = [at for at in range(len(header)) if at not in (id_at, name_at)]
    names: dict[str, str] = {}
    more: dict[str, tuple[str | None, ...]] = {}
    for line, values in _filled(rows):
        if len(values) > len(header):
            raise _wrong(path, f"has {len(values)} values in row {line}, for {len(header)} columns. Quote commas.")
        cells = [*values, *[""] * (len(header) - len(values))]
        scope, name = _scope(path, cells[id_at], line), cells[name_at]
        if not name:
            raise _wrong(path, f"has no name for {cells[id_at]} in row {line}. Write one, or take the row out.")
        if scope in names:
            raise _wrong(path, f"has {cells[id_at]} a second time in row {line}. Keep one of them.")
        if name in names.values():
            raise _wrong(path, f"has the name {name} a second time in row {line}. Figures go by name: tell them apart.")
        names[scope] = name
        more[scope] = tuple(cells[at] or None for at in more_at)
    return Branches(names, tuple(header[at] for at in more_at), more)


def readable_branches(path: Path | None) -> Branches:
    """The names for a message; keys alone where they can't be read, which the check on names tells of."""
    try:
        return read_branches(path)
    except SettingsError:
        return Branches()


def _lines(path: Path) -> StringIO:
    try:
        # Excel begins its "CSV UTF-8" with a byte order mark.
        return StringIO(path.read_bytes().decode("utf-8-sig"), newline="")
    except OSError as error:
        raise _wrong(path, f"can't be read: {error.strerror}. Put it there, or correct the path.") from None
    except UnicodeDecodeError as error:
        raise _wrong(path, f"isn't UTF-8 from byte {error.start} on. In Excel, save it as “CSV UTF-8”.") from None


def _positions(path: Path, header: list[str]) -> tuple[int, int]:
    """Where id and name stand."""
    columns = [column.lower() for column in header]
    if missing := [column for column in ("id", "name") if column not in columns]:
        there = ", ".join(header) or "nothing"
        raise _wrong(
            path, f"has no column {' and no '.join(missing)}. Its first row holds {there}. Begin with id,name."
        )
    if wrong := [column for column in columns if not column or columns.count(column) > 1 or column in _TAKEN]:
        what = f"the column {wrong[0]!r}, which is there already" if wrong[0] else "a column without a name"
        raise _wrong(path, f"has {what}. Give each column a name of its own, other than scope and branch_id.")
    return columns.index("id"), columns.index("name")


def _filled(rows: list[list[str]]) -> Iterator[tuple[int, list[str]]]:
    """The rows below the header that hold anything, with the number that a spreadsheet gives them."""
    for number, row in enumerate(rows[1:], start=2):
        # A line break or two spaces within a name are slips of the one who typed it.
        values = [" ".join(value.split()) for value in row]
        if any(values):
            yield number, values


def _scope(path: Path, text: str, line: int) -> str:
    """The key of `101`, which is a branch, or of what is a scope already: `branch-101`, `company-7`."""
    for written in (text, f"branch-{text}"):
        with suppress(SettingsError):
            return Scope.parse(written).key
    raise _wrong(path, f"has {text!r} for an id in row {line}. Write the portal's id of a branch, such as 101.")


def _wrong(path: Path, what: str) -> SettingsError:
    return SettingsError(f"LEADS_BRANCHES_FILE: {path} {what}")
