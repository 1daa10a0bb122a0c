"""A copy of the figures for wide use: pseudonymised.

Belongs here: which tables and columns pass, what the copy says of itself, writing it. Doesn't: leads.duckdb
(transform/), arguments (cli/privacy.py).
"""

import secrets
import shutil
import tempfile
from collections.abc import Mapping
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

import duckdb

from leads_pipeline.errors import QuestionError
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.durable import PRIVATE_FILE_MODE, publish_file, storing
from leads_pipeline.transform.duck import WAREHOUSE_FILE, literal, quoted, set_person_key
from leads_pipeline.transform.marts import Mart, marts
from leads_pipeline.transform.reading import attached_version, check_follows_list
from leads_pipeline.transform.tables import comment

FACTS: Final = "lead_facts"

# Of `lead_facts`: by an id or the exact moment, somebody could look a row up. The others pass as hashes.
_LEFT_OUT: Final = frozenset({"lead_id", "created_at"})
_HASHED: Final = ("person", "listing_id")

# A mart with one of these columns knows a single person or a single property, or the moment of a day's only lead.
_OF_ONE: Final = frozenset({"lead_id", "person", "listing_id", "item_id", "address", "lowest_estimate", "minutes_p50"})


def shared_tables() -> tuple[Mart, ...]:
    """The tables of a copy: `lead_facts`, and the marts that know no single person."""
    wide = (mart for mart in marts() if mart.name.startswith("mart_") and _OF_ONE.isdisjoint(mart.descriptions))
    return (*(mart for mart in marts() if mart.name == FACTS), *wide)


def write_share(data: DataFolder, file: Path, now: datetime) -> dict[str, int]:
    """Write the copy of what is published now. Return the rows of each table.

    The file is new and for this user alone (0600). Two copies have different keys, which nobody keeps, and their rows
    are in random order. So nobody can join them. Raises QuestionError if the file can't be written there, StorageError
    if nothing is published yet.
    """
    _check(data, file)
    with storing(file):
        # This folder is private from its first moment. A file that DuckDB makes isn't.
        folder = Path(tempfile.mkdtemp(prefix=f".{file.name}.", suffix=".tmp", dir=file.parent))
    try:
        draft = folder / file.name
        with attached_version(data) as db:
            check_follows_list(db, data)
            rows = _written(db, draft, _facts(data, now))
        with storing(file):
            draft.chmod(PRIVATE_FILE_MODE)
        publish_file(draft, file)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return rows


def _check(data: DataFolder, file: Path) -> None:
    if file.exists() or file.is_symlink():
        raise QuestionError(f"{file} exists. Delete it, or name another file.")
    if not file.parent.is_dir():
        raise QuestionError(f"The folder {file.parent} doesn't exist. Make it, or name another one.")
    data.want_outside(file)


def _written(db: duckdb.DuckDBPyConnection, draft: Path, facts: Mapping[str, str]) -> dict[str, int]:
    db.execute(f"attach {literal(str(draft))} as shared")
    set_person_key(db, secrets.token_bytes(32))
    rows = {}
    for table in shared_tables():
        columns = {
            name: says for name, says in table.descriptions.items() if table.name != FACTS or name not in _LEFT_OUT
        }
        selected = ", ".join(_hashed(name) if name in _HASHED else quoted(name) for name in columns)
        target = f"shared.main.{quoted(table.name)}"
        db.execute(f"create table {target} as select {selected} from {quoted(table.name)} order by random()")  # noqa: S608 - our own names
        [(rows[table.name],)] = db.execute(f"select count(*) from {target}").fetchall()  # noqa: S608
        comment(db, target, table.description, columns)
    db.execute("create table shared.main.about (topic varchar, says varchar)")
    db.executemany("insert into shared.main.about values (?, ?)", [*facts.items()])
    description = "Read this first: what this file is, and what it isn't"
    comment(db, "shared.main.about", description, {"topic": "What the row is about", "says": "What there is to say"})
    db.execute("use memory")
    db.execute("detach shared")
    return rows


def _hashed(column: str) -> str:
    """The column's own name is hashed along, so that no person's hash is a listing's."""
    return f"keyed_hash({literal(f'{column} ')} || {quoted(column)}::varchar) as {quoted(column)}"


def _facts(data: DataFolder, now: datetime) -> dict[str, str]:
    """The facts that the copy holds about itself."""
    return {
        "what it is": "A pseudonymised copy of an agency's figures, made by `leads-pipeline privacy share`.",
        "what it isn't": "It isn't anonymous. Names, addresses, numbers and messages are not in it. But somebody "
        "who knows that a person asked a branch on a day may recognise their row.",
        "law": "UK GDPR applies to it. Use it for purposes that the agency has a basis for, and delete it when they "
        "end. An erasure in the pipeline doesn't reach it: delete it and make a new one.",
        "made at": now.isoformat(timespec="seconds"),
        "made by": f"leads-pipeline {version('leads-pipeline')}",
        "made from": f"{WAREHOUSE_FILE} of {data.state.claimed_by() or 'a data folder of no portal'}",
        "people": "Nobody kept the key of the hashes. A person has another hash in each copy.",
    }
