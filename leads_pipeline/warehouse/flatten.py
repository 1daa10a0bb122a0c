"""Raw leads into the tables of leads: each lead once, in its newest version.

Belongs here: one statement a table, made from the contract. Doesn't: reading a lead's text
(typed_rows.py), leaving out the leads that the suppression list refuses, marts, the file around the
tables.
"""

# ruff: noqa: S608 - only the contract's own names are in the statements

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from itertools import groupby
from typing import Final
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa

from leads_pipeline.domain.contract import ChildTable, LeadKind
from leads_pipeline.raw.rows import LandedVersion
from leads_pipeline.warehouse.current_leads import WindowLeads, typed_leads
from leads_pipeline.warehouse.duck import literal, quoted
from leads_pipeline.warehouse.typed_rows import EXTRA, PROBLEMS

# Leads that are loaded together, and up to one batch more. Memory is bounded by it; more aren't
# faster (measured).
PART_LEADS: Final = 10_000


def flatten(
    db: duckdb.DuckDBPyConnection,
    windows: Iterable[WindowLeads],
    zone: ZoneInfo,
    *,
    publication: int,
) -> None:
    """Bring the tables of leads up to date.

    The version with the higher number counts. Of equal ones, that of the later window day, then
    scope. A version with corrections replaces itself, because they may be new. `publication` is
    noted in each row of a lead that is written.

    The caller begins and ends the transaction, and has made the tables and the macro `person_of`.
    The temporary table `touched` gets each such lead's kind and id, with the day that it had and
    the one that it has; `received_ids` gets kind and id of every lead. `pipeline.emptied_contacts`
    has those whose newest version lacks a part of the contact that an earlier one has.
    """
    db.execute(
        "create temp table if not exists touched (kind varchar, lead_id varchar, lead_day date)"
    )
    db.execute("create temp table if not exists received_ids (kind varchar, lead_id varchar)")
    # DuckDB finds `received` by its name. A table that is registered stays in memory until the
    # transaction ends.
    for kind, received in _ahead(_parts(windows)):  # noqa: B007
        for statement in _statements(kind, zone, publication):
            db.execute(statement)


def _ahead(parts: Iterator[tuple[LeadKind, pa.Table]]) -> Iterator[tuple[LeadKind, pa.Table]]:
    """Yield the parts.

    A thread reads the next one while DuckDB, which needs no Python, loads one.
    """
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, parts, None)
        while part := waiting.result():
            waiting = pool.submit(next, parts, None)
            yield part


def _parts(windows: Iterable[WindowLeads]) -> Iterator[tuple[LeadKind, pa.Table]]:
    for kind, of_kind in groupby(windows, lambda window: window.kind):
        held: list[tuple[date, str, LandedVersion]] = []
        for window in of_kind:
            held += [(window.day, window.scope, version) for version in window.versions]
            if len(held) >= PART_LEADS:
                yield kind, _read(kind, held)
                held = []
        if held:
            yield kind, _read(kind, held)


def _read(kind: LeadKind, held: Sequence[tuple[date, str, LandedVersion]]) -> pa.Table:
    days, scopes, versions = zip(*held, strict=True)
    ids, numbers, _, sources, corrections, _ = zip(*versions, strict=True)
    others = pa.table(
        {
            "lead_id": pa.array(ids, pa.string()),
            "number": pa.array(numbers, pa.int64()),
            "source": pa.array(sources, pa.string()),
            "is_corrected": pa.array(map(bool, corrections), pa.bool_()),
            "day": pa.array(days, pa.date32()),
            "scope": pa.array(scopes, pa.string()),
            "place": pa.array(range(len(held)), pa.int64()),
        }
    )

    return others.append_column("lead", typed_leads(kind, versions))


def _statements(kind: LeadKind, zone: ZoneInfo, publication: int) -> Iterator[str]:
    """Return the statements that load `received`, in their order.

    They find the versions that are `newer`, note them, delete what they replace and insert them.
    """
    leads = quoted(kind.table)
    name = literal(kind.name)
    newer_leads = f"from {leads} semi join newer using (lead_id)"
    # Of equal versions (>=) the loaded one stays, unless the received one has corrections: false is
    # less than true.
    yield f"""
create or replace temp table newer as
select lead_id, place
from (
    from received
    select lead_id, number, day, scope, place, is_corrected
    qualify 1 = row_number() over (
        partition by lead_id order by number desc, day desc, scope desc, place desc
    )
) as received
anti join {leads} as loaded
    on loaded.lead_id = received.lead_id
    and (loaded.sequence, loaded.window_day, loaded.scope, not received.is_corrected)
        >= (received.number, received.day, received.scope, true)
"""
    yield f"insert into received_ids select distinct {name}, lead_id from received"
    yield f"""
create or replace temp table replaced as
select lead_id, lead_day, {_PARTS_OF_ROW} {newer_leads}
"""
    yield from _note_emptied_contacts(kind)
    # The days that they had.
    yield f"insert into touched select {name}, lead_id, lead_day from replaced"

    for table in kind.tables:
        yield f"delete from {quoted(table)} where lead_id in (select lead_id from replaced)"

    yield f"""
insert into {leads} by name
select
    lead_id,
    coalesce(timezone({literal(zone.key)}, lead."createdAt")::date, day) as lead_day,
    scope,
    make_timestamptz(number) as fetched_at,
    number as sequence,
    source,
    day as window_day,
    {publication} as published_in,
    {lead_columns(kind, "lead")},
    person_of(lead.contact.email, lead.contact."phoneNumber") as person
from received
semi join newer using (place)
"""
    for child in kind.children:
        yield f"""
insert into {quoted(child.name)} by name
select lead_id, position, {lead_columns(child, "element")}, day
from (
    select
        lead_id, day,
        generate_subscripts(elements, 1)::integer - 1 as position,
        unnest(elements) as element
    from (
        select lead_id, day, {_member("lead", child.path)} as elements
        from received
        semi join newer using (place)
    )
)
"""

    # The days that they have.
    yield f"insert into touched select {name}, lead_id, lead_day {newer_leads}"


def _parts_of_contact(email: str, phone: str, first_name: str, last_name: str) -> str:
    """Return the select list of which parts a contact has. Give its columns or members."""
    return f"""
    coalesce(trim({email}), '') <> '' as email,
    coalesce(trim({phone}), '') <> '' as phone,
    coalesce(trim(concat({first_name}, {last_name})), '') <> '' as name
"""


_PARTS_OF_ROW: Final = _parts_of_contact(
    "contact_email", "contact_phone_number", "contact_first_name", "contact_last_name"
)
_PARTS_OF_VERSION: Final = _parts_of_contact(
    "lead.contact.email",
    'lead.contact."phoneNumber"',
    'lead.contact."firstName"',
    'lead.contact."lastName"',
)


def _note_emptied_contacts(kind: LeadKind) -> Iterator[str]:
    """Return the statements that note of `newer` leads which parts of the contact were emptied.

    An earlier version may have been received now, be the row that is `replaced`, or be known from
    the note alone.
    """
    name = literal(kind.name)
    yield f"""
create or replace temp table emptied as
select
    lead_id,
    arg_max(day, number) as day,
    bool_or(email) and not arg_max(email, number) as email,
    bool_or(phone) and not arg_max(phone, number) as phone,
    bool_or(name) and not arg_max(name, number) as name
from (
    select lead_id, number, day, {_PARTS_OF_VERSION}
    from received
    union all
    select lead_id, -1, null, email, phone, name
    from replaced
    union all
    select lead_id, -1, null, email, phone, name
    from pipeline.emptied_contacts
    where kind = {name}
)
semi join newer using (lead_id)
group by lead_id
"""
    yield f"""
delete from pipeline.emptied_contacts
where kind = {name} and lead_id in (select lead_id from newer)
"""
    yield f"""
insert into pipeline.emptied_contacts
select {name}, * from emptied where email or phone or name
"""


def lead_columns(of: LeadKind | ChildTable, row: str) -> str:
    """Return the select list of the declared columns, `_problems` and `_extra`.

    They are members of the reader's column `row`.
    """
    fields = [f"{_member(row, field.path)} as {quoted(field.column)}" for field in of.fields]
    return ",\n    ".join(
        [*fields, f"{row}.{PROBLEMS} as {PROBLEMS}", f"{row}.{EXTRA}::json as {EXTRA}"]
    )


def _member(row: str, path: str) -> str:
    return row + "".join(f".{quoted(step)}" for step in path.split("."))
