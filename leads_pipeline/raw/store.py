"""Stores: a folder of this machine, and a bucket that speaks S3.

Belongs here: the verbs, and their errors in words. Doesn't: which files are kept, and how they
merge (landing.py).
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

from leads_pipeline.errors import SettingsError, StorageError, how_to_install
from leads_pipeline.raw.durable import (
    DRAFT,
    drafted,
    lacks_links,
    locked,
    make_folder,
    reading,
    replace_file,
    storing,
    sync,
)

# Held while a key is created once on a file system without hard links. It is no key.
_TURNS: Final = ".create-once.lock"
_TURN_SECONDS: Final = 60.0

# A listing of more names isn't one moment: a file that is renamed meanwhile can be missing from it
# (measured).
_ONE_MOMENT: Final = 350


class Store(Protocol):
    """Files by key. Many processes may use a store at once. Keys are relative paths with slashes.

    `address` is for a person and for deltalake, and `options` are deltalake's for writing there.
    Every verb raises StorageError if the store can't be reached or refuses.
    """

    address: str
    options: dict[str, str]

    def create(self, key: str, content: bytes) -> None:
        """Keep the content under the key.

        It is whole and durable when this returns. A file of that key is replaced.
        """

    def create_once(self, key: str, content: bytes) -> bool:
        """Keep the content under the key if that is free. False if it holds another content."""

    def get(self, key: str) -> bytes | None:
        """Return the content, None if there is no such key."""

    def list(self, prefix: str) -> list[str]:
        """Return the keys below a prefix, sorted. The prefix is empty or ends with a slash.

        A key that is there from the beginning to the end of the call is listed, under its old or
        its new name. (If it is renamed twice within the call, it can be missed.)
        """

    def rename(self, key: str, new_key: str) -> bool:
        """Give the file another key, durably. False if there is no such key."""

    def delete(self, keys: Sequence[str]) -> None:
        """Delete the keys, durably. Missing keys are no error."""

    def modified_at(self, key: str) -> datetime | None:
        """Return when the file was written, by the store's clock, in UTC.

        None if there is no such key.
        """

    def delete_drafts(self, prefix: str) -> None:
        """Delete what killed writers left unfinished below the prefix."""


@lru_cache
def open_store(address: str, *, plain_http: bool = False) -> Store:
    """Return the store of an address: `s3://bucket/prefix`, or `file://` and a folder.

    Endpoint, region and credentials of a bucket come from the AWS_ variables. Raises SettingsError
    if a package is missing or the variables don't fit.
    """
    parts = urlsplit(address)
    if parts.scheme == "file":
        return FolderStore(Path(unquote(parts.path)))
    return S3Store(parts.netloc, parts.path.strip("/"), plain_http=plain_http)


class FolderStore:
    """A key is a file's path below the folder."""

    def __init__(self, folder: Path) -> None:
        self.address = str(folder.absolute())
        self.options: dict[str, str] = {}
        self._folder = folder

    def create(self, key: str, content: bytes) -> None:
        """Write beside, sync, rename, sync the folder.

        After a power cut the file is there whole, or not at all.
        """
        replace_file(self._folder / key, content)

    def create_once(self, key: str, content: bytes) -> bool:
        """The same by a hard link, which only one writer can make."""
        path = self._folder / key
        with storing(path):
            while True:
                with suppress(FileNotFoundError), drafted(path, content) as draft:
                    self._name_once(draft, path)
                    break
            sync(path.parent)
            return path.read_bytes() == content

    def _name_once(self, draft: Path, path: Path) -> None:
        """Give the draft its name, unless another file has it. Raises OSError."""
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            return
        except OSError as error:
            if not lacks_links(error):
                raise
            # The lock stands in for the link. An exclusive creation would leave half a file after a
            # kill.
            with locked(self._folder / _TURNS, _TURN_SECONDS):
                if not path.exists():
                    draft.rename(path)

    def get(self, key: str) -> bytes | None:
        """Read the file."""
        path = self._folder / key
        with reading(path):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                return None

    def list(self, prefix: str) -> list[str]:
        """List each folder below, a long folder twice."""
        folder = self._folder / prefix
        with reading(folder):
            return sorted(_below(f"{folder}/", prefix))

    def rename(self, key: str, new_key: str) -> bool:
        """Rename and sync the folders."""
        path, new_path = self._folder / key, self._folder / new_key
        with storing(new_path):
            make_folder(new_path.parent)
            try:
                path.rename(new_path)
            except FileNotFoundError:
                return False
            for folder in {new_path.parent, path.parent}:
                sync(folder)

        return True

    def delete(self, keys: Sequence[str]) -> None:
        """Folders stay: another process may be about to use them."""
        folders = set()
        for key in keys:
            path = self._folder / key
            with storing(path), suppress(FileNotFoundError):
                path.unlink()
                folders.add(path.parent)

        for folder in folders:
            with storing(folder):
                sync(folder)

    def modified_at(self, key: str) -> datetime | None:
        """By the clock of the file system."""
        path = self._folder / key
        with reading(path):
            try:
                return datetime.fromtimestamp(path.stat().st_mtime, UTC)
            except FileNotFoundError:
                return None

    def delete_drafts(self, prefix: str) -> None:
        """A writer that is alive writes its draft again."""
        folder = self._folder / prefix
        with storing(folder):
            for at, _, names in os.walk(folder):
                for name in names:
                    if name.startswith(".") and name.endswith(DRAFT):
                        (Path(at) / name).unlink(missing_ok=True)


def _below(folder: str, prefix: str) -> Iterator[str]:
    for name, is_folder in _entries(folder).items():
        if is_folder:
            yield from _below(f"{folder}{name}/", f"{prefix}{name}/")
        elif not name.endswith(DRAFT) and name != _TURNS:
            yield prefix + name


def _entries(folder: str) -> dict[str, bool]:
    """Return the names in a folder, and whether each is a folder.

    A link that leads nowhere isn't there. Raises OSError.
    """
    entries: dict[str, bool] = {}
    with suppress(FileNotFoundError):
        for _ in range(2):
            with os.scandir(folder) as found:
                entries.update(
                    {
                        entry.name: entry.is_dir()
                        for entry in found
                        if entry.is_dir() or entry.is_file()
                    }
                )
            if len(entries) <= _ONE_MOMENT:
                break
    return entries


# For how long a bucket that is busy or away is asked again before a verb fails.
_RETRY_SECONDS: Final = 60
_TIMEOUT_SECONDS: Final = 60

# How often a create is repeated if another writer of the key keeps the answer open (409).
_CONFLICTS: Final = 5

PERMISSIONS: Final = (
    "s3:ListBucket on the bucket; s3:GetObject, s3:PutObject and s3:DeleteObject below the prefix"
)


class S3Store:
    """The keys below a prefix of a bucket, by obstore.

    Credentials come from the AWS_ variables or the machine's role.
    """

    def __init__(self, bucket: str, prefix: str, *, plain_http: bool = False) -> None:
        """`plain_http`: whether leads may go over an endpoint of http://."""
        try:
            import obstore
            from obstore.store import S3Store as Bucket
        except ImportError:
            raise SettingsError(
                "LEADS_DATA_DIR names a bucket, and the package obstore isn't installed. "
                f"{how_to_install('s3')}"
            ) from None

        self.address = f"s3://{bucket}/{prefix}".rstrip("/")
        # A commit is created only if nobody else has created it. Other object stores than S3 need
        # that said.
        self.options = {"aws_conditional_put": "etag", "allow_http": str(plain_http).lower()}
        self._obstore = obstore
        self._prefix = f"{prefix}/" if prefix else ""

        try:
            self._bucket = Bucket(
                bucket,
                client_options={
                    "allow_http": plain_http,
                    "timeout": timedelta(seconds=_TIMEOUT_SECONDS),
                },
                retry_config={"retry_timeout": timedelta(seconds=_RETRY_SECONDS)},
            )
        except (obstore.exceptions.BaseError, ValueError) as error:
            raise SettingsError(
                f"{self.address} can't be used: the AWS_ variables don't fit "
                f"({type(error).__name__}). Look at AWS_ENDPOINT_URL (with https://), AWS_REGION "
                "and the credentials."
            ) from None

    def create(self, key: str, content: bytes) -> None:
        """In one request."""
        with self._told(key):
            self._obstore.put(self._bucket, self._prefix + key, content, use_multipart=False)

    def create_once(self, key: str, content: bytes) -> bool:
        """By If-None-Match: *, in one request of any size, as parts know no condition."""
        for _ in range(_CONFLICTS):
            with self._told(key):
                try:
                    self._obstore.put(
                        self._bucket,
                        self._prefix + key,
                        content,
                        mode="create",
                        use_multipart=False,
                    )
                except (
                    self._obstore.exceptions.AlreadyExistsError,
                    self._obstore.exceptions.PreconditionError,
                ):
                    # 409 means another writer of the key at this moment, who may yet fail. The
                    # answer to an earlier request of ours may have been lost: then the content is
                    # ours.
                    if (there := self.get(key)) is not None:
                        return there == content
                else:
                    return True
        raise StorageError(
            f"{self.address}/{key} is being written by another process all the time. Run again."
        )

    def get(self, key: str) -> bytes | None:
        """In one request."""
        with self._told(key):
            try:
                return bytes(self._obstore.get(self._bucket, self._prefix + key).bytes())
            except FileNotFoundError:
                return None

    def list(self, prefix: str) -> list[str]:
        """List twice: pages are several moments, and a rename is a copy and a delete."""
        return sorted({*self._listed(prefix), *self._listed(prefix)})

    def _listed(self, prefix: str) -> Iterable[str]:
        with self._told(prefix):
            found = self._obstore.list(self._bucket, self._prefix + prefix or None)
            return [meta["path"].removeprefix(self._prefix) for chunk in found for meta in chunk]

    def rename(self, key: str, new_key: str) -> bool:
        """Copy on the server's side, then delete."""
        with self._told(key):
            try:
                self._obstore.copy(self._bucket, self._prefix + key, self._prefix + new_key)
            except FileNotFoundError:
                return False
        self.delete([key])
        return True

    def delete(self, keys: Sequence[str]) -> None:
        """A request for each thousand keys."""
        if keys:
            with self._told(keys[0]):
                self._obstore.delete(self._bucket, [self._prefix + key for key in keys])

    def modified_at(self, key: str) -> datetime | None:
        """By the bucket's clock."""
        with self._told(key):
            try:
                return self._obstore.head(self._bucket, self._prefix + key)["last_modified"]
            except FileNotFoundError:
                return None

    def delete_drafts(self, prefix: str) -> None:
        """A bucket shows no unfinished object."""

    @contextmanager
    def _told(self, key: str) -> Iterator[None]:
        """Turn obstore's errors into our words: its own repeat what was sent and answered."""
        errors = self._obstore.exceptions
        try:
            yield
        except (errors.UnauthenticatedError, errors.PermissionDeniedError):
            raise StorageError(
                f"{self.address}/{key} was refused. Look at AWS_ACCESS_KEY_ID, "
                f"AWS_SECRET_ACCESS_KEY and their rights: {PERMISSIONS}. Landed leads are "
                "untouched."
            ) from None
        except (errors.BaseError, OSError) as error:
            raise StorageError(
                f"{self.address}/{key} couldn't be reached or kept ({type(error).__name__}). Look "
                "whether the bucket exists at AWS_ENDPOINT_URL, and whether AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY or a role of this machine let it in. Then try again. "
                "Landed leads are untouched."
            ) from None
