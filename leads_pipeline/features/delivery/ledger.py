"""The ledger: which version of which lead was delivered, and which ones wait.

It holds ids, versions and times, never the text of a lead. Belongs here: the file and its queries. Doesn't: what is due
(due.py), sending (sending.py). A writer holds the lock `delivery`.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from leads_pipeline.errors import StorageError
from leads_pipeline.raw.durable import PRIVATE_FILE_MODE, make_folder, storing

# Below the data folder.
LEDGER: Final = ".state/deliveries.sqlite"

_SCHEMA: Final = """
create table if not exists versions (
    kind text not null, lead_id text not null, version text not null,
    number integer not null, day text not null, scope text not null,
    state text not null, due_at real not null,
    contact integer not null, attempts integer not null default 0, next_at real not null default 0,
    trouble text, delivered_at real, host text,
    primary key (kind, lead_id, version)
);
create index if not exists by_state on versions (state, attempts, number);
create table if not exists windows (kind text, day text, scope text, hash text, primary key (kind, day, scope));
create table if not exists facts (name text primary key, value text);
"""


class VersionState(StrEnum):
    """The state of a version. Held: the portal emptied the contact, and a person has to look first."""

    WAITING = "waiting"
    HELD = "held"
    DELIVERED = "delivered"
    DEAD = "given up"


class Version(NamedTuple):
    """A version of a lead. `number` is that of its raw row, `day` and `scope` are its window's.

    `version` is the hash of the text as received, with a count behind it if the portal went back to an earlier text.
    """

    kind: str
    lead_id: str
    version: str
    number: int
    day: date
    scope: str
    attempts: int = 0
    due_at: float = 0.0


class Ledger:
    """An open ledger. Moments are in seconds since 1970."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db

    def commit(self) -> None:
        """Write all notes to the disk."""
        self.db.commit()

    # --- what is known ------------------------------------------------------------------------------------------------

    def windows(self) -> dict[tuple[str, date, str], str]:
        """Return the hash of each window's files when its versions were noted."""
        rows = self.db.execute("select kind, day, scope, hash from windows")
        return {(kind, date.fromisoformat(day), scope): hash_ for kind, day, scope, hash_ in rows}

    def note_window(self, window: tuple[str, date, str], hash_: str) -> None:
        """Remember that the versions of these files are noted."""
        kind, day, scope = window
        self.db.execute("insert or replace into windows values (?, ?, ?, ?)", (kind, day.isoformat(), scope, hash_))

    def noted(self, kind: str, lead_id: str) -> list[tuple[int, str, int]]:
        """Return number, version and parts of the contact of each noted version of the lead, oldest first.

        Versions whose raw file is damaged are left out.
        """
        return self.db.execute(
            "select number, version, contact from versions where (kind, lead_id) = (?, ?) and number > 0 "
            "order by number, rowid",
            (kind, lead_id),
        ).fetchall()

    def has_earlier(self, version: Version) -> bool:
        """Whether an earlier version of the lead was delivered. A corrected one has the number of the one before."""
        found = self.db.execute(
            "select 1 from versions where (kind, lead_id) = (?, ?) and delivered_at is not null and number <= ? "
            "and version <> ?",
            (version.kind, version.lead_id, version.number, version.version),
        )
        return found.fetchone() is not None

    def add(self, version: Version, state: VersionState, contact: int, now: float) -> None:
        """Note a version that is due, and which parts of the contact it has."""
        self.db.execute(
            "insert or replace into versions (kind, lead_id, version, number, day, scope, state, contact, due_at) "
            "values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*version[:4], version.day.isoformat(), version.scope, state, contact, now),
        )

    def fact(self, name: str) -> str | None:
        """Return a fact about the endpoint or the last look."""
        found: tuple[str] | None = self.db.execute("select value from facts where name = ?", (name,)).fetchone()
        return found[0] if found else None

    def set_fact(self, name: str, value: str | None) -> None:
        """Remember a fact, or forget it."""
        if value is None:
            self.db.execute("delete from facts where name = ?", (name,))
        else:
            self.db.execute("insert or replace into facts values (?, ?)", (name, value))

    # --- sending ------------------------------------------------------------------------------------------------------

    def ready(self, now: float, most: int) -> list[Version]:
        """Return versions to send now: of each lead the oldest that waits, those with the fewest attempts first.

        No wait is longer than an hour. One of more than two comes from a clock that ran ahead.
        """
        rows = self.db.execute(
            """
            select kind, lead_id, version, number, day, scope, attempts, due_at
            from versions as ready
            where state = 'waiting' and (next_at <= ?1 or next_at > ?1 + 2 * 3600) and not exists (
                select 1 from versions as earlier
                where (earlier.kind, earlier.lead_id, earlier.state) = (ready.kind, ready.lead_id, 'waiting')
                    and (earlier.number, earlier.rowid) < (ready.number, ready.rowid)
            )
            order by attempts, number
            limit ?2
            """,
            (now, most),
        )
        return [
            Version(kind, lead_id, version, number, date.fromisoformat(day), scope, attempts, due_at)
            for kind, lead_id, version, number, day, scope, attempts, due_at in rows
        ]

    def delivered(self, version: Version, host: str, now: float) -> None:
        """Note that the endpoint took it. Older versions of the lead, held or given up, are never sent after it."""
        self._set(version, "state = 'delivered', delivered_at = ?, host = ?, trouble = null", now, host)
        older = "(kind, lead_id) = (?, ?) and state <> 'delivered' and number < ?"
        self._give_up(older, (version.kind, version.lead_id, version.number))

    def failed(self, version: Version, trouble: str, next_at: float, *, is_dead: bool) -> None:
        """Note that the endpoint did not take it."""
        state = VersionState.DEAD if is_dead else VersionState.WAITING
        self._set(version, "state = ?, attempts = attempts + 1, trouble = ?, next_at = ?", state, trouble, next_at)

    def tried(self, version: Version, now: float) -> None:
        """Note that the first attempt is made: the days of patience begin."""
        self._set(version, "due_at = ?", now)

    def drop(self, version: Version, *, is_damaged: bool) -> None:
        """Forget a waiting version that raw no longer has there. If a file is damaged, it counts as given up.

        The next look may find it again: in this window, in that of another branch, or in the next day's.
        """
        here = "(kind, lead_id, version) = (?, ?, ?) and state = 'waiting'"
        if is_damaged:  # With the number 0 it isn't noted, so that it is due again once it is found.
            damaged = "state = 'given up', number = 0, trouble = 'Its raw file is damaged.'"
            self.db.execute(f"update versions set {damaged} where {here} and delivered_at is null", version[:3])  # noqa: S608 - our own words
        self._give_up(here, version[:3])
        around = (version.kind, *((version.day + timedelta(days=days)).isoformat() for days in (-1, 1)))
        self.db.execute("delete from windows where kind = ? and day between ? and ?", around)
        self.set_fact("mark", None)

    def _give_up(self, where: str, values: Sequence[object]) -> None:
        """Drop versions. One that was delivered before stays noted."""
        self.db.execute(f"update versions set state = 'delivered' where {where} and delivered_at is not null", values)  # noqa: S608 - our own words
        self.db.execute(f"delete from versions where {where} and delivered_at is null", values)  # noqa: S608 - likewise

    def _set(self, version: Version, what: str, *values: object) -> None:
        where = "where (kind, lead_id, version) = (?, ?, ?)"
        self.db.execute(f"update versions set {what} {where}", (*values, *version[:3]))  # noqa: S608 - our own words

    def postpone(self, by: timedelta, now: float) -> None:
        """Give each waiting version that much more time before it is given up. None is due later than now."""
        self.db.execute(
            "update versions set due_at = min(due_at + ?, ?) where state = 'waiting'", (by.total_seconds(), now)
        )

    def wake(self) -> None:
        """Make each waiting version ready now: the endpoint works again."""
        self.db.execute("update versions set next_at = 0 where state = 'waiting' and next_at > 0")

    # --- what a person asks -------------------------------------------------------------------------------------------

    def counts(self) -> dict[VersionState, int]:
        """Count the versions in each state."""
        found = dict(self.db.execute("select state, count(*) from versions group by state").fetchall())
        return {state: int(found.get(state.value, 0)) for state in VersionState}

    def oldest_waiting(self) -> datetime | None:
        """Return since when the oldest waiting version waits. None if none waits."""
        (oldest,) = self.db.execute("select min(due_at) from versions where state = 'waiting'").fetchone()
        return None if oldest is None else datetime.fromtimestamp(oldest, UTC)

    def last_delivered(self) -> datetime | None:
        """Return when a version was last delivered."""
        (last,) = self.db.execute("select max(delivered_at) from versions").fetchone()
        return None if last is None else datetime.fromtimestamp(last, UTC)

    def left(self, most: int) -> list[tuple[str, str, str, str, int, str]]:
        """Return kind, lead id, day, state, attempts and trouble of versions that aren't delivered, oldest first."""
        return self.db.execute(
            "select kind, lead_id, day, state, attempts, coalesce(trouble, '') from versions "
            "where state <> 'delivered' order by number limit ?",
            (most,),
        ).fetchall()

    def retry(self, now: float) -> int:
        """Let versions that were given up or held wait again. Return how many."""
        self.set_fact("gone", None)
        self.set_fact("pause_until", None)
        self.wake()
        self.db.execute("update versions set due_at = ? where state = 'waiting'", (now,))
        return self.db.execute(
            "update versions set state = 'waiting', due_at = ?, attempts = 0, next_at = 0 "
            "where state in ('given up', 'held')",
            (now,),
        ).rowcount

    def replay(self, first: date, last: date, now: float) -> int:
        """Let the newest delivered version of each lead of these days wait again. Return how many."""
        return self.db.execute(
            "update versions set state = 'waiting', due_at = ?, attempts = 0, next_at = 0 "
            "where state = 'delivered' and day between ? and ? and not exists ("
            "select 1 from versions as later where (later.kind, later.lead_id) = (versions.kind, versions.lead_id) "
            "and later.state in ('delivered', 'waiting') "
            "and (later.number, later.rowid) > (versions.number, versions.rowid))",
            (now, first.isoformat(), last.isoformat()),
        ).rowcount

    def sent(self, kind: str, lead_id: str) -> list[tuple[str, datetime]]:
        """Return to which host versions of the lead were delivered, and when, oldest first."""
        rows = self.db.execute(
            "select host, delivered_at from versions where (kind, lead_id) = (?, ?) and delivered_at is not null "
            "order by delivered_at",
            (kind, lead_id),
        )
        return [(host, datetime.fromtimestamp(at, UTC)) for host, at in rows]

    def leads(self) -> list[tuple[str, str]]:
        """Return kind and id of each lead."""
        return self.db.execute("select distinct kind, lead_id from versions").fetchall()

    def forget(self, kind: str, lead_id: str) -> None:
        """Forget a lead."""
        self.db.execute("delete from versions where (kind, lead_id) = (?, ?)", (kind, lead_id))

    def forget_before(self, day: date) -> None:
        """Forget leads and windows before that day. The day before it is kept: its lead of midnight is in both."""
        for table in ("versions", "windows"):
            self.db.execute(f"delete from {table} where date(day, '+1 day') < ?", (day.isoformat(),))  # noqa: S608 - our own words


@contextmanager
def writing_ledger(folder: Path) -> Iterator[Ledger]:
    """Open the ledger of a data folder; it is made if there is none. The block's end commits.

    Raises StorageError. A damaged ledger is moved to `quarantine/`: the next one finds the due versions again.
    """
    path = folder / LEDGER
    try:
        with storing(path):
            make_folder(path.parent)
            with closing(sqlite3.connect(path, timeout=30)) as db:
                path.chmod(PRIVATE_FILE_MODE)
                db.execute("pragma synchronous = full")
                db.executescript(_SCHEMA)
                with db:
                    yield Ledger(db)
    except sqlite3.OperationalError as error:
        raise StorageError(f"{path} can't be used: {error}. Check the disk and its rights.") from None
    except sqlite3.DatabaseError as error:
        if type(error) is not sqlite3.DatabaseError:
            raise  # a bug: damage raises the base class itself
        aside = folder / "quarantine" / path.name
        with storing(aside):
            make_folder(aside.parent)
            path.replace(aside)
        raise StorageError(
            f"{path} was damaged and is {aside} now. The next delivery makes a new one, and sends again what it can't "
            "tell is delivered. Receivers drop repeats by their webhook-id."
        ) from None


@contextmanager
def reading_ledger(folder: Path) -> Iterator[Ledger | None]:
    """Open the ledger to look at it alone. None if nothing was ever delivered. Raises StorageError.

    It is opened for writing, because only a writer can replay the journal of a killed one.
    """
    path = folder / LEDGER
    if not path.exists():
        yield None
        return
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=30)) as db:
            yield Ledger(db)
    except sqlite3.DatabaseError as error:
        raise StorageError(f"{path} can't be read: {error}. Run `leads-pipeline deliver`.") from None
