"""The lock that `serve` and `dev` hold on Dagster's home: one daemon at a time.

Belongs here: asking for it. Doesn't: holding it (features/service/alone.py).
"""

import fcntl
import os
from pathlib import Path
from typing import Final

LOCK: Final = "dev.lock"


def is_served(home: Path) -> bool:
    """Whether `serve` or `dev` works on this Dagster home now."""
    try:
        lock = os.open(home / LOCK, os.O_RDONLY)
    except OSError:
        return False

    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)

    return False
