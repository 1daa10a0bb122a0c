"""What `verify` asks of the marts: whether they count each lead once."""

# ruff: noqa: S608 - only our own names are in the statements

from collections.abc import Iterator
from typing import Final

import duckdb

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.health.seen import Seen, summed_up
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.warehouse.duck import quoted

# Marts whose column `leads` counts each lead in one row.
_COUNTING: Final = ("mart_leads_daily", "mart_people_daily")


def verify(_data: DataFolder, db: duckdb.DuckDBPyConnection, _number: int) -> Iterator[Seen]:
    """Compare the sums of two marts with the tables of leads."""
    troubles = []
    for kind in LEAD_KINDS:
        [(leads,)] = db.execute(f"select count(*) from {quoted(kind.table)}").fetchall()
        for mart in _COUNTING:
            sums = f"select coalesce(sum(leads), 0) from {mart} where kind = $kind"
            [(counted,)] = db.execute(sums, {"kind": kind.name}).fetchall()
            if counted != leads:
                troubles.append(f"{mart} counts {counted} leads, and {kind.table} has {leads}.")

    if troubles:
        troubles.append("This is a fault of the program: please report it.")
    yield summed_up("marts", troubles, f"{' and '.join(_COUNTING)} count each lead once.")
