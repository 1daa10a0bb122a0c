"""What a person asks of a ledger: counts, lists, sending again.

Belongs here: queries of commands, findings, figures and receipts. Doesn't: what a sender notes
(ledger.py).
"""

# ruff: noqa: S608 - only our own names are in the statements

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import NamedTuple

from leads_pipeline.features.delivery.ledger import ERASED, Ledger, VersionState


class Left(NamedTuple):
    """A version that isn't delivered."""

    kind: str
    lead_id: str
    day: str
    state: str
    attempts: int
    trouble: str


class Attempt(NamedTuple):
    """An attempt to deliver a version. `status` is None without an answer."""

    at: datetime
    status: int | None
    content_type: str
    code: str
    trouble: str | None


class VersionStory(NamedTuple):
    """A version, and what came of it. `id_there` is its lead's id in the destination's system."""

    version: str
    day: str
    state: str
    delivered_at: datetime | None
    attempts: list[Attempt]
    id_there: str | None


class FirstDelivery(NamedTuple):
    """When a lead was first delivered, and the earliest day of a delivered lead."""

    at: datetime
    lead_day: datetime


class Erasure(NamedTuple):
    """A lead whose erasure the destination is told of; which host confirmed it, and when."""

    lead: tuple[str, str]
    state: str
    host: str | None
    confirmed_at: datetime | None


@dataclass(frozen=True, slots=True)
class Retried:
    """What `deliver retry` did: `again` counts held and given up versions, `waiting` the others.

    `was_gone`: the destination was stopped by 410. `was_paused`: it was left alone for a while.
    """

    again: int
    waiting: int
    was_gone: bool
    was_paused: bool


@dataclass(frozen=True, slots=True)
class Selection:
    """Which leads are sent again. What is None chooses nothing by itself."""

    first: date | None = None
    last: date | None = None
    kind: str | None = None
    lead_id: str | None = None
    scope: str | None = None


def counts(ledger: Ledger) -> dict[VersionState, int]:
    """Count the versions in each state."""
    found = dict(
        ledger.db.execute("select state, count(*) from versions group by state").fetchall()
    )
    return {state: int(found.get(state.value, 0)) for state in VersionState}


def undelivered(ledger: Ledger) -> int:
    """Count the versions that aren't delivered, held and given up ones among them."""
    found = counts(ledger)
    return found[VersionState.WAITING] + found[VersionState.HELD] + found[VersionState.DEAD]


def oldest_waiting(ledger: Ledger) -> datetime | None:
    """Return since when the oldest waiting version waits. None if none waits."""
    (oldest,) = ledger.db.execute(
        "select min(due_at) from versions where state = 'waiting'"
    ).fetchone()
    return _moment(oldest)


def first_delivery(ledger: Ledger) -> FirstDelivery | None:
    """Return what was first. None if nothing was delivered."""
    (at, day) = ledger.db.execute(
        "select min(delivered_at), min(day) from versions "
        "where delivered_at is not null and version <> 'erased'"
    ).fetchone()
    if at is None:
        return None
    return FirstDelivery(
        datetime.fromtimestamp(at, UTC), datetime.fromisoformat(day).replace(tzinfo=UTC)
    )


def last_delivered(ledger: Ledger) -> datetime | None:
    """Return when a version was last delivered."""
    (last,) = ledger.db.execute("select max(delivered_at) from versions").fetchone()
    return _moment(last)


def left(ledger: Ledger, most: int) -> list[Left]:
    """Return versions that aren't delivered, oldest first."""
    rows = ledger.db.execute(
        "select kind, lead_id, day, state, attempts, coalesce(trouble, '') from versions "
        "where state in ('waiting', 'held', 'given up') order by number limit ?",
        (most,),
    )
    return [Left(*row) for row in rows]


def retry(ledger: Ledger, now: float) -> Retried:
    """Let versions that were given up or held wait again.

    Send what waits at once, also after 410.
    """
    was_gone = ledger.fact("gone") is not None
    was_paused = float(ledger.fact("pause_until") or 0) > now
    ledger.set_fact("gone", None)
    ledger.set_fact("pause_until", None)
    ledger.make_all_ready()
    waiting = ledger.db.execute(
        "update versions set due_at = ? where state = 'waiting'", (now,)
    ).rowcount

    again = ledger.db.execute(
        "update versions set state = 'waiting', due_at = ?, attempts = 0, next_at = 0 "
        "where state in ('given up', 'held')",
        (now,),
    ).rowcount
    return Retried(again, waiting, was_gone, was_paused)


def replay(ledger: Ledger, chosen: Selection, now: float) -> int:
    """Let the newest delivered version of each chosen lead wait again. Return how many."""
    values = {
        "now": now,
        "first": chosen.first and chosen.first.isoformat(),
        "last": chosen.last and chosen.last.isoformat(),
        "kind": chosen.kind,
        "lead_id": chosen.lead_id,
        "scope": chosen.scope,
    }
    return ledger.db.execute(
        """
        update versions set state = 'waiting', due_at = :now, attempts = 0, next_at = 0
        where state = 'delivered' and version <> 'erased'
            and (:first is null or day >= :first) and (:last is null or day <= :last)
            and (:kind is null or kind = :kind) and (:lead_id is null or lead_id = :lead_id)
            and (:scope is null or scope = :scope)
            and not exists (
                select 1 from versions as later
                where (later.kind, later.lead_id) = (versions.kind, versions.lead_id)
                    and later.state in ('delivered', 'waiting')
                    and (later.number, later.rowid) > (versions.number, versions.rowid)
            )
        """,
        values,
    ).rowcount


def sent(ledger: Ledger, kind: str, lead_id: str) -> list[tuple[str, datetime]]:
    """Return to which host versions of the lead were delivered, and when, oldest first.

    A host whose answer was lost may have it, and counts.
    """
    rows = ledger.db.execute(
        """
        select host, delivered_at as at
        from versions
        where (kind, lead_id) = (?1, ?2) and delivered_at is not null and version <> 'erased'
        union all
        select host, at from asked where (kind, lead_id) = (?1, ?2)
        order by at
        """,
        (kind, lead_id),
    )
    return [(host, datetime.fromtimestamp(at, UTC)) for host, at in rows]


def story(ledger: Ledger, kind: str, lead_id: str) -> list[VersionStory]:
    """Return each version of a lead with its attempts, oldest first."""
    versions = ledger.db.execute(
        "select version, day, state, delivered_at, id_there "
        "from versions left join ids_there using (kind, lead_id) "
        "where (kind, lead_id) = (?, ?) order by number, versions.rowid",
        (kind, lead_id),
    ).fetchall()
    found = []
    for version, day, state, delivered_at, id_there in versions:
        rows = ledger.db.execute(
            "select at, status, content_type, code, trouble from attempts "
            "where (kind, lead_id, version) = (?, ?, ?) order by at, rowid",
            (kind, lead_id, version),
        )
        attempts = [Attempt(datetime.fromtimestamp(at, UTC), *rest) for at, *rest in rows]
        found.append(VersionStory(version, day, state, _moment(delivered_at), attempts, id_there))
    return found


def erasures(ledger: Ledger) -> list[Erasure]:
    """Return the erasures that the destination is or was told of."""
    rows = ledger.db.execute(
        "select kind, lead_id, state, host, delivered_at from versions where version = ? "
        "order by number",
        (ERASED,),
    )
    return [
        Erasure((kind, lead_id), state, host, _moment(at))
        for kind, lead_id, state, host, at in rows
    ]


def forget_erasure(ledger: Ledger, lead: tuple[str, str]) -> None:
    """Forget that the destination was told of an erasure."""
    for table in ("versions", "attempts"):
        ledger.db.execute(
            f"delete from {table} where (kind, lead_id, version) = (?, ?, ?)",
            (*lead, ERASED),
        )
    ledger.db.execute("delete from ids_there where (kind, lead_id) = (?, ?)", lead)


def known_hosts(ledger: Ledger) -> list[str]:
    """Return the hosts that took something, in the order in which they did last."""
    rows = ledger.db.execute(
        """
        select host
        from (
            select host, delivered_at as at from versions where host is not null
            union all
            select host, at from asked
        )
        group by host
        order by max(at)
        """
    )
    return [host for (host,) in rows]


def known_leads(ledger: Ledger) -> list[tuple[str, str]]:
    """Return kind and id of each lead that wasn't erased."""
    return ledger.db.execute(
        "select kind, lead_id from versions where version <> ? "
        "union select kind, lead_id from asked union select kind, lead_id from outcomes",
        (ERASED,),
    ).fetchall()


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
