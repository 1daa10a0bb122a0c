"""A bucket that speaks S3, as a store.

Belongs here: the verbs by obstore, and its errors in our words. Doesn't: the copy on this machine
(cache.py).
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from leads_pipeline.errors import SettingsError, StorageError, how_to_install
from leads_pipeline.raw.store import FolderStore, Store

# For how long a bucket that is busy or away is asked again before a verb fails.
_RETRY_SECONDS: Final = 60
_TIMEOUT_SECONDS: Final = 60

# How often a create is repeated if another writer of the key keeps the answer open (409).
_CONFLICTS: Final = 5

PERMISSIONS: Final = (
    "s3:ListBucket on the bucket; s3:GetObject, s3:PutObject and s3:DeleteObject below the prefix"
)


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
        # For deltalake: a commit is created only if nobody else has created it. Other object stores
        # than S3 need that said.
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
        with self._in_our_words(key):
            self._obstore.put(self._bucket, self._prefix + key, content, use_multipart=False)

    def create_once(self, key: str, content: bytes) -> bool:
        """By If-None-Match: *, in one request of any size, as parts know no condition."""
        for _ in range(_CONFLICTS):
            if self._put_new(key, content):
                return True

            # 409 means another writer of the key at this moment, who may yet fail. The answer to an
            # earlier request of ours may have been lost: then the content is ours.
            there = self.get(key)
            if there is not None:
                return there == content

        raise StorageError(
            f"{self.address}/{key} is being written by another process all the time. Run again."
        )

    def _put_new(self, key: str, content: bytes) -> bool:
        """False if the key is there, or is being written."""
        errors = self._obstore.exceptions
        with self._in_our_words(key):
            try:
                self._obstore.put(
                    self._bucket, self._prefix + key, content, mode="create", use_multipart=False
                )
            except (errors.AlreadyExistsError, errors.PreconditionError):
                return False
        return True

    def get(self, key: str) -> bytes | None:
        """In one request."""
        with self._in_our_words(key):
            try:
                return bytes(self._obstore.get(self._bucket, self._prefix + key).bytes())
            except FileNotFoundError:
                return None

    def list(self, prefix: str) -> list[str]:
        """List twice: pages are several moments, and a rename is a copy and a delete."""
        return sorted({*self._listed(prefix), *self._listed(prefix)})

    def _listed(self, prefix: str) -> Iterable[str]:
        with self._in_our_words(prefix):
            found = self._obstore.list(self._bucket, self._prefix + prefix or None)
            return [meta["path"].removeprefix(self._prefix) for chunk in found for meta in chunk]

    def rename(self, key: str, new_key: str) -> bool:
        """Copy on the server's side, then delete."""
        with self._in_our_words(key):
            try:
                self._obstore.copy(self._bucket, self._prefix + key, self._prefix + new_key)
            except FileNotFoundError:
                return False
        self.delete([key])
        return True

    def delete(self, keys: Sequence[str]) -> None:
        """A request for each thousand keys."""
        if keys:
            with self._in_our_words(keys[0]):
                self._obstore.delete(self._bucket, [self._prefix + key for key in keys])

    def modified_at(self, key: str) -> datetime | None:
        """By the bucket's clock."""
        with self._in_our_words(key):
            try:
                return self._obstore.head(self._bucket, self._prefix + key)["last_modified"]
            except FileNotFoundError:
                return None

    def delete_drafts(self, prefix: str) -> None:
        """A bucket shows no unfinished object."""

    @contextmanager
    def _in_our_words(self, key: str) -> Iterator[None]:
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
