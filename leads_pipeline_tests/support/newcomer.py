"""A newcomer's first day: a folder with an `.env`, a shell without a setting of ours, a portal in
another process.

Belongs here: the folder, the shell, the portal and the commands' processes. Doesn't: what should
come of them, which is the tests'.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from zoneinfo import ZoneInfo

import httpx
from dotenv import dotenv_values

from leads_pipeline.domain.window import day_interval
from leads_pipeline_tests.support.analyst import query

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent

# The checkout has these, and a wheel doesn't.
ONLY_IN_A_CHECKOUT = re.compile(
    r"\bdocs/|CONTRIBUTING|\bdeploy/|\.env\.example|requirements\.lock|\bmake (?:bench|check|demo|dev|lock|test|venv)\b"
)

# Only what hangs takes that long, however busy the machine is.
PATIENCE_SECONDS = 300.0

# What docs/tutorials/first-real-day.md asks a newcomer to fill in.
FIRST_SIX = (
    "LEADS_BASE_URL",
    "LEADS_AUTH_URL",
    "LEADS_CLIENT_ID",
    "LEADS_CLIENT_SECRET",
    "LEADS_BRANCH_IDS",
    "LEADS_TIMEZONE",
)


@dataclass(frozen=True)
class Newcomer:
    """Somebody who has read the README: where they work, what their shell holds, and what the
    portal gave them.
    """

    folder: Path
    credentials: dict[str, str]
    exported: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.folder),
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            **self.exported,
        }

    def fill_in(self, **changes: str) -> None:
        """Copy .env.example to .env, as the README says, and write values behind the names."""
        filled = {**{name: self.credentials[name] for name in FIRST_SIX}, **changes}
        lines = []
        for line in (ROOT / ".env.example").read_text(encoding="utf-8").splitlines():
            name = line.removeprefix("# ").split("=")[0]
            lines.append(f"{name}={filled.pop(name)}" if name in filled else line)
        assert not filled
        (self.folder / ".env").write_text("\n".join([*lines, ""]), encoding="utf-8")

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """A command to its end; none may show a traceback."""
        done = subprocess.run(
            [str(BIN / command[0]), *command[1:]],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert "Traceback" not in done.stderr + done.stdout
        return done

    @contextmanager
    def running(self, *command: str) -> Iterator[Path]:
        """A command that runs until it is told to end; gives the file with what it says."""
        log = self.folder / f"{command[0]}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [str(BIN / command[0]), *command[1:]],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

        try:
            yield log
            assert process.poll() is None, log.read_text()
        finally:
            # On a busy machine, `dg dev` was seen to go on for five minutes after SIGTERM.
            process.send_signal(
                signal.SIGTERM if command[0] == "leads-pipeline" else signal.SIGKILL
            )
            try:
                process.wait(PATIENCE_SECONDS)
            finally:
                _end_session(process.pid)

    def truth(self, kind: str, first: date | None = None, last: date | None = None) -> set[str]:
        """The ids of all leads that the portal has of its branches, of those days or of all, as it
        tells over HTTP.
        """
        question = {"kind": kind, "scope": "all"}

        if first and last:
            zone = ZoneInfo(self.credentials["LEADS_TIMEZONE"])
            ends = {
                "from-time": day_interval(first, zone)[0],
                "to-time": day_interval(last, zone)[1],
            }
            question |= {name: f"{moment:%Y-%m-%dT%H:%M:%SZ}" for name, moment in ends.items()}

        address = f"{self.credentials['LEADS_BASE_URL']}/_simulator/truth"
        answer = httpx.get(address, params=question, timeout=PATIENCE_SECONDS)
        return set(answer.json()["ids"])

    def published(self, kind: str) -> set[str]:
        """The ids of all leads that an analyst finds; none where nothing was published."""
        file = self.folder / "data" / "leads.duckdb"
        if not file.exists():
            return set()
        rows = query(file, f"select lead_id from {kind}_leads")  # noqa: S608 - our own name
        found = {lead_id for (lead_id,) in rows}
        assert len(found) == len(rows)
        return found


def _end_session(session: int) -> None:
    """End what a command has left behind, so that a test that fails leaves no process."""
    try:
        os.killpg(session, signal.SIGKILL)
    except ProcessLookupError:
        return


@contextmanager
def newcomer(folder: Path, *options: str) -> Iterator[Newcomer]:
    """One whose portal isn't the built-in one of `demo` and `dev`: a simulator of its own, in
    another process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ready = folder / "portal.env"
    command = [
        str(BIN / "leads-pipeline"),
        "simulate",
        "--port",
        "0",
        "--ready-file",
        str(ready),
        *options,
    ]
    elsewhere = folder / "portal"
    elsewhere.mkdir()
    bare = {"HOME": str(folder), "PATH": os.environ["PATH"]}

    process = subprocess.Popen(command, cwd=elsewhere, env=bare, stdout=subprocess.DEVNULL)
    try:
        wait_for(ready.exists)
        given = {name: value or "" for name, value in dotenv_values(ready).items()}
        yield Newcomer(folder, {**given, "LEADS_TIMEZONE": "Europe/London"})
    finally:
        process.kill()  # it holds nothing, and a shell may have had it ignore SIGTERM
        process.wait(PATIENCE_SECONDS)


def wait_for(what: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, f"Not within {seconds} s."
        time.sleep(0.2)


def copy_checkout(
    folder: Path, names: Sequence[str] = ("leads_pipeline", "pyproject.toml", "workspace.yaml")
) -> None:
    """What of a fresh clone the ways in need."""
    for name in names:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
