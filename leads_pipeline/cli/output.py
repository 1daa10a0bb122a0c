"""How commands print: consoles, tables, and errors as sentences.

Belongs here: what every command needs. Doesn't: Dagster, so that a command that only looks starts quickly.
"""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.settings import Settings, variables
from leads_pipeline.storage.room import full, sqlite_error, tightest_of

# 128 and the signal's number, as shells have it.
EXIT_INTERRUPTED = 130

out = Console()
err = Console(stderr=True)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Show the pipeline's own errors, and those of a disk, as a sentence, and exit 2."""
    try:
        yield
    except LeadsPipelineError as error:
        _fail(error.reason, str(error))
    except KeyboardInterrupt:
        err.print("Stopped.")
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:
        settings = Settings.from_variables(variables())
        folders = [settings.data_dir, settings.dagster_folder, Path(tempfile.gettempdir())]
        if (folder := tightest_of(error, folders)) is not None:
            _fail("storage", full(folder))
        if (failure := sqlite_error(error)) is not None:
            _fail(
                "storage",
                f"Dagster's database in {settings.dagster_folder} can't be used: {failure}. Check the disk, then run "
                "again. Landed leads are safe.",
            )
        raise


def _fail(reason: str, message: str) -> NoReturn:
    err.print(f"[bold red]{reason}:[/bold red] {escape(message)}", highlight=False, soft_wrap=True)
    sys.exit(2)


def table(names: Sequence[str], rows: Sequence[Sequence[object]], title: str | None = None) -> Table:
    """Rows as rich prints them; None as nothing."""
    shown = Table(*names, title=title, title_justify="left")
    for row in rows:
        shown.add_row(*("" if value is None else str(value) for value in row))
    return shown
