"""Changed days into the open file: leads, windows, inventory, drift, then the marts.

Belongs here: what is deleted and inserted when. Doesn't: which version of a lead counts (winners.py), the file's swap
(publication.py).
"""

import hmac
from collections.abc import Set
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Final
from uuid import UUID, uuid4

import duckdb
from msgspec.structs import replace

from leads_pipeline.contract import LEAD_KINDS, LeadKind
from leads_pipeline.domain.cutting import MESSAGE
from leads_pipeline.drift import PEOPLE_MIN, Drift, Seen, find_drift
from leads_pipeline.duck import literal, quoted, scratch_folder
from leads_pipeline.flatten.columns import staged_columns, windows_table
from leads_pipeline.flatten.inventory import insert_inventory
from leads_pipeline.flatten.kept_out import ids_of, ids_out
from leads_pipeline.flatten.trees import HIDDEN, trees_of
from leads_pipeline.lake import Lake
from leads_pipeline.suppression import Action, Entry, Meant
from leads_pipeline.warehouse.answers import set_answers
from leads_pipeline.warehouse.grid import Grid, set_grid
from leads_pipeline.warehouse.people import PERSON_OF_LEAD, set_person_key
from leads_pipeline.warehouse.schema import comment, comment_tables, create_tables, fill
from leads_pipeline.warehouse.sql_marts import (
    FOLLOWED,
    MART_MACROS,
    TOUCHED_MAX,
    bring_up_to_date,
    drop_former_marts,
    followed_columns,
    marts,
    since_first_days,
)
from leads_pipeline.warehouse.state import INVENTORY, State, WarehouseFile, remember, row_counts
from leads_pipeline.warehouse.winners import HeldFiles, confirm, find_winners

# What is loaded in one statement, at least a day. DuckDB holds the ids of all that the statement loads, and can't spill
# them: of 3 million leads they don't fit into 400 MB.
PART_LEADS: Final = 1_000_000

# Of staged files that are loaded at once, those of half a million leads: more are loaded with more memory, as what
# spills is read again. 3 million take 135 s with 1 GB and 249 with 400 MB (measured); 360,000 take as long with both.
MANY_BYTES: Final = 100 << 20
MEMORY_LIMIT_OF_MANY: Final = "1GB"

# A Delta table that was written for an older publication is written anew. One every ten minutes makes two months.
PUBLICATIONS_KEPT: Final = 10_000


def load(
    db: duckdb.DuckDBPyConnection, lake: Lake, state: State, wanted: State, grid: Grid, now: datetime
) -> WarehouseFile:
    """Bring the open file from one state to the other, in the transaction that the caller began.

    One transaction, as each would wait for the disk, and only the finished file has to be on it.
    """
    create_tables(db)
    if is_reworded := state.comments != wanted.comments:
        comment_tables(db)
    set_person_key(db, lake.person_key())
    # The first of the marts, which the macros of the others read.
    db.execute("create table if not exists branches (scope varchar, name varchar)")
    db.execute(MART_MACROS)
    db.execute(f"create temp table touched ({', '.join(f'{name} {type_}' for name, type_ in FOLLOWED.items())})")
    db.execute("create temp table gone (kind varchar, lead_id varchar)")
    db.execute("create temp table touched_days (day date)")
    changed = {key for key in state.files.keys() | wanted.files.keys() if state.files.get(key) != wanted.files.get(key)}
    if _staged_bytes(lake, changed) > MANY_BYTES:
        db.execute(f"set memory_limit = {literal(MEMORY_LIMIT_OF_MANY)}")
    if not state.files:
        # Nothing was deleted that leaves a gap. Groups of rows that aren't full, as each thread's last one, are written
        # anew together with full ones all the same: a quarter of what 320,000 leads take (measured).
        db.execute("set max_vacuum_tasks = 0")
    is_whole = _load_kinds(db, lake, state, wanted, changed)
    if any(table == INVENTORY for table, _ in changed):
        _load_inventory(db, lake)
    set_grid(db, grid, now)
    set_answers(db, lake, grid.zone)
    _make_marts(db, grid, is_whole=is_whole, is_reworded=is_reworded)
    _note_publication(db)
    remember(db, wanted)
    db.commit()
    db.execute("checkpoint")
    [(gone,)] = db.execute("select count(*) from gone").fetchall()
    return WarehouseFile(wanted, row_counts(db), days_changed=len({day for _, day in changed}), leads_gone=gone)


def _staged_bytes(lake: Lake, files: Set[tuple[str, date]]) -> int:
    """What those of the files hold that are staged; what lies elsewhere, and what is gone, counts nothing."""
    size = 0
    for table, day in files:
        with suppress(FileNotFoundError):
            size += lake.staged_path(table, day).stat().st_size
    return size


def _load_kinds(
    db: duckdb.DuckDBPyConnection, lake: Lake, state: State, wanted: State, changed: Set[tuple[str, date]]
) -> bool:
    """Replace what the changed files hold; whether the marts are to be made anew as a whole."""
    is_whole = state.marts != wanted.marts
    is_moved_on = state.listed != wanted.listed
    for kind in LEAD_KINDS:
        if is_moved_on:
            is_whole = _take_out(db, lake, kind) or is_whole
        of_kind = {(table, day) for table, day in changed if table in staged_columns(kind)}
        if of_kind:
            is_whole = _load_leads(db, lake, kind, of_kind, is_whole=is_whole)
            new = "lead_id in (select lead_id from removed union all select lead_id from winners)"
            note_objections(db, lake, kind, new)
    if is_moved_on:
        _note_who_objects(db, lake)
        for kind in LEAD_KINDS:
            note_objections(db, lake, kind, "true")
    return is_whole


def _take_out(db: duckdb.DuckDBPyConnection, lake: Lake, kind: LeadKind) -> bool:
    """Take leads that the list keeps out, by their ids, and cleared messages out of days that don't change, too.

    Whether there were any. Of damaged days, leads are here that raw has lost.
    """
    leads, suppressed = quoted(kind.table), lake.suppression.read()
    # A cleared row counts as gone, because the old text must not stay in the file's blocks.
    ids_of(db, suppressed.cleared, kind, f"(from {leads} where {MESSAGE} <> '')", "ids_to_clear")
    ids_out(db, lake, kind, leads)
    db.execute(
        "insert into gone select $kind, lead_id from (from ids_to_clear union from ids_out)", {"kind": kind.name}
    )
    db.execute(f"update {leads} set {MESSAGE} = '' where lead_id in (from ids_to_clear)")  # noqa: S608 - our own names
    for table in kind.tables:
        db.execute(f"delete from {quoted(table)} where lead_id in (from ids_out)")  # noqa: S608 - our own names
    db.execute("delete from pipeline.objected where kind = $kind and lead_id in (from ids_out)", {"kind": kind.name})
    return db.execute("select count(*) from ids_out").fetchall() != [(0,)]


def _note_who_objects(db: duckdb.DuckDBPyConnection, lake: Lake) -> None:
    """Have the list know the people of objections that an earlier version wrote, by the leads that it knew."""
    suppressed = lake.suppression.read()
    for entry in suppressed.active:
        if entry.action is not Action.OBJECT or entry.persons:
            continue
        persons: set[str] = set()
        for kind in LEAD_KINDS:
            ids_of(db, Meant(suppressed, [entry]), kind, quoted(kind.table), "ids_objecting")
            theirs = f"from {quoted(kind.table)} where lead_id in (from ids_objecting) and person is not null"
            persons |= {one for (one,) in db.execute(f"select distinct person::varchar {theirs}").fetchall()}
        if persons:
            known = Entry(number=0, at=datetime.now(UTC), action=Action.LEARNED, of=entry.number, persons=(*persons,))
            lake.suppression.append(lambda _, number, known=known: replace(known, number=number))  # type: ignore[misc]


def _note_publication(db: duckdb.DuckDBPyConnection) -> None:
    """Note which days of the tables of leads this publication touched: the Delta tables are written by these days.

    Days of which somebody was taken out aren't noted, because the file is rewritten then: see `forget_publications`.
    """
    db.execute(
        "insert into pipeline.publications select $id, coalesce(max(number), 0) + 1 from pipeline.publications",
        {"id": uuid4()},
    )
    number = "(select max(number) from pipeline.publications)"
    db.execute(f"delete from pipeline.publications where number <= {number} - {PUBLICATIONS_KEPT}")  # noqa: S608
    db.execute("delete from pipeline.touched_days where day in (from temp.touched_days)")
    db.execute(f"insert into pipeline.touched_days select distinct day, {number} from temp.touched_days")  # noqa: S608


def forget_publications(db: duckdb.DuckDBPyConnection) -> None:
    """Have the file know its newest publication only, so that each Delta table is written anew."""
    db.execute("delete from pipeline.publications where number < (select max(number) from pipeline.publications)")


def _make_marts(db: duckdb.DuckDBPyConnection, grid: Grid, *, is_whole: bool, is_reworded: bool) -> None:
    drop_former_marts(db)
    since = {} if is_whole else since_first_days(db)
    for mart in marts():
        is_anew = is_whole or mart.follows is None
        if is_anew:
            db.execute(f"create or replace table {quoted(mart.name)} as {mart.statement}")
        if is_anew or is_reworded:
            more = dict.fromkeys(grid.branches.columns, "From LEADS_BRANCHES_FILE") if mart.name == "branches" else {}
            comment(db, quoted(mart.name), mart.description, {**mart.columns, **more})
        if not is_anew and mart.follows:
            bring_up_to_date(db, mart, mart.follows, since.get(mart.follows, ""))


def _load_leads(
    db: duckdb.DuckDBPyConnection, lake: Lake, kind: LeadKind, changed: Set[tuple[str, date]], *, is_whole: bool
) -> bool:
    """Replace what the changed files hold; afterwards each lead id is there once, in its newest version of all days.

    Return whether the marts are to be made anew as a whole: as they were to be, or as that many leads have changed.
    Where they aren't, note which of the values that they follow are touched.
    """
    days_changed = {day for _, day in changed}
    children_changed = {day for table, day in changed if table in kind.tables and table != kind.table}
    db.execute(
        "create or replace temp table changed_days as select unnest($days::date[]) as day", {"days": [*days_changed]}
    )
    with scratch_folder(lake, "warehouse-staged") as folder:
        files = HeldFiles(db, lake, kind, folder)
        files.hold(days_changed)
        find_winners(db, lake, kind, files)
        confirm(db, kind, files, days_changed - children_changed)
        db.execute(
            """
            create or replace temp table removed as
            from loaded
            where (
                window_day in (from changed_days)
                or lead_id in (select lead_id from winners)
                or lead_id in (from ids_out)
            ) and row_id not in (select row_id from confirmed)
            """
        )
        db.execute(
            "insert into gone select $kind, lead_id from removed where lead_id not in (select lead_id from winners)",
            {"kind": kind.name},
        )
        days = "select window_day from removed union select day from winners union select day from confirmed"
        db.execute(f"insert into temp.touched_days {days}")
        parts = _parts(db)
        for table in kind.tables:
            is_child = table != kind.table
            # The lead's row is known; its children's are looked for where its day's lie.
            of_removed = (
                "day in (select window_day from removed) and lead_id in (select lead_id from removed)"
                if is_child
                else "rowid in (select row_id from removed)"
            )
            db.execute(f"delete from {quoted(table)} where {of_removed}")  # noqa: S608 - only our own names, as below
            more = "staged.day" if is_child else PERSON_OF_LEAD
            staged = files.select(table, more)
            for first, last in parts:
                db.execute(
                    f"""
                    insert into {quoted(table)} by name
                    {staged}
                    semi join (from winners where day between $first and $last) as winners
                    on staged.lead_id = winners.lead_id and staged.day = winners.day
                    where staged.day between $first and $last
                    """,
                    {"first": first, "last": last},
                )
        changes = "(select count(*) from removed) + (select count(*) from winners)"
        sql = f"select {changes} > $most * (select count(*) from {quoted(kind.table)})"  # noqa: S608
        is_whole = is_whole or db.execute(sql, {"most": TOUCHED_MAX}).fetchall() == [(True,)]
        if not is_whole:
            followed = ", ".join(f"{column} as {name}" for name, column in followed_columns(kind))
            # The days are named as well, so that only their rows are looked at.
            added = (
                f"{quoted(kind.table)} where lead_id in (select lead_id from winners) "  # noqa: S608
                "and window_day in (select day from winners)"
            )
            for leads in ("removed", added):
                db.execute(f"insert into touched by name select {followed} from {leads}")  # noqa: S608
        db.execute(
            "delete from landed_windows where kind = $kind and window_day in (from changed_days)", {"kind": kind.name}
        )
        db.execute(
            f"insert into landed_windows by name {files.select(windows_table(kind), '$kind as kind')} "
            "semi join changed_days on staged.day = changed_days.day",
            {"kind": kind.name},
        )
        # Marts show a new member once it may be shown.
        return record_drift(db, lake, kind, files) or is_whole


def note_objections(db: duckdb.DuckDBPyConnection, lake: Lake, kind: LeadKind, leads: str) -> None:
    """Note anew which of these leads are of people who objected, and that the marts of these people are touched."""
    objecting = lake.suppression.read().objecting
    former = f"from pipeline.objected where kind = $kind and {leads}"
    db.execute(f"insert into touched (person) select distinct person {former}", {"kind": kind.name})
    db.execute(f"delete {former}", {"kind": kind.name})
    if objecting:
        ids_of(db, objecting, kind, f"{quoted(kind.table)} where {leads}", "ids_objecting")
        # Nobody is known by a lead without an address and a number.
        db.execute(
            f"insert into pipeline.objected select $kind, lead_id, person from {quoted(kind.table)} "  # noqa: S608
            f"where {leads} and person is not null "
            "and (person in (select unnest($persons::uuid[])) or lead_id in (from ids_objecting))",
            {"kind": kind.name, "persons": sorted(objecting.persons)},
        )
        db.execute(f"insert into touched (person) select distinct person {former}", {"kind": kind.name})


def _parts(db: duckdb.DuckDBPyConnection) -> list[tuple[date, date]]:
    """First and last day of what is loaded in one statement."""
    parts: list[tuple[date, date]] = []
    leads_of_last = PART_LEADS
    for day, leads in db.execute("select day, count(*) from winners group by day order by day").fetchall():
        if leads_of_last + leads > PART_LEADS:
            parts.append((day, day))
            leads_of_last = leads
        else:
            parts[-1] = (parts[-1][0], day)
            leads_of_last += leads
    return parts


def _load_inventory(db: duckdb.DuckDBPyConnection, lake: Lake) -> None:
    """Fill the table anew, and note which leads may now be about another item."""
    items = (
        "select postcode_of(address_postcode) as postcode, columns('address.*|item_id|first_seen_day') from inventory"
    )
    db.execute(f"create or replace temp table items_before as {items}")
    db.execute("delete from inventory")
    if files := lake.inventory_files():
        insert_inventory(db, files, INVENTORY)
    db.execute(
        f"""
        create or replace temp table changed_postcodes as
        select distinct postcode
        from ((from items_before except {items}) union all ({items} except from items_before))
        """  # noqa: S608 - put together from constants alone
    )
    for kind in LEAD_KINDS:
        if kind.postcode is None:
            continue
        leads, written = quoted(kind.table), quoted(kind.postcode)
        # A postcode is written in few ways, so few are normalised and not one a lead.
        db.execute(
            f"""
            insert into touched by name
            select lead_id, lead_day
            from {leads}
            where {written} in (
                select {written} from (select distinct {written} from {leads})
                where postcode_of({written}) in (from changed_postcodes)
            )
            """  # noqa: S608 - only the contract's own names
        )


def record_drift(db: duckdb.DuckDBPyConnection, lake: Lake, kind: LeadKind, files: "HeldFiles") -> bool:
    """Replace what the changed days have that the contract doesn't know; the other days' counts stay as they are.

    Return whether other new members may be shown than before.
    """
    db.execute(
        "delete from pipeline.drift_by_day where kind = $kind and day in (from changed_days)", {"kind": kind.name}
    )

    def staged(table: str) -> str:
        return f"{files.select(table, 'staged.day')} semi join changed_days on staged.day = changed_days.day"

    contacts = (
        "select day, lead_id, coalesce(email_of(contact_email), phone_of(contact_phone_number)) as contact "  # noqa: S608
        f"from ({staged(kind.table)})"
    )
    trees = trees_of(kind)
    parts = [
        (kind.table, kind.fields, ""),
        *((child.name, child.fields, f"{child.path}[].") for child in kind.children),
    ]
    drifts: dict[Drift, Seen] = {}
    for table, fields, prefix in parts:
        drifts |= find_drift(db, staged(table), contacts, fields, trees[table], prefix)
    key = lake.person_key()
    names = {drift: None if drift.name is None else _hashed(key, "\0".join(drift.name)) for drift in drifts}
    fill(
        db,
        "pipeline.drift_by_day",
        {
            "kind varchar": [kind.name] * len(drifts),
            "day date": [drift.day for drift in drifts],
            "change varchar": [drift.change for drift in drifts],
            "field varchar": [drift.shown_field for drift in drifts],
            "value varchar": [drift.value and HIDDEN for drift in drifts],
            "type varchar": [drift.type for drift in drifts],
            "name uuid": list(names.values()),
            "leads bigint": [seen.rows for seen in drifts.values()],
            "people uuid[]": [[_hashed(key, person) for person in seen.people] for seen in drifts.values()],
        },
    )
    db.execute("create or replace temp table named (name uuid, field varchar, value varchar)")
    named = [(name, drift) for drift, name in names.items() if name is not None]
    fill(
        db,
        "named",
        {
            "name uuid": [name for name, _ in named],
            "field varchar": [drift.field for _, drift in named],
            "value varchar": [drift.value for _, drift in named],
        },
    )
    members = "select count(*), bit_xor(hash(name)) from pipeline.drift_names where value is not null"
    before = db.execute(members).fetchall()
    db.execute(
        """
        create or replace temp table shown as
        select name
        from (select name, unnest(people) as person from pipeline.drift_by_day where name is not null)
        group by name
        having count(distinct person) >= $people
        """,
        {"people": PEOPLE_MIN},
    )
    db.execute("delete from pipeline.drift_names where name not in (from shown)")
    # A name that now comes from enough people came on one of the days being loaded.
    db.execute(
        """
        insert into pipeline.drift_names
        select distinct * from named
        where name in (from shown) and name not in (select name from pipeline.drift_names)
        """
    )
    return db.execute(members).fetchall() != before


def _hashed(key: bytes, text: str) -> UUID:
    return UUID(bytes=hmac.digest(key, text.encode(), "sha256")[:16])
