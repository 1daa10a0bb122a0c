"""What `doctor` and `verify` ask of the tables beside leads.duckdb."""

# ruff: noqa: S608 - only our own names are in the statements

from collections.abc import Iterator

import duckdb

from leads_pipeline.features.lake.parquet_tables import TABLES, count_rows
from leads_pipeline.features.lake.settings import LakeSettings
from leads_pipeline.features.lake.step import want_deltalake
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.seen import Light, Seen, ask, summed_up
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.starting import how_to_publish
from leads_pipeline.warehouse.duck import quoted
from leads_pipeline.warehouse.editions import number_of
from leads_pipeline.warehouse.tables import lead_tables


def questions(facts: Facts) -> Iterator[Seen]:
    """Ask whether Delta tables can be written, if they are wanted."""
    if facts.settings.of(LakeSettings).tables == "delta":
        yield ask("Delta tables", want_deltalake)


def verify(data: DataFolder, db: duckdb.DuckDBPyConnection, edition_number: int) -> Iterator[Seen]:
    """Read each value of the Parquet files, and compare how many rows they have with leads.duckdb.

    That is open as `db`.
    """
    folder = data.folder / TABLES
    publish = f"{how_to_publish(data.state)}."
    if not folder.is_symlink():
        return

    if number_of(folder.resolve()) != edition_number:
        yield Seen("typed tables", Light.YELLOW, f"They are older than leads.duckdb. {publish}")
        return

    wrong = []
    for table in lead_tables():
        [(rows,)] = db.execute(f"select count(*) from {quoted(table.name)}").fetchall()
        if (found := count_rows(folder / table.name)) != rows:
            has = (
                "can't be read"
                if found is None
                else f"has {found} rows, and leads.duckdb has {rows}"
            )
            wrong.append(f"{TABLES}/{table.name} {has}.")

    if wrong:
        wrong.append(f"Run `rm {folder}`, then publish: they are written anew. {publish}")

    yield summed_up("typed tables", wrong, "Each has the rows of leads.duckdb.")
