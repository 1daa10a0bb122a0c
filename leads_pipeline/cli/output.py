"""How commands print: consoles, tables, and errors as sentences.

Belongs here: what every command needs. Doesn't: Dagster, so that a command that only looks starts quickly.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from leads_pipeline.errors import LeadsPipelineError

# 128 and the signal's number, as shells have it.
EXIT_INTERRUPTED = 130

out = Console()
err = Console(stderr=True)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Show the pipeline's own errors as a sentence, and exit 2: they are about settings, not about the program."""
    try:
        yield
    except LeadsPipelineError as error:
        err.print(f"[bold red]{error.reason}:[/bold red] {escape(str(error))}", highlight=False)
        sys.exit(2)
    except KeyboardInterrupt:
        err.print("Stopped.")
        sys.exit(EXIT_INTERRUPTED)


def table(names: Sequence[str], rows: Sequence[Sequence[object]], title: str | None = None) -> Table:
    """Rows as rich prints them; None as nothing."""
    shown = Table(*names, title=title, title_justify="left")
    for row in rows:
        shown.add_row(*("" if value is None else str(value) for value in row))
    return shown
