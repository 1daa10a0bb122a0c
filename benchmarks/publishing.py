"""What a day costs, from landing to Delta tables, as the history grows: 10,000 leads into 0.3 to 3 million.

Belongs here: making the history, and timing a day on top of it. Doesn't: what the pipeline does with a day. The
history is made in SQL, by repeating one day's real leads under other ids, people and days.
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
from leads_pipeline.contract import APPLICANT, Answer
from leads_pipeline.delta.publishing import publish_tables
from leads_pipeline.domain.answer import read_leads
from leads_pipeline.durable import copy_file
from leads_pipeline.flatten.batches import flatten_day
from leads_pipeline.lake import Lake
from leads_pipeline.objects import store_of
from leads_pipeline.simulator.leads import LeadBook
from leads_pipeline.simulator.organisation import Organisation
from leads_pipeline.warehouse import Grid, Warehouse
from leads_pipeline.window import Scope, Window, day_interval
from leads_pipeline_tests.support.buckets import KEYS, made_bucket, running_moto

ZONE = ZoneInfo("Europe/London")
BRANCHES = int(os.environ.get("BENCH_BRANCHES", "50"))
LEADS_A_DAY = int(os.environ.get("BENCH_LEADS", "10000"))
MILLIONS = [float(text) for text in os.environ.get("BENCH_MILLIONS", "0.3,1,3").split(",")]
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
# Where the history is made: on XFS or btrfs a copy of it takes no time.
FOLDER = os.environ.get("BENCH_FOLDER") or None
IS_DELTA = os.environ.get("BENCH_DELTA") == "1"
# In a bucket of moto's, which is a process of its own on the same machine.
IS_STORE = os.environ.get("BENCH_STORE") == "1"
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
FIRST = date(2026, 11, 1)
GRID = Grid([Scope.parse(f"branch-{101 + n}") for n in range(BRANCHES)], FIRST - timedelta(days=370), ZONE)


def land(lake: Lake, day: date) -> int:
    """Land a day of all branches; return how many leads it has."""
    book = LeadBook(7, LEADS_A_DAY / BRANCHES)
    landed = 0
    for branch in Organisation(7, BRANCHES).branches:
        start, end = day_interval(day, ZONE)
        body = book.answer("applicant", [branch], start, end, NOW)
        window = Window.of(day, Scope.parse(f"branch-{branch.id}"), ZONE)
        leads = read_leads(APPLICANT, body).leads
        lake.land(Answer(APPLICANT, window, leads, NOW, "/", "0" * 64, len(body), 1, 0.1), "bench")
        landed += len(leads)
    return landed


def grow(path: Path, leads: int) -> None:
    """Repeat the leads and children of the published file until it holds so many leads, of other people and days."""
    path.chmod(0o600)
    (path.parent / ".state" / "warehouse-pieces").unlink()  # or it would be taken for damaged
    with duckdb.connect(path) as db:
        (held,) = db.execute("select count(*) from applicant_leads").fetchall()[0]
        times = leads // held
        for table in APPLICANT.tables:
            db.execute(f"create temp table first_{table} as from {table}")
        db.begin()
        # Day after day, as they come: a day's rows lie together. A listing is on the market for some weeks.
        for number in range(1, times):
            lead_id, day = f"lead_id || '-{number}' as lead_id", f"day - {number} as day"
            lead = (
                f"uuid() as person, lead_day - {number} as lead_day, window_day - {number} as window_day, "
                f"listing_details_id || '-{number // 60}' as listing_details_id"
            )
            for table, replaced in (
                ("applicant_leads", f"{lead_id}, {lead}"),
                ("applicant_viewing_times", f"{lead_id}, {day}"),
                ("applicant_listing_images", f"{lead_id}, {day}"),
            ):
                db.execute(f"insert into {table} select * replace ({replaced}) from first_{table}")
        # So that the next publication makes the marts from all of it.
        db.execute("update pipeline.facts set value = '' where name = 'marts'")
        db.commit()
        assert db.execute("select count(*) from applicant_leads").fetchall()[0][0] == held * times


@dataclass(frozen=True, slots=True)
class Day:
    """What a day cost: seconds of each step and of copying the file alone, and the most memory that it took."""

    leads: int
    land: float
    flatten: float
    publish: float
    delta: float
    copy: float
    peak_mb: float
    rows: int
    file_mb: float

    @property
    def seconds(self) -> float:
        """From the portal's answers to whoever reads the tables."""
        return self.land + self.flatten + self.publish + self.delta


def lake_at(folder: Path, bucket: str | None) -> Lake:
    """The folder, as a copy of the bucket where there is one."""
    return Lake(folder / "data", store=store_of(bucket, plain_http=True))


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
    """Land, flatten and publish a day on top of what is there."""
    lake = lake_at(folder, bucket)
    copying = copy_seconds(Warehouse(lake).path, folder / "copy")
    moments = [time.perf_counter()]
    leads = land(lake, day)
    moments.append(time.perf_counter())
    flatten_day(lake, APPLICANT, day, ZONE)
    moments.append(time.perf_counter())
    publication = Warehouse(lake).publish(GRID, NOW)
    moments.append(time.perf_counter())
    assert publication.is_changed
    assert not publication.is_rebuilt
    if IS_DELTA:
        publish_tables(lake)
    moments.append(time.perf_counter())
    landing, flattening, publishing, following = (ended - began for began, ended in pairwise(moments))
    return Day(
        leads=leads,
        land=landing,
        flatten=flattening,
        publish=publishing,
        delta=following,
        copy=copying,
        peak_mb=resident_bytes(os.getpid())[1] / 1e6,
        rows=publication.rows["applicant_leads"],
        file_mb=publication.size_bytes / 1e6,
    )


def make_history(folder: Path, bucket: str | None, leads: int) -> float:
    """Publish so many leads, and have them in the Delta tables; return how long publishing them as a whole took."""
    lake = lake_at(folder, bucket)
    lake.refresh()
    land(lake, FIRST)
    flatten_day(lake, APPLICANT, FIRST, ZONE)
    warehouse = Warehouse(lake)
    warehouse.publish(GRID, NOW)
    grow(warehouse.path, leads)
    whole = warehouse.publish(GRID, NOW)
    if IS_DELTA:
        publish_tables(lake)
    return whole.seconds


@contextmanager
def made_store() -> Iterator[str | None]:
    """The address of an empty bucket, where one is wanted."""
    if not IS_STORE:
        yield None
        return
    with running_moto() as server:
        os.environ |= {**KEYS, "AWS_ENDPOINT_URL": server}
        yield f"s3://{made_bucket(server)}"


def main() -> None:
    """Print a line per size of the history: medians of the rounds, one day each, every one in a process of its own."""
    print(
        f"{'history':>10} {'day':>7} {'land s':>7} {'flatten s':>10} {'publish s':>10} {'Delta s':>8} {'all s':>6} "
        f"{'copy s':>7} {'marts whole s':>14} {'file MB':>8} {'peak MB':>8}"
    )
    for millions in MILLIONS:
        with tempfile.TemporaryDirectory(dir=FOLDER) as name, made_store() as bucket:
            folder = Path(name)
            whole = make_history(folder, bucket, int(millions * 1_000_000))
            days = []
            for number in range(ROUNDS):
                with ProcessPoolExecutor(1, get_context("spawn")) as process:
                    day = FIRST + timedelta(days=number + 1)
                    days.append(process.submit(timed_day, folder, bucket, day).result())
            columns = {field.name: [getattr(day, field.name) for day in days] for field in fields(Day)}
            one = Day(**{column: median(values) for column, values in columns.items()})
            print(
                f"{one.rows:>10,.0f} {one.leads:>7,.0f} {one.land:>7.2f} {one.flatten:>10.2f} {one.publish:>10.2f} "
                f"{one.delta:>8.2f} {median(day.seconds for day in days):>6.2f} {one.copy:>7.2f} {whole:>14.2f} "
                f"{one.file_mb:>8.0f} {one.peak_mb:>8.0f}"
            )
