"""Files written anew: without blocks of the past, and a copy that somebody made without who is withheld by now.

Belongs here: what of a copy shows a lead that the suppression list withholds, redacts or keeps out of marketing.
Doesn't: the published file's own way (publication.py), which files are copies of it (privacy/elsewhere.py).
"""

from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import duckdb

from leads_pipeline.contract import LEAD_KINDS
from leads_pipeline.duck import connection, literal, quoted
from leads_pipeline.flatten.statement import define_local_time
from leads_pipeline.flatten.withholding import redact, withheld_leads
from leads_pipeline.lake import Lake
from leads_pipeline.warehouse.frozen import statement_of
from leads_pipeline.warehouse.loading import note_objections
from leads_pipeline.warehouse.schema import BOOKKEEPING, comment, tables
from leads_pipeline.warehouse.sql_marts import FOLLOWED, MART_MACROS, marts
from leads_pipeline.warehouse.state import comments_fingerprint, read_state
from leads_pipeline.window import offsets

# Marts that are made of more than the file's own leads: the settings, the agency's answers, staged files. They stay.
_OF_MORE: Final = frozenset({"answers", "branches", "drift", "mart_coverage"})


def write_anew(lake: Lake, draft: Path, anew: Path) -> None:
    """Write a new file of what the draft holds, as what was deleted stays in blocks that nobody writes over."""
    with connection(lake, "warehouse", draft) as db:
        [(name,)] = db.execute("select current_database()").fetchall()
        db.execute(f"attach {literal(str(anew))} as anew (storage_version 'v1.0.0')")
        db.execute(f"copy from database {quoted(name)} to anew")
        db.execute("detach anew")


def write_without_withheld(lake: Lake, draft: Path, anew: Path, zone: ZoneInfo) -> tuple[int, bool]:
    """Write a new file of what the draft holds, as the list says by now; how many leads are left out of it.

    And whether its marts were made anew, without them and without who objects: where its tables are those of this
    version. What it says of windows and of drift stays as it was then. The lock of whoever goes through the folder is
    held.
    """
    with connection(lake, "sweep-copied", draft) as db:
        db.begin()
        gone = _take_out(db, lake)
        if db.execute("select 1 from duckdb_tables() where table_name = 'digests'").fetchall():
            db.execute("delete from pipeline.digests")  # of rows that aren't there any more; nobody follows a copy
        for kind in LEAD_KINDS:
            redact(db, lake, kind)
        is_of_this_version = read_state(db).comments == comments_fingerprint() and _has_all_columns(db)
        if is_of_this_version:
            _make_marts(db, lake, zone)
        db.commit()
    write_anew(lake, draft, anew)
    return gone, is_of_this_version


def _has_all_columns(db: duckdb.DuckDBPyConnection) -> bool:
    """Whether nobody has dropped or renamed a table or column, which the marts may read."""
    statement = "select table_name, column_name from duckdb_columns() where database_name = current_database()"
    there = {*db.execute(statement).fetchall()}
    ours = [(table.name, column.name) for table in (*tables(), *BOOKKEEPING) for column in table.columns]
    ours += [(mart.name, column) for mart in marts() for column in mart.columns]
    return there.issuperset(ours)


def _take_out(db: duckdb.DuckDBPyConnection, lake: Lake) -> int:
    """Delete the rows of withheld leads from every table, and those of their people from tables of people."""
    db.execute("create temp table gone (kind varchar, lead_id varchar, person uuid)")
    for kind in LEAD_KINDS:
        withheld_leads(db, lake, kind, quoted(kind.table), "window_day", is_copy=True)
        db.execute(
            f"insert into gone select $kind, lead_id, person from {quoted(kind.table)} "  # noqa: S608 - our own names
            "where lead_id in (from withheld_ids)",
            {"kind": kind.name},
        )
        for table in kind.tables:
            db.execute(f"delete from {quoted(table)} where lead_id in (from withheld_ids)")  # noqa: S608 - likewise
    for kind in LEAD_KINDS:  # whoever has another lead stays a person
        db.execute(f"update gone set person = null where person in (select person from {quoted(kind.table)})")  # noqa: S608
    db.execute("set variable people = (select coalesce(list(distinct person), []) from gone where person is not null)")
    of_leads = {table for kind in LEAD_KINDS for table in kind.tables}
    columns = db.execute(
        "select schema_name, table_name, column_name, data_type from duckdb_columns() "
        "where not internal and database_name = current_database() and table_oid in "
        "(select table_oid from duckdb_tables() where database_name = current_database())"  # an analyst's views follow
    ).fetchall()
    for schema, table, column, type_ in columns:
        name = f"{quoted(schema)}.{quoted(table)}"
        if table not in of_leads and column in ("lead_id", "person"):
            db.execute(f"delete from {name} where {column} in (select {column} from gone)")  # noqa: S608 - as above
        elif type_ == "UUID[]":  # hashes of people
            db.execute(
                f"update {name} set {quoted(column)} = list_filter({quoted(column)}, "  # noqa: S608 - as above
                "lambda one: not list_contains(getvariable('people'), one))"
            )
    [(count,)] = db.execute("select count(*) from gone").fetchall()
    return int(count)


def _make_marts(db: duckdb.DuckDBPyConnection, lake: Lake, zone: ZoneInfo) -> None:
    """Count anew what the file's own tables say, without who objects to marketing."""
    define_local_time(db, offsets(zone))
    db.execute(f"create temp table touched ({', '.join(f'{name} {type_}' for name, type_ in FOLLOWED.items())})")
    db.execute(MART_MACROS)
    for kind in LEAD_KINDS:
        note_objections(db, lake, kind, "true")
    for mart in marts():
        if mart.name not in _OF_MORE:
            db.execute(f"create or replace table {quoted(mart.name)} as {statement_of(mart)}")
            comment(db, quoted(mart.name), mart.description, mart.columns)
