"""A helper process for a pull: its beginning and its end.

Belongs here: what it is told, which pulls have one, how long the end of a pull waits. Doesn't: what
it does (helper.py).
"""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from leads_pipeline.settings import Settings

logger = logging.getLogger(__name__)

# Smaller pulls start no helper: its imports cost a second.
WINDOWS_MIN: Final = 300

# For so long the pull's end waits for a round, which takes one or two seconds. If it is given up,
# the publication loads it from its beginning.
_LAST_ROUND_SECONDS: Final = 4.0

# The module that the helper runs.
HELPER: Final = "leads_pipeline.features.loading_ahead"


class Task(NamedTuple):
    """What the helper has to know: the settings, as variables, and how many windows are pulled."""

    variables: dict[str, str]
    windows: int


@contextmanager
def loading_ahead(settings: Settings, windows: int) -> Iterator[None]:
    """Load ahead while the block pulls so many windows.

    The pull goes on even if the helper fails.
    """
    task = Task(settings.given, windows)
    helper = _started(task, settings.data_dir) if windows >= WINDOWS_MIN else None
    try:
        yield
    finally:
        if helper:
            _end(helper)


def _started(task: Task, folder: Path) -> "subprocess.Popen[bytes] | None":
    # Its errors may quote a lead.
    quiet = subprocess.DEVNULL
    # The folder is for people who look at the machine's processes. All else isn't for everybody,
    # and goes another way. -P: what lies in the working directory is no part of the program.
    command = [sys.executable, "-P", "-m", HELPER, str(folder)]

    try:
        helper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet)  # noqa: S603 - ours
        stdin: Any = helper.stdin
        stdin.write(f"{json.dumps(task)}\n".encode())
        stdin.flush()
    except OSError as error:
        logger.warning(
            "No leads are loaded during the pull: %s. The publication loads them.", error.strerror
        )
        return None

    return helper


def _end(helper: "subprocess.Popen[bytes]") -> None:
    """Tell the helper that the pull has ended, and see it end."""
    try:
        helper.communicate(timeout=_LAST_ROUND_SECONDS)  # which closes its stdin
    except subprocess.TimeoutExpired:
        helper.kill()
        helper.wait()
        return
    if helper.returncode:
        logger.warning("Leads could not be loaded during the pull. The publication loads them.")
