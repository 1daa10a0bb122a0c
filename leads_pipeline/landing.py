"""Landing beside the fetching: answers become files in a process of its own, or in threads where they are few.

Belongs here: who lands an answer, and what comes back when. Doesn't: what landing is (lake/raw.py), fetching (client/).

Threads of one process that fetch and land spend a third of their time on handing each other the interpreter's lock:
of W1's 1,500 windows (benchmarks/README.md), fetching alone takes 2 processor seconds, landing alone 3, and both at
once in one process took 8.
"""

import itertools
import logging
import os
import queue
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from leads_pipeline import helper
from leads_pipeline.contract import Answer
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.lake import Lake, Landing
from leads_pipeline.window import Window

# Landing waits for the disk twice, for the file and for its folder; side by side the disk serves several at once
# (measured: half the time with two threads, a little less still with four).
THREADS: Final = 4

# A store that is far away serves many at once, and whoever waits for it leaves the processor to others.
_STORE_THREADS: Final = 16

# Where fetching is another process's work, two serve a disk that waits as well, and disturb each other less.
_PROCESS_THREADS: Final = 2

# Answers that wait for a thread, so that none waits for an answer.
_WAITING: Final = 4

# It takes half a second of the processor to begin a process, and landing a window in it saves 2 ms.
PROCESS_FROM_WINDOWS: Final = 250

Outcome = Answer | LeadsPipelineError
Result = tuple[Answer, Landing] | LeadsPipelineError

_LandingFuture = Future[Landing | LeadsPipelineError]
_Submit = Callable[[Answer], _LandingFuture]

logger = logging.getLogger(__name__)


def land_all(
    outcomes: Iterator[tuple[Window, Outcome]], count: int, lake: Lake, run_id: str
) -> Iterator[tuple[Window, Result]]:
    """Land answers as they come, a few side by side; each window comes out once it is on the disk or has failed.

    `count` is how many windows are expected. An answer of which a part is missing is landed, and comes out as why.
    """
    done: queue.SimpleQueue[tuple[Answer, _LandingFuture]] = queue.SimpleQueue()
    under_way, most = 0, _threads(lake) + _WAITING

    def begin(submit: _Submit, answer: Answer) -> None:
        submit(answer).add_done_callback(lambda future: done.put((answer, future)))

    def next_done() -> tuple[Window, Result]:
        answer, future = done.get()
        landing = future.result()
        if isinstance(landing, LeadsPipelineError):
            return answer.window, landing
        return answer.window, answer.failure or (answer, landing)

    with _submitting(lake, run_id, count) as submit:
        for window, outcome in outcomes:
            if isinstance(outcome, LeadsPipelineError):
                yield window, outcome
            else:
                under_way += 1
                begin(submit, outcome)
            while under_way and (under_way > most or not done.empty()):
                under_way -= 1
                yield next_done()
        for _ in range(under_way):
            yield next_done()


@contextmanager
def _submitting(lake: Lake, run_id: str, count: int) -> Iterator[_Submit]:
    """Who takes answers. What was taken is landed when this ends, however it ends."""
    with ThreadPoolExecutor(_threads(lake), "landing") as pool:

        def submit(answer: Answer) -> _LandingFuture:
            return pool.submit(_land, lake, run_id, answer)

        is_worth_it = count >= PROCESS_FROM_WINDOWS and lake.store is None  # which would take its secrets there
        process = _LandingProcess.begun(lake, run_id, submit) if is_worth_it else None
        if process is None:
            yield submit
            return
        try:
            yield process.submit
        finally:
            process.end()


def _threads(lake: Lake) -> int:
    return THREADS if lake.store is None else _STORE_THREADS


def _land(lake: Lake, run_id: str, answer: Answer) -> Landing | LeadsPipelineError:
    try:
        return lake.land(answer, run_id)
    except LeadsPipelineError as error:
        return error


class _LandingProcess:
    """The process, from this end. `instead` lands what it hasn't landed when it ends, whatever ended it."""

    def __init__(self, process: subprocess.Popen[bytes], ours: socket.socket, instead: _Submit) -> None:
        self._process, self._socket, self._instead = process, ours, instead
        self._connection = Connection(os.dup(ours.fileno()))
        self._numbers = itertools.count()
        self._waiting: dict[int, tuple[Answer, _LandingFuture]] = {}
        self._has_ended = False
        self._ending = threading.Lock()
        # It reads all the time, so that neither end waits for the other to read.
        self._reader = threading.Thread(target=self._read, name="landed", daemon=True)
        self._reader.start()

    @classmethod
    def begun(cls, lake: Lake, run_id: str, instead: _Submit) -> "_LandingProcess | None":
        """Begin one; None where the machine doesn't let us."""
        try:
            process, ours = helper.begin(__name__, str(lake.folder), str(lake.suppression.folder), run_id)
        except OSError as error:
            logger.warning("No process can be begun to land answers (%s): this run lands them itself.", error)
            return None
        return cls(process, ours, instead)

    def submit(self, answer: Answer) -> _LandingFuture:
        """Have the answer landed, there or here."""
        future = _LandingFuture()
        with self._ending:
            if self._has_ended:
                return self._instead(answer)
            number = next(self._numbers)
            self._waiting[number] = answer, future
        try:
            self._connection.send((number, answer))
        except OSError:
            self._process.kill()  # nobody knows how much of it has arrived
        return future

    def end(self) -> None:
        """Wait until what was sent is landed."""
        with suppress(OSError):  # it has ended before
            self._socket.shutdown(socket.SHUT_WR)
        self._reader.join()
        self._connection.close()
        self._socket.close()

    def _read(self) -> None:
        with suppress(Exception):  # the process's end as a rule, and whatever else it is, the rest is landed here
            while True:
                number, result = self._connection.recv()
                if isinstance(result, logging.LogRecord):
                    helper.tell(result)
                    continue
                answer, future = self._waiting.pop(number)
                if result is None:
                    self._land_instead(answer, future)
                else:
                    future.set_result(result)
        self._process.kill()
        code = self._process.wait()
        with self._ending:
            self._has_ended = True
        if self._waiting or code > 0:  # it may have failed before there was anything to land
            logger.warning(
                "The process that lands answers was ended (%s). This run lands the rest itself, which takes longer and "
                "loses nothing.",
                helper.why(code),
            )
        while self._waiting:
            self._land_instead(*self._waiting.popitem()[1])

    def _land_instead(self, answer: Answer, future: _LandingFuture) -> None:
        def hand_on(done: _LandingFuture) -> None:
            if (error := done.exception()) is None:
                future.set_result(done.result())
            else:
                future.set_exception(error)

        self._instead(answer).add_done_callback(hand_on)


def main() -> None:
    """Land what comes from the parent until it says that this was all."""
    connection, (folder, privacy, run_id) = helper.parent()
    lake = Lake(Path(folder), Path(privacy))
    receiving, sending = threading.Lock(), threading.Lock()

    def received() -> tuple[int, Answer] | None:
        with receiving, suppress(EOFError, OSError):
            number, answer = connection.recv()
            return number, answer
        return None

    def send(number: int | None, result: Landing | LeadsPipelineError | logging.LogRecord | None) -> None:
        with sending, suppress(OSError):  # there is nobody any more who would want to know
            connection.send((number, result))

    def work() -> None:
        while (one := received()) is not None:
            number, answer = one
            result = None
            try:
                result = _land(lake, run_id, answer)
            except Exception:  # noqa: BLE001 - its parent tries the same, and raises it where it is read
                """There is no result."""
            send(number, result)

    helper.forward_logs(partial(send, None))
    threads = [threading.Thread(target=work) for _ in range(_PROCESS_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
