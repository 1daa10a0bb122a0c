"""The same leads into Parquet and DuckDB, by common tools, by the floor and by this pipeline.

Belongs here: who runs when on which workload, that all hold the same leads afterwards, the tables.
Doesn't: what a contender does (contenders/), the portal (portal.py).
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from importlib.metadata import version
from pathlib import Path

import duckdb

from benchmarks import portal
from benchmarks.environments import interpreter, packages
from benchmarks.measuring import Measured, measure
from benchmarks.portal import Workload
from leads_pipeline.domain.contract import Field, FieldType

# For the daily look: one round of the small workloads.
QUICK = bool(os.environ.get("BENCH_QUICK"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "1" if QUICK else "3"))
W2_ROUNDS = int(os.environ.get("BENCH_W2_ROUNDS", "0" if QUICK else "1"))
LEADS = int(os.environ.get("BENCH_WINDOW_LEADS", "20"))
W2_LEADS = int(os.environ.get("BENCH_W2_WINDOW_LEADS", "100"))
CONCURRENCY = os.environ.get("LEADS_MAX_CONCURRENCY", "8")
LATENCY_MS = int(os.environ.get("BENCH_LATENCY_MS", "0"))
# Contenders whose name holds one of these words; all without it.
ONLY = os.environ.get("BENCH_ONLY", "").split()

SCRIPTS = Path(__file__).parent / "contenders"

Naming = Callable[[str], str]


def _snake(path: str) -> str:
    return Field(path, FieldType.TEXT, "").column


def _dlt(path: str) -> str:
    return "__".join(map(_snake, path.split(".")))


def _joined(path: str) -> str:
    return path.replace(".", "_")


@dataclass(frozen=True, slots=True)
class Contender:
    """How to run one, and what it calls things.

    `script` is one with an environment of its own. `tables` are the leads, their viewing times and
    their images; one without tables is no peer.
    """

    name: str
    command: Sequence[str]
    script: Path | None = None
    column: Naming = _snake
    id: str = "lead_id"
    tables: Sequence[str] = (
        "applicant_leads",
        "applicant_viewing_times",
        "applicant_listing_images",
    )


# It keeps the raw text, syncs it and makes our marts, as own code does.
SAME_WORK = "same work"

FLOOR = "floor"
OWN = "own code"
DAGSTER = "with Dagster"
EMPTY = "Dagster, empty body"
OWN_CODE = Contender(OWN, [sys.executable, "-m", "benchmarks.contenders.own"])


def contenders() -> list[Contender]:
    """All of them. A command's {first} and {last} are the workload's days."""
    ours = sys.executable
    backfill = [str(Path(ours).parent / "leads-pipeline"), "backfill", "--kind", "applicant"]
    return [
        Contender(FLOOR, [ours, "-m", "benchmarks.contenders.floor"]),
        OWN_CODE,
        Contender(DAGSTER, [*backfill, "--from", "{first}", "--to", "{last}"]),
        Contender(EMPTY, [ours, "-m", "benchmarks.contenders.empty_dagster"], tables=()),
        _script("httpx + pandas.json_normalize", "pandas_script", _joined, _SCRIPTS_TABLES),
        _script("httpx + polars", "polars_script", _joined, _SCRIPTS_TABLES),
        _script("dlt", "dlt_pipeline", _dlt, _DLT_TABLES),
        Contender(
            f"httpx + pandas, {SAME_WORK}",
            [ours, str(SCRIPTS / "pandas_whole.py")],
            column=_joined,
            id="id",
            tables=_SCRIPTS_TABLES,
        ),
        _script(f"dlt, {SAME_WORK}", "dlt_whole", _dlt, _DLT_TABLES),
        _script("dlt in Dagster", "dlt_in_dagster", _dlt, _DLT_TABLES),
    ]


_SCRIPTS_TABLES = ("leads", "viewing_times", "images")
_DLT_TABLES = ("leads", "leads__viewing_times", "leads__listing_details__images")


def _script(name: str, script: str, column: Naming, tables: Sequence[str]) -> Contender:
    path = SCRIPTS / f"{script}.py"
    return Contender(name, [str(path)], path, column, "id", tables)


@dataclass(frozen=True, slots=True)
class Turn:
    """One contender's run on one workload."""

    measured: Measured
    counts: Mapping[str, float]

    @property
    def job_seconds(self) -> float:
        """From its first request, normally for a token, to its end, without the imports before."""
        return self.measured.ended - (self.counts["first_at"] or self.measured.began)

    @property
    def phases(self) -> dict[str, float]:
        """What own.py says of itself."""
        seconds: dict[str, float] = json.loads(self.measured.out.splitlines()[-1])
        return seconds

    @property
    def row(self) -> tuple[float, ...]:
        """The table's figures."""
        counts = (self.counts["requests"], self.counts["tokens"])
        return (
            self.job_seconds,
            self.measured.seconds,
            self.measured.cpu_seconds,
            self.measured.peak_mb,
            *counts,
        )


def run(
    contender: Contender, asked: portal.RunningPortal, workload: Workload, folder: Path
) -> Turn:
    """Run it in its data folder and ask the portal what it saw."""
    environment = {
        # Nothing of the caller's own installation, but for the means to run at all.
        **{
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("LEADS_", "INVENTORY_", "DAGSTER", "PYTHONDONTWRITEBYTECODE"))
        },
        **asked.environment(workload),
        "LEADS_DATA_DIR": str(folder),
        "LEADS_MAX_CONCURRENCY": CONCURRENCY,
        "LEADS_START_DATE": str(FIRST),
        "BENCH_PYTHON": sys.executable,
        "BENCH_DAYS": str(len(workload.days)),
        "BENCH_BRANCHES": str(workload.branches),
    }
    asked.counts()
    python = [str(interpreter(contender.script))] if contender.script else []
    command = python + [
        word.format(first=workload.first, last=workload.last) for word in contender.command
    ]
    return Turn(measure(command, environment), asked.counts())


def fingerprint(contender: Contender, folder: Path) -> dict[str, object]:
    """What its tables hold: ids, a few typed columns, children."""
    leads, times, images = contender.tables
    name = {
        path: f'"{contender.column(path)}"'
        for path in (
            "createdAt",
            "isOverseas",
            "message",
            "contact.email",
            "searchCriteria.minimumPrice",
            "listingDetails.pricing.price",
            "listingDetails.bedrooms",
            "listingDetails.uprn",
        )
    }
    created_at = name["createdAt"]
    with duckdb.connect(folder / "leads.duckdb", read_only=True) as db:
        found = db.sql(
            f"""
            select
                count(distinct {contender.id}) as leads,
                count(*) as rows,
                bit_xor(hash({contender.id})) as id_hash,
                sum(epoch_us({created_at})) filter ({created_at} > '1900-01-01') as moments,
                count(*) filter ({name["isOverseas"]}) as overseas,
                sum(length({name["message"]})) as texts,
                bit_xor(hash({name["contact.email"]})) as people,
                sum({name["searchCriteria.minimumPrice"]}::decimal(18, 2)) as minimum_prices,
                sum({name["listingDetails.pricing.price"]}::decimal(18, 2)) as prices,
                sum({name["listingDetails.bedrooms"]}::bigint) as bedrooms,
                sum({name["listingDetails.uprn"]}::bigint) as uprns,
                (select count(*) from {times}) as viewing_times,
                (select sum(epoch_us(latest)) from {times}) as latest,
                (select count(*) from {images}) as images,
                (select bit_xor(hash(filename)) from {images}) as files
            from {leads}
            """
        )
        return dict(zip(found.columns, found.fetchall()[0], strict=True))


TODAY = datetime.now(UTC).date()
FIRST = TODAY - timedelta(days=30)
YESTERDAY = TODAY - timedelta(days=1)


def main() -> None:
    """Run the workloads and print their tables."""
    entered = [one for one in contenders() if not ONLY or any(word in one.name for word in ONLY)]
    print(machine(entered))
    w1 = Workload("W1", FIRST, YESTERDAY, 50, LEADS)
    w3 = Workload("W3", TODAY, TODAY, 100, LEADS)
    w2 = Workload("W2", FIRST, YESTERDAY, 100, W2_LEADS)
    for rounds, workloads in ((ROUNDS, [w1, w3]), (W2_ROUNDS, [w2])):
        if rounds:
            _show(_compete(entered, workloads, rounds), workloads, rounds)


def _compete(
    entered: Sequence[Contender], workloads: Sequence[Workload], rounds: int
) -> dict[str, dict[str, list[Turn]]]:
    """Each contender in turns, every round in a new folder, one workload on top of the other."""
    turns: dict[str, dict[str, list[Turn]]] = {
        workload.name: {one.name: [] for one in entered} for workload in workloads
    }
    book = portal.Book(workloads[0].leads)
    with portal.running(workloads[0].leads, LATENCY_MS) as asked:
        for _ in range(rounds):
            expected: dict[str, dict[str, object]] = {}
            for contender in entered:
                with tempfile.TemporaryDirectory() as folder:
                    for number, workload in enumerate(workloads, start=1):
                        turn = run(contender, asked, workload, Path(folder))
                        print(
                            f"{workload.name}, {contender.name}: {turn.job_seconds:.1f} s",
                            file=sys.stderr,
                        )
                        turns[workload.name][contender.name].append(turn)
                        if contender.tables:
                            held = fingerprint(contender, Path(folder))
                            truth = book.truth(list(workloads[:number]))
                            assert truth.items() | {("rows", truth["leads"])} <= held.items(), (
                                contender.name,
                                held,
                                truth,
                            )
                            assert held == expected.setdefault(workload.name, held), (
                                contender.name,
                                held,
                                expected,
                            )
    return turns


def _show(
    turns: Mapping[str, Mapping[str, list[Turn]]], workloads: Sequence[Workload], rounds: int
) -> None:
    for workload in workloads:
        by_name = turns[workload.name]
        truth = portal.Book(workload.leads).truth([workload])
        children = truth["viewing_times"] + truth["images"]
        print(
            f"\n{workload.name}: {len(workload.days)} days x {workload.branches} branches, "
            f"{truth['leads']:,} leads, {children:,} children; "
            f"medians of {rounds} interleaved rounds\n"
        )
        print(
            "| contender | job s | x floor | with start s | CPU s | peak MB | requests | tokens |"
        )
        print("|---|---|---|---|---|---|---|---|")
        rows = {name: _medians(some) for name, some in by_name.items()}
        for name, (job, whole, cpu, peak, requests, tokens) in rows.items():
            ratio = f"{job / rows[FLOOR][0]:.2f}" if FLOOR in rows else "-"
            print(
                f"| {name} | {job:.2f} | {ratio} | {whole:.2f} | {cpu:.1f} | {peak:.0f} | "
                f"{requests:.0f} | {tokens:.0f} |"
            )
        if OWN in by_name:
            phases = [turn.phases for turn in by_name[OWN]]
            said = ", ".join(
                f"{name} {statistics.median(one[name] for one in phases):.2f} s"
                for name in phases[0]
            )
            print(f"\nOwn code's phases: {said}.")
        _show_targets(rows)


def _show_targets(rows: Mapping[str, Sequence[float]]) -> None:
    peers = {name: row[0] for name, row in rows.items() if name not in (FLOOR, OWN, DAGSTER, EMPTY)}
    equals = [seconds for name, seconds in peers.items() if SAME_WORK in name]
    if OWN in rows and peers:
        print(f"Best peer / own code: {min(peers.values()) / rows[OWN][0]:.2f}.")
    if OWN in rows and equals:
        print(f"Best peer of the same work / own code: {min(equals) / rows[OWN][0]:.2f}.")
    if {OWN, DAGSTER, EMPTY} <= rows.keys():
        share = (rows[DAGSTER][1] - rows[OWN][1]) / rows[EMPTY][1]
        print(
            f"(With Dagster - own code) / Dagster with an empty body, starts included: {share:.2f}."
        )


def _medians(turns: Sequence[Turn]) -> tuple[float, ...]:
    return tuple(map(statistics.median, zip(*(turn.row for turn in turns), strict=True)))


def machine(entered: Sequence[Contender]) -> str:
    """What the figures were measured on and with."""
    cpu = next(
        (
            line.split(":")[1].strip()
            for line in _lines("/proc/cpuinfo")
            if line.startswith("model name")
        ),
        "?",
    )
    memory = next(
        (
            int(line.split()[1]) / 1e6
            for line in _lines("/proc/meminfo")
            if line.startswith("MemTotal")
        ),
        0,
    )
    ours = ", ".join(
        f"{name} {version(name)}" for name in ("dagster", "duckdb", "httpx", "pyarrow", "msgspec")
    )
    git = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(git, capture_output=True, text=True).stdout.strip() or "unknown"
    peers = "; ".join(
        f"{one.script.stem}: {', '.join(packages(one.script))}" for one in entered if one.script
    )
    return (
        f"Commit {commit}, {date.today():%Y-%m-%d}, "  # noqa: DTZ011
        f"{os.cpu_count()} cores ({cpu}), {memory:.0f} GB, load {os.getloadavg()[0]:.1f} at "
        f"the start, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}; {ours}; {peers}"
    )


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()
