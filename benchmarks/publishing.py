"""What a day costs, from landing to what analysts read, as the history grows.

10,000 leads go into 0.3 to 3 million.

Belongs here: making the history, and timing a day on top of it. Doesn't: what the pipeline does
with a day. The history is made in SQL, by repeating one day's real leads under other ids, people
and days.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from zoneinfo import ZoneInfo

import duckdb

from benchmarks.measuring import resident_bytes
from leads_pipeline.domain.bodies import cut_leads
from leads_pipeline.domain.contract import APPLICANT
from leads_pipeline.domain.window import Scope, Window, day_interval
from leads_pipeline.features.bucket.store import open_store
from leads_pipeline.features.publication_steps import bring_up_to_date
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.durable import copy_file
from leads_pipeline.settings import Settings
from leads_pipeline.simulator.leads import LeadBook
from leads_pipeline.simulator.organisation import Organisation
from leads_pipeline.warehouse.publication import PublicationSettings
from leads_pipeline.warehouse.published import LeadsFile
from leads_pipeline.warehouse.step import Publication
from leads_pipeline_tests.support.buckets import KEYS, made_bucket, running_moto

ZONE = ZoneInfo("Europe/London")
BRANCHES = int(os.environ.get("BENCH_BRANCHES", "50"))
LEADS_A_DAY = int(os.environ.get("BENCH_LEADS", "10000"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
# Where the history is made: on XFS or btrfs a copy of it takes no time.
FOLDER = os.environ.get("BENCH_FOLDER") or None
# parquet, delta or none, as LEADS_TABLES.
TABLES = os.environ.get("BENCH_TABLES", "parquet")
# In a bucket of moto's, which is a process of its own on the same machine.
IS_STORE = os.environ.get("BENCH_STORE") == "1"
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
FIRST = date(2026, 11, 1)
INSTALLATION = Settings.from_variables({"LEADS_TABLES": TABLES})
WANTED = PublicationSettings(
    [Scope.parse(f"branch-{101 + n}") for n in range(BRANCHES)],
    FIRST - timedelta(days=370),
    ZONE,
    installation=INSTALLATION,
)


def land(data: DataFolder, day: date) -> int:
    """Land a day of all branches; return how many leads it has."""
    book = LeadBook(7, LEADS_A_DAY / BRANCHES)
    landed = 0
    for branch in Organisation(7, BRANCHES).branches:
        start, end = day_interval(day, ZONE)
        body = book.answer("applicant", [branch], start, end, NOW)
        window = Window.of(day, Scope.parse(f"branch-{branch.id}"), ZONE)
        leads = cut_leads(APPLICANT, body).leads
        data.raw.land(APPLICANT, window, leads, NOW, "0" * 64, "bench")
        landed += len(leads)
    return landed


def grow(path: Path, leads: int) -> None:
    """Repeat the published file's leads and children until it holds so many leads.

    They are of other people and days.
    """
    path.chmod(0o600)
    with duckdb.connect(path) as db:
        (held,) = db.execute("select count(*) from applicant_leads").fetchall()[0]
        times = leads // held
        for table in APPLICANT.tables:
            db.execute(f"create temp table first_{table} as from {table}")
        db.begin()
        # Day after day, as they come: a day's rows lie together. A listing is on the market for
        # some weeks.
        for number in range(1, times):
            lead_id = f"lead_id || '-{number}' as lead_id"
            day = f"day - {number} as day"
            lead = (
                f"uuid() as person, lead_day - {number} as lead_day, window_day - {number} as "
                f"window_day, listing_details_id || '-{number // 60}' as listing_details_id"
            )
            for table, replaced in (
                ("applicant_leads", f"{lead_id}, {lead}"),
                ("applicant_viewing_times", f"{lead_id}, {day}"),
                ("applicant_listing_images", f"{lead_id}, {day}"),
            ):
                db.execute(f"insert into {table} select * replace ({replaced}) from first_{table}")
        # So that the next publication makes the marts and the tables of all of it.
        db.execute("insert into pipeline.mart_problems values ('all', 'of the benchmark')")
        db.execute("update pipeline.facts set value = '' where name = 'inputs'")
        db.execute(
            "insert into pipeline.touched_days select distinct lead_day, 2 from applicant_leads"
        )
        db.commit()
        assert db.execute("select count(*) from applicant_leads").fetchall()[0][0] == held * times


@dataclass(frozen=True, slots=True)
class Day:
    """What a day cost: seconds of each step and of copying the file alone, and the most memory."""

    leads: int
    land: float
    publish: float
    copy: float
    peak_mb: float
    rows: int
    file_mb: float

    @property
    def seconds(self) -> float:
        """From the portal's answers to whoever reads the tables."""
        return self.land + self.publish


def lake_at(folder: Path, bucket: str | None) -> DataFolder:
    """The folder, as a copy of the bucket where there is one."""
    return DataFolder.at(
        folder / "data", bucket=open_store(bucket, plain_http=True) if bucket else None
    )


def copy_seconds(path: Path, target: Path) -> float:
    """How long it takes to copy the file as a publication does, and have the copy on the disk."""
    began = time.perf_counter()
    copy_file(path, target)
    with target.open("rb") as copy:
        os.fsync(copy.fileno())
    took = time.perf_counter() - began
    target.unlink()
    return took


def timed_day(folder: Path, bucket: str | None, day: date) -> Day:
    """Land and publish a day on top of what is there."""
    data = lake_at(folder, bucket)
    copying = copy_seconds(LeadsFile(data).path, folder / "copy")
    moments = [time.perf_counter()]
    leads = land(data, day)
    moments.append(time.perf_counter())
    publication = publish(data)
    moments.append(time.perf_counter())
    assert publication.way == "update"
    landing, publishing = (ended - began for began, ended in pairwise(moments))
    [(rows,)] = LeadsFile(data).query("select count(*) from applicant_leads")[1]
    return Day(
        leads=leads,
        land=landing,
        publish=publishing,
        copy=copying,
        peak_mb=resident_bytes(os.getpid())[1] / 1e6,
        rows=rows,
        file_mb=LeadsFile(data).path.stat().st_size / 1e6,
    )


def publish(data: DataFolder) -> Publication:
    """Publish what has landed, with its tables."""
    publication = bring_up_to_date(data, WANTED, NOW)
    assert publication.problems == {}
    return publication


def make_history(folder: Path, bucket: str | None, leads: int) -> float:
    """Publish so many leads; return how long making all marts and tables of them took."""
    data = lake_at(folder, bucket)
    land(data, FIRST)
    publish(data)
    path = LeadsFile(data).path
    version = path.resolve()
    grow(version, leads)
    # A name without a hash, because the bytes are other ones now.
    path.unlink()
    path.symlink_to(
        version.rename(version.with_name("leads-1.duckdb")).relative_to(path.parent.resolve())
    )
    began = time.perf_counter()
    publish(data)
    return time.perf_counter() - began


@contextmanager
def made_store() -> Iterator[str | None]:
    """The address of an empty bucket, where one is wanted."""
    if not IS_STORE:
        yield None
        return
    with running_moto() as server:
        os.environ |= {**KEYS, "AWS_ENDPOINT_URL": server}
        yield f"s3://{made_bucket(server)}"


def millions_of(default: str) -> list[float]:
    """Return how many millions of leads the histories have."""
    return [float(text) for text in os.environ.get("BENCH_MILLIONS", default).split(",")]


def main() -> None:
    """Print a line per size of the history.

    It has the medians of the rounds. A round is one day, in a process of its own.
    """
    print(
        f"{'history':>10} {'day':>7} {'land s':>7} {'publish s':>10} {'both s':>7} {'copy s':>7} "
        f"{'all marts and tables s':>23} {'file MB':>8} {'peak MB':>8}"
    )
    for millions in millions_of("0.3,1,3"):
        with tempfile.TemporaryDirectory(dir=FOLDER) as name, made_store() as bucket:
            folder = Path(name)
            whole = make_history(folder, bucket, int(millions * 1_000_000))
            days = []
            for number in range(ROUNDS):
                with ProcessPoolExecutor(1, get_context("spawn")) as process:
                    day = FIRST + timedelta(days=number + 1)
                    days.append(process.submit(timed_day, folder, bucket, day).result())
            columns = {
                field.name: [getattr(day, field.name) for day in days] for field in fields(Day)
            }
            one = Day(**{column: median(values) for column, values in columns.items()})
            print(
                f"{one.rows:>10,.0f} {one.leads:>7,.0f} {one.land:>7.2f} {one.publish:>10.2f} "
                f"{median(day.seconds for day in days):>7.2f} {one.copy:>7.2f} {whole:>23.2f} "
                f"{one.file_mb:>8.0f} {one.peak_mb:>8.0f}"
            )
