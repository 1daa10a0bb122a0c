"""What a finding or a check means, and what to do about it: `explain`."""

import re
import textwrap
from collections.abc import Sequence

import click

from leads_pipeline.cli.output import out
from leads_pipeline.health.findings import CHECKS
from leads_pipeline.health.runbook import (
    Entry,
    entry_of,
    finding_entries,
    raw_check_entries,
    table_check_entries,
)

# Longer lines are hard to read.
_WIDTH = 100


@click.command()
@click.argument("key", required=False)
def explain(key: str | None) -> None:
    """Show what a finding means and what to do. Without KEY, list all findings and checks.

    KEY is the key of a finding, such as windows-refused/refused-403, or the part before the slash.
    Or it is the name of a check in the Dagster UI.
    """
    if key is not None:
        _show(entry_of(key))
        return

    click.echo("Findings:")
    _list(finding_entries())
    click.echo("\nChecks in the Dagster UI:")
    _list([*raw_check_entries(), *table_check_entries()])
    click.echo("\n`leads-pipeline explain KEY` says what one means and what to do.")


def _show(entry: Entry) -> None:
    click.echo(f"{entry.name}: {entry.title}")
    for word, text in entry.parts.items():
        click.echo(f"\n{_wrapped(f'{word}: {text}')}")
    if entry.name == CHECKS:
        click.echo("\nChecks:")
        _list(table_check_entries())


def _list(entries: Sequence[Entry]) -> None:
    """Print the first sentence of each."""
    width = max(len(entry.name) for entry in entries)
    for entry in entries:
        sentence, _, _ = entry.title.partition(". ")
        click.echo(f"  {entry.name:<{width}}  {sentence}")


def _wrapped(text: str) -> str:
    """Wrap the text within the terminal.

    A command between backticks stays on one line, so that it can be pasted.
    """
    tied = re.sub(r"`[^`]*`", lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), text)
    wrapped = textwrap.fill(
        tied, min(out.width, _WIDTH), break_long_words=False, break_on_hyphens=False
    )
    return wrapped.replace("\N{NO-BREAK SPACE}", " ")
