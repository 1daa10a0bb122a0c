"""The steps that load leads and check them: raw windows into the tables of leads, each lead once.

Belongs here: which rows count, and what the file remembers of raw windows. Doesn't: one window's
leads (current_leads.py), the statements (flatten.py).
"""

# ruff: noqa: S608 - only our own names are in the statements

from collections.abc import Collection, Iterable, Iterator, Sequence
from importlib.metadata import version
from typing import Any, Final, Protocol
from zoneinfo import ZoneInfo

import duckdb

from leads_pipeline.domain.contract import LEAD_KINDS, LeadKind
from leads_pipeline.errors import BugError
from leads_pipeline.warehouse.current_leads import WindowKey, WindowLeads
from leads_pipeline.warehouse.duck import literal, macros, quoted, set_person_key
from leads_pipeline.warehouse.flatten import flatten
from leads_pipeline.warehouse.step import FORMER, Draft, Step
from leads_pipeline.warehouse.tables import columns_of, create_table, insert, lead_tables


class ChangedWindows(Protocol):
    """The raw windows, as they are read."""

    def read(self, windows: Collection[WindowKey]) -> Iterable[WindowLeads]:
        """Read the leads of these windows, as they may be shown."""


class FormerGate(Protocol):
    """Keeps people out of what is taken over from the file before."""

    def admit_former(self, db: duckdb.DuckDBPyConnection, kind: LeadKind) -> None:
        """Take out of the temporary tables whoever may not be shown, and what may not be shown.

        They are called as `former_of` says, and have the columns of the tables of leads.
        """


def former_of(table: str) -> str:
    """Return the name of the temporary table of the rows that are taken over."""
    return f"former_{table}"


# The hashes tell the next publication which windows have changed.
_TABLES: Final = {
    "windows": (
        "kind varchar, day date, scope varchar, hash varchar",
        "Raw windows that this file was made from",
    ),
    "emptied_contacts": (
        "kind varchar, lead_id varchar, window_day date, "
        "email boolean, phone boolean, name boolean",
        "Leads that lost a part of their contact, and which",
    ),
}


# The windows that a file was made from, for `by_window`.
LOADED_WINDOWS: Final = "select kind, day, scope, hash from pipeline.windows"


def by_window(rows: Iterable[Sequence[Any]]) -> dict[WindowKey, str]:
    """Return the hashes of the rows of LOADED_WINDOWS by their windows."""
    return {(kind, day, scope): hash_ for kind, day, scope, hash_ in rows}


class LoadLeads(Step):
    """Loads the windows that have changed, and takes over the leads that raw has lost.

    `person_key` is the key of the column `person`.
    """

    def __init__(
        self,
        windows: ChangedWindows,
        gates: Sequence[FormerGate],
        zone: ZoneInfo,
        person_key: bytes,
    ) -> None:
        self._windows = windows
        self._gates = gates
        self._zone = zone
        self._person_key = person_key

    def rebuilds_if(self) -> str:
        """Declared columns, the zone of `lead_day`, how people are told apart, and the release.

        A release may read a value that the one before it couldn't.
        """
        return made_by(self._zone, self._person_key)

    def fill(self, draft: Draft) -> None:
        """Load the windows that have changed, then take over what raw has lost."""
        set_person_key(draft.db, self._person_key)
        with draft.transaction():
            load_windows(draft, self._windows, self._zone)
            if draft.changes.has_former:
                for kind in LEAD_KINDS:
                    _take_over(draft, kind, self._zone, self._gates)


def made_by(zone: ZoneInfo, person_key: bytes) -> str:
    """Return a text that differs if the same windows would become other rows."""
    tables = [*lead_tables()]
    return repr(
        (tables, _TABLES, zone.key, macros("people"), person_key, version("leads-pipeline"))
    )


def load_windows(draft: Draft, windows: ChangedWindows, zone: ZoneInfo) -> None:
    """Load the windows that have changed, and note what was read.

    The caller begins and ends the transaction.
    """
    if not columns_of(draft.db, "windows", "pipeline"):
        _create_tables(draft)
    hashes = dict(draft.changes.windows)
    read = _noting(windows.read([*hashes]), hashes)

    flatten(draft.db, read, zone, publication=draft.changes.edition_number)
    _note_windows(draft, hashes)


def _create_tables(draft: Draft) -> None:
    for table in lead_tables():
        create_table(draft.db, table)
    for name, (columns, comment) in _TABLES.items():
        draft.db.execute(f"create table pipeline.{name} ({columns})")
        draft.db.execute(f"comment on table pipeline.{name} is {literal(comment)}")


def _noting(windows: Iterable[WindowLeads], hashes: dict[WindowKey, str]) -> Iterator[WindowLeads]:
    """Yield the windows, and note the hash of what was really read.

    A damaged file is left out, and counts as changed once it is put back.
    """
    for window in windows:
        hashes[window.kind.name, window.day, window.scope] = window.hash
        yield window


def _take_over(draft: Draft, kind: LeadKind, zone: ZoneInfo, gates: Sequence[FormerGate]) -> None:
    """Take leads from the file before if raw has no version of them, or only older ones.

    They pass the gates in temporary tables. Whoever is deleted from the draft itself stays in its
    blocks.
    """
    db = draft.db
    if not columns_of(db, kind.table, database=FORMER):
        return

    db.execute(
        f"""
        create or replace temp table taken as
        select lead_id
        from {FORMER}.main.{quoted(kind.table)} as former
        anti join {quoted(kind.table)} as loaded
            on loaded.lead_id = former.lead_id
            and (loaded.sequence, loaded.window_day, loaded.scope)
                >= (former.sequence, former.window_day, former.scope)
        """
    )
    for table in kind.tables:
        _copy_taken(draft, table, zone)

    for gate in gates:
        gate.admit_former(db, kind)

    for table in kind.tables:
        name = quoted(table)
        former = quoted(former_of(table))
        db.execute(f"delete from {name} where lead_id in (select lead_id from taken)")
        db.execute(f"insert into {name} by name from {former}")
        db.execute(f"drop table {former}")

    taken = f"from {quoted(kind.table)} semi join taken using (lead_id)"
    db.execute(f"insert into touched select {literal(kind.name)}, lead_id, lead_day {taken}")


def _copy_taken(draft: Draft, table: str, zone: ZoneInfo) -> None:
    """Copy the rows of leads that are taken over, by the names of their columns."""
    # Whatever depends on settings is made anew.
    anew = {
        "published_in": str(draft.changes.edition_number),
        "lead_day": f"coalesce(timezone({literal(zone.key)}, created_at)::date, window_day)",
        "person": "person_of(contact_email, contact_phone_number)",
    }
    columns = columns_of(draft.db, table)
    there = columns_of(draft.db, table, database=FORMER)
    values = []

    for column in columns:
        value = anew.get(column, quoted(column)) if column in there else "null"
        values.append(f"{value} as {quoted(column)}")

    rows = (
        f"{FORMER}.main.{quoted(table)} semi join taken using (lead_id)"
        if there
        else "taken limit 0"
    )
    draft.db.execute(
        f"create temp table {quoted(former_of(table))} as from {quoted(table)} limit 0"
    )
    draft.db.execute(
        f"insert into {quoted(former_of(table))} select {', '.join(values)} from {rows}"
    )


def _note_windows(draft: Draft, hashes: dict[WindowKey, str]) -> None:
    db = draft.db
    db.execute("create or replace temp table hashes as from pipeline.windows limit 0")
    insert(db, "hashes", [(*window, hash_) for window, hash_ in hashes.items()])
    same = "(kind, day, scope) in (select (kind, day, scope) from hashes)"
    db.execute(f"delete from pipeline.windows where {same}")
    db.execute("insert into pipeline.windows from hashes")


class CheckLeads(Step):
    """Refuses to publish unless each lead that was read is there, and each lead once."""

    def fill(self, draft: Draft) -> None:
        """Raise BugError if one is lost or doubled."""
        with draft.transaction():
            for kind in LEAD_KINDS:
                _check(draft, kind)


def _check(draft: Draft, kind: LeadKind) -> None:
    [(lost, doubled)] = draft.db.execute(
        f"""
        select
            (
                select count(*)
                from (select lead_id from received_ids where kind = {literal(kind.name)})
                anti join {quoted(kind.table)} using (lead_id)
            ),
            (select count(*) - count(distinct lead_id) from {quoted(kind.table)})
        """
    ).fetchall()
    if lost or doubled:
        raise BugError(
            f"Publishing would lose {lost} {kind.name} leads and double {doubled}. leads.duckdb is "
            "as before. Running again doesn't help. Please report it."
        )
