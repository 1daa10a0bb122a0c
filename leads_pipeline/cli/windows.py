"""Which windows have landed, and which haven't: `coverage`."""

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import date, timedelta

import click

from leads_pipeline.cli.installation import facts_now
from leads_pipeline.cli.output import LISTED, Number, json_option, out, show_indented, table
from leads_pipeline.domain.window import RETENTION
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.window_findings import deletion, how_to_pull
from leads_pipeline.raw.branches import Branches
from leads_pipeline.raw.starting import how_to_publish
from leads_pipeline.raw.windows import WindowRow, WindowState
from leads_pipeline.warehouse.unpublished import unpublished_days
from leads_pipeline.words import counted, some

# A century: no installation is older, and the calendar ends somewhere.
MAX_COVERAGE_DAYS = 36_525


@click.command()
@click.option(
    "--days",
    "count",
    type=Number(0, MAX_COVERAGE_DAYS),
    default=RETENTION.days,
    show_default=True,
    help="How many days back, today not counted.",
)
@json_option
def coverage(count: int, as_json: bool) -> None:
    """Count windows by state, and say until when the portal has those that haven't landed.

    Changes nothing. A window is open until 75 minutes after its day, when it is due.

    Exit code 0 if every window that is due has landed whole and is published, 1 if one has not, 2
    if it can't tell.
    """
    facts = facts_now()
    windows = facts.windows_from(facts.today - timedelta(days=count))
    not_landed = sorted(
        (row for row in windows if row.state in _NOT_LANDED), key=lambda row: row.window
    )
    unpublished = unpublished_days(facts.data)
    counts = Counter((row.kind, row.state) for row in windows)

    if as_json:
        answer = {
            "windows": [
                {"kind": kind, "state": state, "windows": number}
                for (kind, state), number in counts.items()
            ],
            "not_landed": [_as_json(row, facts.branches) for row in not_landed],
            "days_not_published": [day.isoformat() for day in unpublished],
        }
        click.echo(json.dumps(answer, indent=2))
    else:
        _show(facts, counts, not_landed, unpublished)

    sys.exit(1 if not_landed or unpublished else 0)


_NOT_LANDED = (WindowState.FAILED, WindowState.MISSING, WindowState.PARTIAL)


def _show(
    facts: Facts,
    counts: Mapping[tuple[str, WindowState], int],
    not_landed: Sequence[WindowRow],
    unpublished: Sequence[date],
) -> None:
    """Print the counts, then what hasn't landed and what isn't published."""
    rows = [(kind, state, number) for (kind, state), number in sorted(counts.items())]
    out.print(table(("kind", "state", "windows"), rows))
    if others := sorted(scope.key for scope in facts.scopes_here - {*facts.scopes}):
        click.echo(f"Not in LEADS_BRANCH_IDS, so not counted: {some(others)}.")

    if not_landed:
        _show_not_landed(facts, not_landed)
    _show_not_published(facts, unpublished)
    if not (not_landed or unpublished or facts.leads_duckdb.trouble):
        click.echo("Every window that is due has landed and is published.")


def show_windows(title: str, message: str, rows: Sequence[WindowRow], branches: Branches) -> None:
    """Print windows that share a cause: a title, the message, and a line for each branch."""
    click.echo(f"\n{click.style(title, bold=True)}")
    show_indented(message, 2)
    by_scope: defaultdict[str, list[WindowRow]] = defaultdict(list)

    for row in rows:
        by_scope[row.scope].append(row)

    for scope, of_scope in [*by_scope.items()][:LISTED]:
        kinds = " and ".join(sorted({row.kind for row in of_scope}))
        days = {row.day for row in of_scope}
        until = f" to {max(days)}" if len(days) > 1 else ""
        windows = counted(len(of_scope), f"{kinds} window")
        click.echo(f"  {branches.shown(scope)}: {windows}, {min(days)}{until}")

    if len(by_scope) > LISTED:
        click.echo(f"  … and {len(by_scope) - LISTED} more branches")


def _show_not_landed(facts: Facts, not_landed: Sequence[WindowRow]) -> None:
    """Print unlanded windows by cause, in the order given, and the command that pulls them."""
    causes: defaultdict[str, list[WindowRow]] = defaultdict(list)
    for row in not_landed:
        causes[f"{row.state}: {row.reason}" if row.failure else row.state].append(row)

    for cause, rows in causes.items():
        why = rows[0].failure.message if rows[0].failure else ""
        show_windows(
            f"{counted(len(rows), 'window')} {cause}",
            f"{why} {_deletion(facts, rows)}".strip(),
            rows,
            facts.branches,
        )

    left = (row for row in not_landed if row.state is not WindowState.PARTIAL)
    still_there = [row for row in left if not row.window.is_deleted(facts.now)]
    if still_there:
        correct = "Do what the message says. " if any(map(_is_refused, still_there)) else ""
        click.echo(f"\n{correct}{how_to_pull(facts, still_there)}.")


def _deletion(facts: Facts, rows: Sequence[WindowRow]) -> str:
    """Say how far the portal is with deleting these windows, which share a cause."""
    their = "its" if len(rows) == 1 else "their"
    if rows[0].state is WindowState.PARTIAL:
        return f"The portal had begun to delete {their} leads before the pull."
    if all(row.window.is_deleted(facts.now) for row in rows):
        return f"The portal has deleted {their} leads."
    return deletion(facts, rows)


def _show_not_published(facts: Facts, unpublished: Sequence[date]) -> None:
    publish = f"{how_to_publish(facts.data.state)}."
    if facts.leads_duckdb.trouble:
        click.echo(
            f"\n{facts.leads_duckdb.trouble} The figures above are those of raw files. {publish}"
        )
    elif unpublished:
        do = "The service publishes them within minutes." if facts.is_served else publish
        click.echo(f"\nLanded and not published yet: {', '.join(map(str, unpublished))}. {do}")


def _is_refused(row: WindowRow) -> bool:
    return row.failure is not None and row.failure.verdict == "refused"


def _as_json(row: WindowRow, branches: Branches) -> dict[str, object]:
    return {
        "kind": row.kind,
        "partition": row.window.partition_key,
        "branch": branches.names.get(row.scope, row.scope),
        "state": row.state,
        "attempts": row.failure.attempts if row.failure else 0,
        "last_error": (row.failure.message or row.failure.reason) if row.failure else None,
        "is_refused": _is_refused(row),
        "deleted_from_at": (row.window.start + RETENTION).isoformat(),
    }
