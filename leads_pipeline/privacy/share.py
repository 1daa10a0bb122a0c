"""A copy of the warehouse for wide use: pseudonymised, by the allow-list of sql/share/.

Belongs here: what a value may be that passes, what small groups lose, what the copy says of itself, writing it.
Doesn't: which fields pass (sql/share/), leads.duckdb (transform/), arguments (cli/privacy.py).
"""

import hashlib
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

import duckdb

from leads_pipeline.domain.contract import ENUMERATIONS
from leads_pipeline.errors import QuestionError, StorageError
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.durable import PRIVATE_FILE_MODE, publish_file, storing
from leads_pipeline.transform.duck import SQL_FOLDER, WAREHOUSE_FILE, literal, macros, quoted
from leads_pipeline.transform.marts import Mart, read_mart
from leads_pipeline.transform.people import set_person_key
from leads_pipeline.transform.reading import attached_version
from leads_pipeline.transform.tables import comment

# A branch's day of fewer people is a small group: somebody who knows that a person asked then would know their row.
PEOPLE_MIN: Final = 5

# What the rows of a small group keep. Everything else is NULL there.
KEPT_OF_SMALL_GROUPS: Final = ("lead_day", "scope", "branch", "source")

_IS_SMALL: Final = (
    "is_small_group",
    f"Whether fewer than {PEOPLE_MIN} people are known to have sent this kind of lead to this branch on this day: then "
    f"the row says {', '.join(KEPT_OF_SMALL_GROUPS)} and nothing else",
)

_MACROS: Final = macros("share")


@dataclass(frozen=True, slots=True)
class Shared:
    """What a copy holds: the rows of each table, and how many of the leads lost all but the least."""

    rows: Mapping[str, int]
    in_small_groups: int


@cache
def allow_list() -> tuple[Mart, ...]:
    """The tables of a copy: nothing passes that one of their statements doesn't name."""
    return tuple(read_mart(path) for path in sorted((SQL_FOLDER / "share").glob("*.sql")))


def write_share(data: DataFolder, file: Path, now: datetime) -> Shared:
    """Write the copy of what is published now. The file is new and for this user alone (0600).

    Two copies have different keys, which nobody keeps, and their rows lie in an order by chance: so neither hashes nor
    places join them. Raises QuestionError where the file can't be that, StorageError where nothing is published yet.
    """
    _check(data, file)
    with storing(file):
        # The folder is private from its first moment, which a file that DuckDB makes isn't.
        folder = Path(tempfile.mkdtemp(prefix=f".{file.name}.", suffix=".tmp", dir=file.parent))
    try:
        draft = folder / file.name
        with attached_version(data) as db:
            _refuse_who_is_to_go(db, data)
            shared = _written(db, draft, _facts(data, now))
        with storing(file):
            draft.chmod(PRIVATE_FILE_MODE)
        publish_file(draft, file)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return shared


def _check(data: DataFolder, file: Path) -> None:
    if file.exists() or file.is_symlink():
        raise QuestionError(f"{file} is there already, and a copy replaces nothing. Remove it, or name another file.")
    if not file.parent.is_dir():
        raise QuestionError(f"{file.parent} is no folder. Make it, or name another one.")
    if file.resolve().is_relative_to(data.folder.resolve()):
        raise QuestionError(
            f"{file} lies in the data folder, which is for the pipeline alone. Name a file outside of {data.folder}."
        )


def _refuse_who_is_to_go(db: duckdb.DuckDBPyConnection, data: DataFolder) -> None:
    """No erasure reaches a copy, so none is made of who is on the list and still published."""
    sql = "select value::bigint from published.pipeline.facts where name = 'list_number'"
    if data.is_behind or db.execute(sql).fetchall() != [(data.gate.number,)]:
        raise StorageError(
            f"{WAREHOUSE_FILE} is from before the last entry of the suppression list, so it may hold people who are to "
            "be erased. Run `leads-pipeline privacy apply`, then share again."
        )


def _written(db: duckdb.DuckDBPyConnection, draft: Path, facts: Mapping[str, str]) -> Shared:
    db.execute(f"attach {literal(str(draft))} as shared")
    db.execute("use published")  # whose macros the statements use
    set_person_key(db, secrets.token_bytes(32))
    db.execute("set variable members = $members", {"members": sorted({m for of in ENUMERATIONS.values() for m in of})})
    db.execute(_MACROS)
    rows, in_small_groups = {}, 0
    for table in allow_list():
        columns = dict(table.columns)
        target = f"shared.main.{quoted(table.name)}"
        selected = _coarsened(table) if "person" in columns else _as_it_is(table)
        db.execute(f"create table {target} as {selected} order by random()")
        [(rows[table.name],)] = db.execute(f"select count(*) from {target}").fetchall()  # noqa: S608 - our own names
        if "person" in columns:
            name, description = _IS_SMALL
            columns[name] = description
            [(small,)] = db.execute(f"select count(*) from {target} where {name}").fetchall()  # noqa: S608
            in_small_groups += small
        comment(db, target, table.description, columns)
    _describe(db, facts)
    db.execute("use memory")
    db.execute("detach shared")
    return Shared(rows, in_small_groups)


def _as_it_is(table: Mart) -> str:
    return f"select {', '.join(map(quoted, table.columns))} from ({table.statement})"  # noqa: S608 - our own statement


def _coarsened(table: Mart) -> str:
    """The table's rows, those of small groups with what they keep. Leads of nobody known make no group larger."""
    selected = [
        quoted(name) if name in KEPT_OF_SMALL_GROUPS else f"if(is_small, null, {quoted(name)}) as {quoted(name)}"
        for name in table.columns
    ]
    return f"""
        with leads as ({table.statement}),
        groups as (
            select scope, lead_day, count(distinct person) < {PEOPLE_MIN} as is_small
            from leads
            group by scope, lead_day
        )
        select {", ".join(selected)}, is_small as {_IS_SMALL[0]}
        from leads
        join groups using (scope, lead_day)
    """  # noqa: S608 - our own statement


def _facts(data: DataFolder, now: datetime) -> dict[str, str]:
    """What the copy says of itself."""
    lines = [f"{table.name}: {', '.join(table.columns)}" for table in allow_list()]
    checksum = hashlib.sha256(repr((allow_list(), _MACROS)).encode()).hexdigest()
    return {
        "what it is": "A pseudonymised copy of an agency's leads, made by `leads-pipeline privacy share`.",
        "what it isn't": "It isn't anonymous. Names, addresses, numbers and messages are not in it, but whoever knows "
        "that somebody asked a branch on a day, about such a property, may still recognise their row.",
        "law": "UK GDPR applies to it: it is for the purposes that the agency has a basis for, for as long as those "
        "need it. An erasure in the pipeline doesn't reach it: delete it and make a new one.",
        "made at": now.isoformat(timespec="seconds"),
        "made by": f"leads-pipeline {version('leads-pipeline')}",
        "made from": f"{WAREHOUSE_FILE} of {data.state.claimed_by() or 'a data folder of no portal'}",
        "people": "Hashes are under a key of this copy, which nobody kept. They are the same person within the copy "
        "and nobody in another one.",
        "small groups": f"{_IS_SMALL[1]}.",
        "allow-list": "; ".join(lines),
        "allow-list, checksum": checksum,
    }


def _describe(db: duckdb.DuckDBPyConnection, facts: Mapping[str, str]) -> None:
    """The table `about`, with days of the leads as the copy has them."""
    days = " union all ".join(
        f"select lead_day from shared.main.{quoted(table.name)}"  # noqa: S608 - our own names
        for table in allow_list()
        if "lead_day" in table.columns
    )
    [(first, last)] = db.execute(f"select min(lead_day), max(lead_day) from ({days})").fetchall()  # noqa: S608
    rows = {**facts, "days": f"{first} to {last}" if first else "no lead"}
    db.execute("create table shared.main.about (topic varchar, says varchar)")
    db.executemany("insert into shared.main.about values (?, ?)", [*rows.items()])
    description = "Read this first: what this file is, and what it isn't"
    comment(db, "shared.main.about", description, {"topic": "What the row is about", "says": "What there is to say"})
