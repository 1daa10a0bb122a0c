"""Measures a process with all that it starts: seconds, CPU seconds, peak memory. Linux only."""

import os
import re
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_EVERY_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Measured:
    """What a command took.

    `began` and `ended` are moments by this machine's clock; `out` is what it printed.
    """

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
                looked = [resident_bytes(pid) for pid in _tree(process.pid)]
                # A process knows its own top between two looks. (ru_maxrss wouldn't do: it begins
                # with that of the process that forked.)
                peak = max(peak, sum(now for now, _ in looked), *(top for _, top in looked))

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
    return Measured(began, ended, usage.ru_utime + usage.ru_stime, peak / 1e6, out)


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


def resident_bytes(pid: int) -> tuple[int, int]:
    """What the process holds now, and the most that it has held."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0, 0
    sizes = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB$", status, re.MULTILINE))
    return int(sizes.get("VmRSS", 0)) * 1024, int(sizes.get("VmHWM", 0)) * 1024
