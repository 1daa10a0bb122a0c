"""Dagster's web pages and its daemon: `dev`, with the simulator where no service is set."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from leads_pipeline.cli.demo import DEMO_BRANCHES, simulator
from leads_pipeline.cli.output import out, plain_errors
from leads_pipeline.cli.session import opened
from leads_pipeline.errors import SettingsError
from leads_pipeline.observe.doctor import writable
from leads_pipeline.orchestration.home import dagster_home
from leads_pipeline.settings import Settings, variables
from leads_pipeline.storage.service_lock import alone

HOST = "127.0.0.1"

port_option = click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=3000,
    show_default=True,
    help=f"Port of the Dagster UI, on {HOST}.",
)


@click.command()
@port_option
@click.option(
    "--log-level",
    type=click.Choice(["error", "warning", "info", "debug"]),
    default="warning",
    show_default=True,
    help="What Dagster prints here; info has each look of each sensor, some 20 lines a minute.",
)
def dev(port: int, log_level: str) -> None:
    """Start the Dagster UI with its daemon; with the simulator where LEADS_BASE_URL isn't set."""
    with plain_errors():
        refuse_taken(port)
    with plain_errors(), simulator(DEMO_BRANCHES, unless_set=True):
        settings = Settings.from_variables(variables())
        writable(settings.data_dir)
        opened(settings)
        with dagster_ui(settings, port, log_level) as process:
            out.print(f"Dagster starts, in some 10 seconds. Leads come from {settings.base_url}.", soft_wrap=True)
            if is_listening(process, port):
                out.print(f"Dagster UI: http://{HOST}:{port}/assets (ctrl-C stops it).", soft_wrap=True)
            process.wait()
    sys.exit(0 if process.returncode in (0, -signal.SIGINT) else 1)


def refuse_taken(port: int, host: str = HOST, option: str = "--port") -> None:
    """Refuse a port that can't be listened on, before anything is started. Raises SettingsError."""
    try:
        with socket.create_server((host, port)):
            pass
    except OSError as error:
        raise SettingsError(
            f"{host}, port {port} can't be listened on: {error.strerror}. Name another with {option}."
        ) from None


def work_place(settings: Settings) -> Path:
    """The folder that Dagster's processes work in, with all that they need in the environment: Dagster's home.

    Dagster gives an .env in its working directory precedence over the environment, even its empty lines: it would take
    the simulator's place. So Dagster works in its home, and gets what we have read, in full.
    """
    home = dagster_home(settings)
    variables().update({**settings.whole_paths(), "DAGSTER_HOME": str(home)})
    return home


@contextmanager
def dagster_ui(settings: Settings, port: int, log_level: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Dagster's webserver and daemon on a data folder, as long as the block lasts; ctrl-C ends both.

    Raises SettingsError where others run on the same Dagster home: two daemons would each launch every run.
    """
    home = work_place(settings)
    dagster = [sys.executable, "-W", "ignore::FutureWarning", "-m", "dagster"]  # dg works in checkouts alone
    command = [
        *dagster,
        "dev",
        "-m",
        "leads_pipeline.definitions",
        "-h",
        HOST,
        "-p",
        str(port),
        "--log-level",
        log_level,
    ]
    # A shell that starts us in the background has us ignore ctrl-C, and with us Dagster, which knows no other end.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup has it
        signal.signal(signal.SIGHUP, signal.default_int_handler)
    with alone(home, f"http://{HOST}:{port}") as lock:
        # A session of its own, so that whatever ends us, from wherever, ends all of it by one ctrl-C: a second one
        # would break off its closing down.
        process = subprocess.Popen(  # noqa: S603 - our own command
            command, cwd=home, pass_fds=[lock], start_new_session=True
        )
        try:
            with suppress(KeyboardInterrupt):
                yield process
        finally:
            if process.poll() is None:
                out.print(
                    "Dagster closes down, which takes some seconds; what is landed stays. A run that is cut off prints "
                    "a traceback: the rest of its windows is pulled when it is started again."
                )
            _end(process)


def is_listening(process: "subprocess.Popen[bytes]", port: int) -> bool:
    """Wait for the web pages; False where Dagster ends before it has any."""
    while process.poll() is None:
        with suppress(OSError), socket.create_connection((HOST, port), timeout=1):
            return True
        time.sleep(0.2)
    return False


# How long a run may take to close down after Dagster has; it is told at the same moment.
_RUN_END_SECONDS = 10


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Have Dagster and its runs close down as by ctrl-C, and wait for them, whatever is pressed meanwhile."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
        deadline: float | None = None
        while True:
            with suppress(KeyboardInterrupt):
                process.wait()
                deadline = deadline or time.monotonic() + _RUN_END_SECONDS
                os.killpg(process.pid, 0 if time.monotonic() < deadline else signal.SIGKILL)
                time.sleep(0.1)
