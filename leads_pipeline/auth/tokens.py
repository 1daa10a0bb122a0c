"""Access tokens, and the folder in which all processes of a machine share them."""

import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import filelock
import msgspec

from leads_pipeline.durable import PRIVATE_FILE_MODE, PRIVATE_FOLDER_MODE, make_folder, replace_file, sweep
from leads_pipeline.errors import (
    StorageError,
    UnreachableError,
)

# A token is renewed this long before it expires, so that none expires on its way; a short-lived one a tenth before.
RENEWAL_MARGIN_SECONDS = 60.0
RENEWAL_MARGIN_SHARE = 0.1
# No token is trusted for longer than a day, whatever the server says.
MAX_LIFETIME_SECONDS = 86_400.0
# Longer than any token request: whichever process holds the lock for this long has hung.
LOCK_DEADLINE_SECONDS = 45.0
# Web servers take request headers up to eight or sixteen kilobytes.
MAX_TOKEN_CHARACTERS = 8_000

TOKEN_FORM = re.compile(rf"[\x21-\x7e]{{1,{MAX_TOKEN_CHARACTERS}}}")  # RFC 6749, appendix A.12, without spaces


@dataclass(frozen=True, slots=True)
class Token:
    """An access token. `fetched_at` is the moment of asking, in seconds since 1970 by this machine's clock."""

    access_token: str = field(repr=False)
    fetched_at: float
    lifetime_seconds: float

    def __post_init__(self) -> None:
        if not TOKEN_FORM.fullmatch(self.access_token) or not 0 < self.lifetime_seconds <= MAX_LIFETIME_SECONDS:
            raise ValueError("not a token")

    def is_usable(self, now: float) -> bool:
        """Whether it lives for a while longer. After a clock that was set back, it counts as expired."""
        left = self.fetched_at + self.lifetime_seconds - now
        return min(RENEWAL_MARGIN_SECONDS, self.lifetime_seconds * RENEWAL_MARGIN_SHARE) < left <= self.lifetime_seconds


class TokenStore:
    """Tokens in files of a folder that this user alone can read, shared by all processes of the machine.

    A file that is missing, damaged, too open or another user's counts as absent: a token can always be had anew.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, key: str) -> Token | None:
        """The stored token, expired or not."""
        path = self._path(key)
        try:
            if not _is_private_file(path):
                return None
            return msgspec.json.decode(path.read_bytes(), type=Token)
        except (OSError, ValueError, msgspec.MsgspecError):
            return None

    @contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Hold the lock that whoever writes, drops or fetches this token holds, in all processes and threads.

        Raises StorageError if the folder can't be used, UnreachableError if another process has hung with the lock.
        """
        path = self._path(key).with_suffix(".lock")
        try:
            make_folder(self.folder)
            self.folder.chmod(PRIVATE_FOLDER_MODE)
            lock = filelock.FileLock(path, timeout=LOCK_DEADLINE_SECONDS, mode=PRIVATE_FILE_MODE)
            lock.acquire()
        except filelock.Timeout:
            raise UnreachableError(
                f"Another process has been getting an access token for over {LOCK_DEADLINE_SECONDS:.0f} seconds and "
                f"holds {path}. It is tried again later; end that process if it hangs."
            ) from None
        except OSError as error:
            raise StorageError(
                f"The folder for access tokens, {self.folder}, can't be used ({error.strerror}). Make it this user's "
                "own and writable, or delete it."
            ) from None
        try:
            yield
        finally:
            lock.release()

    def write(self, key: str, token: Token) -> None:
        """Store the token in place of any other; call it under the lock. Raises StorageError."""
        path = self._path(key)
        sweep(path)
        replace_file(path, msgspec.json.encode(token))

    def drop(self, key: str, token: Token) -> None:
        """Forget the token if the store still holds this very one; call it under the lock. Raises OSError."""
        stored = self.read(key)
        if stored is not None and stored.access_token == token.access_token:
            self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"


def _is_private_file(path: Path) -> bool:
    status = path.lstat()
    if sys.platform == "win32":  # its permissions aren't mode bits; the user's profile folder protects them
        return stat.S_ISREG(status.st_mode)
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077
