"""Keeps programs running: starts again what has ended, ever later, and ends all of them in order.

Belongs here: processes. Doesn't: which programs those are (cli/serving.py).
"""

import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Final

# What ends at once is started again at once, and then ever later; what ran for a minute begins anew.
FIRST_DELAY_SECONDS: Final = 1.0
LONGEST_DELAY_SECONDS: Final = 60.0
STEADY_SECONDS: Final = 60.0

# How long a program and what it started may take to end before it is killed.
END_SECONDS: Final = 10.0

_TICK_SECONDS: Final = 0.2

# prctl(2): the signal that a child gets when its parent is gone.
_PR_SET_PDEATHSIG: Final = 1

# Loaded here, as between fork and exec nothing may wait for a lock.
_LIBC: Final = ctypes.CDLL(None)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Program:
    """What is kept running.

    `is_up`: whether those behind it may start. `is_shared`: what it has started outlives it, as others need that, and
    both end after the others.
    """

    name: str
    command: Sequence[str]
    is_up: Callable[[], bool] | None = None
    is_shared: bool = False


@dataclass(slots=True)
class _Kept:
    program: Program
    process: "subprocess.Popen[bytes] | None" = None
    groups: set[int] = field(default_factory=set)
    started_at: float = 0.0
    due_at: float = 0.0
    delay: float = 0.0
    was_up: bool = False


class Supervisor:
    """Programs that are kept running, each in a session of its own, so that ctrl-C reaches this process alone."""

    def __init__(
        self,
        programs: Sequence[Program],
        folder: Path,
        pass_fds: Sequence[int] = (),
        *,
        first_delay_seconds: float = FIRST_DELAY_SECONDS,
        end_seconds: float = END_SECONDS,
    ) -> None:
        self._kept = [_Kept(program, delay=first_delay_seconds) for program in programs]
        self._folder = folder
        self._pass_fds = pass_fds
        self._first_delay = first_delay_seconds
        self._end_seconds = end_seconds

    def run(self, stop: Event) -> None:
        """Keep them running until `stop` is set, then end them. The first time, each waits for those before it."""
        try:
            while not stop.is_set():
                for kept in self._kept:
                    self._look_after(kept, time.monotonic())
                    if not kept.was_up:
                        break
                stop.wait(_TICK_SECONDS)
        finally:
            for is_shared in (False, True):
                self._end([kept for kept in self._kept if kept.program.is_shared is is_shared])

    def _look_after(self, kept: _Kept, now: float) -> None:
        kept.groups = {group for group in kept.groups if _is_alive(group, kept)}
        if kept.process is None:
            if now >= kept.due_at:
                self._start(kept, now)
        elif (code := kept.process.poll()) is not None:
            ended, kept.process = kept.process.pid, None
            if not kept.program.is_shared:
                _signal(kept, signal.SIGKILL)
            kept.delay = self._first_delay if now - kept.started_at >= STEADY_SECONDS else kept.delay
            kept.due_at = now + kept.delay
            logger.warning(
                "%s (process %s) ended: %s. It is started again in %g s.",
                kept.program.name,
                ended,
                f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}",
                kept.delay,
            )
            kept.delay = min(2 * kept.delay, LONGEST_DELAY_SECONDS)
        elif not kept.was_up and (kept.program.is_up is None or kept.program.is_up()):
            kept.was_up = True

    def _start(self, kept: _Kept, now: float) -> None:
        try:
            kept.process = subprocess.Popen(  # noqa: S603 - our own commands
                kept.program.command,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=tuple(self._pass_fds),
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,  # there are no threads
            )
        except OSError as error:
            kept.due_at = now + kept.delay
            logger.warning("%s can't be started (%s). Once more in %g s.", kept.program.name, error, kept.delay)
            kept.delay = min(2 * kept.delay, LONGEST_DELAY_SECONDS)
            return
        kept.started_at = now
        kept.groups.add(kept.process.pid)
        logger.info("%s started (process %s).", kept.program.name, kept.process.pid)

    def _end(self, ending: Sequence[_Kept]) -> None:
        """End those programs and all that they have started, side by side."""
        deadline = time.monotonic() + self._end_seconds
        for kept in ending:
            _signal(kept, signal.SIGTERM)
        for kept in ending:
            while _is_left(kept) and time.monotonic() < deadline:
                time.sleep(_TICK_SECONDS / 4)
            if _is_left(kept):
                logger.warning("%s doesn't end within %.0f s and is killed.", kept.program.name, self._end_seconds)
                _signal(kept, signal.SIGKILL)
            if kept.process is not None:
                kept.process.wait()
                logger.info("%s has ended.", kept.program.name)


def _is_left(kept: _Kept) -> bool:
    if kept.process is not None:
        kept.process.poll()  # until its end is noted, its group is there
    kept.groups = {group for group in kept.groups if _is_alive(group, kept)}
    return bool(kept.groups)


def _end_with_parent() -> None:
    """Have the child end when this process is killed, so that the next start finds the folder free.

    What this process was told to ignore by who started it, the child would ignore too.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _signal(kept: _Kept, number: signal.Signals) -> None:
    for group in kept.groups:
        with suppress(ProcessLookupError):
            os.killpg(group, number)


def _is_alive(group: int, kept: _Kept) -> bool:
    process = kept.process
    if process is None or process.returncode is not None or process.pid != group:
        # In a container, where this process is the first, what lost its parent is ours to take note of.
        with suppress(ChildProcessError):
            while os.waitpid(-group, os.WNOHANG) != (0, 0):
                pass
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
