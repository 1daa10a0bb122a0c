"""Processes that flatten beside this one, and how days are shared out.

Belongs here: who takes which day, and what of a process's days is left when it ends. Doesn't: what is done with a day
(batches.py, which also runs as that process), beginning one (helper.py).

Two threads of one process wait for each other: for the interpreter's lock, and for the kernel, which hands out one
process's memory a page at a time. Two processes flatten 320,000 leads in 9 s where two threads take 12 (measured).
"""

import logging
import os
import queue
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import date
from multiprocessing.connection import Connection
from typing import Final, Protocol

from leads_pipeline import helper
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.flatten.counts import StagedDay

# At the most, however many cores there are: each takes 270 MB.
PROCESSES_MAX: Final = 3

# Planning a batch takes as long as flattening so many.
_SHARED_LEADS: Final = 3_000

Flattened = tuple[date, StagedDay | LeadsPipelineError]

logger = logging.getLogger(__name__)


class Days(Protocol):
    """Days that are left to flatten. Where they are shared, another process takes of them too."""

    are_shared: bool

    def take(self, days: int, leads: int) -> date | None:
        """The next, for a batch that has so many; None where none is left, or where others had better take it."""

    def __len__(self) -> int:
        """How many are left, or at least whether any is."""


class Left:
    """Days that are left to flatten, from the first, for any thread."""

    def __init__(self, days: Iterable[date]) -> None:
        self._days = deque(sorted(set(days)))
        self.are_shared = False

    def take(self, days: int, leads: int) -> date | None:
        """See Days. Of the last that are shared, a batch takes half, so that all end at about the same time."""
        if self.are_shared and leads >= _SHARED_LEADS and days >= len(self._days):
            return None
        try:
            return self._days.popleft()
        except IndexError:
            return None

    def give_back(self, days: Iterable[date]) -> None:
        """Have others take them."""
        self._days.extend(days)

    def clear(self) -> None:
        """Have nobody take any more."""
        self._days.clear()

    def __len__(self) -> int:
        return len(self._days)


class Beside:
    """The processes, from this end. They take days from `left`, and give back there what they didn't get done.

    Each runs the module, and receives the job first.
    """

    def __init__(self, left: Left, module: str, job: object) -> None:
        self.left, self._module, self._job = left, module, job
        self._flattened: queue.SimpleQueue[Flattened] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def begin(self) -> None:
        """Begin one for each core that is free; none where they have begun before, or the machine doesn't let us."""
        if self._threads:
            return
        for _ in range(min(PROCESSES_MAX, (os.cpu_count() or 1) - 1)):
            try:
                process, ours = helper.begin(self._module)
            except OSError as error:
                logger.warning("No process can be begun to flatten beside this one (%s): it takes longer.", error)
                return
            self._threads.append(threading.Thread(target=self._serve, args=(process, ours), daemon=True))
            self._threads[-1].start()
            self.left.are_shared = True

    def flattened(self) -> Iterator[Flattened]:
        """What was done since this was asked last."""
        while True:
            try:
                yield self._flattened.get_nowait()
            except queue.Empty:
                return

    def end(self) -> None:
        """Wait until each has flattened what it has taken. There may be days left afterwards."""
        for thread in self._threads:
            thread.join()

    def _serve(self, process: subprocess.Popen[bytes], ours: socket.socket) -> None:
        taken: list[date] = []
        with ours, suppress(Exception):  # its end as a rule, and whatever else it is, its days are flattened here
            connection = Connection(os.dup(ours.fileno()))
            connection.send(self._job)
            while True:
                message = connection.recv()
                if isinstance(message, logging.LogRecord):
                    helper.tell(message)
                elif isinstance(message, tuple):
                    day = self.left.take(*message)
                    taken += [day] if day else []
                    connection.send(day)
                else:
                    for day, staged in message:
                        taken.remove(day)
                        self._flattened.put((day, staged))
        process.kill()
        code = process.wait()
        if taken or code > 0:
            logger.warning(
                "A process that flattens was ended (%s). This run flattens its days itself, which takes longer and "
                "loses nothing.",
                helper.why(code),
            )
        self.left.give_back(taken)


class AskedDays:
    """In the process: the days that are left, which its parent knows."""

    are_shared = True

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def take(self, days: int, leads: int) -> date | None:
        """See Days."""
        self._connection.send((days, leads))
        day: date | None = self._connection.recv()
        return day

    def __len__(self) -> int:
        """As if there were always one more, until none comes."""
        return 1
