# /// script
# dependencies = ["httpx==0.28.1", "polars==2.1.0", "pyarrow==26.0.1", "duckdb==2.0.1"]
# ///
"""The script of an analyst who knows polars: pandas_script.py, with structs as columns."""

import os
from pathlib import Path

import duckdb
import polars as pl
from asking import FIRST, fetch_all  # beside this file

FOLDER = Path(os.environ["LEADS_DATA_DIR"])


def flatten(leads: list[dict]) -> dict[str, pl.DataFrame]:
    """A table of leads and one per list."""
    # Without a length, a field that the first hundred leads don't have would be missing.
    table = pl.from_dicts(leads, infer_schema_length=None).unique(
        "id", keep="last", maintain_order=True
    )
    while structs := [name for name, type_ in table.schema.items() if isinstance(type_, pl.Struct)]:
        table = table.unnest(structs, separator="_")
    lists = {"viewing_times": "viewingTimes", "images": "listingDetails_images"}
    tables = {
        name: table.select("id", column)
        .explode(column, empty_as_null=False, keep_nulls=False)
        .unnest(column)
        for name, column in lists.items()
    }
    moments = pl.col("createdAt").str.to_datetime(time_zone="UTC", strict=False)
    ends = pl.col("earliest", "latest").str.to_datetime(time_zone="UTC", strict=False)
    tables["viewing_times"] = tables["viewing_times"].with_columns(ends)
    return {"leads": table.drop(lists.values()).with_columns(moments), **tables}


def main() -> None:
    """Fetch, flatten, store."""
    for name, table in flatten(fetch_all()).items():
        (FOLDER / name).mkdir(parents=True, exist_ok=True)
        table.with_columns(pull=pl.lit(str(FIRST))).write_parquet(
            FOLDER / name / f"{FIRST}.parquet"
        )
    with duckdb.connect(str(FOLDER / "leads.duckdb")) as db:
        pulls = f"read_parquet('{FOLDER}/%s/*.parquet', union_by_name = true)"
        db.execute(
            f"create temp table newest as select id, max(pull) as pull from {pulls % 'leads'} "
            "group by id"
        )
        for name in ("leads", "viewing_times", "images"):
            db.execute(
                f"create or replace table {name} as from {pulls % name} semi join newest using "
                "(id, pull)"
            )


if __name__ == "__main__":
    main()
