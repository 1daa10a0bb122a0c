"""Runs the simulator on a socket: in a thread for tests and demos, in the foreground for the command line.

Belongs here: uvicorn, the listening socket, and the environment variables that point the pipeline at it. Doesn't:
anything that is sent over it.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from leads_pipeline.simulator.app import Config, Simulator
from leads_pipeline.simulator.broken import hang_up
from leads_pipeline.simulator.inventory import AGENCY_REF
from leads_pipeline.simulator.tokens import Service

LOOPBACK: Final = "127.0.0.1"
# Start-up takes about 20 ms; a machine under full load takes its time.
_START_SECONDS: Final = 30
_STOP_SECONDS: Final = 10


class RunningSimulator(Simulator):
    """A simulator that is served at `base_url`."""

    base_url = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request (ASGI)."""
        try:
            await super().__call__(scope, receive, send)
        except asyncio.CancelledError:
            # The server stops with this answer under way.
            await hang_up(scope, receive, by_reset=True)

    def environment(self) -> dict[str, str]:
        """The environment variables that point the pipeline at this simulator."""
        return {
            "LEADS_BASE_URL": self.base_url,
            "LEADS_AUTH_URL": self.base_url,
            "LEADS_CLIENT_ID": Service.LEADS.client_id,
            "LEADS_CLIENT_SECRET": Service.LEADS.client_secret,
            "LEADS_BRANCH_IDS": ",".join(branch.id for branch in self.organisation.branches),
            "INVENTORY_BASE_URL": self.base_url,
            "INVENTORY_CLIENT_ID": Service.INVENTORY.client_id,
            "INVENTORY_CLIENT_SECRET": Service.INVENTORY.client_secret,
            "INVENTORY_AGENCY_REF": AGENCY_REF,
            "INVENTORY_ADDRESSES": self.organisation.branches[0].town.name,
        }


@contextmanager
def running(config: Config | None = None, *, host: str = LOOPBACK, port: int = 0) -> Iterator[RunningSimulator]:
    """Serve a simulator from a thread of this process while the block runs; port 0 takes a free one.

    Raises OSError where the address is taken.
    """
    simulator = RunningSimulator(config)
    listening = threading.Event()
    with _listen(host, port) as listener:
        simulator.base_url = _address(listener)
        server = _Server(simulator, listening.set)
        thread = threading.Thread(target=server.run, args=([listener],), name="simulator", daemon=True)
        thread.start()
        try:
            if not listening.wait(_START_SECONDS):
                raise RuntimeError(f"The simulator didn't start within {_START_SECONDS} s.")
            yield simulator
        finally:
            # Slow answers that are under way don't hold the end up.
            server.should_exit = server.force_exit = True
            thread.join(_STOP_SECONDS)


def serve(config: Config, *, host: str, port: int, on_listening: Callable[[RunningSimulator], None]) -> None:
    """Serve a simulator until the process is told to stop. Raises OSError where the address is taken."""
    simulator = RunningSimulator(config)
    with _listen(host, port) as listener:
        simulator.base_url = _address(listener)
        _Server(simulator, lambda: on_listening(simulator)).run([listener])


class _Server(uvicorn.Server):
    """uvicorn, silent but for errors, that says when it is listening."""

    def __init__(self, simulator: Simulator, on_listening: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                simulator,
                http=_Protocol,
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,  # a library's server doesn't set up its host's logging
                log_level="error",
                timeout_graceful_shutdown=1,
            )
        )
        self._on_listening = on_listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_listening()


class _Protocol(HttpToolsProtocol):
    """Hands each request its connection's transport, so that a fault can break the connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvicorn narrows it too
        super().connection_made(transport)
        self.app_state = {**self.app_state, "transport": transport}


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=2048)


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
