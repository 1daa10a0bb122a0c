"""Faults of what runs the pipeline: daemons, run workers, ticks, Dagster's databases, the code location.

Belongs here: real processes that are killed or held up, and what is asked of the portal meanwhile. Doesn't: what a
killed process leaves in the data folder (test_storage.py), and the sensors' own rules (test_pulling.py).
"""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from dagster import DagsterInstance, DagsterRunStatus

from leads_pipeline.domain.contract import LEAD_KINDS, LeadKind
from leads_pipeline.domain.window import Window
from leads_pipeline.errors import StorageError
from leads_pipeline.orchestration import pulling
from leads_pipeline.orchestration.home import dagster_home
from leads_pipeline.orchestration.pulling import PUBLISH_JOB, PULL_JOB
from leads_pipeline.settings import Settings
from leads_pipeline.simulator.faults import Rule, Then
from leads_pipeline.storage.windows import window_table
from leads_pipeline.transform.reading import LeadsFile
from leads_pipeline_tests.support.installation import Installation, installation

BIN = Path(sys.executable).parent

# A daemon needs some ten seconds to load the code, ticks every 30, and loads what failed again after 60; the rest is
# for a busy machine.
PATIENCE_SECONDS = 400


def wait_for(what: str, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, f"in {PATIENCE_SECONDS} s: {what}"
        time.sleep(0.2)


def at_noon() -> dict[str, str]:
    """A time zone in which it is noon now: what daemons start by the hour, at night and in the morning, is far away."""
    return {"LEADS_TIMEZONE": f"Etc/GMT{datetime.now(UTC).hour - 12:+d}"}  # POSIX counts west of Greenwich


@contextmanager
def real_home(here: Installation, folder: Path) -> Iterator[Installation]:
    """The same installation with a home in which each run is a process of its own, as users have it."""
    environment = here.environment | {"DAGSTER_HOME": str(folder)}
    dagster_home(Settings.from_variables(environment))
    with DagsterInstance.from_config(str(folder)) as instance:
        yield replace(here, environment=environment, instance=instance)


@contextmanager
def daemon(here: Installation, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Dagster's daemon in a process of its own, with the code server and the runs that it starts."""
    command = [str(BIN / "dagster-daemon"), "run", "-m", "leads_pipeline.definitions"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=os.environ | here.environment,
            cwd=log.parent,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def closed(here: Installation, first: int) -> list[int]:
    """Days ago of the windows that have been over for so long that the catch-up sensor takes them."""
    over = (here.now.astimezone(here.settings.zone) - timedelta(hours=6)).date()
    return [ago for ago in range(1, first + 1) if here.day(ago) < over]


def landed(here: Installation) -> set[tuple[LeadKind, str]]:
    """The windows of both kinds that have landed."""
    windows = [
        Window.of(here.day(ago), scope, here.settings.zone) for ago in range(12) for scope in here.settings.scopes
    ]
    return {
        (kind, row.window.partition_key)
        for kind in LEAD_KINDS
        for row in window_table(here.data.store, kind, windows, datetime.now(UTC))
        if row.looked_at is not None
    }


def recorded(here: Installation) -> set[tuple[LeadKind, str]]:
    """The windows of both kinds that Dagster's event log knows to be landed."""
    return {(kind, key) for kind in LEAD_KINDS for key, status in here.shown(kind).items() if status == "MATERIALIZED"}


def is_published(here: Installation, days_ago: list[int]) -> bool:
    """Whether analysts find each lead of the portal once, and nothing else."""
    with suppress(StorageError):
        seen = {
            kind: [row[0] for row in LeadsFile(here.data).query(f"select lead_id from {kind.table}")[1]]  # noqa: S608
            for kind in LEAD_KINDS
        }
        assert all(len(ids) == len(set(ids)) for ids in seen.values())
        return all(set(ids) == here.truth(kind, days_ago) for kind, ids in seen.items())
    return False


def requests(here: Installation) -> Counter[str]:
    """How often each window was asked for, of the kind that was asked for more often."""
    first, second = (here.asked(kind) for kind in LEAD_KINDS)
    return first | second


# --- daemons ---------------------------------------------------------------------------------------------------------


def test_two_daemons_that_are_killed_in_the_middle_lose_nothing_and_start_no_storm(tmp_path: Path) -> None:
    first = 4
    with (
        installation(tmp_path, first=first, variables={"LEADS_MAX_CONCURRENCY": "1", **at_noon()}) as started,
        real_home(started, tmp_path / "real") as here,
        ExitStack() as left,
    ):
        here.simulator.set_faults([Rule(Then(latency_ms=250))])
        both = [left.enter_context(daemon(here, tmp_path / f"daemon-{number}.log")) for number in (1, 2)]
        wait_for("some windows are landed", lambda: len(landed(here)) >= 3)
        for process in both:
            process.kill()
            process.wait()
        days_ago = closed(here, first)
        assert len(landed(here)) < 2 * len(here.keys(days_ago)), "nothing was left to do; make the portal slower"

        with daemon(here, tmp_path / "daemon-3.log"):
            wait_for("everything is published", lambda: is_published(here, days_ago))
        assert requests(here).keys() == here.keys(days_ago)
        # Both daemons may have seen the same gap before either had started a run; never more than that.
        assert max(requests(here).values()) <= 2
        jobs = Counter(run.job_name for run in here.runs())
        assert jobs[PULL_JOB] <= 2
        assert jobs.total() <= 12, jobs


def test_a_code_location_that_fails_to_load_comes_back_by_itself(tmp_path: Path) -> None:
    first = 2
    with (
        installation(tmp_path, first=first, variables=at_noon()) as started,
        real_home(started, tmp_path / "real") as here,
    ):
        start = here.environment.pop("LEADS_START_DATE")
        os.environ.pop("LEADS_START_DATE")
        remembered = here.data.folder / ".state" / "start_date"
        here.data.state.remember_start_date(here.day(first))
        remembered.write_text("nonsense")
        log = tmp_path / "daemon.log"

        def is_told() -> bool:
            assert here.runs() == []
            return b"holds no day" in log.read_bytes()

        with daemon(here, log) as process:
            wait_for("the daemon says why nothing loads", is_told)
            time.sleep(10)
            assert process.poll() is None
            assert here.runs() == []
            assert requests(here) == {}

            remembered.write_text(start)
            wanted = here.keys(closed(here, first))
            wait_for("everything is landed", lambda: len(landed(here)) == 2 * len(wanted))
        assert requests(here) == dict.fromkeys(wanted, 1)


# --- runs ------------------------------------------------------------------------------------------------------------


@contextmanager
def backfill(here: Installation, first: int) -> Iterator[subprocess.Popen[bytes]]:
    """A run in a process of its own, slow enough to be met in the middle of its windows."""
    here.simulator.set_faults([Rule(Then(latency_ms=150))])
    command = [str(BIN / "leads-pipeline"), "backfill", "--from", str(here.day(first)), "--to", str(here.day(1))]
    with subprocess.Popen(
        command,
        env=os.environ | here.environment | {"LEADS_MAX_CONCURRENCY": "1"},
        cwd=here.data.folder.parent,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
    here.simulator.set_faults([])


def recover(here: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the daemon tick a few times: what waits for minutes waits no longer."""
    monkeypatch.setattr(pulling, "DefaultRunLauncher", object)  # these runs are of this process
    monkeypatch.setattr(pulling, "_DEAD_AFTER", timedelta(0))
    monkeypatch.setattr(pulling, "_SECOND_LOOK_SECONDS", 0.0)
    with here.daemon() as ticking:
        for minutes in (0, 6, 12, 18):
            ticking.tick_sensors(here.now + timedelta(minutes=minutes))


def test_the_windows_of_a_killed_run_worker_are_pulled_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = 5
    with installation(tmp_path, first=first) as here:
        with backfill(here, first) as process:
            wait_for("some windows are recorded", lambda: bool(recorded(here)))
            process.kill()
            process.wait()
        done = recorded(here)
        [run] = here.runs()
        assert run.status is DagsterRunStatus.STARTED
        recover(here, monkeypatch)
        wanted = here.keys(range(1, first + 1))
        assert recorded(here) == {(kind, key) for kind in LEAD_KINDS for key in wanted}
        asked = {(kind, key): count for kind in LEAD_KINDS for key, count in here.asked(kind).items()}
        assert max(asked.values()) <= 2
        # A landed window is asked for again only where the kill came between the landing and its record.
        assert {asked[one] for one in done} == {1}
        assert len(here.runs()) <= 4


# --- ticks -----------------------------------------------------------------------------------------------------------


def test_ticks_that_come_again_start_no_second_run(tmp_path: Path) -> None:
    """As after a crash between a launch and its record: the ticks are forgotten, their runs aren't."""
    with installation(tmp_path, first=3) as here, here.daemon() as ticking:
        schedules, kept = Path(here.environment["DAGSTER_HOME"]) / "schedules", tmp_path / "schedules"
        night = datetime.combine(here.day(-1), datetime.min.time(), here.settings.zone)
        ticking.tick_schedules(night)
        shutil.copytree(schedules, kept)
        for _ in range(3):
            shutil.rmtree(schedules)
            shutil.copytree(kept, schedules)
            ticking.tick_sensors(here.now)
            ticking.tick_schedules(night + timedelta(hours=1, minutes=20))
        keys = Counter(run.tags.get("dagster/run_key") for run in here.runs())
        del keys[None]  # publications
        assert keys
        assert set(keys.values()) == {1}
        jobs = Counter(run.job_name for run in here.runs())
        # The schedule finds nothing that the sensor has not pulled.
        assert jobs[PULL_JOB] == 1
        assert set(requests(here).values()) == {1}


# --- Dagster's databases --------------------------------------------------------------------------------------------

_LOCKING = """
import sqlite3, sys, time
database = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
database.execute("begin exclusive")
print("locked", flush=True)
time.sleep(float(sys.argv[2]))
database.execute("rollback")
"""


@pytest.mark.parametrize(
    ("database", "seconds", "survives"),
    [
        ("history/runs/index.db", 8, True),  # the event log waits for 30 seconds
        ("history/runs/index.db", 35, False),
        ("history/runs.db", 8, False),  # the runs for 5
    ],
)
def test_a_database_that_another_process_locks_costs_no_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: str, seconds: int, survives: bool
) -> None:
    first = 3
    with installation(tmp_path, first=first) as here:
        path = Path(here.environment["DAGSTER_HOME"]) / database
        with backfill(here, first) as process:
            wait_for("some windows are landed", lambda: len(landed(here)) >= 3)
            locker = subprocess.Popen(
                [sys.executable, "-c", _LOCKING, str(path), str(seconds)], stdout=subprocess.PIPE, text=True
            )
            assert locker.communicate()[0] == "locked\n"
            assert locker.returncode == 0
            process.wait(PATIENCE_SECONDS)
        assert process.returncode == 0 or not survives
        with closing(sqlite3.connect(path)) as whole:
            assert whole.execute("pragma integrity_check").fetchall() == [("ok",)]
        recover(here, monkeypatch)
        wanted = here.keys(range(1, first + 1))
        assert landed(here) == {(kind, key) for kind in LEAD_KINDS for key in wanted}
        assert max(requests(here).values()) <= (1 if survives else 2)
        if not survives:  # Dagster could not note all of it: the next pull shows it
            here.pull(wanted, LEAD_KINDS)
        assert recorded(here) == {(kind, key) for kind in LEAD_KINDS for key in wanted}
        here.execute(PUBLISH_JOB, tags={}, kinds=None)
        assert is_published(here, list(range(1, first + 1)))
