"""Count the windows of each state: `coverage`."""

import json
import sys
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta

import click
from rich.markup import escape
from rich.padding import Padding

from leads_pipeline.cli.health import json_option, known
from leads_pipeline.cli.output import out, plain_errors, table
from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.domain.window import RETENTION
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
    """Count landed, empty, failed and missing windows; tell how long they can be had.

    From the files as they are now. Makes nothing. Exit code 0 if every window that is over has landed and is published,
    1 if one has not, 2 if nothing can be told.
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
        _show_not_landed(not_landed, facts.now, branches)
        if unpublished:
            out.print(
                f"Landed and not published yet: {', '.join(map(str, unpublished))}. The service publishes them within "
                "minutes. Without it, run `leads-pipeline backfill --last 1d`."
            )
    sys.exit(1 if not_landed or unpublished else 0)


_NOT_LANDED = (WindowState.FAILED, WindowState.MISSING)


def _counts(windows: Sequence[WindowRow]) -> Iterator[tuple[str, WindowState, list[WindowRow]]]:
    for kind in LEAD_KINDS:
        for state in WindowState:
            if counted := [one for one in windows if (one.kind, one.state) == (kind.name, state)]:
                yield kind.name, state, counted


def _show_counts(windows: Sequence[WindowRow]) -> None:
    rows = []
    for kind, state, counted in _counts(windows):
        looks = [one.looked_at for one in counted if one.looked_at is not None]
        looked_at = (f"{min(looks):%m-%d %H:%M}", f"{max(looks):%m-%d %H:%M}") if looks else ("never", "")
        rows.append((kind, state, len(counted), *looked_at))
    out.print(table(("kind", "state", "windows", "looked at (UTC), from", "to"), rows))


def _show_not_landed(not_landed: Sequence[WindowRow], now: datetime, branches: Branches) -> None:
    """What isn't landed, a paragraph a cause, soonest deleted first, and the command that pulls it."""
    causes: dict[tuple[str, str, str], list[WindowRow]] = {}
    for one in not_landed:
        causes.setdefault((one.kind, *_cause(one)), []).append(one)
    for (kind, state, _), windows in causes.items():
        first, keys = windows[0], [branches.shown_window(one.window.partition_key) for one in windows]
        which = "it" if len(windows) == 1 else "the first of them"
        days_left = max(0.0, first.window.days_left(now))
        when = f"in {days_left:.0f} days" if days_left >= 2 else f"in {24 * days_left:.0f} hours"
        until = f"The portal deletes {which} {when if days_left else 'at this moment'}."
        if windows[-1].window.is_deleted(now):
            until = "The portal has deleted what they hold."
        out.print(f"\n[bold]{len(windows)} {kind} {state}.[/bold] {until}", highlight=False)
        if first.failure:
            out.print(Padding(escape(first.failure.message or first.failure.reason), (0, 0, 0, 2)), highlight=False)
        more = f"  … and {len(keys) - LISTED} more" if len(keys) > LISTED else ""
        out.print(Padding(f"{escape('  '.join(keys[:LISTED]))}{more}", (0, 0, 0, 2)), highlight=False)
    if wanted := [one.window.day for one in not_landed if not one.window.is_deleted(now)]:
        is_refused = any(_is_refused(one) for one in not_landed)
        when = "Correct what was refused, then pull" if is_refused else "Pull"
        out.print(f"\n{when} them now: leads-pipeline backfill --from {wanted[0]} --to {wanted[-1]}", highlight=False)


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
            {"kind": kind, "state": state, "windows": len(counted)} for kind, state, counted in _counts(windows)
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
