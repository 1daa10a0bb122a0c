"""A process whose n-th system call on a folder fails, or is its last, or whose file system lacks
some calls.

The calls are real, and the kernel stops them on their way in.

Belongs here: starting such a process and stopping it there, by seccomp's user notification
(seccomp_unotify(2)): the kernel asks this process before it makes each call of that one. Doesn't:
what is done, and what must hold afterwards.
"""

import ctypes
import errno
import fcntl
import multiprocessing
import os
import platform
import select
import shutil
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import pytest

needs_seccomp: Final = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="system calls are known by their numbers on Linux on x86-64 alone",
)

# What a full disk refuses: it still takes away and renames.
_GROWING: Final = frozenset(
    "write pwrite64 writev sendfile open openat mkdir mkdirat link linkat symlink symlinkat fallocate copy_file_range "  # noqa: SIM905
    "fsync".split()
)

# What file systems lack, as errors by call. An fsync is that of a folder.
_NO_HARD_LINKS: Final = dict.fromkeys(("link", "linkat"), errno.EPERM)
_NO_SYMBOLIC_LINKS: Final = dict.fromkeys(("symlink", "symlinkat"), errno.EPERM)
SMB: Final = {"link": errno.EOPNOTSUPP, "linkat": errno.EOPNOTSUPP, "fsync": errno.EINVAL}
EXFAT: Final = {**_NO_HARD_LINKS, **_NO_SYMBOLIC_LINKS}
NO_LOCKS: Final = {"flock": errno.ENOTSUP}

# A number that no call has.
NEVER: Final = sys.maxsize


class _Call(NamedTuple):
    """Which arguments are a descriptor (of the file, or of the folder that a path starts from) and
    a path.
    """

    name: str
    descriptor: int | None
    path: int | None
    changes: bool = False
    flags: int | None = None


# By number on x86-64. Calls that neither read nor change anything (lseek, fcntl, fstat) aren't
# failed by a disk.
_CALLS: Final = {
    0: _Call("read", 0, None),
    1: _Call("write", 0, None, changes=True),
    2: _Call("open", None, 0, flags=1),
    3: _Call("close", 0, None),
    4: _Call("stat", None, 0),
    6: _Call("lstat", None, 0),
    17: _Call("pread64", 0, None),
    18: _Call("pwrite64", 0, None, changes=True),
    19: _Call("readv", 0, None),
    20: _Call("writev", 0, None, changes=True),
    40: _Call("sendfile", 0, None, changes=True),
    73: _Call("flock", 0, None),
    74: _Call("fsync", 0, None, changes=True),
    75: _Call("fdatasync", 0, None, changes=True),
    76: _Call("truncate", None, 0, changes=True),
    77: _Call("ftruncate", 0, None, changes=True),
    82: _Call("rename", None, 0, changes=True),
    83: _Call("mkdir", None, 0, changes=True),
    84: _Call("rmdir", None, 0, changes=True),
    86: _Call("link", None, 0, changes=True),
    87: _Call("unlink", None, 0, changes=True),
    88: _Call("symlink", None, 1, changes=True),
    90: _Call("chmod", None, 0, changes=True),
    91: _Call("fchmod", 0, None, changes=True),
    217: _Call("getdents64", 0, None),
    257: _Call("openat", 0, 1, flags=2),
    258: _Call("mkdirat", 0, 1, changes=True),
    262: _Call("newfstatat", 0, 1),
    263: _Call("unlinkat", 0, 1, changes=True),
    264: _Call("renameat", 0, 1, changes=True),
    265: _Call("linkat", 0, 1, changes=True),
    266: _Call("symlinkat", 1, 2, changes=True),
    268: _Call("fchmodat", 0, 1, changes=True),
    285: _Call("fallocate", 0, None, changes=True),
    316: _Call("renameat2", 0, 1, changes=True),
    326: _Call("copy_file_range", 0, None, changes=True),
    332: _Call("statx", 0, 1),
}


class Fault(Enum):
    """What the n-th call gets; but for EIO, the n-th of those that change something.

    A process that is killed between two of them leaves the same behind as at the later one. EROFS
    is what that call gets and every change after it: a file system that goes read-only under way,
    as ext4 does after an error. ENOSPC is what that call and every later one gets that needs space:
    a disk that is full from then on.
    """

    KILL = "kill"
    EIO = "EIO"
    EROFS = "EROFS"
    ENOSPC = "ENOSPC"


@dataclass
class Outcome:
    """What became of the process: its calls on the folder that counted, and how it ended.

    `changes`: those of the calls that change something.
    `is_done`: the work returned, `result` is what. `error`: the exception that it raised instead.
    Neither: it was killed.
    """

    calls: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    is_done: bool = False
    result: Any = None
    error: str = ""


def run(
    work: Callable[..., Any],
    *arguments: Any,
    folder: Path,
    fault: Fault = Fault.EIO,
    at: int = NEVER,
    lacks: Mapping[str, int] = MappingProxyType({}),
) -> Outcome:
    """Do the work in a process of its own, whose call number `at` on the folder, from 0, gets the
    fault.

    `lacks` is what the folder's file system can't do: the error of each call by its name. An fsync
    is that of a folder.
    """
    context = _context(work.__module__)

    here, there = context.Pipe()
    process = context.Process(target=_child, args=(there, work, arguments))
    process.start()
    there.close()

    outcome = Outcome()
    try:
        listener = recv_handle(here)
        try:
            for number, call in enumerate(
                _notified(listener, folder, only_changes=fault is not Fault.EIO)
            ):
                outcome.calls.append(f"{call.name} {call.path}")
                outcome.changes += outcome.calls[-1:] if call.changes else []
                if number == at and fault is Fault.KILL:
                    process.kill()
                elif number == at and fault is Fault.EIO:
                    call.fail(errno.EIO)
                elif number >= at and fault is Fault.EROFS:
                    call.fail(errno.EROFS)
                elif number >= at and fault is Fault.ENOSPC and call.name in _GROWING:
                    call.fail(errno.ENOSPC)
                elif call.name in lacks and (call.name != "fsync" or (folder / call.path).is_dir()):
                    call.fail(lacks[call.name])
                else:
                    call.let_through()
        finally:
            os.close(listener)
        if here.poll():
            outcome.is_done, outcome.result, outcome.error = here.recv()
    except EOFError:
        assert fault is Fault.KILL, "the process ended without a word"
    finally:
        here.close()
        process.kill()
        process.join()

    return outcome


def trials(
    work: Callable[[Path], Any], start: Path, folder: Path, *, seed: str, most: int
) -> Iterator[tuple[Path, str]]:
    """Do the work in copies of a folder. In each, it is killed before another of its changes.

    The seed chooses `most` changes. Give each copy afterwards, and which change it was.
    """
    counted = folder / "counted"
    shutil.copytree(start, counted, symlinks=True)
    whole = run(work, counted, folder=counted, fault=Fault.KILL)
    assert whole.is_done, whole.error

    calls = range(len(whole.calls))
    chosen = Random(seed).sample(calls, min(most, len(calls)))  # noqa: S311 - to be repeated
    for at in sorted(chosen):
        copied = folder / str(at)
        shutil.copytree(start, copied, symlinks=True)
        outcome = run(work, copied, folder=copied, fault=Fault.KILL, at=at)
        yield copied, f"killed at {at}, {outcome.calls[min(at, len(outcome.calls) - 1)]}"
        shutil.rmtree(copied)


@cache
def _context(module: str) -> multiprocessing.context.ForkServerContext:
    """Processes that are forked from one that has imported the module and all that it needs, and
    has no threads.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "pandas", "pytz", module])
    return context


def _child(connection: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    # Nobody has to read what it warns of.
    sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - open until the process ends
    listener = _filter_calls()
    send_handle(connection, listener, os.getppid())
    os.close(listener)
    try:
        connection.send((True, work(*arguments), ""))
    except BaseException as error:  # noqa: BLE001 - whatever it is, the test has to hear of it
        connection.send((False, None, f"{type(error).__name__}: {error}"))


# --- seccomp --------------------------------------------------------------------------------------

# From linux/prctl.h, linux/seccomp.h and linux/filter.h.
_PR_SET_NO_NEW_PRIVS = 38
_SYS_SECCOMP = 317
_SET_MODE_FILTER = 1
_NEW_LISTENER = 8
_ALLOW = 0x7FFF0000
_NOTIFY = 0x7FC00000
_LOAD = 0x20
_JUMP_IF_EQUAL = 0x15
_RETURN = 0x06
_RECEIVE = 0xC0502100
_SEND = 0xC0182101
_CONTINUE = 1
_NOTIFICATION = struct.Struct("QIIiIQ6Q")
_RESPONSE = struct.Struct("QqiI")
_AT_FDCWD = -100
_PATH_MAX = 4096


def _filter_calls() -> int:
    """From here on this process asks before each of the calls; returns the descriptor that whoever
    answers needs.
    """
    numbers = sorted(_CALLS)
    steps = [(_LOAD, 0, 0, 0)]
    steps += [
        (_JUMP_IF_EQUAL, len(numbers) - place, 0, number) for place, number in enumerate(numbers)
    ]
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _NOTIFY)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
    )
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        listener = int(libc.syscall(_SYS_SECCOMP, _SET_MODE_FILTER, _NEW_LISTENER, program))
        if listener >= 0:
            return listener
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@dataclass
class _Notified:
    """A call that waits for an answer."""

    listener: int
    id: int
    name: str
    path: str
    changes: bool

    def let_through(self) -> None:
        self._answer(_RESPONSE.pack(self.id, 0, 0, _CONTINUE))

    def fail(self, error: int) -> None:
        self._answer(_RESPONSE.pack(self.id, 0, -error, 0))

    def _answer(self, response: bytes) -> None:
        try:
            fcntl.ioctl(self.listener, _SEND, bytearray(response))
        except FileNotFoundError:
            """The process is gone meanwhile."""


def _notified(listener: int, folder: Path, *, only_changes: bool) -> Iterator[_Notified]:
    """The process's calls on the folder; all others are let through. Ends with the process."""
    waiting = select.poll()
    waiting.register(listener, select.POLLIN)
    while waiting.poll()[0][1] & select.POLLIN:
        notification = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(listener, _RECEIVE, notification)
        except FileNotFoundError:
            continue  # the process was killed before it was heard
        id_, thread, _, number, _, _, *arguments = _NOTIFICATION.unpack(notification)
        call = _CALLS[number]
        path = _path(thread, call, arguments)
        creates = call.flags is not None and arguments[call.flags] & (os.O_CREAT | os.O_TRUNC)
        heard = _Notified(
            listener, id_, call.name, path.removeprefix(f"{folder}/"), call.changes or bool(creates)
        )
        if f"{path}/".startswith(f"{folder}/") and (heard.changes or not only_changes):
            yield heard
        else:
            heard.let_through()


def _path(thread: int, call: _Call, arguments: list[int]) -> str:
    """The path that a call is about; "" where that can't be found out, as the process is gone or
    knows no such file.
    """
    try:
        path = "" if call.path is None else _text_at(thread, arguments[call.path])
        if call.descriptor is None or path.startswith("/"):
            return path
        descriptor = ctypes.c_int(arguments[call.descriptor]).value
        start = "cwd" if descriptor == _AT_FDCWD else f"fd/{descriptor}"
        return str(Path(f"/proc/{thread}/{start}").readlink() / path)
    except OSError:
        return ""


def _text_at(thread: int, address: int) -> str:
    with Path(f"/proc/{thread}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(_PATH_MAX).split(b"\0")[0].decode()
