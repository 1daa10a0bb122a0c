"""What whoever follows leads.duckdb goes by, compared with what is in it."""

import duckdb

from leads_pipeline.lake import Lake
from leads_pipeline.warehouse import Warehouse

# Written by hand: what is replaced by days. All else is read as a whole.
DAYS = {
    "applicant_leads": "window_day",
    "applicant_viewing_times": "day",
    "applicant_listing_images": "day",
    "appraisal_leads": "window_day",
    "landed_windows": "window_day",
    "mart_answers": "lead_day",
    "mart_appraisals": "lead_day",
    "mart_coverage": "day",
    "mart_enquiry_mix": "lead_day",
    "mart_hidden_valuations": "lead_day",
    "mart_hourly": "lead_day",
    "mart_lead_properties": "lead_day",
    "mart_leads_daily": "lead_day",
    "mart_listing_daily": "lead_day",
    "mart_listing_demand": "last_lead_day",
    "mart_people": "last_lead_day",
    "mart_people_daily": "lead_day",
}


def follow(lake: Lake) -> None:
    """Have the next publication leave digests."""
    (lake.folder / "delta").mkdir(parents=True, exist_ok=True)


def assert_digests_are_right(lake: Lake) -> None:
    """Each day of each table has a digest of the rows that are there now, and nothing else has."""
    with duckdb.connect(Warehouse(lake).path, read_only=True) as db:
        noted = db.execute("from pipeline.digests order by all").fetchall()
        tables = {name for (name,) in db.execute("select table_name from duckdb_tables()").fetchall()}
        there = []
        for table, day in ((table, day) for table, day in DAYS.items() if table in tables):
            columns = ", ".join(f'"{name}"' for name, *_ in db.execute(f"describe {table}").fetchall())
            there += db.execute(
                f"select '{table}', {day}, count(*), bit_xor(hash({columns})), sum(hash({columns})) from {table} "  # noqa: S608
                f"group by {day}"
            ).fetchall()
    assert noted == sorted(there)
