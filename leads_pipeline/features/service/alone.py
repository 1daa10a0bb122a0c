"""One daemon at a time on a Dagster home, by a lock that `serve` and `dev` hold.

Belongs here: holding it. Doesn't: asking for it (raw/service_lock.py).
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from leads_pipeline.errors import SettingsError
from leads_pipeline.raw.durable import storing
from leads_pipeline.raw.service_lock import LOCK


@contextmanager
def alone(home: Path, pages: str) -> Iterator[int]:
    """Hold the lock. `pages` is the address of the Dagster UI.

    Gives the descriptor: Dagster's processes keep it open, so the lock holds as long as one of them
    lives. Raises SettingsError if another process holds it.
    """
    path = home / LOCK
    with storing(path):
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    try:
        for _ in range(10):  # is_served holds it for a moment
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(0.1)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock, 0)
        os.write(lock, f"process {os.getpid()}, with its pages at {pages}".encode())
        yield lock
    except BlockingIOError:
        holder = os.pread(lock, 200, 0).decode()
        raise SettingsError(
            f"Another daemon runs on {home}: {holder}. Two would launch every run twice. Use that "
            "one, or end it by ctrl-C where it runs, or kill with its number; or set "
            "LEADS_DATA_DIR to another folder."
        ) from None
    finally:
        os.close(lock)
