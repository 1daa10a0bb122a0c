"""The agency's own retention: personal and unknown fields go out of raw, staged and warehouse after so many days.

Belongs here: which days are due, what is done to each in which order. Doesn't: what stays of a lead's text
(cutting.py), rewriting a raw file (lake/), when it runs (assets/, cli/privacy.py).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import duckdb

from leads_pipeline.contract import LEAD_KINDS, LeadKind
from leads_pipeline.duck import connection, glob_literal, quoted
from leads_pipeline.errors import LeadsPipelineError, StorageError
from leads_pipeline.flatten.batches import STAGED_FORMAT, flatten_day
from leads_pipeline.flatten.columns import staged_columns
from leads_pipeline.flatten.lost import LostRawError
from leads_pipeline.flatten.windows import querying
from leads_pipeline.lake import Lake
from leads_pipeline.privacy.cutting import cut_payload
from leads_pipeline.warehouse import set_person_key
from leads_pipeline.window import today

# The folder that DuckDB spills to.
SCRATCH: Final = "retention"

_EMAIL: Final = "contact_email"


@dataclass(frozen=True, slots=True)
class CutDay:
    """A day of a kind whose leads lose their personal fields, or have lost them, and what went wrong, if anything did.

    `files` counts raw files that still have them, `leads` staged leads.
    """

    kind: LeadKind
    day: date
    files: int
    leads: int
    error: LeadsPipelineError | None = None


def due_before(now: datetime, zone: ZoneInfo, keep_days: int) -> date:
    """Leads of windows before this day are due: so many whole local days have passed since the end of each."""
    return today(zone, now) - timedelta(days=keep_days)


def cut_days(lake: Lake, before: date, zone: ZoneInfo, *, is_dry: bool = False) -> Iterator[CutDay]:
    """Cut personal and unknown fields out of every day before that one, in raw, then staged; each day as it is done.

    The publication that has to follow writes `leads.duckdb` anew. A day that fails stays as it is and the others go
    on. Each step may be repeated: what a killed process left is finished by the next call, and so is what a push or a
    backup has brought back. A dry run only counts.
    """
    with lake.retaining():
        is_wanted = False
        for kind in LEAD_KINDS:
            days = {*lake.landed_days(kind), *(file.day for file in lake.staged_files(kind.table))}
            for day in sorted(day for day in days if day < before):
                try:
                    files = [path for path in lake.raw_files(kind, day) if not lake.is_cut(path)]
                    leads = _uncut_leads(lake, kind, day)
                    if not files and not leads:
                        continue
                    if not is_dry:
                        if not is_wanted:
                            # First: a process that is killed after this leaves the request for a rebuild.
                            lake.want_rebuild()
                            is_wanted = True
                        leads = _cut(lake, kind, day, files, zone) or leads
                    yield CutDay(kind, day, len(files), leads)
                except LeadsPipelineError as error:
                    yield CutDay(kind, day, 0, 0, error)


def cut_addresses(lake: Lake, emails: Iterable[str], phones: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
    """What stands for these in leads that were cut: for the addresses, and for numbers where there was no address."""
    with querying(lake) as db:
        set_person_key(db, lake.person_key())
        addresses = []
        for statement, texts in (("person_of(text, null)", emails), ("person_of(null, text)", phones)):
            sql = f"select distinct {statement}::varchar from (select unnest($texts::varchar[]) as text)"  # noqa: S608
            rows = db.execute(sql, {"texts": [*texts]}).fetchall()
            addresses.append(frozenset(_address(person) for (person,) in rows if person))
    return addresses[0], addresses[1]


def _address(person: str) -> str:
    return f"{person}@removed.invalid"


def _cut(lake: Lake, kind: LeadKind, day: date, files: list[Path], zone: ZoneInfo) -> int:
    """Cut the day; how many staged leads it has."""
    if files:
        # So that every lead of raw is staged, which is where people are told apart.
        try:
            flatten_day(lake, kind, day, zone)
        except LostRawError:
            if _staged(lake, kind.table, day) is None:
                raise
    people = _people(lake, kind, day)

    def cut(lead_id: str, payload: str) -> str | None:
        # A lead that landed after the staging is cut by the next run.
        return cut_payload(kind, payload, people[lead_id]) if lead_id in people else None

    for path in files:
        lake.cut_raw(path, cut)
    _cut_staged(lake, kind, day, people)
    return len(people)


def _staged(lake: Lake, table: str, day: date) -> Path | None:
    """The day's staged file of the table; None where there is none. Raises StorageError where it is damaged."""
    if not lake.staged_path(table, day).exists():
        return None
    path = lake.whole_staged(table, day)
    if path is None:
        raise StorageError(
            f"{table} of {day} is damaged in staged/, so nothing is cut out of it. Run `leads-pipeline backfill` "
            "twice: the first run notices it, the second stages the day anew."
        )
    return path


def _uncut_leads(lake: Lake, kind: LeadKind, day: date) -> int:
    """How many staged rows of the day's leads still have a personal or unknown field, in any of its tables."""
    ids: set[str] = set()
    with connection(lake, SCRATCH) as db:
        for table in kind.tables:
            if path := _staged(lake, table, day):
                columns_present = _columns(db, path)
                conditions = [
                    f"{quoted(name)} is not null"
                    for name in (*_personal(kind, table), "_extra")
                    if name in columns_present and name != _EMAIL
                ]
                conditions += ["len(_problems) > 0"] if "_problems" in columns_present else []
                conditions += (
                    [f"removed_person_of({_EMAIL}) is null and {_EMAIL} is not null"]
                    if _EMAIL in columns_present
                    else []
                )
                set_person_key(db, lake.person_key())
                sql = f"select lead_id from read_parquet($path) where {' or '.join(conditions)}"  # noqa: S608 - our own
                ids |= {lead_id for (lead_id,) in db.execute(sql, {"path": glob_literal(path)}).fetchall()}
    return len(ids)


def _people(lake: Lake, kind: LeadKind, day: date) -> dict[str, str | None]:
    """By lead, the address that stands for its person from now on, under the hash that the warehouse has of them."""
    path = _staged(lake, kind.table, day)
    if path is None:
        return {}
    with connection(lake, SCRATCH) as db:
        set_person_key(db, lake.person_key())
        rows = db.execute(
            "select lead_id, person_of(contact_email, contact_phone_number)::varchar from read_parquet($path)",
            {"path": glob_literal(path)},
        ).fetchall()
    return {lead_id: person and _address(person) for lead_id, person in rows}


def _cut_staged(lake: Lake, kind: LeadKind, day: date, people: Mapping[str, str | None]) -> None:
    """Replace the day's staged tables of the kind by the same without personal and unknown fields."""
    tables = [table for table in kind.tables if lake.staged_path(table, day).exists()]
    with lake.replacing_staged(tables, day) as targets, connection(lake, SCRATCH) as db:
        db.execute(
            "create table people as "
            "select unnest($ids::varchar[]) as lead_id, unnest($addresses::varchar[]) as address",
            {"ids": [*people], "addresses": [*people.values()]},
        )
        for table in tables:
            path = _staged(lake, table, day)
            personal = set(_personal(kind, table))
            columns_present = _columns(db, path) if path else {}
            selected = []
            for column in staged_columns(kind)[table]:
                name = quoted(column.name)
                if column.name not in columns_present:
                    continue
                if column.name == _EMAIL:
                    # One that was staged this moment is of the next run.
                    selected.append(f"if(people.lead_id is null, {name}, people.address) as {name}")
                elif column.name in personal or column.name == "_extra":
                    selected.append(f"if(people.lead_id is null, {name}, null) as {name}")
                elif column.name == "_problems":
                    selected.append(f"if(people.lead_id is null, {name}, []::varchar[]) as {name}")
                else:
                    selected.append(f"staged.{name}")
            order = "lead_id" if table == kind.table else "lead_id, position"
            db.execute(
                f"create or replace temp table cut as select {', '.join(selected)} "  # noqa: S608 - our own names
                f"from read_parquet($path, hive_partitioning = false) as staged left join people using (lead_id) "
                f"order by {order}",
                {"path": glob_literal(path) if path else ""},
            )
            db.execute(f"copy cut to $target {STAGED_FORMAT}", {"target": str(targets[table])})


def _personal(kind: LeadKind, table: str) -> list[str]:
    """The columns of the table that identify a person."""
    fields = {kind.table: kind.fields} | {child.name: child.fields for child in kind.children}
    return [field.column for field in fields[table] if field.is_personal]


def _columns(db: duckdb.DuckDBPyConnection, path: Path) -> dict[str, str]:
    described = db.execute("describe select * from read_parquet($path)", {"path": glob_literal(path)}).fetchall()
    return {name: type_ for name, type_, *_ in described}
