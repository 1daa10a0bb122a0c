"""Count the windows of each state: `coverage`."""

import json
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta

import click
from rich.markup import escape
from rich.padding import Padding

from leads_pipeline.cli.output import out, plain_errors, table
from leads_pipeline.cli.session import LISTED_FAILURES, Session
from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.domain.window import RETENTION, Window, days
from leads_pipeline.orchestration.publication import unpublished_days
from leads_pipeline.storage.branches import Branches
from leads_pipeline.storage.windows import WindowRow, WindowState, window_table

# A century: no installation is older, and the calendar ends somewhere.
MAX_COVERAGE_DAYS = 36_525


@click.command()
@click.option(
    "--days",
    "count",
    type=click.IntRange(0, MAX_COVERAGE_DAYS),
    default=RETENTION.days,
    show_default=True,
    help="How many days back, today not counted.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def coverage(count: int, as_json: bool) -> None:
    """Count landed, empty, failed and missing windows; tell how long they can be had.

    From the files as they are now. Exit code 1 if a window is failed or missing, or landed and not
    published.
    """
    now = datetime.now(UTC)
    with plain_errors(), Session.opened() as session:
        first = max(session.first_day, session.today - timedelta(days=count))
        scopes, zone = session.settings.scopes, session.settings.zone
        shown = [Window.of(day, scope, zone) for day in days(first, session.today) for scope in scopes]
        windows = [row for kind in LEAD_KINDS for row in window_table(session.data.store, kind, shown, now)]
        not_landed = sorted((row for row in windows if row.state in _NOT_LANDED), key=lambda row: row.window)
        unpublished = unpublished_days(session.data)
        branches = session.branches()
    if as_json:
        click.echo(json.dumps(_as_json(windows, not_landed, unpublished, branches), indent=2))
    else:
        _show_counts(windows)
        _show_not_landed(not_landed, now, branches)
        if unpublished:
            out.print(
                f"Landed and not published yet: {', '.join(map(str, unpublished))}. The daemon does it within minutes, "
                "and so does any `leads-pipeline backfill`."
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
        rows.append((kind, state, len(counted), sum(one.leads for one in counted), *looked_at))
    out.print(table(("kind", "state", "windows", "leads", "looked at (UTC), from", "to"), rows))


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
        more = f"  … and {len(keys) - LISTED_FAILURES} more" if len(keys) > LISTED_FAILURES else ""
        out.print(Padding(f"{escape('  '.join(keys[:LISTED_FAILURES]))}{more}", (0, 0, 0, 2)), highlight=False)
    if wanted := [one.window.day for one in not_landed if not one.window.is_deleted(now)]:
        is_refused = any(_is_refused(one) for one in not_landed)
        when = "Once what was refused is put right, take" if is_refused else "Take"
        out.print(
            f"\n{when} them up with: leads-pipeline backfill --from {wanted[0]} --to {wanted[-1]}", highlight=False
        )


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
            {"kind": kind, "state": state, "windows": len(counted), "leads": sum(one.leads for one in counted)}
            for kind, state, counted in _counts(windows)
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
