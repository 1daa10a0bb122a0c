# /// script
# dependencies = [
#     "dlt[duckdb,parquet]==1.31.0", "duckdb==2.0.1", "pyarrow==26.0.1", "orjson==3.13.0",
# ]
# ///
"""dlt as its performance guide has it.

Windows are fetched in parallel. Parquet lies between the stages, and each has workers.

Merged by id, since both ends of a window are included and a day can be pulled twice; lists become
child tables by themselves. The Parquet at the end is a copy of each table, because dlt's own is
gone or in pieces after loading.
"""

import json
import os
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

FOLDER = Path(os.environ["LEADS_DATA_DIR"])
CORES = str(os.cpu_count())
os.environ.update(
    {
        "EXTRACT__WORKERS": os.environ["LEADS_MAX_CONCURRENCY"],
        "EXTRACT__MAX_PARALLEL_ITEMS": str(4 * int(os.environ["LEADS_MAX_CONCURRENCY"])),
        "NORMALIZE__WORKERS": CORES,
        "LOAD__WORKERS": CORES,
        # Without a size, all leads are one file and one worker's.
        "DATA_WRITER__FILE_MAX_ITEMS": "20000",
        "DATA_WRITER__BUFFER_MAX_ITEMS": "20000",
        "RUNTIME__DLTHUB_TELEMETRY": "false",
        "RUNTIME__LOG_LEVEL": "ERROR",
        "DLT_DATA_DIR": str(FOLDER / "dlt"),
    }
)

import dlt  # noqa: E402 - reads the environment
import duckdb  # noqa: E402
from dlt.sources.helpers.rest_client import RESTClient  # noqa: E402
from dlt.sources.helpers.rest_client.auth import OAuth2ClientCredentials  # noqa: E402

BASE_URL = os.environ["LEADS_BASE_URL"]
CLIENT = RESTClient(
    base_url=BASE_URL,
    auth=OAuth2ClientCredentials(
        access_token_url=f"{BASE_URL}/oauth2/token",
        client_id=os.environ["LEADS_CLIENT_ID"],
        client_secret=os.environ["LEADS_CLIENT_SECRET"],
        access_token_request_data={"audience": BASE_URL},
    ),
)


@dlt.resource
def windows(first: date, last: date, branches: list[str]) -> Iterator[dict[str, str]]:
    """The parameters of each request."""
    for number in range((last - first).days + 1):
        day = first + timedelta(days=number)
        ends = {"from-time": f"{day}T00:00:00Z", "to-time": f"{day + timedelta(days=1)}T00:00:00Z"}
        for branch in branches:
            yield {**ends, "branch-id": branch}


# What is a whole number in the first lead and not in another one would be split over two columns.
PRICES = (
    "search_criteria__minimum_price",
    "search_criteria__maximum_price",
    "listing_details__pricing__price",
)


def read(_window: dict[str, str], content: bytes) -> list[dict]:
    """The leads of an answer. dlt_whole.py puts its own in this place."""
    return json.loads(content)["applicants"]


@dlt.transformer(
    parallelized=True,
    primary_key="id",
    write_disposition="merge",
    columns={name: {"data_type": "double"} for name in (*PRICES, "search_criteria__radius")},
)
def leads(window: dict[str, str]) -> list[dict]:
    """The leads of a window."""
    return read(window, CLIENT.get("/applicant-leads", params=window).content)


FILE = FOLDER / "leads.duckdb"


def pipeline() -> dlt.Pipeline:
    """Where to."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    return dlt.pipeline(
        "leads", destination=dlt.destinations.duckdb(str(FILE)), dataset_name="main"
    )


@dlt.source
def portal() -> dlt.sources.DltResource:
    """Where from: all windows of the workload."""
    first, last = (
        date.fromisoformat(os.environ[f"BENCH_{which}_DAY"]) for which in ("FIRST", "LAST")
    )
    return windows(first, last, os.environ["LEADS_BRANCH_IDS"].split(",")) | leads


def copy_out() -> None:
    """Each table as Parquet."""
    with duckdb.connect(str(FILE)) as db:
        for table in ("leads", "leads__viewing_times", "leads__listing_details__images"):
            db.execute(
                f"copy {table} to '{FOLDER}/{table}.parquet' (format parquet, compression zstd)"
            )


def main() -> None:
    """Run the pipeline, then copy the tables out."""
    pipeline().run(portal(), loader_file_format="parquet").raise_on_failed_jobs()
    copy_out()


if __name__ == "__main__":
    main()
