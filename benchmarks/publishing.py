"""What a day costs, staged, published and as Delta tables, as the history grows: 10,000 leads into 0.3 to 3 million.

Belongs here: making the history, and timing a day on top of it. Doesn't: what the pipeline does with a day. The
history is made in SQL, by repeating one day's real leads under other ids, people and days.
"""

import os
import resource
import shutil
import tempfile
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from statistics import median
from zoneinfo import ZoneInfo

import duckdb

from leads_pipeline.contract import APPLICANT, Answer, read_leads
from leads_pipeline.delta.folder import delta_folder
from leads_pipeline.delta.publishing import publish_tables
from leads_pipeline.flatten.batches import flatten_day
from leads_pipeline.lake import Lake
from leads_pipeline.simulator.book import LeadBook
from leads_pipeline.simulator.leads import LeadFactory
from leads_pipeline.simulator.organisation import Organisation
from leads_pipeline.simulator.stock import Stock
from leads_pipeline.warehouse import Grid, Warehouse
from leads_pipeline.window import Scope, Window, day_interval

ZONE = ZoneInfo("Europe/London")
BRANCHES = int(os.environ.get("BENCH_BRANCHES", "50"))
LEADS_A_DAY = int(os.environ.get("BENCH_LEADS", "10000"))
MILLIONS = [float(text) for text in os.environ.get("BENCH_MILLIONS", "0.3,1,3").split(",")]
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
# Where the history is made: on XFS or btrfs a copy of it takes no time.
FOLDER = os.environ.get("BENCH_FOLDER") or None
IS_DELTA = os.environ.get("BENCH_DELTA") == "1"
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
FIRST, SECOND = date(2026, 11, 18), date(2026, 11, 19)


def land(lake: Lake, day: date) -> int:
    """Land a day of all branches; return how many leads it has."""
    book = LeadBook(LeadFactory(7, LEADS_A_DAY / BRANCHES, Stock(7)))
    landed = 0
    for branch in Organisation(7, BRANCHES).branches:
        start, end = day_interval(day, ZONE)
        body = book.answer("applicant", [branch], start, end, NOW)
        window = Window.of(day, Scope.parse(f"branch-{branch.id}"), ZONE)
        leads = read_leads(APPLICANT, body)
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


def durable_copy_seconds(path: Path, target: Path) -> float:
    """How long it takes to copy the file and have the copy on the disk, which every publication does."""
    began = time.perf_counter()
    shutil.copyfile(path, target)
    with target.open("rb") as copy:
        os.fsync(copy.fileno())
    took = time.perf_counter() - began
    target.unlink()
    return took


def timed_delta(lake: Lake) -> float:
    """Bring the Delta tables up to date where they are wanted; how long it took."""
    return publish_tables(lake).seconds if IS_DELTA else 0.0


def peak_mb() -> float:
    """The most memory that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def main() -> None:
    """Print a line per size of the history: medians of the rounds, which all begin with the same file."""
    grid = Grid([Scope.parse(f"branch-{101 + n}") for n in range(BRANCHES)], FIRST - timedelta(days=370), ZONE)
    print(
        f"{'history':>10} {'day':>7} {'flatten s':>10} {'publish s':>10} {'Delta s':>8} {'copy s':>7} "
        f"{'beyond it s':>12} {'marts whole s':>14} {'file MB':>8} {'peak MB':>8}"
    )
    for millions in MILLIONS:
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            lake = Lake(Path(folder) / "data")
            warehouse = Warehouse(lake)
            land(lake, FIRST)
            flatten_day(lake, APPLICANT, FIRST, ZONE)
            warehouse.publish(grid, NOW)
            grow(warehouse.path, int(millions * 1_000_000))
            if IS_DELTA:
                delta_folder(lake).mkdir()
            whole = warehouse.publish(grid, NOW)
            timed_delta(lake)
            warehouse.publish(grid, NOW)
            leads = land(lake, SECOND)
            history = Path(folder) / "history.duckdb"
            history.hardlink_to(warehouse.path)
            tables = Path(folder) / "delta"
            if IS_DELTA:
                delta_folder(lake).rename(tables)
            rounds = []
            for _ in range(ROUNDS):
                warehouse.path.unlink()
                warehouse.path.hardlink_to(history)
                if IS_DELTA:
                    shutil.rmtree(delta_folder(lake), ignore_errors=True)
                    shutil.copytree(tables, delta_folder(lake), copy_function=os.link)
                copying = durable_copy_seconds(warehouse.path, Path(folder) / "copy")
                began = time.perf_counter()
                flatten_day(lake, APPLICANT, SECOND, ZONE)
                flattening = time.perf_counter() - began
                publication = warehouse.publish(grid, NOW)
                assert publication.is_changed
                assert not publication.is_rebuilt
                publishing = publication.seconds
                following = timed_delta(lake)
                beyond = flattening + publishing + following - copying
                rounds.append((flattening, publishing, following, copying, beyond))
            flattening, publishing, following, copying, beyond = (
                median(column) for column in zip(*rounds, strict=True)
            )
            print(
                f"{publication.rows['applicant_leads']:>10,} {leads:>7,} {flattening:>10.2f} {publishing:>10.2f} "
                f"{following:>8.2f} {copying:>7.2f} {beyond:>12.2f} {whole.seconds:>14.2f} "
                f"{publication.size_bytes / 1e6:>8.0f} {peak_mb():>8.0f}"
            )
