"""What taking a person out of a large lake costs: find, list, sweep, publication, and looking again.

Belongs here: making the lake, of the simulator's leads, and timing each part as `privacy erase` goes through them.
Doesn't: that nothing is left (leads_pipeline_tests/).
"""

import json
import os
import tempfile
import time
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from benchmarks.publishing import BRANCHES, LEADS_A_DAY, ZONE
from leads_pipeline.contract import APPLICANT, Answer, read_leads
from leads_pipeline.flatten.batches import flatten_days
from leads_pipeline.lake import Lake
from leads_pipeline.person.matching import Group, Sought
from leads_pipeline.privacy.erase import Wish, add_to_list, left_of, sweep
from leads_pipeline.privacy.search import search
from leads_pipeline.simulator.book import LeadBook
from leads_pipeline.simulator.leads import LeadFactory
from leads_pipeline.simulator.organisation import Organisation
from leads_pipeline.simulator.stock import Stock
from leads_pipeline.suppression import Action
from leads_pipeline.warehouse import Grid, Warehouse
from leads_pipeline.window import Scope, Window, day_interval, days

# Millions of leads; the more, the longer they take to make.
MILLIONS = [float(text) for text in os.environ.get("BENCH_ERASING", "0.05").split(",")]
LAST = date(2026, 11, 20)


def land(lake: Lake, day: date, people: Counter[str]) -> int:
    """Land a day of all branches, counting its people by their address; return how many leads it has."""
    book = LeadBook(LeadFactory(7, LEADS_A_DAY / BRANCHES, Stock(7)))
    start, end = day_interval(day, ZONE)
    now = end + timedelta(hours=6)
    landed = 0
    for branch in Organisation(7, BRANCHES).branches:
        body = book.answer("applicant", [branch], start, end, now)
        leads = read_leads(APPLICANT, body)
        window = Window.of(day, Scope.parse(f"branch-{branch.id}"), ZONE)
        lake.land(Answer(APPLICANT, window, leads, now, "/", "0" * 64, len(body), 1, 0.1), "bench")
        people.update(one["contact"].get("email", "").strip().lower() for one in json.loads(body)["applicants"])
        landed += len(leads)
    return landed


def main() -> None:
    """Print a line per part and size, with its share of the whole."""
    for millions in MILLIONS:
        with tempfile.TemporaryDirectory() as folder:
            lake = Lake(Path(folder) / "data", Path(folder) / "list")
            first = LAST - timedelta(days=max(int(millions * 1_000_000 / LEADS_A_DAY), 1) - 1)
            grid = Grid([Scope.parse(f"branch-{101 + n}") for n in range(BRANCHES)], first, ZONE)
            people: Counter[str] = Counter()
            leads = sum(land(lake, day, people) for day in days(first, LAST))
            for _ in flatten_days(lake, APPLICANT, days(first, LAST), ZONE):
                """Each day is staged."""
            Warehouse(lake).publish(grid, datetime.now(UTC))
            [(email, theirs)] = [one for one in people.most_common(2) if one[0]][:1]
            sought, home = Sought.of([email]), Path(folder) / "home"

            took: dict[str, tuple[float, float]] = {}
            clocks = time.perf_counter(), time.process_time()
            found = search(lake, home, sought, may_be_shared=True)
            took["find"], clocks = _since(clocks)
            chosen = [lead for lead in found.leads if lead.group is Group.GIVEN]
            assert len(chosen) == theirs
            now = datetime.now(UTC)
            add_to_list(lake, sought, chosen, Wish(action=Action.ERASE), now)
            took["list"], clocks = _since(clocks)
            swept = sweep(lake, ZONE)
            took["raw and staged"], clocks = _since(clocks)
            Warehouse(lake).publish(grid, now)
            took["leads.duckdb"], clocks = _since(clocks)
            assert left_of(lake, search(lake, home, sought, may_be_shared=True)).is_nothing
            took["look again"], clocks = _since(clocks)

            whole, cpu = (sum(column) for column in zip(*took.values(), strict=True))
            files = sum(1 for _ in lake.raw_lead_files())
            print(
                f"{leads:,} leads in {files:,} windows, {theirs} of one person in {swept.files}: {whole:.0f} s, "
                f"{cpu:.0f} of them of the processor"
            )
            for part, (wall, used) in took.items():
                print(f"{part:>16} {wall:8.1f} s {used:8.1f} s {used / cpu:6.0%}")


def _since(clocks: tuple[float, float]) -> tuple[tuple[float, float], tuple[float, float]]:
    """Wall and processor seconds since then, and what both clocks show now."""
    now = time.perf_counter(), time.process_time()
    return (now[0] - clocks[0], now[1] - clocks[1]), now


if __name__ == "__main__":
    main()
