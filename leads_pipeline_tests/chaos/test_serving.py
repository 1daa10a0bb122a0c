"""`serve` as a server runs it: each of its processes is killed, all end, and the next start goes
on.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from zoneinfo import ZoneInfo

import pytest

from leads_pipeline_tests.support.newcomer import BIN, Newcomer, newcomer, wait_for
from leads_pipeline_tests.support.serving import free_port

KINDS = ("applicant", "appraisal")


@pytest.fixture(scope="module")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    with newcomer(
        tmp_path_factory.mktemp("portal"), "--branches", "2", "--leads-per-day", "3"
    ) as somebody:
        yield somebody


@pytest.fixture
def me(portal: Newcomer, tmp_path: Path) -> Newcomer:
    somebody = Newcomer(tmp_path, portal.credentials)
    somebody.fill_in()
    return somebody


def descendants(process: int) -> dict[int, str]:
    """The processes that this one has started, and those that they have, with their command lines."""
    commands = {}
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        child = int(folder.name)
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            command = (folder / "cmdline").read_text(errors="replace")
            commands[child] = command.replace("\0", " ")
            parents[child] = int(state_of(child)[1])
    found = dict[int, str]()
    ancestors = {process}
    while ancestors := {child for child, parent in parents.items() if parent in ancestors}:
        found |= {child: commands[child] for child in ancestors}
    return found


def state_of(process: int) -> list[str]:
    """What the kernel says of a process after its name: its state, its parent and more."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def is_alive(process: int) -> bool:
    """Whether it runs. One that has ended and that nobody has taken note of doesn't."""
    try:
        return state_of(process)[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


# `serve`, by a clock that is set back by an hour once there is a file of that name.
SET_BACK = """
import os, sys, time
from pathlib import Path
from dotenv import load_dotenv
from leads_pipeline.features.service.processes import run_together
from leads_pipeline.settings import Settings
load_dotenv(".env")
clock = lambda: time.time() - 3600 * Path("set back").exists()
sys.exit(run_together(Settings.from_variables(os.environ), "127.0.0.1", int(sys.argv[-1]), "warning", clock=clock))
"""


@contextmanager
def serving(me: Newcomer, *command: str) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    """`serve`, with the file that it prints to.

    It has its first pull under way, and has landed something.
    """
    log = me.folder / "serve.log"
    port = str(free_port())
    command = command or (str(BIN / "leads-pipeline"), "serve", "--port")
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*command, port], cwd=me.folder, env=me.environment, stdout=file, stderr=file
        )
    try:
        wait_for(lambda: process.poll() is not None or "Dagster UI: http" in log.read_text())
        assert process.poll() is None, log.read_text()
        wait_for(lambda: any((me.folder / "data" / "raw").glob("*/*/*/*.parquet")))
        yield process, log
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("dagster api grpc", "code location"),
        ("leads_pipeline.features.service.pages", "Dagster UI"),
        ("dagster._daemon", "daemon"),
    ],
)
def test_if_a_process_is_killed_all_end_and_the_log_names_it(
    me: Newcomer, module: str, name: str
) -> None:
    with serving(me) as (process, log):
        family = descendants(process.pid)
        [victim] = [child for child, command in family.items() if f"-m {module} " in command]

        os.kill(victim, signal.SIGKILL)

        assert process.wait(60) == 1
    told = log.read_text()
    assert f"The {name} has ended (SIGKILL), so all processes were ended." in told
    assert "Traceback" not in told
    wait_for(lambda: not any(map(is_alive, family)))


def test_if_serve_itself_is_killed_nothing_is_left_running_and_the_next_start_brings_every_lead(
    me: Newcomer,
) -> None:
    today = datetime.now(ZoneInfo("Europe/London")).date()
    first = today - timedelta(days=29)
    last = today - timedelta(days=2)
    with serving(me) as (process, _):
        family = descendants(process.pid)
        assert "multiprocessing.spawn" in str(family), "the pull is under way"

        process.kill()
        process.wait()

        wait_for(lambda: not any(map(is_alive, family)), 60)

    with serving(me) as (process, log):
        wait_for(lambda: all(me.published(kind) >= me.truth(kind, first, last) for kind in KINDS))
        family = descendants(process.pid)

        process.terminate()

        assert process.wait(30) == 0
    lines = log.read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["Starting", "Dagster", "Stopped."], lines
    wait_for(lambda: not any(map(is_alive, family)))


def test_if_the_clock_is_set_back_all_end_so_that_nothing_waits_until_it_is_there_again(
    me: Newcomer,
) -> None:
    with serving(me, sys.executable, "-c", SET_BACK) as (process, log):
        (me.folder / "set back").touch()

        assert process.wait(60) == 1
    assert "The machine's clock was set back, so all processes were ended." in log.read_text()


def socket_of(family: dict[int, str]) -> Path:
    """The socket of the code location, as the command line of its process names it."""
    [command] = [command for command in family.values() if "-m dagster api grpc " in command]
    return Path(command.partition("--socket ")[2].split()[0])


def test_the_socket_lies_in_the_folder_of_systemd_and_if_it_is_deleted_all_end(
    me: Newcomer,
) -> None:
    """Fault 77: sensors did nothing from then on, and nobody was told."""
    with TemporaryDirectory() as of_systemd:
        me.exported["RUNTIME_DIRECTORY"] = of_systemd
        with serving(me) as (process, log):
            socket = socket_of(descendants(process.pid))
            assert socket.is_relative_to(of_systemd)

            socket.unlink()

            assert process.wait(120) == 1
    told = log.read_text()
    assert "The code location can't be reached. Perhaps its socket was deleted" in told


def test_a_long_tmpdir_is_no_obstacle_and_if_all_paths_are_long_the_error_names_it(
    me: Newcomer,
) -> None:
    """Fault 78: "Path name should not have more than 107 characters", then a restart, for ever."""
    with TemporaryDirectory() as short:
        long = Path(short, "t" * 100)
        long.mkdir()
        here = Newcomer(Path(short), me.credentials, exported={"TMPDIR": str(long)})
        here.fill_in()
        with serving(here) as (process, _):
            home = here.folder / "data" / ".dagster"
            assert socket_of(descendants(process.pid)).is_relative_to(home)
            process.terminate()
            assert process.wait(60) == 0

        there = Newcomer(long, me.credentials, exported={"TMPDIR": str(long)})
        there.fill_in()
        done = there.run("leads-pipeline", "serve", "--port", str(free_port()))
    assert done.returncode == 2
    assert "Set TMPDIR to a folder with a short path" in done.stderr
