"""Findings about windows and their raw files: refused, failing, missing, damaged and lost ones.

Belongs here: the finders that look at the table of windows. Doesn't: the other finders
(findings.py).
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import date, datetime, timedelta
from typing import Final

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.domain.due import due_at, next_fetch
from leads_pipeline.domain.window import RETENTION, day_interval
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.finding import Finding, Level, finder
from leads_pipeline.raw.starting import how_to_start, name_in_dagster
from leads_pipeline.raw.windows import WindowRow, WindowState
from leads_pipeline.warehouse.duck import statement
from leads_pipeline.words import NAMES_SHOWN, counted, moment, some

_OVERDUE: Final = timedelta(days=1)


@finder("windows-refused")
def windows_refused(facts: Facts) -> Iterator[Finding]:
    """The portal refuses windows.

    Meaning: the portal answers 403, for example, or 401 to two tokens in a row. A branch id is
    wrong, the client may not read the branch or this kind of leads, or the credentials are refused.
    No lead is lost before the portal deletes it after 30 days. The branch's missing windows, which
    nobody asked for since, are counted with them.
    Do: correct the setting that the message names, or ask the portal for access. Save a new secret
    over the old one. Then restart the service: it asks again within five minutes, without a restart
    once a day. `leads-pipeline doctor` tries the secret and the token.
    Over: when the windows land, or the branch is no longer configured.
    """
    by_reason: defaultdict[str, list[WindowRow]] = defaultdict(list)
    for row in _failed(facts, "refused"):
        by_reason[row.reason].append(row)

    for reason, refused in by_reason.items():
        branches = {(row.kind, row.scope) for row in refused}
        rows = refused + [row for row in facts.windows if _is_missing_of(branches, facts, row)]
        then = "Then restart the service" if facts.is_served else how_to_pull(facts, rows)
        yield Finding(
            Level.ERROR,
            f"The portal refuses {_windows(facts, rows)}. {_messages(rows)} "
            f"{deletion(facts, rows)}",
            f"Do what the message says. {then}.",
            _first_failed_at(rows),
            key=reason,
        )


@finder("windows-failing")
def windows_failing(facts: Facts) -> Iterator[Finding]:
    """Windows fail with temporary errors.

    Meaning: the portal, or the network on the way to it, doesn't answer as it should. The service
    asks again after 10 minutes, then less often, down to twice a day. No lead is lost before the
    portal deletes it after 30 days.
    Do: nothing for a day. Then ask the portal. Once it works again, `leads-pipeline coverage`
    prints the command that pulls the windows now.
    Over: when the windows land.
    """
    if rows := _failed(facts, "temporary"):
        asks_at = f"{_asks_at(facts, rows):%H:%M} UTC"
        yield Finding(
            Level.ERROR,
            f"Pulling fails for {_windows(facts, rows)}. {_messages(rows)} {deletion(facts, rows)}",
            _pull(
                facts,
                rows,
                f"The service asks again at {asks_at}. {how_to_pull(facts, rows)} to ask now.",
            ),
            _first_failed_at(rows),
            may_pass=True,
        )


@finder("windows-missing")
def windows_missing(facts: Facts) -> Iterator[Finding]:
    """Windows were not pulled, or not looked at again.

    Meaning: an error if nobody tried to pull a window for more than a day. A warning if windows
    that landed should have been looked at again: late leads would be missed. A hint at a first
    start, after a pause of the machine, or with a new branch: the service pulls these windows
    within minutes. While a pull is under way, an error comes a day later.
    Do: see that the service runs, and that `retry_failed_partitions` is on in the Dagster UI. Or
    pull them by hand. If a pull hangs, or somebody has suspended a `backfill`, all others wait for
    it: the message says how to find it.
    Over: when the windows land.
    """
    # A pull that is under way may bring them. One that is stopped or hangs keeps all others
    # waiting.
    is_pulling = facts.data.state.is_pulling()
    overdue_before = facts.now - (2 * _OVERDUE if is_pulling else _OVERDUE)
    never_pulled = dict[WindowRow, datetime]()
    not_looked_at_again = dict[WindowRow, datetime]()
    just_due = list[WindowRow]()

    for row, due in _due_and_not_told(facts):
        is_overdue = due <= overdue_before and facts.is_expected(row)
        if is_overdue and row.fetched_at:
            not_looked_at_again[row] = due
        elif is_overdue:
            never_pulled[row] = due
        elif row.state is WindowState.MISSING and not is_pulling:
            just_due.append(row)

    if never_pulled:
        rows = [*never_pulled]
        message = f"{_are(facts, rows)} missing for more than a day. {deletion(facts, rows)}"
        what_to_do = _what_to_do_if_overdue(facts, rows, is_pulling=is_pulling)
        yield Finding(Level.ERROR, message, what_to_do, min(never_pulled.values()), may_pass=True)

    if not_looked_at_again:
        rows = [*not_looked_at_again]
        message = (
            f"Not looked at again, so that late leads would be missed: {_windows(facts, rows)}. "
            f"{_messages(rows)}"
        )
        what_to_do = _what_to_do_if_overdue(facts, rows, is_pulling=is_pulling)
        yield Finding(
            Level.WARNING,
            message.rstrip(),
            what_to_do,
            min(not_looked_at_again.values()),
            key="looks",
            may_pass=True,
        )

    if just_due:
        message = f"{_are(facts, just_due)} not pulled yet. {deletion(facts, just_due)}"
        yield Finding(Level.HINT, message, _pull(facts, just_due, _BY_ITSELF), key="first")


def _due_and_not_told(facts: Facts) -> Iterator[tuple[WindowRow, datetime]]:
    """Yield the windows that are due, and since when, but those that other findings tell of."""
    refused = _failed(facts, "refused")
    told_reasons = {row.reason for row in (*refused, *_failed(facts, "temporary"))}
    refused_branches = {(row.kind, row.scope) for row in refused}

    for row in facts.windows:
        # Whatever failed, and however long it would wait.
        due = due_at(row.window, row.fetched_at, failure=None, started_at=facts.now, now=facts.now)
        if due is None or due > facts.now:
            continue
        is_damaged = (row.kind, row.day, row.scope) in facts.damaged_windows
        # Also a window that landed, and whose later fetch failed as others do.
        is_failing = row.state is WindowState.FAILED or row.reason in told_reasons
        if not (is_damaged or is_failing or _is_missing_of(refused_branches, facts, row)):
            yield row, due


@finder("windows-lost", stays=True)
def windows_lost(facts: Facts) -> Iterator[Finding]:
    """The portal deleted windows before they landed.

    Meaning: leads of that day are lost, unless the portal pushed them. Figures of that day are too
    low.
    Do: ask the portal whether it can still send them. Then hide it with `leads-pipeline acknowledge
    KEY`.
    Over: when a person acknowledges it.
    """
    lost = [
        (row.kind, row.day, row.scope)
        for row in facts.recent
        if row.window.is_deleted(facts.now) and facts.is_expected(row)
        if row.state not in (WindowState.LANDED, WindowState.EMPTY) and not _is_damage(row)
    ]
    kinds = {one.name for one in facts.kinds}
    rows = facts.leads_duckdb.rows(statement("findings/windows_lost"), {"day": facts.first_checked})
    lost += [(kind, day, scope) for kind, day, scope in rows if kind in kinds]
    by_day: defaultdict[date, list[str]] = defaultdict(list)

    for kind, day, scope in lost:
        if (kind, day, scope) not in facts.damaged_windows:  # their leads stay published
            by_day[day].append(f"{kind} {facts.branches.shown(scope)}")

    for day, named in sorted(by_day.items()):
        yield Finding(
            Level.ERROR,
            f"Leads of {day} are lost: the portal deleted {some(named)} before it was landed "
            "whole.",
            "Ask the portal whether it still has them. Then hide it: `leads-pipeline acknowledge "
            f"windows-lost/{day}`.",
            day_interval(day, facts.zone)[1] + RETENTION,
            key=str(day),
        )


@finder("files-damaged", is_verified=True)
def files_damaged(facts: Facts) -> Iterator[Finding]:
    """Raw files are damaged or missing.

    Meaning: the disk fails, or somebody changed files by hand. A damaged file is in `quarantine/`.
    Leads that were published stay in leads.duckdb. If a window older than 35 days is missing, the
    publication of the night notices it.
    Do: check the disk. While the portal has the window, pull it again with the command of the
    finding. Otherwise copy the file from a backup to the same place below `raw/`: the publication
    of the night reads it.
    Over: when each damaged file was replaced, or you deleted from `quarantine/` the files that
    can't be replaced.
    """
    windows = {(row.kind, row.day, row.scope): row for row in facts.windows}
    to_pull = dict[WindowRow, None]()
    left = list[str]()
    others = list[str]()

    for one in facts.damaged:
        if one.place is None:
            others.append(one.key)
        elif one.window in windows and not one.is_pushed:
            to_pull[windows[one.window]] = None
        elif one.place.kind in facts.kinds:
            left.append(one.key)

    if rows := [*to_pull]:
        until = (
            f"The portal has {'it' if len(rows) == 1 else 'the first of them'} until "
            f"{_deleted_at(rows):%Y-%m-%d} UTC."
        )
        yield Finding(
            Level.ERROR,
            f"Raw files of {_windows(facts, rows)} are damaged or missing. {_STAY}",
            f"{_pull(facts, rows, _BY_ITSELF)} {until} Check the disk.",
        )

    if left:
        yield Finding(
            Level.ERROR,
            f"{counted(len(left), 'raw file')} can't be pulled again, and "
            f"{'is' if len(left) == 1 else 'are'} damaged or missing: {some(left)}. {_STAY}",
            "Copy them from a backup to the same places below raw/. The publication of the night "
            "reads them.",
            key="backup",
        )

    if others:
        yield Finding(
            Level.ERROR,
            f"{counted(len(others), 'file')} in quarantine/ {'is' if len(others) == 1 else 'are'} "
            f"of no window: {some(others)}.",
            "Look into them, then delete them or move them away.",
            key="others",
        )


_BY_ITSELF: Final = "Nothing: the service pulls within minutes."
_STAY: Final = "Leads that were published stay in leads.duckdb."


def _is_damage(row: WindowRow) -> bool:
    """Whether a damaged file is the window's only failure. files-damaged tells of it."""
    return row.failure is not None and row.failure.attempts == 0


def _is_missing_of(branches: Collection[tuple[str, str]], facts: Facts, row: WindowRow) -> bool:
    """Whether the window is missing and of these branches, by kind and scope."""
    return (
        row.state is WindowState.MISSING
        and (row.kind, row.scope) in branches
        and facts.is_expected(row)
    )


def _failed(facts: Facts, verdict: str) -> list[WindowRow]:
    """Return the windows whose last request failed in this way."""
    return [
        row
        for row in facts.windows
        if row.state is WindowState.FAILED
        and row.failure
        and row.failure.verdict == verdict
        and not _is_damage(row)
    ]


def _what_to_do_if_overdue(facts: Facts, rows: Sequence[WindowRow], *, is_pulling: bool) -> str:
    if is_pulling:
        lock = facts.data.state.path / "locks" / "pull.lock"
        return (
            f"A pull is under way, and others wait for it. If it hangs, end it: `fuser {lock}` "
            "names its process."
        )
    sensor = name_in_dagster(facts.data.state, "retry_failed_partitions")
    return _pull(facts, rows, f"See that `{sensor}` is on in the Dagster UI.")


def _pull(facts: Facts, rows: Sequence[WindowRow], if_served: str) -> str:
    return if_served if facts.is_served else f"{how_to_pull(facts, rows)}."


def _are(facts: Facts, rows: Sequence[WindowRow]) -> str:
    return f"{_windows(facts, rows)} {'is' if len(rows) == 1 else 'are'}"


def _windows(facts: Facts, rows: Sequence[WindowRow]) -> str:
    """Say which: `6 applicant windows of branch-101 (York), 2026-11-19 to 2026-11-21`."""
    kinds = " and ".join(sorted({row.kind for row in rows}))
    scopes = sorted({facts.branches.shown(row.scope) for row in rows})
    return f"{counted(len(rows), f'{kinds} window')} of {some(scopes)}, {_days(rows)}"


def _messages(rows: Iterable[WindowRow]) -> str:
    """Say why they failed, each reason once, with the message of its first window."""
    messages = {row.reason: row.failure.message or f"{row.reason}." for row in rows if row.failure}
    return " ".join(messages.values())


def _deleted_at(rows: Iterable[WindowRow]) -> datetime:
    return min(row.window.start for row in rows) + RETENTION


def deletion(facts: Facts, rows: Sequence[WindowRow]) -> str:
    """Say when the portal deletes these windows."""
    their = "its" if len(rows) == 1 else "their"
    begins = _deleted_at(rows)
    if begins <= facts.now:
        return f"The portal is already deleting {their} leads."
    return f"The portal begins to delete {their} leads on {moment(begins)}."


def pull_command(facts: Facts, rows: Sequence[WindowRow]) -> str:
    """Return the command that pulls these windows.

    It pulls other windows of the days between, and of all scopes if these are too many to name.
    """
    command = (
        f"leads-pipeline backfill --from {min(row.day for row in rows)} --to "
        f"{max(row.day for row in rows)}"
    )
    kinds = sorted({row.kind for row in rows})
    command += "".join(f" --scope {scope}" for scope in _scopes_if_few(facts, rows))
    if len(kinds) < len(LEAD_KINDS):
        command += "".join(f" --kind {kind}" for kind in kinds)
    return command


def how_to_pull(facts: Facts, rows: Sequence[WindowRow]) -> str:
    """Return what a person does to pull these windows now. No dot is at its end."""
    partitions = _days(rows)
    if scopes := _scopes_if_few(facts, rows):
        partitions += f" of {', '.join(scopes)}"
    return how_to_start(facts.data.state, "pull_leads", pull_command(facts, rows), partitions)


def _scopes_if_few(facts: Facts, rows: Sequence[WindowRow]) -> list[str]:
    """Return the scopes of these windows, by key.

    Empty if they are all scopes, or too many to name.
    """
    scopes = sorted({row.scope for row in rows})
    return scopes if len(scopes) < min(len(facts.scopes), NAMES_SHOWN) else []


def _days(rows: Sequence[WindowRow]) -> str:
    first = min(row.day for row in rows)
    last = max(row.day for row in rows)
    until = f" to {last}" if last != first else ""
    return f"{first}{until}"


def what_comes_next(rows: Sequence[WindowRow], now: datetime) -> list[str]:
    """Say in sentences when the service asks for these windows again, or why it doesn't."""
    deleted = list[WindowRow]()
    landed = list[WindowRow]()
    others = list[WindowRow]()
    for row in rows:
        if row.window.is_deleted(now):
            deleted.append(row)
        elif row.has_its_fetches(now):
            landed.append(row)
        else:
            others.append(row)

    sentences = []
    if others:
        first_at = min(filter(None, (_asked_at(row, now) for row in others)), default=now)
        from_then = moment(max(now, first_at))
        sentences.append(
            f"The service asks for {counted(len(others), 'window')} again, from {from_then} on."
        )

    if any(_is_asked_after_a_restart(row, now) for row in others):
        sentences.append(
            "After a restart, for example with a corrected secret, it asks for refused ones at "
            "once."
        )

    if landed:
        sentences.append(
            f"Landed before: {counted(len(landed), 'window')}. Their leads stay. The next "
            "automatic run shows them as landed, and doesn't ask for them."
        )

    if deleted:
        sentences.append(
            f"Nobody asks for {counted(len(deleted), 'window')} again: the portal has deleted them."
        )

    return sentences


def not_landed(facts: Facts, day: date) -> list[WindowRow]:
    """Return the expected windows of that day that have not landed."""
    landed = (WindowState.LANDED, WindowState.EMPTY)
    return [
        row
        for row in facts.windows
        if row.day == day and facts.is_expected(row) and row.state not in landed
    ]


def what_to_do_about(facts: Facts, rows: Sequence[WindowRow]) -> str:
    """Say which windows have not landed, why, and what to do."""
    what_comes = what_comes_next(rows, facts.now) if facts.is_served else ()
    sentences = [
        f"{_windows(facts, rows)}: not landed.",
        _messages(rows),
        *what_comes,
        f"{how_to_pull(facts, rows)} to pull now.",
    ]
    return " ".join(filter(None, sentences))


def _asked_at(row: WindowRow, now: datetime) -> datetime | None:
    """Return when the service asks for the window again, if it isn't restarted."""
    not_restarted = row.failure.failed_at if row.failure else now
    return due_at(row.window, row.fetched_at, row.failure, not_restarted, now)


def _is_asked_after_a_restart(row: WindowRow, now: datetime) -> bool:
    if row.failure is None or row.failure.verdict != "refused":
        return False
    fetch = next_fetch(row.window, row.fetched_at, row.failure, now)
    return fetch is not None and fetch <= now


def _first_failed_at(rows: Iterable[WindowRow]) -> datetime:
    return min(row.failure.first_failed_at for row in rows if row.failure)


def _asks_at(facts: Facts, rows: Iterable[WindowRow]) -> datetime:
    """Return when the service asks for the first of them again: now if that moment has passed."""
    moments = [_asked_at(row, facts.now) for row in rows if row.failure]
    return max(facts.now, min(filter(None, moments), default=facts.now))
