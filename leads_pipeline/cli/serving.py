"""Dagster for production: web pages, daemon and code location as separate processes that are kept running: `serve`."""

import logging
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

import click

from leads_pipeline.cli.output import plain_errors
from leads_pipeline.cli.session import configured, opened
from leads_pipeline.cli.supervisor import Program, Supervisor
from leads_pipeline.cli.ui import (
    HOST,
    port_option,
    refuse_taken,
    work_place,
)
from leads_pipeline.errors import SettingsError
from leads_pipeline.observe.doctor import writable
from leads_pipeline.settings import NO_PORTAL
from leads_pipeline.storage.service_lock import alone

_MODULE = "leads_pipeline.definitions"

_DAGSTER = (sys.executable, "-W", "ignore::FutureWarning", "-m")

# The location's name is the one that `dev` gives it: what was switched on or off, and where sensors stand, goes by it.
_WORKSPACE = f"""\
load_from:
  - grpc_server:
      host: localhost
      socket: %s
      location_name: {_MODULE}
"""


@click.command()
@port_option
@click.option("--host", default=HOST, show_default=True, help="Where the pages are served. They have no login.")
@click.option("--read-only-port", type=click.IntRange(1, 65535), help="Serve the pages here too, for looking only.")
def serve(port: int, host: str, read_only_port: int | None) -> None:
    """Run Dagster's web pages, its daemon and the code location, and start again what ends, until ctrl-C or SIGTERM.

    The pages have no login: whoever reaches them can start and stop everything. Let a proxy with TLS and a login stand
    before them, or reach them through a tunnel.
    """
    with plain_errors():
        settings = configured()
        if settings.base_url is None:
            raise SettingsError(f"{NO_PORTAL} `leads-pipeline dev` has a made-up portal.")
        taken: dict[int, str] = {}
        for other, option in ((port, "--port"), (read_only_port, "--read-only-port")):
            if other is None:
                continue
            if other in taken:
                raise SettingsError(f"The port of {option} is {taken[other]}'s, {other}. Name another with {option}.")
            refuse_taken(other, host, option)
            taken[other] = option
        writable(settings.data_dir)
        opened(settings)
        home = work_place(settings)
        logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
        stop = Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
                signal.signal(number, lambda *_: stop.set())
        with alone(home, f"http://{host}:{port}") as lock, TemporaryDirectory(prefix="leads-pipeline-") as folder:
            programs = _programs(Path(folder), host, port, read_only_port)
            Supervisor(programs, home, [lock]).run(stop)
    sys.exit(0)


def _programs(folder: Path, host: str, port: int, read_only_port: int | None) -> Sequence[Program]:
    """What runs, in the order in which one needs the other. A run belongs to the code location, and outlives it."""
    address, workspace = folder / "code", folder / "workspace.yaml"
    workspace.write_text(_WORKSPACE % address)
    of_workspace = ("-w", str(workspace))
    quiet = ("--log-level", "warning")
    code = ["dagster", "api", "grpc", "-m", _MODULE, "--location-name", _MODULE, "--socket", str(address), *quiet]
    programs = [Program("code location", (*_DAGSTER, *code), partial(_answers, address), is_shared=True)]
    pages = (*_DAGSTER, "dagster_webserver", *of_workspace, "--dagster-log-level", "warning", "-h", host)
    programs.append(Program(f"webserver at http://{host}:{port}", (*pages, "-p", str(port))))
    if read_only_port is not None:
        name = f"read-only webserver at http://{host}:{read_only_port}"
        programs.append(Program(name, (*pages, "-p", str(read_only_port), "--read-only")))
    programs.append(Program("daemon", (*_DAGSTER, "dagster._daemon", "run", *of_workspace, *quiet)))
    return programs


def _answers(address: Path) -> bool:
    with suppress(OSError), socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1)
        client.connect(str(address))
        return True
    return False
