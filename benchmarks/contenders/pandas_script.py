# /// script
# dependencies = ["httpx==0.28.1", "pandas==3.1.1", "pyarrow==26.0.1", "duckdb==2.0.1"]
# ///
"""What a competent analyst would write: httpx side by side with one token, pandas.json_normalize, Parquet, DuckDB.

Each pull is a Parquet file per table, named by its first day; the tables are made anew from all of them, each lead
from the newest pull that has it.
"""

import asyncio
import os
from datetime import date, timedelta
from pathlib import Path

import duckdb
import httpx
import pandas as pd

FOLDER = Path(os.environ["LEADS_DATA_DIR"])
BASE_URL = os.environ["LEADS_BASE_URL"]


async def fetch(first: date, last: date, branches: list[str]) -> list[dict]:
    """All leads of all windows."""
    async with httpx.AsyncClient(base_url=BASE_URL, timeout=60) as http:
        form = {
            "grant_type": "client_credentials",
            "client_id": os.environ["LEADS_CLIENT_ID"],
            "client_secret": os.environ["LEADS_CLIENT_SECRET"],
            "audience": BASE_URL,
        }
        token = (await http.post("/oauth2/token", data=form)).raise_for_status().json()["access_token"]
        http.headers["Authorization"] = f"Bearer {token}"
        at_once = asyncio.Semaphore(int(os.environ["LEADS_MAX_CONCURRENCY"]))

        async def window(day: date, branch: str) -> list[dict]:
            ends = {"from-time": f"{day}T00:00:00Z", "to-time": f"{day + timedelta(days=1)}T00:00:00Z"}
            async with at_once:
                response = await http.get("/applicant-leads", params={**ends, "branch-id": branch})
            return response.raise_for_status().json()["applicants"]

        days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
        answers = await asyncio.gather(*(window(day, branch) for day in days for branch in branches))
    return [lead for answer in answers for lead in answer]


def flatten(leads: list[dict]) -> dict[str, pd.DataFrame]:
    """A table of leads and one per list."""
    leads = list({lead["id"]: lead for lead in leads}.values())  # both ends of a window are included
    table = pd.json_normalize(leads, sep="_").drop(columns=["viewingTimes", "listingDetails_images"])
    table["createdAt"] = pd.to_datetime(table["createdAt"], format="ISO8601", utc=True, errors="coerce")
    with_times = [lead for lead in leads if lead["viewingTimes"]]
    times = pd.json_normalize(with_times, "viewingTimes", "id")
    for column in ("earliest", "latest"):
        times[column] = pd.to_datetime(times[column], format="ISO8601", utc=True, errors="coerce")
    images = pd.json_normalize(leads, ["listingDetails", "images"], "id")
    return {"leads": table, "viewing_times": times, "images": images}


def main() -> None:
    """Fetch, flatten, store."""
    first, last = (date.fromisoformat(os.environ[f"BENCH_{which}_DAY"]) for which in ("FIRST", "LAST"))
    tables = flatten(asyncio.run(fetch(first, last, os.environ["LEADS_BRANCH_IDS"].split(","))))
    for name, table in tables.items():
        (FOLDER / name).mkdir(parents=True, exist_ok=True)
        table.assign(pull=str(first)).to_parquet(FOLDER / name / f"{first}.parquet", compression="zstd")
    with duckdb.connect(str(FOLDER / "leads.duckdb")) as db:
        pulls = f"read_parquet('{FOLDER}/%s/*.parquet', union_by_name = true)"
        db.execute(f"create temp table newest as select id, max(pull) as pull from {pulls % 'leads'} group by id")
        for name in tables:
            db.execute(f"create or replace table {name} as from {pulls % name} semi join newest using (id, pull)")


if __name__ == "__main__":
    main()
