"""Own code on W2 and multiples of it, by more branches: does a lead cost the same?

A day comes on top of each.
"""

import os
import tempfile
from pathlib import Path

from benchmarks import portal
from benchmarks.portal import Workload
from benchmarks.publishing import copy_seconds
from benchmarks.side_by_side import (
    FIRST,
    LEADS,
    OWN_CODE,
    TODAY,
    W2_LEADS,
    YESTERDAY,
    Turn,
    fingerprint,
    run,
)
from leads_pipeline.warehouse.duck import WAREHOUSE_FILE

# W2 is 1; 10 are three million leads, 30,000 windows and 5 GB below the temporary folder.
TIMES = [int(text) for text in os.environ.get("BENCH_SCALE", "").split(",") if text]


def main() -> None:
    """Print a line per size, then what a day costs on top of it."""
    if not TIMES:
        print("Left out, because it takes long: BENCH_SCALE=1,3,10 runs it.")
        return
    day = Workload("W3", TODAY, TODAY, 100, LEADS)
    increments = {}
    with tempfile.TemporaryDirectory() as name, portal.running(day.leads) as asked:
        increments["nothing"] = run(OWN_CODE, asked, day, Path(name)), 0.0
    print(
        "| size | leads | job s | us a lead | fetch and land s | publish s | CPU s | peak MB | "
        "folder GB |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for times in TIMES:
        workload = Workload("W2", FIRST, YESTERDAY, 100 * times, W2_LEADS)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            with portal.running(workload.leads) as asked:
                turn = run(OWN_CODE, asked, workload, folder)
            leads = portal.Book(workload.leads).truth([workload])["leads"]
            assert fingerprint(OWN_CODE, folder)["leads"] == leads
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e9
            print(
                f"| x {times} | {leads:,} | {turn.job_seconds:.1f} | "
                f"{turn.job_seconds / leads * 1e6:.0f} | {_phases(turn)} | "
                f"{turn.measured.cpu_seconds:.1f} | {turn.measured.peak_mb:.0f} | {size:.2f} |"
            )
            copying = copy_seconds(folder / WAREHOUSE_FILE, folder / "copy")
            with portal.running(day.leads) as asked:
                increments[f"x {times}"] = run(OWN_CODE, asked, day, folder), copying
    print(
        "\n| a day of 100 branches x 20 leads on top of | job s | fetch and land s | publish s "
        "| plain copy s | peak MB |"
    )
    print("|---|---|---|---|---|---|")
    for below, (turn, copying) in increments.items():
        print(
            f"| {below} | {turn.job_seconds:.2f} | {_phases(turn)} | {copying:.2f} | "
            f"{turn.measured.peak_mb:.0f} |"
        )


def _phases(turn: Turn) -> str:
    return " | ".join(f"{turn.phases[name]:.2f}" for name in ("fetch and land", "publish"))
