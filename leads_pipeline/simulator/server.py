"""Runs the simulator on a socket: in a thread for tests, in the foreground for the command line."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn

from leads_pipeline.simulator import tokens
from leads_pipeline.simulator.app import Config, Simulator
from leads_pipeline.simulator.inventory import AGENCY_REF

_HOST: Final = "127.0.0.1"
# Start-up takes about 20 ms; a machine under full load takes its time.
_START_SECONDS: Final = 30
_STOP_SECONDS: Final = 10


class RunningSimulator(Simulator):
    """A simulator that is served at `base_url`."""

    base_url = ""

    def environment(self) -> dict[str, str]:
        """The environment variables that point the pipeline at this simulator."""
        return {
            "LEADS_BASE_URL": self.base_url,
            "LEADS_AUTH_URL": self.base_url,
            "LEADS_CLIENT_ID": tokens.LEADS.id,
            "LEADS_CLIENT_SECRET": tokens.LEADS.secret,
            "LEADS_BRANCH_IDS": ",".join(branch.id for branch in self.organisation.branches),
            "INVENTORY_BASE_URL": self.base_url,
            "INVENTORY_CLIENT_ID": tokens.INVENTORY.id,
            "INVENTORY_CLIENT_SECRET": tokens.INVENTORY.secret,
            "INVENTORY_AGENCY_REF": AGENCY_REF,
            "INVENTORY_ADDRESSES": self.organisation.branches[0].town.name,
        }


@contextmanager
def running(config: Config | None = None, *, port: int = 0) -> Iterator[RunningSimulator]:
    """Serve a simulator from a thread of this process while the block runs; port 0 takes a free one.

    Raises OSError if the port is taken.
    """
    listening = threading.Event()
    with _listen(port) as listener:
        server = _Server(config or Config(), listener, lambda _: listening.set())
        thread = threading.Thread(target=server.run, args=([listener],), name="simulator", daemon=True)
        thread.start()
        try:
            if not listening.wait(_START_SECONDS):
                raise RuntimeError(f"The simulator didn't start within {_START_SECONDS} s.")
            yield server.simulator
        finally:
            # Slow answers under way don't delay the end.
            server.should_exit = server.force_exit = True
            thread.join(_STOP_SECONDS)


def serve(config: Config, port: int, on_listening: Callable[[RunningSimulator], None]) -> None:
    """Serve a simulator until the process is told to stop. Raises OSError if the port is taken."""
    with _listen(port) as listener:
        _Server(config, listener, on_listening).run([listener])


class _Server(uvicorn.Server):
    """uvicorn without a word, that says when it is listening."""

    def __init__(
        self, config: Config, listener: socket.socket, on_listening: Callable[[RunningSimulator], None]
    ) -> None:
        self.simulator = RunningSimulator(config)
        self.simulator.base_url = f"http://{_HOST}:{listener.getsockname()[1]}"
        self._on_listening = on_listening
        # Without a log_config, a library's server doesn't set up its host's logging.
        quiet = {"access_log": False, "log_config": None, "log_level": "critical"}
        super().__init__(
            uvicorn.Config(self.simulator, ws="none", lifespan="off", timeout_graceful_shutdown=1, **quiet)  # type: ignore[arg-type]
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_listening(self.simulator)


def _listen(port: int) -> socket.socket:
    return socket.create_server((_HOST, port), backlog=2048)
