"""Findings about windows: refused, failing, late and lost ones.

Belongs here: the finders that look at the table of windows. Doesn't: the other finders (findings.py).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Final

from leads_pipeline.domain.due import due_at
from leads_pipeline.domain.window import RETENTION
from leads_pipeline.observe.finding import Found, Level, finder, some
from leads_pipeline.observe.known import RECENT_DAYS, Known
from leads_pipeline.storage.windows import WindowRow, WindowState
from leads_pipeline.transform.duck import statement

_NOT_LANDED: Final = (WindowState.FAILED, WindowState.MISSING)
_DAYS_BEFORE_DELETION: Final = 3
_OVERDUE: Final = timedelta(days=1)


@finder("windows-refused")
def windows_refused(known: Known) -> Iterator[Found]:
    """The portal refuses windows.

    Meaning: a branch id is wrong, the client may not read the branch, or the credentials are refused. The portal
    deletes the leads after 30 days.
    Do: correct the setting that the message names, or ask the portal for access. Then restart the service: it asks
    again within five minutes. Without a restart it asks once a day.
    Over: when the windows land, or the branch is no longer configured.
    """
    by_reason: defaultdict[str, list[WindowRow]] = defaultdict(list)
    for row in known.windows:
        if row.state is WindowState.FAILED and row.failure and row.failure.verdict == "refused":
            by_reason[row.reason].append(row)
    for reason, rows in by_reason.items():
        yield Found(
            Level.ERROR,
            f"The portal refuses {_windows(known, rows)}. {_messages(rows)} {_deletion(known, rows)}",
            f"Do what the message says. Then restart the service, or run `{_backfill(rows)}`.",
            _first_failed_at(rows),
            part=reason,
        )


@finder("windows-failing")
def windows_failing(known: Known) -> Iterator[Found]:
    """Windows fail with temporary errors.

    Meaning: the portal, or the network on the way to it, doesn't answer as it should. The service asks again after 10
    minutes, then less often, down to twice a day. No lead is lost before the portal deletes it after 30 days.
    Do: nothing for a day. After that, ask the portal.
    Over: when the windows land.
    """
    rows = [
        row
        for row in known.windows
        if row.state is WindowState.FAILED and row.failure and row.failure.verdict == "temporary"
    ]
    if rows:
        yield Found(
            Level.ERROR,
            f"Pulling fails for {_windows(known, rows)}. {_messages(rows)} {_deletion(known, rows)}",
            f"The service asks again by itself. Without it, run `{_backfill(rows)}`. If it lasts for more than a day, "
            "ask the portal.",
            _first_failed_at(rows),
            may_pass=True,
        )


@finder("windows-overdue")
def windows_overdue(known: Known) -> Iterator[Found]:
    """Windows were not pulled in time.

    Meaning: windows should have been pulled, or looked at again, more than a day ago, and nobody tried. Late leads
    would be missed.
    Do: see that the service runs, and that `retry_failed_partitions` is on in the Dagster UI. Or pull them by hand.
    Over: when the windows land.
    """
    if known.is_pulling:
        return
    late: list[tuple[datetime, WindowRow]] = []
    for row in known.windows:
        at = due_at(row.window, row.looked_at, None, known.now, known.now)
        if row.state is not WindowState.FAILED and known.is_expected(row) and at and at <= known.now - _OVERDUE:
            late.append((at, row))
    rows = [row for _, row in late]
    missing = [row for row in rows if row.state is WindowState.MISSING]
    if rows:
        first = (
            f"{len(missing)} were never pulled. {_deletion(known, missing)}" if missing else "All were pulled before."
        )
        yield Found(
            Level.ERROR if missing else Level.WARNING,
            f"More than a day late: {_windows(known, missing or rows)}. {first}",
            f"See that the service runs. Or pull them now: `{_backfill(rows)}`.",
            min(at for at, _ in late),
            may_pass=True,
        )


@finder("windows-deleted-soon")
def windows_deleted_soon(known: Known) -> Iterator[Found]:
    """The portal soon deletes windows that have not landed.

    Meaning: the portal deletes leads after 30 days. Windows that have not landed are within three days of it.
    Do: pull them now. If that fails, the message of the failure says why. Ask the portal to send the leads in another
    way.
    Over: when the windows land. If the portal deletes them first, they become `windows-lost`.
    """
    rows = [
        row
        for row in known.windows
        if row.state in _NOT_LANDED and row.days_left <= _DAYS_BEFORE_DELETION and known.is_expected(row)
        if not (known.is_pulling and row.state is WindowState.MISSING)
    ]
    if rows:
        yield Found(
            Level.ERROR,
            f"About to be lost: {_windows(known, rows)}. {_deletion(known, rows)}",
            f"Pull them now: `{_backfill(rows)}`.",
            min(row.window.start for row in rows) + RETENTION - timedelta(days=_DAYS_BEFORE_DELETION),
        )


@finder("windows-lost", stays=True)
def windows_lost(known: Known) -> Iterator[Found]:
    """The portal deleted windows before they landed.

    Meaning: leads of that day are lost, unless the portal pushed them. Figures of that day are too low.
    Do: ask the portal whether it can still send them. Then take note with `leads-pipeline acknowledge KEY`.
    Over: when a person acknowledges it.
    """
    lost: defaultdict[date, list[tuple[str, str]]] = defaultdict(list)
    for row in known.recent:
        # The leads of a damaged window stay published.
        is_damaged = row.state is WindowState.FAILED and row.failure is not None and row.failure.attempts == 0
        is_whole = row.state in (WindowState.LANDED, WindowState.EMPTY)
        if row.window.is_deleted(known.now) and known.is_expected(row) and not (is_whole or is_damaged):
            lost[row.day].append((row.kind, row.scope))
    yield from _lost(known, lost)
    if known.has_published:
        older: defaultdict[date, list[tuple[str, str]]] = defaultdict(list)
        first_day = known.today - timedelta(days=RECENT_DAYS)
        for kind, day, scope in known.query(statement("findings/windows_lost"), {"day": first_day})[1]:
            if kind in {one.name for one in known.kinds}:
                older[day].append((kind, scope))
        yield from _lost(known, older)


def _lost(known: Known, lost: Mapping[date, Sequence[tuple[str, str]]]) -> Iterator[Found]:
    for day, windows in sorted(lost.items()):
        named = [f"{kind} {known.branches.shown(scope)}" for kind, scope in windows]
        yield Found(
            Level.ERROR,
            f"Leads of {day} are lost: the portal deleted {some(named)} before it was landed whole.",
            "Ask the portal whether it still has them. Then take note: "
            f"`leads-pipeline acknowledge windows-lost/{day}`.",
            known.window_end(day) + RETENTION,
            part=str(day),
        )


@finder("windows-not-pulled")
def windows_not_pulled(known: Known) -> Iterator[Found]:
    """Windows can be pulled that nobody asked for yet.

    Meaning: this is a first start, or a new branch. The service pulls these windows within minutes.
    Do: nothing if the service runs. Without it, pull them by hand.
    Over: when the windows land.
    """
    rows = [row for row in known.windows if row.state is WindowState.MISSING and not known.is_expected(row)]
    if rows and not known.is_pulling:
        yield Found(
            Level.HINT,
            f"Not pulled yet: {_windows(known, rows)}. {_deletion(known, rows)}",
            f"The service pulls them by itself. Without it, run `{_backfill(rows)}`.",
        )


def _windows(known: Known, rows: Sequence[WindowRow]) -> str:
    """Say which: `6 applicant windows of branch-101 (York), 2026-11-19 to 2026-11-21`."""
    kinds = " and ".join(sorted({row.kind for row in rows}))
    scopes = sorted({known.branches.shown(row.scope) for row in rows})
    first, last = min(row.day for row in rows), max(row.day for row in rows)
    until = f" to {last}" if last != first else ""
    return f"{len(rows)} {kinds} {'window' if len(rows) == 1 else 'windows'} of {some(scopes)}, {first}{until}"


def _messages(rows: Iterable[WindowRow]) -> str:
    """Say why they failed, each reason once, with the message of its first window."""
    messages = {row.reason: row.failure.message or f"{row.reason}." for row in rows if row.failure}
    return " ".join(messages.values())


def _deletion(known: Known, rows: Sequence[WindowRow]) -> str:
    begins = min(row.window.start for row in rows) + RETENTION
    if begins <= known.now:
        return "The portal is already deleting their leads."
    return f"The portal begins to delete their leads on {begins:%Y-%m-%d %H:%M} UTC."


def _backfill(rows: Sequence[WindowRow]) -> str:
    return f"leads-pipeline backfill --from {min(row.day for row in rows)} --to {max(row.day for row in rows)}"


def _first_failed_at(rows: Iterable[WindowRow]) -> datetime:
    return min(row.failure.first_failed_at for row in rows if row.failure)
