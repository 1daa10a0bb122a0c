"""Count the windows of each state: `coverage`."""

import json
import sys
from collections.abc import Iterator, Sequence
from datetime import date, timedelta

import click
from rich.markup import escape
from rich.padding import Padding

from leads_pipeline.cli.health import json_option, known
from leads_pipeline.cli.output import out, plain_errors, table
from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.domain.window import RETENTION
from leads_pipeline.observe.finding import counted
from leads_pipeline.observe.known import Known
from leads_pipeline.observe.window_findings import deletion, pull_command
from leads_pipeline.storage.branches import Branches
from leads_pipeline.storage.windows import WindowRow, WindowState
from leads_pipeline.transform.raw_windows import unpublished_days

# A century: no installation is older, and the calendar ends somewhere.
MAX_COVERAGE_DAYS = 36_525

# How many windows of one cause are named. The rest are counted.
LISTED = 20


@click.command()
@click.option(
    "--days",
    "count",
    type=click.IntRange(0, MAX_COVERAGE_DAYS),
    default=RETENTION.days,
    show_default=True,
    help="How many days back, today not counted.",
)
@json_option
def coverage(count: int, as_json: bool) -> None:
    """Count landed, empty, failed and missing windows, and tell until when the portal has their leads.

    From the files as they are now. Changes nothing. Exit code 0 if every window that is over has landed and is
    published, 1 if one has not, 2 if it can't tell.
    """
    with plain_errors():
        facts = known()
        windows = facts.windows_from(facts.today - timedelta(days=count))
        not_landed = sorted((row for row in windows if row.state in _NOT_LANDED), key=lambda row: row.window)
        unpublished, branches = unpublished_days(facts.data), facts.branches
    if as_json:
        click.echo(json.dumps(_as_json(windows, not_landed, unpublished, branches), indent=2))
    else:
        _show_counts(windows)
        _show_not_landed(not_landed, facts)
        if facts.leads_duckdb_trouble:
            out.print(f"\n{facts.leads_duckdb_trouble} No day can be read. Run `leads-pipeline backfill --last 1d`.")
        elif unpublished:
            out.print(
                f"\nLanded and not published yet: {', '.join(map(str, unpublished))}. "
                f"{'The service publishes them within minutes' if facts.is_served else _PUBLISH}."
            )
    sys.exit(1 if not_landed or unpublished else 0)


_PUBLISH = "Run `leads-pipeline backfill --last 1d`"
_NOT_LANDED = (WindowState.FAILED, WindowState.MISSING)


def _counts(windows: Sequence[WindowRow]) -> Iterator[tuple[str, WindowState, list[WindowRow]]]:
    for kind in LEAD_KINDS:
        for state in WindowState:
            if counted := [one for one in windows if (one.kind, one.state) == (kind.name, state)]:
                yield kind.name, state, counted


def _show_counts(windows: Sequence[WindowRow]) -> None:
    rows = []
    for kind, state, of_state in _counts(windows):
        looks = [one.looked_at for one in of_state if one.looked_at is not None]
        looked_at = (f"{min(looks):%m-%d %H:%M}", f"{max(looks):%m-%d %H:%M}") if looks else ("never", "")
        rows.append((kind, state, len(of_state), *looked_at))
    out.print(table(("kind", "state", "windows", "first pull (UTC)", "last pull (UTC)"), rows))


def _show_not_landed(not_landed: Sequence[WindowRow], facts: Known) -> None:
    """What isn't landed, a paragraph a cause, soonest deleted first, and the command that pulls it."""
    causes: dict[tuple[str, str, str], list[WindowRow]] = {}
    for one in not_landed:
        causes.setdefault((one.kind, *_cause(one)), []).append(one)
    for (kind, state, _), windows in causes.items():
        first, keys = windows[0], [facts.branches.shown_window(one.window.partition_key) for one in windows]
        title = f"{counted(len(windows), f'{kind} window')} {state}."
        until = deletion(facts, windows)
        if windows[-1].window.is_deleted(facts.now):
            until = f"The portal has deleted {'its' if len(windows) == 1 else 'their'} leads."
        out.print(f"\n[bold]{title}[/bold] {until}", highlight=False)
        if first.failure:
            out.print(Padding(escape(first.failure.message or first.failure.reason), (0, 0, 0, 2)), highlight=False)
        more = f"  … and {len(keys) - LISTED} more" if len(keys) > LISTED else ""
        out.print(Padding(f"{escape('  '.join(keys[:LISTED]))}{more}", (0, 0, 0, 2)), highlight=False)
    if wanted := [one for one in not_landed if not one.window.is_deleted(facts.now)]:
        is_refused = any(_is_refused(one) for one in not_landed)
        when = "Correct what was refused, then run" if is_refused else "Run"
        out.print(f"\n{when}: {pull_command(facts, wanted)}", highlight=False, soft_wrap=True)


def _cause(one: WindowRow) -> tuple[str, str]:
    """What windows share that are told together: the state, and the reason of the failure."""
    if one.failure is None:
        return one.state, ""
    return f"{one.state}{', refused' if _is_refused(one) else ''}", one.failure.reason


def _is_refused(one: WindowRow) -> bool:
    return one.failure is not None and one.failure.verdict == "refused"


def _as_json(
    windows: Sequence[WindowRow],
    not_landed: Sequence[WindowRow],
    unpublished: Sequence[date],
    branches: Branches,
) -> dict[str, object]:
    return {
        "windows": [
            {"kind": kind, "state": state, "windows": len(of_state)} for kind, state, of_state in _counts(windows)
        ],
        "not_landed": [
            {
                "kind": one.kind,
                "partition": one.window.partition_key,
                "branch": branches.names.get(one.window.scope.key, one.window.scope.key),
                "state": one.state,
                "attempts": one.failure.attempts if one.failure else 0,
                "last_error": (one.failure.message or one.failure.reason) if one.failure else None,
                "is_refused": _is_refused(one),
                "deleted_from_at": (one.window.start + RETENTION).isoformat(),
            }
            for one in not_landed
        ],
        "days_not_published": [day.isoformat() for day in unpublished],
    }
