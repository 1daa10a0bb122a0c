"""Windows from the command line: `backfill` pulls them, `coverage` counts them."""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta

import click
from rich.markup import escape
from rich.padding import Padding

from leads_pipeline.cli.session import LISTED_FAILURES, Session, out, plain_errors, show_report, table
from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.domain.window import RETENTION, Window, days
from leads_pipeline.orchestration.publication import unpublished_days
from leads_pipeline.storage.branches import Branches
from leads_pipeline.storage.windows import WindowRow, WindowState, window_table

# What else than leads a backfill can pull.
INVENTORY = "inventory"

# A century: no installation is older, and the calendar ends somewhere.
MAX_COVERAGE_DAYS = 36_525


class _Day(click.ParamType[date]):
    name = "day"

    def convert(self, value: str | date, param: click.Parameter | None, ctx: click.Context | None) -> date:
        if isinstance(value, date):
            return value
        try:
            return date.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not a day. Write 2026-11-19.", param, ctx)


class _Days(click.ParamType[timedelta]):
    name = "days"

    def convert(self, value: str | timedelta, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        match = re.fullmatch(r"([1-9][0-9]{0,4})d", value, re.ASCII)
        if match is None:
            self.fail(f"{value!r} is not a number of days. Write 10d.", param, ctx)
        return timedelta(days=int(match[1]))


@click.command(short_help="Pull days of leads and publish them, without the UI.")
@click.option("--from", "first", type=_Day(), help="First day, as 2026-11-01.")
@click.option("--to", "last", type=_Day(), help="Last day, included.")
@click.option("--last", "recent", type=_Days(), help="Instead of --from and --to: the last days and today, as 10d.")
@click.option("--scope", "scope_keys", multiple=True, help="Only this scope, as branch-101; repeat for more.")
@click.option(
    "--kind",
    "kind_names",
    multiple=True,
    type=click.Choice([*(kind.name for kind in LEAD_KINDS), INVENTORY]),
    help="Only this kind; repeat for more. Else all that is configured, the inventory where today is among the days.",
)
def backfill(
    first: date | None,
    last: date | None,
    recent: timedelta | None,
    scope_keys: Sequence[str],
    kind_names: Sequence[str],
) -> None:
    """Pull days of leads and publish them in leads.duckdb, without the Dagster UI."""
    with plain_errors(), Session.opened() as session:
        scopes = session.chosen_scopes(scope_keys)
        first, last = _chosen_days(session, first, last, recent)
        if INVENTORY in kind_names and last < session.today:
            raise click.UsageError(
                f"--kind {INVENTORY}: the API knows the present only. Have --to name today, {session.today}."
            )
        kinds = [kind for kind in LEAD_KINDS if not kind_names or kind.name in kind_names]
        windows = [Window.of(day, scope, session.settings.zone) for day in days(first, last) for scope in scopes]
        report, troubles = session.pull(dict.fromkeys(kinds, windows)), list[str]()
        if INVENTORY in kind_names or (not kind_names and last == session.today and not session.settings.no_inventory):
            troubles += session.pull_inventory()
        troubles += session.refresh()
        show_report(report, troubles, session.branches())
    sys.exit(0 if report.succeeded and not troubles else 1)


def _chosen_days(
    session: Session, first: date | None, last: date | None, recent: timedelta | None
) -> tuple[date, date]:
    """The first and the last day that were asked for. Recent days before the first partition don't count."""
    if recent is not None and first is None and last is None:
        return max(session.first_day, session.today - recent), session.today
    if first is None or last is None or recent is not None:
        raise click.UsageError("Name the days: either --last 10d, or --from and --to.")
    if last < first:
        raise click.UsageError(f"--to {last} lies before --from {first}.")
    for day, name in ((first, "--from"), (last, "--to")):
        if not session.first_day <= day <= session.today:
            raise click.UsageError(
                f"{name} {day} is no partition: they go from {session.first_day}, which LEADS_START_DATE sets, to "
                f"{session.today}, which is today in {session.settings.zone.key}."
            )
    return first, last


@click.command(short_help="Count landed, empty, failed and missing windows.")
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
