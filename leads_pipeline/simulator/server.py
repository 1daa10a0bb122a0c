"""Runs the simulator on a socket of this machine, in a thread."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn

from leads_pipeline.simulator import tokens
from leads_pipeline.simulator.app import Config, Simulator
from leads_pipeline.simulator.inventory import AGENCY_REF

_HOST: Final = "127.0.0.1"
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
    """Serve a simulator while the block runs; port 0 takes a free one. Raises OSError if the port is taken."""
    simulator = RunningSimulator(config)
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
        thread = threading.Thread(target=server.run, args=([listener],), name="simulator", daemon=True)
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
