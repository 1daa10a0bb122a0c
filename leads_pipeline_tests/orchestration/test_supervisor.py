"""Programs that are kept running, with real processes."""

import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from leads_pipeline.cli.supervisor import Program, Supervisor
from leads_pipeline_tests.support.newcomer import wait_for


def shell(name: str, script: str, *, is_shared: bool = False) -> Program:
    return Program(name, ("sh", "-c", script), is_shared=is_shared)


@contextmanager
def supervised(folder: Path, programs: Sequence[Program], *, end_seconds: float = 5) -> Iterator[None]:
    stop = Event()
    supervisor = Supervisor(programs, folder, first_delay_seconds=0.1, end_seconds=end_seconds)
    thread = Thread(target=supervisor.run, args=[stop])
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(20)
    assert not thread.is_alive()


def numbers(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def is_alive(process: int) -> bool:
    """Whether it runs; one that nobody has taken note of yet has ended all the same."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_what_is_killed_is_started_again_and_all_ends_at_the_end(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with supervised(tmp_path, [shell("sleeper", "echo $$ >> pids; exec sleep 60")]):
        wait_for(lambda: len(numbers(pids)) == 1)
        os.kill(numbers(pids)[0], signal.SIGKILL)
        wait_for(lambda: len(numbers(pids)) == 2)
        assert is_alive(numbers(pids)[1])
    assert [is_alive(process) for process in numbers(pids)] == [False, False]


def test_what_ends_again_and_again_is_started_ever_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with supervised(tmp_path, [shell("fragile", "echo $$ >> pids; exit 3")]):
        wait_for(lambda: len(numbers(tmp_path / "pids")) == 4)
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [re.sub(r"process \d+", "process", line) for line in told[:3]] == [
        f"fragile (process) ended: exit code 3. It is started again in {seconds} s." for seconds in (0.1, 0.2, 0.4)
    ]


def test_what_needs_another_waits_for_it(tmp_path: Path) -> None:
    up = tmp_path / "up"
    first = Program("first", ("sleep", "60"), up.exists)
    with supervised(tmp_path, [first, shell("second", "echo $$ >> pids; exec sleep 60")]):
        with pytest.raises(AssertionError):
            wait_for((tmp_path / "pids").exists, 0.6)
        up.touch()
        wait_for((tmp_path / "pids").exists)


@pytest.mark.parametrize("is_shared", [True, False])
@pytest.mark.slow
def test_what_a_shared_program_has_started_outlives_it_until_the_end(tmp_path: Path, *, is_shared: bool) -> None:
    script = "sleep 60 & echo $! >> children; echo $$ >> pids; wait"
    with supervised(tmp_path, [shell("server", script, is_shared=is_shared)]):
        wait_for(lambda: len(numbers(tmp_path / "pids")) == 1)
        os.kill(numbers(tmp_path / "pids")[0], signal.SIGKILL)
        wait_for(lambda: len(numbers(tmp_path / "pids")) == 2)
        assert [is_alive(child) for child in numbers(tmp_path / "children")] == [is_shared, True]
    assert [is_alive(child) for child in numbers(tmp_path / "children")] == [False, False]


def test_who_does_not_listen_is_killed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    script = "trap '' TERM; echo $$ >> pids; while :; do sleep 0.1; done"
    with supervised(tmp_path, [shell("deaf", script)], end_seconds=0.3):
        wait_for(lambda: len(numbers(tmp_path / "pids")) == 1)
    assert not is_alive(numbers(tmp_path / "pids")[0])
    assert "deaf doesn't end within 0 s and is killed." in caplog.text


def test_a_command_that_is_not_there_is_told_and_the_others_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with supervised(tmp_path, [shell("one", "echo $$ >> pids; exec sleep 60"), Program("gone", ("./not-there",))]):
        wait_for(lambda: "gone can't be started" in caplog.text)
        assert is_alive(numbers(tmp_path / "pids")[0])


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a killed parent isn't told")
@pytest.mark.parametrize("inherited", ["SIG_DFL", "SIG_IGN"])
def test_all_end_when_the_supervisor_itself_is_killed(tmp_path: Path, inherited: str) -> None:
    code = (
        "import signal, sys; from pathlib import Path; from threading import Event\n"
        f"signal.signal(signal.SIGTERM, signal.{inherited})\n"
        "from leads_pipeline.cli.supervisor import Program, Supervisor\n"
        "script = 'echo $$ >> pids; exec sleep 60'\n"
        "Supervisor([Program('sleeper', ('sh', '-c', script))], Path(sys.argv[1])).run(Event())\n"
    )
    supervisor = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    wait_for(lambda: len(numbers(tmp_path / "pids")) == 1)
    supervisor.kill()
    supervisor.wait()
    wait_for(lambda: not is_alive(numbers(tmp_path / "pids")[0]))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere orphans go to the first process alone")
def test_who_is_the_first_process_takes_note_of_the_end_of_orphans(tmp_path: Path) -> None:
    code = (
        "import ctypes, logging, os, signal, sys, threading\n"
        "from pathlib import Path\n"
        "from leads_pipeline.cli.supervisor import Program, Supervisor\n"
        "ctypes.CDLL(None).prctl(36, 1)\n"  # PR_SET_CHILD_SUBREAPER: orphans come to us, as to the first process
        "logging.basicConfig(level=logging.INFO)\n"
        "stop = threading.Event()\n"
        "signal.signal(signal.SIGTERM, lambda *_: stop.set())\n"
        "script = 'sleep 60 & echo $$ >> pids; exec sleep 60'\n"
        "Supervisor([Program('parent', ('sh', '-c', script))], Path(sys.argv[1])).run(stop)\n"
    )
    supervisor = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stderr=subprocess.PIPE, text=True)
    wait_for(lambda: len(numbers(tmp_path / "pids")) == 1)
    supervisor.terminate()
    _, told = supervisor.communicate(timeout=30)
    assert supervisor.returncode == 0
    assert "is killed" not in told
