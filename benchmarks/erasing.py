"""What taking a person out of a large lake costs: find, list, sweep, publication, and looking again.

Belongs here: making the lake, of the simulator's leads, and timing each part as `privacy erase` goes through them.
Doesn't: that nothing is left (leads_pipeline_tests/).
"""

import multiprocessing
import os
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.measuring import resident_bytes
from benchmarks.publishing import ZONE
from leads_pipeline.contract import LEAD_KINDS, Answer, LeadKind
from leads_pipeline.domain.answer import read_leads
from leads_pipeline.domain.person import Person
from leads_pipeline.flatten.batches import flatten_days
from leads_pipeline.lake import Lake
from leads_pipeline.privacy import requests
from leads_pipeline.privacy.finding import find
from leads_pipeline.privacy.sweeping import sweep, sweep_what_appeared
from leads_pipeline.simulator.leads import KINDS, LeadBook
from leads_pipeline.simulator.organisation import BRANCHES_PER_COMPANY, Branch, Organisation
from leads_pipeline.suppression import Action, Entry
from leads_pipeline.warehouse import Grid, Warehouse
from leads_pipeline.window import Scope, Window, day_interval, days

# Millions of leads; the more, the longer they take to make: 3 take a quarter of an hour on two cores.
MILLIONS = [float(text) for text in os.environ.get("BENCH_ERASING", "0.05").split(",")]
# Where the lake is made, and stays; or lies already, as an earlier call has made it.
FOLDER = os.environ.get("BENCH_ERASING_FOLDER", "")

# Branches that get 20 applicants a day each and 5 owners, in a file per kind, branch and day: so files count as
# much as leads.
BRANCHES = 500
LEADS_A_DAY = 12_500
_APPLICANTS_A_DAY = 20
LAST = date(2026, 11, 20)


def main() -> None:
    """Print a line per part and size, with its share of the whole."""
    for millions in MILLIONS:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(FOLDER or temporary)
            first = LAST - timedelta(days=max(round(millions * 1_000_000 / LEADS_A_DAY), 1) - 1)
            if not (folder / "data" / "leads.duckdb").exists():
                _apart(_make, folder, first)
            _apart(_measure, folder, first)


def _apart(work: Callable[..., None], *given: Any) -> None:
    """Do it in a process of its own, so that its memory is its own."""
    process = multiprocessing.get_context("spawn").Process(target=work, args=given)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(process.exitcode)


def _make(folder: Path, first: date) -> None:
    """Land, stage and publish every day, as the pipeline does it; but landing doesn't wait for the disk."""
    lake = Lake(folder / "data", folder / "list")
    began = time.perf_counter()
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        leads = sum(pool.map(partial(_land, lake.folder), days(first, LAST)))
    for kind in LEAD_KINDS:
        for _ in flatten_days(lake, kind, days(first, LAST), ZONE):
            """Each day is staged."""
    Warehouse(lake).publish(_grid(first), datetime.now(UTC))
    print(f"{leads:,} leads made in {time.perf_counter() - began:.0f} s", flush=True)


def _land(folder: Path, day: date) -> int:
    """Land a day of all branches; return how many leads it has."""
    os.fsync = lambda fd: None  # noqa: ARG005 - its name, by which it may be called
    lake, now, landed = Lake(folder), day_interval(day, ZONE)[1] + timedelta(hours=6), 0
    for kind, branch, body in _answers(day, _branches()):
        window = Window.of(day, Scope.parse(f"branch-{branch.id}"), ZONE)
        leads = read_leads(kind, body).leads
        lake.land(Answer(kind, window, leads, now, "/", "0" * 64, len(body), 1, 0.1), "bench")
        landed += len(leads)
    return landed


def _answers(day: date, branches: Sequence[Branch]) -> Iterator[tuple[LeadKind, Branch, bytes]]:
    book = LeadBook(7, _APPLICANTS_A_DAY)
    start, end = day_interval(day, ZONE)
    for name, kind in zip(KINDS, LEAD_KINDS, strict=True):
        for branch in branches:
            yield kind, branch, book.answer(name, [branch], start, end, end + timedelta(hours=6))


def _branches() -> Sequence[Branch]:
    return Organisation(7, BRANCHES).branches


def _grid(first: date) -> Grid:
    return Grid([Scope.parse(f"branch-{branch.id}") for branch in _branches()], first, ZONE)


def _somebody(lake: Lake) -> tuple[str, int]:
    """Whoever has sent most leads on the last day to the first branches, and how many they have sent in all.

    Whoever asks again does so within a company, whose branches follow each other, and within two weeks.
    """
    near = _branches()[: 12 * BRANCHES_PER_COMPANY]
    people: Counter[str] = Counter()
    leads: dict[str, set[str]] = {}
    for day in days(max(LAST - timedelta(days=40), _first_day(lake)), LAST):
        for _, _, body in _answers(day, near):
            (found,) = msgspec.json.decode(body).values()
            for one in found:
                email = one["contact"].get("email", "").strip().lower()
                people[email] += day == LAST
                leads.setdefault(email, set()).add(one["id"])
    (email, _) = max(people.items(), key=lambda one: (one[1], one[0]))
    return email, len(leads[email])


def _first_day(lake: Lake) -> date:
    return min(day for kind in LEAD_KINDS for day in lake.landed_days(kind))


def _measure(folder: Path, first: date) -> None:
    lake, grid = Lake(folder / "data", folder / "list"), _grid(first)
    email, theirs = _somebody(lake)
    person = Person.of([email])
    with Warehouse(lake).reading() as db:
        [(leads,)] = db.query("select sum(rows) from (from landed_windows)")[1]
    took: dict[str, tuple[float, float, float]] = {}
    with _timed(took, "find"):
        found = find(lake, person, is_shared=True)
    assert len(found.theirs) == theirs, (len(found.theirs), theirs)
    now = datetime.now(UTC)
    entry = requests.add(lake, Action.ERASE, person, found, found.theirs, case="", received=now.date(), now=now)
    with _timed(took, "raw and staged"):
        swept = sweep(lake, ZONE)
    with _timed(took, "leads.duckdb"):
        Warehouse(lake).publish(grid, now)
    with _timed(took, "look again"):
        assert find(lake, person, is_shared=True).theirs == []
    with _timed(took, "the night after"):
        sweep_what_appeared(lake, ZONE)
    with _timed(took, "a quiet night"):
        assert sweep_what_appeared(lake, ZONE).leads == 0
    kind, suppressed = LEAD_KINDS[0], lake.suppression.read()
    known = (suppressed.hashed_lead(kind.name, min(lake.lead_ids(kind, first))),)
    learned = Entry(number=len(suppressed.entries) + 1, at=now, action=Action.LEARNED, of=entry.number, leads=known)
    lake.suppression.append(lambda *_: learned)
    with _timed(took, "an id learned"):
        assert sweep(lake, ZONE, mark=suppressed.mark).leads > 0

    files = sum(1 for _ in lake.raw_lead_files())
    erasing = ("find", "raw and staged", "leads.duckdb", "look again")
    wall, cpu = (sum(took[part][n] for part in erasing) for n in (0, 1))
    print(
        f"{leads:,} leads in {files:,} windows, {theirs} of one person in {swept.files}: {wall:.0f} s, {cpu:.0f} of "
        "the processor"
    )
    for part, (seconds, used, peak) in took.items():
        print(f"{part:>18} {seconds:8.1f} s {used:8.1f} s of the processor, {peak:6,.0f} MB at its peak")


@contextmanager
def _timed(took: dict[str, tuple[float, float, float]], part: str) -> Iterator[None]:
    """Wall and processor seconds of this process and those that it starts, and the most memory that it holds."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    began = time.perf_counter(), _processor_seconds()
    yield
    _, peak = resident_bytes(os.getpid())
    took[part] = time.perf_counter() - began[0], _processor_seconds() - began[1], peak / 1e6
    print(f"{part}: {took[part]}", flush=True)


def _processor_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


if __name__ == "__main__":
    main()
