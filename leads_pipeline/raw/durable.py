"""Writing files and folders so that they survive a power cut, whole and private.

Belongs here: writing and moving a file durably, and what to do about an operating system's error.
Doesn't: what the files hold, and who may write them when (raw/).
"""

import errno
import hashlib
import os
import resource
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import filelock

from leads_pipeline.errors import StorageError
from leads_pipeline.raw.room import full_disk_message, is_full, mount_of

PRIVATE_FOLDER_MODE: Final = 0o700
PRIVATE_FILE_MODE: Final = 0o600

# A draft's name begins with a dot, so that no reader of Parquet folders takes it for data.
DRAFT: Final = ".tmp"

# The answers of file systems that lack links, locks or the sync of a folder.
_LACKING: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
_NO_FOLDER_SYNC: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})
_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})

_POLL_SECONDS: Final = 0.02


def replace_file(path: Path, content: bytes) -> None:
    """Write the file so that it is whole at every moment, power cuts included.

    Missing folders are made private (0700), the file too (0600). Raises StorageError. Then the
    place has the old file or the new one, each whole.
    """
    # Of writing a small file, pathlib and a context manager took more than the disk (measured). So
    # here is neither.
    with storing(path):
        while True:
            draft = f"{path.parent}/.{secrets.token_hex(8)}{DRAFT}"
            try:
                _write_synced(draft, content)
                os.replace(draft, path)  # noqa: PTH105
                break
            except FileNotFoundError:
                # There is no folder yet, or FolderStore.delete_drafts took the draft.
                make_folder(path.parent)
            except BaseException:
                with suppress(OSError):
                    os.unlink(draft)  # noqa: PTH108
                raise
        sync(path.parent)


def _write_synced(draft: str, content: bytes) -> None:
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE_MODE)
    try:
        left = memoryview(content)
        while left:
            written = os.write(descriptor, left)
            left = left[written:]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def drafted(path: Path, content: bytes) -> Iterator[Path]:
    """Make a file beside the path, synced to the disk.

    It is deleted afterwards, unless it was moved. FolderStore.delete_drafts may take it earlier.
    Then the writer makes another one. Raises OSError.
    """
    make_folder(path.parent)
    draft = path.with_name(f".{secrets.token_hex(8)}{DRAFT}")
    try:
        _write_synced(str(draft), content)
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def publish_file(source: Path, path: Path) -> None:
    """Move a finished file to its place in the same file system, durably.

    A file that is there is replaced. Raises StorageError. Then the place has the old file or the
    new one, each whole. The source, if it is still there, is the caller's to remove.
    """
    with storing(path):
        sync(source)
        source.replace(path)
        sync(path.parent)


def copy_file(source: Path, target: Path) -> None:
    """Copy the file over the target.

    It takes no time if the file system lets both files share their blocks (XFS, btrfs). The copy
    isn't synced yet. Raises OSError.
    """
    with source.open("rb") as read, target.open("wb") as written:
        left = os.fstat(read.fileno()).st_size
        # Only Linux has it, a container's rules or a file system may refuse it, and some stop too
        # early.
        with suppress(AttributeError, OSError):
            while left and (copied := os.copy_file_range(read.fileno(), written.fileno(), left)):
                left -= copied
    if left:
        shutil.copyfile(source, target)


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, empty if it can't be read.

    The caller or the next reader reports that.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def sync(path: Path) -> None:
    """Have the file's content or the folder's entries on the disk before going on. Raises OSError.

    Older SMB mounts and some of FUSE can't sync a folder. They write its entries in their own time.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC or not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def lacks_links(error: OSError) -> bool:
    """Whether a link couldn't be made because the file system has none of that kind."""
    return error.errno in _LACKING


def want_symbolic_links(link: Path) -> None:
    """Raise StorageError if no symbolic link can be made at that path. Nothing stays there."""
    with storing(link):
        try:
            link.symlink_to("nothing")
        except OSError as error:
            if not lacks_links(error):
                raise
            raise StorageError(
                f"The file system {mount_of(link.parent)} has no symbolic links, and leads.duckdb "
                "is one. Set LEADS_DATA_DIR, or LEADS_WORK_DIR with a bucket, to a folder on "
                "another file system, for example ext4, XFS or APFS. Landed leads are safe: move "
                "the data folder there.",
                reason="no symbolic links",
            ) from None
        link.unlink()


def forgo_core_dumps() -> None:
    """Let this process and its children leave no core dump when they crash: it would hold leads.

    The limit is one byte, because 0 would stop files, but not a program that dumps are piped to
    (core(5)).
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if hard != 0:
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))


def make_folder(folder: Path) -> None:
    """Make the folder and its missing parents for this user alone, each synced before the next."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(PRIVATE_FOLDER_MODE, exist_ok=True)
        sync(folder.parent)


@contextmanager
def locked(path: Path, timeout_seconds: float, *, is_of_process: bool = False) -> Iterator[None]:
    """Hold this lock against all other processes and threads. It goes with the process.

    `is_of_process`: other threads of this process may hold it too. Raises StorageError if another
    holder keeps it for longer than `timeout_seconds`. Below 0 there is no end.
    """
    lock = filelock.FileLock(
        path, mode=PRIVATE_FILE_MODE, is_singleton=is_of_process, thread_local=not is_of_process
    )
    with storing(path):
        make_folder(path.parent)
        try:
            lock.acquire(timeout=timeout_seconds, poll_interval=_POLL_SECONDS)
        except filelock.Timeout:
            raise StorageError(
                f"Another process has held {path} for more than {timeout_seconds:g} s. Find it "
                f"with `fuser {path}` and end it if it hangs. Then run again."
            ) from None
        except NotImplementedError:  # filelock's word for ENOSYS
            raise _without_locks(path) from None
        except OSError as error:
            if error.errno in _NO_LOCKS:
                raise _without_locks(path) from error
            raise

    try:
        yield
    finally:
        # The work under the lock is done, and the lock ends with this process.
        with suppress(OSError):
            lock.release()


def _without_locks(path: Path) -> StorageError:
    return StorageError(
        f"The file system {mount_of(path)} has no locks for files, so two processes would "
        "overwrite each other's. Mount it with locks, or set LEADS_DATA_DIR to a folder on "
        "another file system."
    )


def check_writable(folder: Path) -> None:
    """Raise StorageError if nothing can be written to the folder, or to where it would be made."""
    there = folder
    try:
        there = next(path for path in (folder, *folder.parents) if path.exists())
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise StorageError(
            f"Nothing can be written to {there} ({error.strerror}). Make it this user's own, or "
            "set LEADS_DATA_DIR."
        ) from None


# It stands in errors of DuckDB and of connections, too.
MORE_FILES: Final = (
    "Raise the limit of open files (ulimit -n, or LimitNOFILE= in a systemd unit), then run again."
)

_FORBIDDEN: Final = (
    "Give this user the right to read and write there, or set LEADS_DATA_DIR to another folder."
)
_ADVICE: Final = {
    errno.EFBIG: "Raise the limit on file sizes (ulimit -f), then run again.",
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EROFS: "Mount it for writing, or set LEADS_DATA_DIR to another folder.",
    errno.EMFILE: MORE_FILES,
    errno.ENFILE: "All programs of this machine have too many files open. End some, then run "
    "again.",
    errno.ENOMEM: "The machine or the container has no memory left. Give it more, or end other "
    "programs.",
}


def _advice(path: Path, error: OSError) -> str:
    if is_full(error):
        return full_disk_message(path)
    return _ADVICE.get(error.errno or 0, "Check the disk and its file system, then run again.")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn an operating system's error into a StorageError that says what to do."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{path} can't be read: {error.strerror}. {_advice(path, error)}"
        ) from error


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """The same for writing."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{path} can't be written: {error.strerror}. {_advice(path, error)} Landed leads are "
            "safe."
        ) from error
