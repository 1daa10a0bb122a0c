"""A process of ours beside this one, which takes work off it that its threads would wait for each other with.

Belongs here: beginning one, its end of the connection, what it logs. Doesn't: what it does
(flatten/batches.py).

It only saves time, so nothing depends on it: what it can't do, its parent does.
"""

import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection


def begin(module: str, *arguments: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Run the module with these arguments; the socket has a `Connection` at its other end, see parent().

    Raises OSError where the machine doesn't let us.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-P", "-m", module, str(theirs.fileno()), *arguments],
                # The same modules as here, and no secret. numpy, which pyarrow imports, would begin a thread per core
                # that waits busily for a tenth of a second, beside us.
                env={
                    "PYTHONPATH": os.pathsep.join(path for path in map(str, sys.path) if path),
                    "OPENBLAS_NUM_THREADS": "1",
                },
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                # Its parent decides when it is over: ctrl-C, which a whole group gets, is none of its business.
                start_new_session=True,
            )
        except OSError:
            ours.close()
            raise
    return process, ours


def parent() -> tuple[Connection, list[str]]:
    """In the process: the connection to its parent, at whose end it ends, and its arguments."""
    descriptor, *arguments = sys.argv[1:]
    # What stops a service or a container gives it to each process. Its parent hears it too.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return Connection(int(descriptor)), arguments


def why(code: int) -> str:
    """What ended a process, by its exit code."""
    return f"by signal {-code}, as by the kernel where memory is short" if code < 0 else f"exit code {code}"


def tell(record: logging.LogRecord) -> None:
    """Log here what the process has logged."""
    told = logging.getLogger(record.name)
    with suppress(Exception):  # a log that can't be written keeps no lead from being landed
        if told.isEnabledFor(record.levelno):
            told.handle(record)


def forward_logs(send: Callable[[logging.LogRecord], None]) -> None:
    """In the process: hand on what is logged, in words alone."""
    logging.getLogger().addHandler(_Forwarding(send))


class _Forwarding(logging.Handler):
    def __init__(self, send: Callable[[logging.LogRecord], None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        place = record.name, record.levelno, record.pathname, record.lineno
        self._send(logging.LogRecord(*place, record.getMessage(), None, None))
