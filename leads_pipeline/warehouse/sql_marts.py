"""The marts of sql/: read from their files, and brought up to date after leads have changed.

Belongs here: what a mart follows, the macros that marts use. Doesn't: what a mart holds (sql/).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import duckdb

from leads_pipeline.contract import ENUM_PREFIXES, ENUMERATIONS, LEAD_KINDS, LeadKind, known_members
from leads_pipeline.duck import SQL_FOLDER, literal, macros, quoted
from leads_pipeline.flatten.columns import staged_columns
from leads_pipeline.flatten.trees import HIDDEN
from leads_pipeline.warehouse.schema import PERSON, tables


@dataclass(frozen=True, slots=True)
class Mart:
    """A table that one statement in sql/ makes from the others. `columns` are in the statement's order.

    `follows` is the column of which a row's value says which leads it was made from: those with the same value. When
    leads change, only the rows of their values are made anew. None: it is made anew as a whole, which must be quick.
    """

    name: str
    description: str
    columns: Mapping[str, str]
    statement: str
    follows: str | None


@cache
def marts() -> tuple[Mart, ...]:
    """The marts of sql/, one a file, by name.

    A file begins with a comment of its grain and one comment per column, `-- name: description`, up to an empty line;
    a star before the name of a column says that the mart follows it.
    """
    return tuple(read_statement(path) for path in sorted(SQL_FOLDER.glob("*.sql")))


def read_statement(path: Path) -> Mart:
    """The table that the file's statement makes, with its comments."""
    header, _, statement = path.read_text(encoding="utf-8").partition("\n\n")
    description, *lines = [line.removeprefix("-- ") for line in header.splitlines()]
    columns = dict(line.removeprefix("*").split(": ", 1) for line in lines)
    follows = next((line[1:].split(": ")[0] for line in lines if line.startswith("*")), None)
    return Mart(path.stem, description, columns, statement, follows)


# What marts can follow: the columns of a mart, with their types.
FOLLOWED: Final = {"lead_id": "varchar", "lead_day": "date", "person": "uuid", "listing_id": "varchar"}

# Above this part of all leads, making each mart anew as a whole is quicker.
TOUCHED_MAX: Final = 0.25


def followed_columns(kind: LeadKind) -> list[tuple[str, str]]:
    """What marts follow, lead_id first, and the column of the kind's leads that it stands in."""
    names = {column.name for column in staged_columns(kind)[kind.table]} | {PERSON.name}
    columns = ((followed, _COLUMNS_OF_LEADS.get(followed, followed)) for followed in FOLLOWED)
    return [(followed, column) for followed, column in columns if column in names]


_COLUMNS_OF_LEADS: Final = {"listing_id": "listing_details_id"}


def drop_former_marts(db: duckdb.DuckDBPyConnection) -> None:
    """Drop the tables of marts that sql/ no longer has."""
    names = [*(table.name for table in tables()), *(mart.name for mart in marts())]
    former = db.execute(
        "select table_name from duckdb_tables() where schema_name = 'main' and not temporary "
        "and not list_contains($names, table_name)",
        {"names": names},
    ).fetchall()
    for (name,) in former:
        db.execute(f"drop table {quoted(name)}")


def _is_touched(followed: str, column: str) -> str:
    """Whether a row's value is among the touched. A lead lies with its day, so only rows of such days are looked at."""
    conditions = [f"{column} in (select {followed} from touched)"]  # noqa: S608 - only our own names
    if followed == "lead_id":
        conditions.append("lead_day in (select lead_day from touched)")
    return " and ".join(conditions)


def bring_up_to_date(db: duckdb.DuckDBPyConnection, mart: Mart, followed: str, since: str) -> None:
    """Make the mart's rows of touched values anew.

    By its own statement, which a temporary view in place of each table of leads lets see only the leads of such values.
    `since` is the condition that `since_first_days` has for what the mart follows, if any.
    """
    (file,) = db.execute("select current_database()").fetchall()[0]
    is_touched = _is_touched(followed, followed)
    db.execute(f"delete from {quoted(mart.name)} where {is_touched}")  # noqa: S608 - our own names
    shadowed = [(kind.table, dict(followed_columns(kind)).get(followed)) for kind in LEAD_KINDS]
    for table, column in shadowed:
        if column is not None:
            db.execute(
                f"create temp view {quoted(table)} as select * from {quoted(file)}.main.{quoted(table)} "  # noqa: S608
                f"where {_is_touched(followed, column)}{since}"
            )
    db.execute(f"insert into {quoted(mart.name)} by name {mart.statement}")
    for table, column in shadowed:
        if column is not None:
            db.execute(f"drop view temp.main.{quoted(table)}")


# Which mart says since when there are leads of a value. Others may leave a value out for what else there is of it, as
# whoever asked for an appraisal: these leave out none.
FIRST_DAYS: Final = {"person": "mart_people", "listing_id": "mart_listing_demand"}


def since_first_days(db: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Conditions that leave out days on which no lead of a touched value lies, most of a long history; by what follows.

    What the marts of FIRST_DAYS say of it is read here, before any of them is brought up to date.
    """
    conditions = {}
    for followed, mart in FIRST_DAYS.items():
        touched = f"select {followed} from touched where {followed} is not null"  # noqa: S608 - our own names
        [(first,)] = db.execute(
            f"""
            select min(day)
            from (
                select min(lead_day) as day from touched where {followed} is not null
                union all
                select min(first_lead_day) from {quoted(mart)} where {followed} in ({touched})
            )
            """  # noqa: S608
        ).fetchall()
        if first is not None:
            conditions[followed] = f" and lead_day >= date '{first}'"
    return conditions


_MEMBERS: Final = sorted(literal(member) for path in ENUMERATIONS for member in known_members(path) or ())

MART_MACROS: Final = (
    macros("marts")
    .replace("{members}", ", ".join(_MEMBERS))
    .replace("{hidden}", literal(HIDDEN))
    .replace("{prefixes}", literal(f"^({'|'.join(ENUM_PREFIXES)})"))
)
