"""Dagster's web pages, daemon and code location, run together.

Belongs here: which processes run, and that they end together. Doesn't: starting them again, which
is for systemd or the container's engine.
"""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from threading import Event, Thread
from typing import IO, Final

import click

from leads_pipeline.cli.installation import open_folder
from leads_pipeline.cli.output import address_of, listening
from leads_pipeline.cli.session import dagster_instance
from leads_pipeline.errors import SettingsError
from leads_pipeline.extensions import brought
from leads_pipeline.features.service.alone import alone
from leads_pipeline.features.service.dagster_compat import DAEMON_MODULE, forget_future_ticks
from leads_pipeline.features.service.dagster_log import readable
from leads_pipeline.orchestration.dead_runs import end_dead_runs
from leads_pipeline.orchestration.home import dagster_home
from leads_pipeline.orchestration.names import SERVED
from leads_pipeline.raw.durable import check_writable
from leads_pipeline.settings import Secret, Settings

# The location's name, too. Dagster remembers by it what was switched on or off in the UI.
_MODULE: Final = "leads_pipeline.definitions"
_WORKSPACE: Final = f"""\
load_from:
  - grpc_server:
      host: localhost
      socket: %s
      location_name: {_MODULE}
"""

_CODE: Final = "code location"
_PAGES_MODULE: Final = "leads_pipeline.features.service.pages"
_SOCKET: Final = "code"
_RUNTIME: Final = "serve-"

# How long processes may take to end before they are killed: first the daemon and the pages, then
# the code location with its runs.
_END_SECONDS: Final = 10.0
_TICK_SECONDS: Final = 0.1

# How often the code location's socket is tried, and after how long without an answer all processes
# are ended.
_ASK_SECONDS: Final = 5.0
_UNREACHABLE_SECONDS: Final = 60.0

# If the clock is set back, Dagster's loops wait until it is there again. After a longer step all
# processes are ended.
_MOST_SET_BACK_SECONDS: Final = 600.0

# prctl(2): the signal that a child gets when its parent is gone.
_PR_SET_PDEATHSIG: Final = 1
# Loaded here, because between fork and exec nothing may wait for a lock.
_LIBC: Final = ctypes.CDLL(None)


def run_together(
    settings: Settings,
    host: str,
    port: int,
    log_level: str,
    *,
    clock: Callable[[], float] = time.time,
) -> int:
    """Run Dagster's processes until one ends, a signal comes or the clock is set back.

    Then end all, and return the exit code.
    """
    listening(host, port).close()  # before anything is started
    check_writable(settings.data_dir)
    data = open_folder(settings)
    home = dagster_home(settings)
    data.want_restored()
    # Dagster gives an .env in its working directory precedence over the environment, even its empty
    # lines. So it works in its home, and its environment has everything.
    os.environ.update({**whole_paths(settings), "DAGSTER_HOME": str(home), SERVED: "yes"})
    stop = Event()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # `nohup` ignores it.
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: stop.set())

    with alone(home, f"http://{address_of(host, port)}") as lock, runtime_folder(home) as folder:
        data.state.note_dagster_home(home)
        with dagster_instance(home) as instance:
            end_dead_runs(instance, data, datetime.now(UTC), dead_after=timedelta(0))
            forget_future_ticks(instance, datetime.now(UTC))
        click.echo("Starting Dagster. This takes about 10 seconds.")
        service = _Service(home, lock, stop, f"http://{address_of(host, port)}", clock)
        try:
            ended = service.run(folder, host, port, log_level)
        finally:
            service.end()

    if ended is None:
        data.state.forget_service()  # so that no finding says that it is silent
        click.echo("Stopped. Landed leads stay.")
        return 0

    click.echo(
        f"{ended}, so all processes were ended. Landed leads stay. systemd and containers start it "
        "again by themselves; otherwise run this command again.",
        err=True,
    )
    return 1


def whole_paths(settings: Settings) -> dict[str, str]:
    """Return the variables that name a file or folder, with its absolute path.

    They are the same in every working directory.
    """
    paths = {settings.folder_variable: str(settings.data_dir)}
    for read in (settings, *map(settings.of, brought("settings"))):
        for attribute, one in type(read).model_fields.items():
            match getattr(read, attribute):
                case Path() as path:
                    paths[str(one.validation_alias)] = str(path)
                case Secret(variable, file=Path() as path):
                    paths[variable] = str(path)

    return paths


@contextmanager
def runtime_folder(home: Path) -> Iterator[Path]:
    """Make a private folder for the code location's socket, as long as the block runs.

    It lies in systemd's RuntimeDirectory, else in Dagster's home, because programs that clean up
    temporary folders delete sockets. The temporary folder is the last resort. A folder is passed
    over if its path is too long for a socket, which has 107 characters at most, or if it can't be
    written or takes no socket. `serve` holds the lock of `home`. Raises SettingsError if no folder
    is left.
    """
    of_systemd = os.environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    candidates = [of_systemd, str(home), gettempdir()]
    places = [place for place in candidates if os.access(place, os.W_OK)]
    for left in home.glob(f"{_RUNTIME}*"):  # of a killed process
        shutil.rmtree(left, ignore_errors=True)

    for place in places:
        with TemporaryDirectory(prefix=_RUNTIME, dir=place) as folder:
            if _takes_socket(Path(folder) / _SOCKET):
                yield Path(folder)
                return
    raise SettingsError(
        f"The code location's socket finds no place. None of {', '.join(places)} takes a "
        "socket, whose path has 107 characters at most. Set TMPDIR to a folder with a short path, "
        "such as /tmp."
    )


def _takes_socket(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as trial:
        try:
            trial.bind(str(path))
        except OSError:
            return False
    path.unlink()
    return True


class _Service:
    """Dagster's processes, each in its own session, so that ctrl-C reaches this process alone."""

    def __init__(
        self, home: Path, lock: int, stop: Event, pages: str, clock: Callable[[], float]
    ) -> None:
        self._home = home
        self._lock = lock
        self._stop = stop
        self._pages = pages
        self._clock = clock
        self._most_ahead = self._ahead()
        self._address: Path | None = None
        self._asked_at = self._reached_at = 0.0
        self._is_ending = Event()
        self._processes: dict[str, subprocess.Popen[str]] = {}

    def run(self, folder: Path, host: str, port: int, log_level: str) -> str | None:
        """Start them, and wait. Return why they are to end, None if `stop` was set."""
        address = folder / _SOCKET
        workspace = folder / "workspace.yaml"
        workspace.write_text(_WORKSPACE % address)
        levels = ("--log-level", log_level)
        code = ("api", "grpc", "-m", _MODULE, "--location-name", _MODULE, "--socket", str(address))
        self._start(_CODE, "dagster", *code, *levels)

        if (ended := self._wait(address.is_socket)) or self._stop.is_set():
            return ended

        self._address = address
        self._reached_at = time.monotonic()
        pages = ("--host", host, "--port", str(port), "--workspace", str(workspace))
        self._start("Dagster UI", _PAGES_MODULE, *pages, *levels)
        self._start("daemon", DAEMON_MODULE, "run", "-w", str(workspace), *levels)

        if (ended := self._wait(lambda: _answers(host, port))) or self._stop.is_set():
            return ended

        click.echo(f"Dagster UI: {self._pages}/assets (ctrl-C stops it).")
        return self._wait(lambda: False)

    def _start(self, name: str, *module: str) -> None:
        process = subprocess.Popen(  # noqa: S603 - our own commands
            (sys.executable, "-W", "ignore::FutureWarning", "-m", *module),
            cwd=self._home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            pass_fds=[self._lock],
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )
        self._processes[name] = process

        Thread(target=self._relay, args=[process.stdout], daemon=True).start()

    def _relay(self, output: IO[str]) -> None:
        """Print the process's log. While all end, each complains that the others are gone."""
        for line in readable((line.rstrip("\n") for line in output), self._pages):
            if not self._is_ending.is_set():
                click.echo(line, err=True)

    def _ahead(self) -> float:
        """How many seconds the clock is ahead of the monotonic one."""
        return self._clock() - time.monotonic()

    def _wait(self, is_up: Callable[[], bool]) -> str | None:
        """Wait until it is up, `stop` is set, a process has ended or the clock was set back.

        Return the reason to end the service. None if it is up, or `stop` is set.
        """
        while not self._stop.wait(_TICK_SECONDS) and not is_up():
            self._most_ahead = max(self._most_ahead, ahead := self._ahead())
            if self._most_ahead - ahead > _MOST_SET_BACK_SECONDS:
                return "The machine's clock was set back"
            if self._is_unreachable():
                return "The code location can't be reached. Perhaps its socket was deleted"
            for name, process in self._processes.items():
                if (code := process.poll()) is not None:
                    how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
                    return f"The {name} has ended ({how})"
        return None

    def _is_unreachable(self) -> bool:
        """Whether nobody could connect to the code location for a minute."""
        now = time.monotonic()
        if self._address is None or now - self._asked_at < _ASK_SECONDS:
            return False

        self._asked_at = now
        with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ASK_SECONDS)
            connection.connect(str(self._address))
            self._reached_at = now
        return now - self._reached_at > _UNREACHABLE_SECONDS

    def end(self) -> None:
        """End all processes and their runs: the code location last, because it has the runs."""
        self._is_ending.set()
        code = [process for name, process in self._processes.items() if name == _CODE]
        others = [process for name, process in self._processes.items() if name != _CODE]
        _end_all(others)
        _end_all(code)


def _end_all(processes: Sequence["subprocess.Popen[str]"]) -> None:
    for process in processes:
        _signal(process, signal.SIGTERM)

    deadline = time.monotonic() + _END_SECONDS
    while any(map(_is_left, processes)) and time.monotonic() < deadline:
        time.sleep(_TICK_SECONDS)

    for process in processes:
        _signal(process, signal.SIGKILL)
        process.wait()


def _end_with_parent() -> None:
    """Let the child end when this process is killed.

    It would also inherit that SIGTERM is ignored.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _answers(host: str, port: int) -> bool:
    """Whether the pages answer. Their socket listens before Dagster is loaded."""
    with (
        suppress(OSError, HTTPException),
        closing(HTTPConnection(host, port, timeout=1)) as connection,
    ):
        connection.request("GET", "/server_info")
        connection.getresponse()
        return True
    return False


def _signal(process: "subprocess.Popen[str]", number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _is_left(process: "subprocess.Popen[str]") -> bool:
    """Whether the process or a run that it has started is alive."""
    if process.poll() is not None:
        # In a container this process is the first one, and orphans are its children.
        with suppress(ChildProcessError):
            while os.waitpid(-process.pid, os.WNOHANG) != (0, 0):
                pass

    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False

    return True
