"""Runs the simulator on a socket of this machine, in a thread."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn

from leads_pipeline.simulator.app import Config, Simulator

_HOST: Final = "127.0.0.1"
_STOP_SECONDS: Final = 10


@contextmanager
def running(config: Config | None = None, *, port: int = 0) -> Iterator[Simulator]:
    """Serve a simulator while the block runs.

    Port 0 takes a free one. Raises OSError if the port is taken.
    """
    simulator = Simulator(config)
    # It says nothing: a library's server doesn't set up its host's logging.
    silent = uvicorn.Config(
        simulator,
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        log_level="critical",
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(silent)

    with socket.create_server((_HOST, port), backlog=2048) as listener:
        simulator.base_url = f"http://{_HOST}:{listener.getsockname()[1]}"
        thread = threading.Thread(
            target=server.run, args=([listener],), name="simulator", daemon=True
        )
        thread.start()
        try:
            while not server.started:
                if not thread.is_alive():
                    raise RuntimeError("The simulator didn't start.")
                time.sleep(0.005)
            yield simulator
        finally:
            # Slow answers under way don't delay the end.
            server.should_exit = server.force_exit = True
            thread.join(_STOP_SECONDS)
