"""Measures a process with all that it starts: seconds, CPU seconds, peak memory. Linux only."""

import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_EVERY_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Measured:
    """What a command took. `began` and `ended` are moments by this machine's clock; `out` is what it printed."""

    began: float
    ended: float
    cpu_seconds: float
    peak_mb: float
    out: str

    @property
    def seconds(self) -> float:
        """From the start of its process to its end."""
        return self.ended - self.began


def measure(command: Sequence[str], environment: Mapping[str, str]) -> Measured:
    """Run the command to its end. Raises CalledProcessError with what it said."""
    began = time.time()
    peak = 0.0
    is_over = threading.Event()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:

        def watch() -> None:
            nonlocal peak
            while not is_over.wait(_EVERY_SECONDS):
                peak = max(peak, sum(map(_resident_bytes, _tree(process.pid))))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            assert process.stdout is not None
            out = process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
            ended = time.time()
        finally:
            is_over.set()
            watcher.join()
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, out)
    # What looked every 50 ms can miss the top; the kernel's own mark is of the largest single process.
    peak_mb = max(peak / 1e6, usage.ru_maxrss * 1024 / 1e6)
    return Measured(began, ended, usage.ru_utime + usage.ru_stime, peak_mb, out)


def _tree(pid: int) -> list[int]:
    """The process and all that it started and that still run."""
    found = [pid]
    for each in found:
        try:
            for task in Path(f"/proc/{each}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
        except OSError:
            continue
    return found


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except OSError:
        return 0
