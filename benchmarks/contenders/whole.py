"""What the scripts leave out: raw text that is synced to the disk, and our marts by DuckDB.

Run by our own interpreter, after a script has made its tables.
"""

import os
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

import duckdb

from leads_pipeline.domain.contract import APPLICANT, Field, FieldType
from leads_pipeline.features.publication_steps import steps_of
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.durable import replace_file
from leads_pipeline.settings import Settings
from leads_pipeline.warehouse.duck import DUCKDB_TYPES, set_person_key
from leads_pipeline.warehouse.load_leads import CheckLeads, LoadLeads
from leads_pipeline.warehouse.publication import PublicationSettings
from leads_pipeline.warehouse.step import Changes, Draft
from leads_pipeline.warehouse.tables import create_table, lead_tables
from leads_pipeline.warehouse.unpublished import RawWindows

FOLDER = Path(os.environ["LEADS_DATA_DIR"])


def keep(day: date, branch: str, content: bytes) -> None:
    """Keep the text of an answer, synced."""
    replace_file(FOLDER / "kept" / str(day) / f"{branch}.json", content)


def make_marts(column: Callable[[str], str]) -> None:
    """Make our marts of the table `leads`, in a file of their own.

    `column` gives the script's name of a field.
    """
    settings = Settings.from_variables(os.environ)
    now = datetime.now(UTC)
    data = DataFolder.at(FOLDER / "ours")
    grid = PublicationSettings(settings.scopes, settings.start_date or now.date(), settings.zone)
    steps = steps_of(data, grid, RawWindows(data.store, data.gate), now, is_first_of_day=True)
    (FOLDER / "marts.duckdb").unlink(missing_ok=True)
    with duckdb.connect(FOLDER / "marts.duckdb") as db:
        db.execute(f"attach '{FOLDER}/leads.duckdb' as script (read_only)")
        db.execute("set TimeZone = 'UTC'")
        set_person_key(db, bytes(32))
        db.execute("create schema pipeline")
        db.execute("create temp table touched (kind varchar, lead_id varchar, lead_day date)")
        for table in lead_tables():
            create_table(db, table)
        _fill_leads(db, column)

        draft = Draft(FOLDER, db, Changes(1, {}, is_new=True, is_first_of_day=True))
        for step in steps:
            if not isinstance(step, LoadLeads | CheckLeads):
                step.fill(draft)
        [(problems,)] = db.execute("select count(*) from pipeline.mart_problems").fetchall()
    assert problems == 0, "A mart couldn't be made."


def _fill_leads(db: duckdb.DuckDBPyConnection, column: Callable[[str], str]) -> None:
    there = {name for name, *_ in db.execute("describe script.leads").fetchall()}
    columns = [
        f"""try_cast("{column(field.path)}" as {DUCKDB_TYPES[field.type]}) as {field.column}"""
        for field in APPLICANT.fields
        if column(field.path) in there
    ]
    db.execute(
        f"""
        insert into {APPLICANT.table} by name
        select
            id as lead_id, scope, 'pull' as source, 1 as sequence, 1 as published_in,
            "{column("createdAt")}"::date as lead_day,
            "{column("createdAt")}"::date as window_day,
            person_of("{column("contact.email")}", "{column("contact.phoneNumber")}") as person,
            {", ".join(columns)}
        from script.leads
        """
    )


if __name__ == "__main__":
    make_marts(
        lambda path: "__".join(
            Field(step, FieldType.TEXT, "").column
            for step in path.split(".")  # as dlt has it
        )
    )
