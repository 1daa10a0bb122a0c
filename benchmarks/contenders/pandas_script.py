# /// script
# dependencies = ["httpx==0.28.1", "pandas==3.1.1", "pyarrow==26.0.1", "duckdb==2.0.1"]
# ///
"""What a competent analyst would write, with httpx, pandas.json_normalize, Parquet and DuckDB.

Requests run side by side with one token. Each pull is a Parquet file per table, named by its first
day; the tables are made anew from all of them, each lead from the newest pull that has it.
"""

import os
from pathlib import Path

import duckdb
import pandas as pd
from asking import FIRST, fetch_all  # beside this file

FOLDER = Path(os.environ["LEADS_DATA_DIR"])


def flatten(leads: list[dict]) -> dict[str, pd.DataFrame]:
    """A table of leads and one per list."""
    # Both ends of a window are included.
    leads = list({lead["id"]: lead for lead in leads}.values())
    table = pd.json_normalize(leads, sep="_").drop(
        columns=["viewingTimes", "listingDetails_images"]
    )
    table["createdAt"] = pd.to_datetime(
        table["createdAt"], format="ISO8601", utc=True, errors="coerce"
    )
    with_times = [lead for lead in leads if lead["viewingTimes"]]
    times = pd.json_normalize(with_times, "viewingTimes", "id")
    for column in ("earliest", "latest"):
        times[column] = pd.to_datetime(times[column], format="ISO8601", utc=True, errors="coerce")
    images = pd.json_normalize(leads, ["listingDetails", "images"], "id")
    return {"leads": table, "viewing_times": times, "images": images}


def store(tables: dict[str, pd.DataFrame]) -> None:
    """Write the Parquet files, and make DuckDB's tables of all pulls."""
    for name, table in tables.items():
        (FOLDER / name).mkdir(parents=True, exist_ok=True)
        table.assign(pull=str(FIRST)).to_parquet(
            FOLDER / name / f"{FIRST}.parquet", compression="zstd"
        )
    with duckdb.connect(str(FOLDER / "leads.duckdb")) as db:
        pulls = f"read_parquet('{FOLDER}/%s/*.parquet', union_by_name = true)"
        db.execute(
            f"create temp table newest as select id, max(pull) as pull from {pulls % 'leads'} "
            "group by id"
        )
        for name in tables:
            db.execute(
                f"create or replace table {name} as from {pulls % name} semi join newest using "
                "(id, pull)"
            )


def main() -> None:
    """Fetch, flatten, store."""
    store(flatten(fetch_all()))


if __name__ == "__main__":
    main()
