"""The machine that the pipeline runs on: its processes, its folder, and a clock that the test
moves.

Belongs here: starting and ending processes, by commands alone. Doesn't: what happens when
(weeks.py), and what must hold (test_weeks.py).
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from leads_pipeline_tests.support.analyst import query
from leads_pipeline_tests.support.serving import free_port, listens
from leads_pipeline_tests.support.small_portal import variables

KEY: Final = "0123456789abcdef-key"
PROGRAM: Final = str(Path(sys.executable).parent / "leads-pipeline")
ROUND: Final = timedelta(seconds=61)  # the daemon looks at most things once a minute
# What a publication wrote to a disk can delay the next one for some minutes.
PAUSE: Final = timedelta(minutes=5)
# After a night of an outage, windows that fail come due in turns for two hours.
MOST_ROUNDS: Final = 120
PATIENCE_SECONDS: Final = 300.0  # only what hangs takes that long
# A process reads the clock's file once in each second, as reading it each time doubles the test's
# CPU time (measured).
OF_THE_SAME_SECOND: Final = "0"

# With a clock that is set, libfaketime breaks the system call behind Python's sleep, and no other.
# Runs wait shorter here, so that an outage costs the test seconds.
SLEEP: Final = """\
import asyncio, os, select, time
_sleep, _divisor = asyncio.sleep, int(os.environ.get("WAITS_DIVIDED_BY", "1"))
time.sleep = lambda seconds: select.select([], [], [], seconds / _divisor)
asyncio.sleep = lambda seconds, *result: _sleep(seconds / _divisor, *result)
"""


def libfaketime() -> Path | None:
    """The library that gives a process another clock; None if it isn't installed."""
    for folder in ("lib/*", "lib*", "local/lib"):
        for path in Path("/usr").glob(f"{folder}/faketime/libfaketimeMT.so.1"):
            return path
    return None


LIBRARY: Final = libfaketime()
needs_faketime = pytest.mark.skipif(
    LIBRARY is None, reason="libfaketime is not installed: apt install faketime"
)


class KilledError(Exception):
    """The daemon was killed while it worked."""


@dataclass(slots=True)
class Clock:
    """The time at the portal, which the machine's clock shows as well if it is right."""

    file: Path
    begin: datetime
    wrong_by: timedelta = timedelta()
    _offset: timedelta = field(init=False)

    def __post_init__(self) -> None:
        self._offset = self.begin - datetime.now(UTC)
        self.set_wrong(timedelta())

    def now(self) -> datetime:
        """The true time."""
        return datetime.now(UTC) + self._offset

    def move_to(self, moment: datetime) -> None:
        """Let the time until then pass; none if it is past."""
        self._offset += max(timedelta(), moment - self.now())
        self.set_wrong(self.wrong_by)

    def set_wrong(self, by: timedelta) -> None:
        """Have the machine's clock show another time from now on."""
        self.wrong_by = by
        new = self.file.with_suffix(".new")
        new.write_text(f"{(self._offset + by).total_seconds():+f}\n")
        new.replace(self.file)


@dataclass(slots=True)
class Machine:
    """A machine with the pipeline on it. It knows the portal by its address alone."""

    folder: Path
    clock: Clock
    settings: dict[str, str] = field(default_factory=dict)
    _daemon: "subprocess.Popen[str] | None" = None
    _receiver: "subprocess.Popen[str] | None" = None
    _port: int = 0

    def __post_init__(self) -> None:
        (self.folder / "patched").mkdir()
        (self.folder / "patched" / "sitecustomize.py").write_text(SLEEP)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def configure(self, address: str, secret: str, **more: str) -> None:
        """Start with these settings; at first, and when they have changed."""
        self.stop()
        self.settings = {
            **variables(address, secret),
            "LEADS_DATA_DIR": str(self.data),
            "LEADS_RECEIVE_KEY": KEY,
            **more,
        }

    def command(self, *arguments: str) -> int:
        """Run `leads-pipeline` to its end, and give the exit code."""
        process = self.start([PROGRAM, *arguments])
        _wait(process)
        return process.returncode

    def said(self, *arguments: str) -> tuple[int, str]:
        """Run `leads-pipeline` to its end, and give the exit code and what it printed."""
        log = self.folder / "output.txt"
        before = log.stat().st_size if log.exists() else 0
        code = self.command(*arguments)
        return code, log.read_bytes()[before:].decode()

    def tick(self) -> None:
        """Let the daemon work until it has nothing more to do. Raises KilledError."""
        idle = 0
        for _ in range(MOST_ROUNDS):
            idle = idle + 1 if self._round() == 0 else 0
            if idle > 1:
                return
            self.clock.move_to(self.clock.now() + (PAUSE if idle else ROUND))
        raise AssertionError(f"The daemon is still at work after {MOST_ROUNDS} rounds.")

    def _round(self) -> int:
        if self._daemon is None:
            self._daemon = self.start(
                [sys.executable, "-m", f"{__package__}.daemon", str(self.data / ".dagster")]
            )
        assert self._daemon.stdin is not None
        assert self._daemon.stdout is not None
        time.sleep(1.01 - time.time() % 1)  # until it reads the clock's file again
        with suppress(BrokenPipeError):
            self._daemon.stdin.write("\n")
            self._daemon.stdin.flush()
        if answer := self._daemon.stdout.readline():
            return int(answer)
        process = self._daemon
        self._daemon = None
        _wait(process)
        code = process.returncode
        assert code == -signal.SIGKILL, self.output()
        raise KilledError

    def kill(self) -> None:
        """Kill the daemon, as a power cut would, from another thread."""
        if self._daemon is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._daemon.pid, signal.SIGKILL)

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Run the real `leads-pipeline serve` while the block runs."""
        process = self.start([PROGRAM, "serve", "--port", str(free_port())])
        try:
            yield
            assert process.poll() is None, self.output()
        finally:
            process.terminate()
            _wait(process)

    def wait_for(self, what: Callable[[], bool]) -> None:
        """Let time pass until it is so, four times as fast as it does: runs must not seem to hang
        on a busy machine.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not what():
            assert time.monotonic() < deadline, f"Not until {self.clock.now()}.\n{self.output()}"
            time.sleep(1)
            self.clock.move_to(self.clock.now() + timedelta(seconds=3))

    def output(self) -> str:
        """The end of what the processes printed."""
        return (self.folder / "output.txt").read_text()[-5000:]

    def push(self, body: bytes) -> int:
        """Deliver leads as the portal does, and give the status of the answer."""
        if self._receiver is None:
            self._port = free_port()
            self._receiver = self.start([PROGRAM, "receive", "--port", str(self._port)])
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not listens(self._port):
                assert time.monotonic() < deadline, self.output()
                time.sleep(0.05)
        headers = {"Content-Type": "application/json", "X-API-Key": KEY}
        answer = httpx.post(
            f"http://127.0.0.1:{self._port}/leads",
            content=body,
            headers=headers,
            timeout=PATIENCE_SECONDS,
        )
        return answer.status_code

    def stop(self) -> None:
        """End what runs."""
        for process in (self._daemon, self._receiver):
            if process is not None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
                _wait(process)
        self._daemon = self._receiver = None

    def start(self, command: Sequence[str]) -> "subprocess.Popen[str]":
        """Start a process that sees the machine's clock and settings."""
        is_daemon = command[0] == sys.executable
        more = {"DAGSTER_HOME": str(self.data / ".dagster")} if is_daemon else {}
        if is_daemon or "backfill" in command:
            more["WAITS_DIVIDED_BY"] = "20"
        with (self.folder / "output.txt").open("ab") as output:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env={
                    "HOME": str(self.folder),
                    "PATH": os.environ["PATH"],
                    "_LEADS_PIPELINE_IS_SERVED": "yes",  # as `serve` says it to its processes
                    "PYTHONPATH": os.pathsep.join(
                        [str(self.folder / "patched"), str(Path(__file__).parents[2])]
                    ),
                    "LD_PRELOAD": str(LIBRARY),
                    "FAKETIME_TIMESTAMP_FILE": str(self.clock.file),
                    "FAKETIME_CACHE_DURATION": OF_THE_SAME_SECOND,
                    "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                    "NO_FAKE_STAT": "1",
                    "TZ": "UTC",
                    "DAGSTER_DISABLE_TELEMETRY": "1",
                    **more,
                    **self.settings,
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if is_daemon else output,
                stderr=output,
                text=True,
                start_new_session=True,
            )

    # --- what an analyst finds --------------------------------------------------------------------

    def query(self, statement: str) -> list[Any]:
        """The rows of a query of leads.duckdb."""
        return query(self.data / "leads.duckdb", statement)

    def published(self, kind: str) -> dict[str, tuple[str, str, datetime]]:
        """Text, branch and creation of each published lead of the kind by its id, once each."""
        if not (self.data / "leads.duckdb").exists():
            return {}

        rows = self.query(
            f"select lead_id, message, portal_branch_id, created_at from {kind}_leads"  # noqa: S608 - our own names
        )
        found = {lead_id: (text, branch, at) for lead_id, text, branch, at in rows}
        assert len(found) == len(rows), f"{kind} leads are there twice"
        return found

    # --- what befalls the folder ------------------------------------------------------------------

    def back_up(self) -> None:
        """Back up by the command."""
        assert self.command("backup", str(self.folder / "backup")) in (0, 1)

    def restore(self) -> None:
        """Lose the folder, and bring the newest backup back by the command."""
        self.stop()
        shutil.rmtree(self.data)
        assert self.command("restore", str(self.folder / "backup")) in (0, 1)

    def lose_dagster(self) -> None:
        """Lose Dagster's database. The user's dagster.yaml stays."""
        self.stop()
        for path in (self.data / ".dagster").iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != "dagster.yaml":
                path.unlink()


def _wait(process: "subprocess.Popen[str]") -> None:
    try:
        process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it started and left
        # libfaketime shares these with a process's children: one that a signal ends leaves them behind.
        for name in (f"faketime_shm_{process.pid}", f"sem.faketime_sem_{process.pid}"):
            Path("/dev/shm", name).unlink(missing_ok=True)  # noqa: S108 - the library decides where
