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
from collections.abc import Iterator
from contextlib import suppress
from datetime import date
from multiprocessing.connection import Connection
from typing import Final, Protocol

from leads_pipeline import helper
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.flatten.counts import StagedDay

# At the most, however many cores there are: each takes 270 MB.
PROCESSES_MAX: Final = 3

Flattened = tuple[date, StagedDay | LeadsPipelineError]

logger = logging.getLogger(__name__)


class Days(Protocol):
    """Days that are left to take, shared with others. An empty one raises IndexError."""

    def popleft(self) -> date:
        """Take the next."""

    def __len__(self) -> int:
        """None where there are none to take."""


class Beside:
    """The processes, from this end. They take days from `left`, and give back there what they didn't get done.

    Each runs the module, and receives the job first.
    """

    def __init__(self, left: deque[date], module: str, job: object) -> None:
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
                elif message is None:
                    try:
                        taken.append(self.left.popleft())
                    except IndexError:
                        connection.send(None)
                    else:
                        connection.send(taken[-1])
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
        self.left.extend(taken)


class AskedDays:
    """In the process: the days that are left, which its parent knows."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def popleft(self) -> date:
        """Take the next."""
        self._connection.send(None)
        day: date | None = self._connection.recv()
        if day is None:
            raise IndexError
        return day

    def __len__(self) -> int:
        """As if there were always one more: until then there is other work for another core."""
        return 1
