"""The ledger of a destination: which version of which lead was delivered, and which ones wait.

It holds ids, versions, times and outcomes, never the text of a lead. Belongs here: the file, what
is known, and what a sender notes. Doesn't: what a person asks (questions.py), what is due (due.py),
sending. A writer holds the destination's lock.
"""

# ruff: noqa: S608 - only our own names are in the statements

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import date, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from leads_pipeline.errors import StorageError
from leads_pipeline.raw.durable import PRIVATE_FILE_MODE, make_folder, storing
from leads_pipeline.raw.rows import microseconds

# The name of the destination of LEADS_DELIVERY_URL.
DEFAULT: Final = "default"

# The ledger of `default`, below the data folder. Those of others have a hyphen and the name before
# the suffix.
LEDGER: Final = ".state/deliveries.sqlite"

# The version that tells of an erasure. It outlives the lead's other versions until the receipt
# names it.
ERASED: Final = "erased"

# Tables that a ledger of an earlier release lacks, until somebody delivers.
_ADDED: Final = {
    "asked": "kind text, lead_id text, host text, at real, primary key (kind, lead_id, host)",
    "attempts": (
        "kind text not null, lead_id text not null, version text not null, at real not null, "
        "status integer, content_type text not null, code text not null, trouble text"
    ),
    "ids_there": "kind text, lead_id text, id_there text not null, primary key (kind, lead_id)",
    "outcomes": (
        "kind text, lead_id text, outcome text not null, at real not null, "
        "primary key (kind, lead_id)"
    ),
}

_SCHEMA: Final = f"""
create table if not exists versions (
    kind text not null, lead_id text not null, version text not null,
    number integer not null, day text not null, scope text not null,
    state text not null, due_at real not null,
    contact integer not null, attempts integer not null default 0, next_at real not null default 0,
    trouble text, delivered_at real, host text,
    primary key (kind, lead_id, version)
);
create index if not exists by_state on versions (state, attempts, number);
create table if not exists windows (
    kind text, day text, scope text, hash text, primary key (kind, day, scope)
);
create table if not exists facts (name text primary key, value text);
create table if not exists asked ({_ADDED["asked"]});
create table if not exists attempts ({_ADDED["attempts"]});
create index if not exists by_lead on attempts (kind, lead_id);
create table if not exists ids_there ({_ADDED["ids_there"]});
create index if not exists by_id_there on ids_there (id_there);
create table if not exists outcomes ({_ADDED["outcomes"]});
"""


class VersionState(StrEnum):
    """The state of a version.

    Held: the portal emptied the contact, and a person has to look first.
    """

    WAITING = "waiting"
    HELD = "held"
    DELIVERED = "delivered"
    DEAD = "given up"
    UNWANTED = "not wanted"


class Version(NamedTuple):
    """A version of a lead. `number` is that of its raw row, `day` and `scope` are its window's.

    `version` is the hash of the text as received, with a count behind it if the portal went back to
    an earlier text.
    """

    kind: str
    lead_id: str
    version: str
    number: int
    day: date
    scope: str
    attempts: int = 0
    due_at: float = 0.0

    @property
    def key(self) -> tuple[str, str, str]:
        """Its place in the ledger."""
        return self.kind, self.lead_id, self.version


class Ledger:
    """An open ledger. Moments are in seconds since 1970."""

    def __init__(self, db: sqlite3.Connection, name: str = DEFAULT) -> None:
        self.db = db
        self.name = name

    def commit(self) -> None:
        """Write all notes to the disk."""
        self.db.commit()

    # --- what is known ----------------------------------------------------------------------------

    def windows(self) -> dict[tuple[str, date, str], str]:
        """Return the hash of each window's files when its versions were noted."""
        rows = self.db.execute("select kind, day, scope, hash from windows")
        return {(kind, date.fromisoformat(day), scope): hash_ for kind, day, scope, hash_ in rows}

    def note_window(self, window: tuple[str, date, str], hash_: str) -> None:
        """Remember that the versions of these files are noted."""
        kind, day, scope = window
        self.db.execute(
            "insert or replace into windows values (?, ?, ?, ?)",
            (kind, day.isoformat(), scope, hash_),
        )

    def forget_windows(self) -> None:
        """Forget which files were looked at.

        The next look finds versions that another filter takes.
        """
        self.db.execute("delete from windows")

    def noted(self, kind: str, lead_id: str) -> list[tuple[int, str, int]]:
        """Return number, version and parts of the contact of each noted version, oldest first.

        Versions whose raw file is damaged are left out.
        """
        return self.db.execute(
            "select number, version, contact from versions where (kind, lead_id) = (?, ?) and "
            "number > 0 order by number, rowid",
            (kind, lead_id),
        ).fetchall()

    def has_earlier(self, version: Version) -> bool:
        """Whether an earlier version of the lead was delivered.

        A corrected one has the number of the one before.
        """
        found = self.db.execute(
            "select 1 from versions where (kind, lead_id) = (?, ?) and delivered_at is not null "
            "and number <= ? and version <> ?",
            (version.kind, version.lead_id, version.number, version.version),
        )
        return found.fetchone() is not None

    def id_there(self, version: Version) -> str | None:
        """Return the lead's id in the destination's system, None if no answer had it."""
        found: tuple[str] | None = self.db.execute(
            "select id_there from ids_there where (kind, lead_id) = (?, ?)",
            (version.kind, version.lead_id),
        ).fetchone()
        return found[0] if found else None

    def outcomes(self) -> list[tuple[str, str, str, float]]:
        """Return kind, id, outcome and moment of each lead with an outcome."""
        return self.db.execute(
            "select kind, lead_id, outcome, at from outcomes order by kind, lead_id"
        ).fetchall()

    def add(self, version: Version, state: VersionState, contact: int, now: float) -> None:
        """Note a version that is due, and which parts of the contact it has."""
        self.db.execute(
            "insert or replace into versions (kind, lead_id, version, number, day, scope, state, "
            "contact, due_at) values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *version.key,
                version.number,
                version.day.isoformat(),
                version.scope,
                state,
                contact,
                now,
            ),
        )

    def fact(self, name: str) -> str | None:
        """Return a fact about the destination or the last look."""
        found: tuple[str] | None = self.db.execute(
            "select value from facts where name = ?", (name,)
        ).fetchone()
        return found[0] if found else None

    def set_fact(self, name: str, value: str | None) -> None:
        """Remember a fact, or forget it."""
        if value is None:
            self.db.execute("delete from facts where name = ?", (name,))
        else:
            self.db.execute("insert or replace into facts values (?, ?)", (name, value))

    # --- sending ----------------------------------------------------------------------------------

    def ready(self, now: float, most: int) -> list[Version]:
        """Return versions to send now: erasures first, then of each lead the oldest that waits.

        Those with the fewest attempts come first. No wait is longer than an hour. One of more than
        two comes from a clock that ran ahead.
        """
        return [*self._ready("=", now, most), *self._ready("<>", now, most)]

    def _ready(self, is_erasure: str, now: float, most: int) -> list[Version]:
        rows = self.db.execute(
            f"""
            select kind, lead_id, version, number, day, scope, attempts, due_at
            from versions as ready
            where state = 'waiting' and version {is_erasure} ?3
                and (next_at <= ?1 or next_at > ?1 + 2 * 3600) and not exists (
                    select 1 from versions as earlier
                    where
                        (earlier.kind, earlier.lead_id) = (ready.kind, ready.lead_id)
                        and earlier.state = 'waiting'
                        and (earlier.number, earlier.rowid) < (ready.number, ready.rowid)
                )
            order by attempts, number
            limit ?2
            """,
            (now, most, ERASED),
        )
        return [
            Version(
                kind, lead_id, version, number, date.fromisoformat(day), scope, attempts, due_at
            )
            for kind, lead_id, version, number, day, scope, attempts, due_at in rows
        ]

    def note_asking(self, version: Version, host: str, now: float) -> None:
        """Note before a lead is sent that the destination may have it from now on.

        If the process is killed or the answer is lost, that is all that is known.
        """
        self.db.execute(
            "insert or ignore into asked values (?, ?, ?, ?)",
            (version.kind, version.lead_id, host, now),
        )

    def forget_asking(self, version: Version, asked_at: float) -> None:
        """Forget that this attempt was made, because a clear answer to it came.

        Notes of earlier attempts stay: the destination may have what one of them sent.
        """
        self.db.execute(
            "delete from asked where (kind, lead_id, at) = (?, ?, ?)",
            (version.kind, version.lead_id, asked_at),
        )

    def note_delivered(self, version: Version, host: str, now: float) -> None:
        """Note that the destination took it.

        Older versions of the lead, held or given up, are never sent after it.
        """
        self._set(
            version, "state = 'delivered', delivered_at = ?, host = ?, trouble = null", now, host
        )
        older = "(kind, lead_id) = (?, ?) and state <> 'delivered' and number < ?"
        self._give_up(older, (version.kind, version.lead_id, version.number))

    def note_id_there(self, version: Version, id_there: str) -> None:
        """Note the lead's id in the destination's system."""
        self.db.execute(
            "insert or replace into ids_there values (?, ?, ?)",
            (version.kind, version.lead_id, id_there),
        )

    def forget_ids_there(self) -> None:
        """Forget the ids of leads in a system that is no longer sent to."""
        self.db.execute("delete from ids_there")

    def note_outcome(self, id_there: str, outcome: str, at: float) -> int:
        """Note what came of a lead there, unless a later outcome is known.

        Return 1, or 0 if no lead that is known here has the id.
        """
        return self.db.execute(
            """
            insert into outcomes
            select kind, lead_id, ?2, ?3
            from ids_there
            where id_there = ?1 and not exists (
                select 1 from versions
                where (kind, lead_id, version)
                    = (ids_there.kind, ids_there.lead_id, 'erased')
            )
            on conflict (kind, lead_id) do update
            set outcome = excluded.outcome, at = excluded.at
            where excluded.at >= outcomes.at
            """,
            (id_there, outcome, at),
        ).rowcount

    def note_unwanted(self, version: Version) -> None:
        """Note that the destination doesn't want such events."""
        self._set(version, "state = 'not wanted'")

    def want_again(self) -> None:
        """Let the newest version of each lead wait that another filter has turned away.

        The next pass turns it away again if this filter does, too.
        """
        self.db.execute(
            """
            update versions set state = 'waiting', attempts = 0, next_at = 0
            where state = 'not wanted' and version <> 'erased' and not exists (
                select 1 from versions as later
                where
                    (later.kind, later.lead_id) = (versions.kind, versions.lead_id)
                    and later.state in ('delivered', 'waiting', 'not wanted')
                    and (later.number, later.rowid) > (versions.number, versions.rowid)
            )
            """
        )

    def note_failed(self, version: Version, trouble: str, next_at: float, *, is_dead: bool) -> None:
        """Note that the destination did not take it."""
        state = VersionState.DEAD if is_dead else VersionState.WAITING
        self._set(
            version,
            "state = ?, attempts = attempts + 1, trouble = ?, next_at = ?",
            state,
            trouble,
            next_at,
        )

    def note_unread(self, version: Version, next_at: float) -> None:
        """Note that the version's raw file couldn't be read, so the destination wasn't asked."""
        self._set(version, "trouble = ?, next_at = ?", "Its raw file can't be read.", next_at)

    def note_attempt(
        self,
        version: Version,
        at: float,
        status: int | None,
        content_type: str,
        code: str,
        trouble: str | None,
    ) -> None:
        """Note what came of an attempt. `code` is a machine's, never words of the answer."""
        values = (*version.key, at, status, content_type, code, trouble)
        self.db.execute("insert into attempts values (?, ?, ?, ?, ?, ?, ?, ?)", values)

    def note_first_attempt(self, version: Version, now: float) -> None:
        """Note that the first attempt is made: the days of patience begin."""
        self._set(version, "due_at = ?", now)

    def drop(self, version: Version, *, is_damaged: bool) -> None:
        """Forget a waiting version that raw no longer has there.

        If a file is damaged, it counts as given up.

        The next look may find it again: in this window, in that of another branch, or in the next
        day's.
        """
        here = "(kind, lead_id, version) = (?, ?, ?) and state = 'waiting'"
        # With the number 0 it isn't noted, so that it is due again once it is found.
        if is_damaged:
            damaged = "state = 'given up', number = 0, trouble = 'Its raw file is damaged.'"
            self.db.execute(
                f"update versions set {damaged} where {here} and delivered_at is null",
                version.key,
            )
        self._give_up(here, version.key)
        around = (
            version.kind,
            *((version.day + timedelta(days=days)).isoformat() for days in (-1, 1)),
        )
        self.db.execute("delete from windows where kind = ? and day between ? and ?", around)
        self.set_fact("mark", None)

    def _give_up(self, where: str, values: Sequence[object]) -> None:
        """Drop versions. One that was delivered before stays noted."""
        self.db.execute(
            f"update versions set state = 'delivered' where {where} and delivered_at is not null",
            values,
        )
        self.db.execute(f"delete from versions where {where} and delivered_at is null", values)

    def _set(self, version: Version, what: str, *values: object) -> None:
        where = "where (kind, lead_id, version) = (?, ?, ?)"
        self.db.execute(f"update versions set {what} {where}", (*values, *version.key))

    def postpone(self, by: timedelta, now: float) -> None:
        """Give each waiting version that much more time before it is given up.

        None is due later than now.
        """
        self.db.execute(
            "update versions set due_at = min(due_at + ?, ?) where state = 'waiting'",
            (by.total_seconds(), now),
        )

    def make_all_ready(self) -> None:
        """Make each waiting version ready now."""
        self.db.execute("update versions set next_at = 0 where state = 'waiting' and next_at > 0")

    # --- forgetting -------------------------------------------------------------------------------

    def erase(self, kind: str, lead_id: str, now: datetime) -> None:
        """Forget a lead that was erased. If the destination had it, it is told so next."""
        lead = (kind, lead_id)
        had_it = self.db.execute(
            "select 1 from versions where (kind, lead_id) = (?, ?) and delivered_at is not null "
            "union all select 1 from asked where (kind, lead_id) = (?, ?)",
            (*lead, *lead),
        ).fetchone()
        is_told = self.db.execute(
            "select 1 from versions where (kind, lead_id, version) = (?, ?, ?)", (*lead, ERASED)
        ).fetchone()
        for table in ("versions", "attempts"):
            self.db.execute(
                f"delete from {table} where (kind, lead_id) = (?, ?) and version <> ?",
                (*lead, ERASED),
            )
        # The id there stays: the erasure may be told by it.
        for table in ("asked", "outcomes"):
            self.db.execute(f"delete from {table} where (kind, lead_id) = (?, ?)", lead)
        if had_it and not is_told:
            erasure = Version(kind, lead_id, ERASED, microseconds(now), now.date(), "")
            self.add(erasure, VersionState.WAITING, contact=0, now=now.timestamp())

    def forget_before(self, day: date) -> None:
        """Forget leads and windows before that day.

        The day before it is kept: its lead of midnight is in both. An erasure that nobody has been
        told of stays until it is told, and outcomes stay, because figures are made of them.
        """
        is_old = "date(day, '+1 day') < ?"
        is_untold_erasure = "version = ? and state in (?, ?)"
        self.db.execute(f"delete from windows where {is_old}", (day.isoformat(),))
        self.db.execute(
            f"delete from versions where {is_old} and not ({is_untold_erasure})",
            (day.isoformat(), ERASED, VersionState.WAITING, VersionState.DEAD),
        )
        self.db.execute("delete from asked where date(at, 'unixepoch') < ?", (day.isoformat(),))
        for table in ("attempts", "ids_there"):
            self.db.execute(
                f"delete from {table} "
                "where (kind, lead_id) not in (select kind, lead_id from versions)"
            )


# --- the files ------------------------------------------------------------------------------------


def ledger_path(folder: Path, name: str = DEFAULT) -> Path:
    """Return the file of a destination's ledger."""
    path = folder / LEDGER
    return path if name == DEFAULT else path.with_name(f"{path.stem}-{name}{path.suffix}")


def ledger_names(folder: Path) -> list[str]:
    """Return the destinations that have a ledger, also those that are no longer configured."""
    path = folder / LEDGER
    files = sorted(path.parent.glob(f"{path.stem}*{path.suffix}"))
    return [re.sub(rf"^{path.stem}-?", "", file.stem) or DEFAULT for file in files]


def lock_name(name: str) -> str:
    """Return the name of the lock of a destination's ledger."""
    return "delivery" if name == DEFAULT else f"delivery-{name}"


@contextmanager
def writing_ledger(folder: Path, name: str = DEFAULT) -> Iterator[Ledger]:
    """Open the ledger of a destination; it is made if there is none. The block's end commits.

    Raises StorageError. A damaged ledger is moved to `quarantine/`: the next one finds the due
    versions again.
    """
    path = ledger_path(folder, name)
    try:
        # Not around the block, whose own errors aren't the ledger's.
        with storing(path):
            make_folder(path.parent)
            db = sqlite3.connect(path, timeout=30)

        with closing(db):
            with storing(path):
                path.chmod(PRIVATE_FILE_MODE)
            db.execute("pragma synchronous = full")
            db.executescript(_SCHEMA)
            with db:
                yield Ledger(db, name)
    except sqlite3.OperationalError as error:
        raise StorageError(
            f"{path} can't be used: {error}. Check the disk and its rights."
        ) from None
    except sqlite3.DatabaseError as error:
        if type(error) is not sqlite3.DatabaseError:
            raise  # a bug: damage raises the base class itself
        aside = folder / "quarantine" / path.name
        with storing(aside):
            make_folder(aside.parent)
            path.replace(aside)
        raise StorageError(
            f"{path} was damaged and is {aside} now. The next delivery makes a new one, and sends "
            "again what it can't tell is delivered. Receivers drop repeats by their webhook-id. "
            "Erasures that waited are lost with it: if a receipt names no confirmation, tell those "
            "who run that system."
        ) from None


@contextmanager
def copied_ledger(folder: Path, name: str) -> Iterator[Ledger]:
    """Copy a ledger into memory, to try something on it. Raises StorageError."""
    with closing(sqlite3.connect(":memory:")) as memory:
        with reading_ledger(folder, name) as ledger:
            if ledger is not None:
                ledger.db.backup(memory)
        memory.executescript(_SCHEMA)
        yield Ledger(memory, name)


@contextmanager
def reading_ledger(folder: Path, name: str = DEFAULT) -> Iterator[Ledger | None]:
    """Open the ledger to look at it alone. None if nothing was ever delivered. Raises StorageError.

    It is opened for writing, because only a writer can replay the journal of a killed one.
    """
    path = ledger_path(folder, name)
    if not path.exists():
        yield None
        return
    try:
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=30)
        ) as db:
            tables = {table for (table,) in db.execute("select name from sqlite_master")}
            for added in _ADDED.keys() - tables:
                db.execute(f"create temp table {added} ({_ADDED[added]})")
            # A process may have been killed before it made any table.
            yield Ledger(db, name) if "versions" in tables else None
    except sqlite3.DatabaseError as error:
        raise StorageError(
            f"{path} can't be read: {error}. Run `leads-pipeline deliver`."
        ) from None
