"""What a pull costs beyond what Dagster itself needs to record its partitions.

Each contender pulls, or only records, the same windows of one lead kind in one run, in a process and with a Dagster
home of its own, in turns. The floor is an asset with an empty body on Dagster's own sqlite event log.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

from dagster import (
    AssetExecutionContext,
    AssetMaterialization,
    BackfillPolicy,
    DagsterInstance,
    Definitions,
    asset,
    define_asset_job,
    in_process_executor,
)

from benchmarks.measuring import resident_bytes
from leads_pipeline.contract import APPLICANT
from leads_pipeline.definitions import PULL_JOB, build_definitions, first_day, variables
from leads_pipeline.partitions import Partitions, rectangles, requested_keys
from leads_pipeline.runs import PullReport, Runner, dagster_home
from leads_pipeline.settings import Settings
from leads_pipeline.simulator import Config, running
from leads_pipeline.window import Window, days

DAYS = int(os.environ.get("BENCH_DAYS", "30"))
BRANCHES = int(os.environ.get("BENCH_BRANCHES", "50"))
LEADS_PER_DAY = 20
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "2"))
CONTENDERS = ("empty body, Dagster's event log", "empty body, batching event log", "pull, batching event log")


def main() -> None:
    """Print seconds, CPU and memory of each contender, and the ratios to the floor."""
    figures: dict[str, list[list[float]]] = {name: [] for name in CONTENDERS}
    with (
        running(Config(branches=BRANCHES, leads_per_day=LEADS_PER_DAY)) as simulator,
        tempfile.TemporaryDirectory() as top,
    ):
        for round_ in range(ROUNDS):
            for name in CONTENDERS:
                folder = Path(top) / f"{round_}-{CONTENDERS.index(name)}"
                environment = {**os.environ, **simulator.environment(), "LEADS_DATA_DIR": str(folder)}
                command = [sys.executable, "-W", "ignore", "-m", "benchmarks.bookkeeping", name]
                done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
                figures[name].append([float(word) for word in done.stdout.split()[-3:]])
    floor = statistics.median(row[0] for row in figures[CONTENDERS[0]])
    print(f"{DAYS} days x {BRANCHES} branches = {DAYS * BRANCHES} windows, medians of {ROUNDS} interleaved rounds\n")
    print("| contender | seconds | ms a window | CPU seconds | peak MB | ratio |\n|---|---|---|---|---|---|")
    for name, rows in figures.items():
        seconds, cpu, memory = (statistics.median(column) for column in zip(*rows, strict=True))
        each = seconds * 1000 / DAYS / BRANCHES
        print(f"| {name} | {seconds:.1f} | {each:.1f} | {cpu:.1f} | {memory:.0f} | {seconds / floor:.2f} |")


def contend(name: str) -> None:
    """Be one contender: print seconds, CPU seconds and peak megabytes of the run alone."""
    settings = Settings.from_variables(variables())
    home = dagster_home(settings)
    if name == CONTENDERS[0]:
        config = (home / "dagster.yaml").read_text()
        section = config[config.index("event_log_storage:") : config.index("run_retries:")]
        (home / "dagster.yaml").write_text(config.replace(section, ""))
    variables().update({"DAGSTER_HOME": str(home), "DAGSTER_EVENT_BATCH_SIZE": "1000"})
    partitions = Partitions.of(settings, first_day(settings))
    definitions = build_definitions(variables()) if name == CONTENDERS[2] else _empty(partitions)
    last = date.today() - timedelta(days=1)  # noqa: DTZ011 - any 30 days do
    windows = [
        Window.of(day, scope, settings.zone)
        for day in days(last - timedelta(days=DAYS - 1), last)
        for scope in settings.scopes
    ]
    (area,) = rectangles(windows, settings.scopes)
    report = PullReport()
    with DagsterInstance.get() as instance:
        began, cpu = time.perf_counter(), time.process_time()
        Runner(definitions, instance).pull([APPLICANT], area, report, lambda: None)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    assert report.succeeded, (report.broken, report.failed)
    assert sum(report.landed.values()) == len(windows)
    print(seconds, cpu, resident_bytes(os.getpid())[1] / 1e6)


def _empty(partitions: Partitions) -> Definitions:
    """The same asset in Dagster's eyes, doing nothing."""

    @asset(
        name=f"raw_{APPLICANT.table}",
        partitions_def=partitions.windows,
        backfill_policy=BackfillPolicy.single_run(),
        output_required=False,
    )
    def empty(context: AssetExecutionContext) -> Iterator[AssetMaterialization]:
        for key in requested_keys(context, partitions.windows):
            yield AssetMaterialization(context.asset_key, partition=key, metadata={"rows": 0})

    return Definitions([empty], jobs=[define_asset_job(PULL_JOB, [empty])], executor=in_process_executor)


if __name__ == "__main__":
    contend(sys.argv[1])
