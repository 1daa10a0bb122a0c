"""Landing beside the fetching: answers become files in a process of its own, or in threads where they are few.

Belongs here: who lands an answer, and what comes back when. Doesn't: what landing is (lake/raw.py), fetching (client/).

Threads of one process that fetch and land spend a third of their time on handing each other the interpreter's lock:
of W1's 1,500 windows (benchmarks/README.md), fetching alone takes 2 processor seconds, landing alone 3, and both at
once in one process took 8. The process only saves time, so nothing depends on it: what it can't land, its parent does.
"""

import logging
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, Protocol

from leads_pipeline.contract import Answer
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.lake import Lake, Landing
from leads_pipeline.window import Window

# Landing waits for the disk twice, for the file and for its folder; side by side the disk serves several at once
# (measured: half the time with two threads, a little less still with four).
THREADS: Final = 4

# Where fetching is another process's work, two serve a disk that waits as well, and disturb each other less.
_PROCESS_THREADS: Final = 2

# Answers that wait for a thread, so that none waits for an answer.
_WAITING: Final = 4

# It takes half a second of the processor to begin a process, and landing a window in it saves 2 ms.
PROCESS_FROM_WINDOWS: Final = 250

Outcome = Answer | LeadsPipelineError
Landed = tuple[Answer, Landing] | LeadsPipelineError

logger = logging.getLogger(__name__)


class _Landers(Protocol):
    """Whoever lands answers, each by its number; they come back in any order."""

    def send(self, number: int, answer: Answer) -> None: ...

    def has_result(self) -> bool: ...

    def receive(self) -> tuple[int, Landing | LeadsPipelineError]: ...


def land_all(
    outcomes: Iterator[tuple[Window, Outcome]], count: int, lake: Lake, run_id: str
) -> Iterator[tuple[Window, Landed]]:
    """Land answers as they come, a few side by side; each window comes out once it is on the disk or has failed.

    `count` is how many windows are expected. An answer of which a part is missing is landed, and comes out as why.
    """
    under_way: dict[int, Answer] = {}

    def landed(landers: _Landers) -> tuple[Window, Landed]:
        number, result = landers.receive()
        answer = under_way.pop(number)
        if isinstance(result, LeadsPipelineError):
            return answer.window, result
        return answer.window, answer.failure or (answer, result)

    with _landers(lake, run_id, count) as landers:
        for number, (window, outcome) in enumerate(outcomes):
            if isinstance(outcome, LeadsPipelineError):
                yield window, outcome
                continue
            under_way[number] = outcome
            landers.send(number, outcome)
            while under_way and (len(under_way) > THREADS + _WAITING or landers.has_result()):
                yield landed(landers)
        while under_way:
            yield landed(landers)


@contextmanager
def _landers(lake: Lake, run_id: str, count: int) -> Iterator[_Landers]:
    with ThreadPoolExecutor(THREADS, "landing") as pool:
        threads = _Threads(pool, lake, run_id)
        if count < PROCESS_FROM_WINDOWS:
            yield threads
            return
        with _connection_to_process(lake, run_id) as connection:
            yield _Process(connection, threads)


def _land(lake: Lake, answer: Answer, run_id: str) -> Landing | LeadsPipelineError:
    try:
        return lake.land(answer, run_id)
    except LeadsPipelineError as error:
        return error


class _Threads:
    """Threads of this process. What is no error of the pipeline's is raised by `receive`."""

    def __init__(self, pool: ThreadPoolExecutor, lake: Lake, run_id: str) -> None:
        self._pool, self._lake, self._run_id = pool, lake, run_id
        self._results: queue.SimpleQueue[Callable[[], tuple[int, Landing | LeadsPipelineError]]] = queue.SimpleQueue()

    def send(self, number: int, answer: Answer) -> None:
        future = self._pool.submit(_land, self._lake, answer, self._run_id)
        future.add_done_callback(lambda done: self._results.put(lambda: (number, done.result())))

    def has_result(self) -> bool:
        return not self._results.empty()

    def receive(self) -> tuple[int, Landing | LeadsPipelineError]:
        return self._results.get()()


class _Process:
    """A process of its own, and `instead` for what it has not landed when it ends, whatever ended it."""

    def __init__(self, connection: Connection, instead: _Landers) -> None:
        self._connection, self._instead = connection, instead
        self._under_way: dict[int, Answer] = {}
        self._has_ended = False

    def send(self, number: int, answer: Answer) -> None:
        if self._has_ended:
            self._instead.send(number, answer)
            return
        self._under_way[number] = answer
        try:
            self._connection.send((number, answer))
        except OSError:
            self._end()

    def has_result(self) -> bool:
        return self._instead.has_result() if self._has_ended else self._connection.poll()

    def receive(self) -> tuple[int, Landing | LeadsPipelineError]:
        while not self._has_ended:
            try:
                number, result = self._connection.recv()
            except (EOFError, OSError):
                self._end()
                break
            if isinstance(result, logging.LogRecord):
                logging.getLogger(result.name).handle(result)
            else:
                del self._under_way[number]
                return number, result
        return self._instead.receive()

    def _end(self) -> None:
        self._has_ended = True
        logger.warning(
            "The process that lands answers has ended, killed for want of memory perhaps. This run lands them itself, "
            "which takes longer and loses nothing."
        )
        for number, answer in self._under_way.items():
            self._instead.send(number, answer)


@contextmanager
def _connection_to_process(lake: Lake, run_id: str) -> Iterator[Connection]:
    """To a process that lands what it is sent, and ends with the connection."""
    ours, theirs = Pipe()
    # The same modules as here, none of the current folder's, and no secret.
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with theirs:
        process = subprocess.Popen(  # noqa: S603 - our own module
            [
                *(sys.executable, "-P", "-m", __name__),
                *(str(theirs.fileno()), str(lake.folder), str(lake.suppression.folder), run_id),
            ],
            env=environment,
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    with process, ours:
        yield ours


class _Forwarding(logging.Handler):
    """Hands on what is logged, in words alone."""

    def __init__(self, send: Callable[[logging.LogRecord], None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        place = record.name, record.levelno, record.pathname, record.lineno
        self._send(logging.LogRecord(*place, record.getMessage(), None, None))


def main() -> None:
    """Land what comes from the connection of that number until its other end is closed."""
    descriptor, folder, privacy, run_id = sys.argv[1:]
    # Its parent decides when it is over. After ctrl-C or SIGTERM, which a whole group gets, that is soon.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    lake = Lake(Path(folder), Path(privacy))
    receiving, sending = threading.Lock(), threading.Lock()
    connection = Connection(int(descriptor))

    def send(number: int | None, result: Landing | LeadsPipelineError | logging.LogRecord) -> None:
        with sending:
            connection.send((number, result))

    def work() -> None:
        try:
            while True:
                with receiving:
                    number, answer = connection.recv()
                send(number, _land(lake, answer, run_id))
        except (EOFError, ConnectionError):
            return
        except BaseException:  # noqa: BLE001 - whatever it is, the parent meets it too, and raises it where it is read
            os._exit(1)

    logging.getLogger().addHandler(_Forwarding(partial(send, None)))
    threads = [threading.Thread(target=work) for _ in range(_PROCESS_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
