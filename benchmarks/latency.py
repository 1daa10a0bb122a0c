"""Own code on W1 against a slow portal: does it use the concurrency that it is allowed?"""

import os
import tempfile
from pathlib import Path

from benchmarks import portal
from benchmarks.portal import Workload
from benchmarks.side_by_side import CONCURRENCY, FIRST, LEADS, OWN_CODE, YESTERDAY, run

LATENCIES_MS = [int(text) for text in os.environ.get("BENCH_LATENCIES_MS", "50,200").split(",")]


def main() -> None:
    """Print a line per latency."""
    w1 = Workload("W1", FIRST, YESTERDAY, 50, LEADS)
    print(
        f"W1, {w1.windows} windows, {CONCURRENCY} requests at a time; allowed is requests x "
        "latency / concurrency\n"
    )
    print(
        "| latency ms | allowed s | fetch and land s | x allowed | whole job s | x allowed |\n"
        "|---|---|---|---|---|---|"
    )
    for milliseconds in LATENCIES_MS:
        with (
            portal.running(w1.leads, milliseconds) as asked,
            tempfile.TemporaryDirectory() as folder,
        ):
            turn = run(OWN_CODE, asked, w1, Path(folder))
        allowed = w1.windows * milliseconds / 1000 / int(CONCURRENCY)
        pull = turn.phases["fetch and land"]
        job = turn.job_seconds
        print(
            f"| {milliseconds} | {allowed:.1f} | {pull:.1f} | {pull / allowed:.2f} | {job:.1f} | "
            f"{job / allowed:.2f} |"
        )
