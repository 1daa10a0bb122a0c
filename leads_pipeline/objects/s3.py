"""A bucket that speaks S3, by obstore: AWS, Ceph, and whatever else keeps to it.

Belongs here: the five verbs over a bucket, and its errors in words. Doesn't: credentials, which obstore takes from the
usual AWS_ variables, or from the machine's own role.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final

from leads_pipeline.errors import SettingsError, StorageError, how_to_install

# For how long a store that is busy, or not there, is asked again before a verb fails.
_RETRY_SECONDS: Final = 60
_TIMEOUT_SECONDS: Final = 60

# How often an answer that leaves open whether the object is there is looked into.
_CONFLICTS: Final = 5


class S3Store:
    """The keys below a prefix of a bucket."""

    def __init__(self, bucket: str, prefix: str, *, plain_http: bool = False) -> None:
        """`plain_http`: whether leads may go over an endpoint of http://."""
        try:
            import obstore
            from obstore.store import S3Store as Bucket
        except ImportError:
            raise SettingsError(
                f"LEADS_DATA_DIR names a bucket, and the package obstore isn't installed. {how_to_install('s3')}"
            ) from None
        self._obstore = obstore
        self._address = "/".join(part for part in (f"s3://{bucket}", prefix) if part)
        self._prefix = f"{prefix}/" if prefix else ""
        self._plain_http = plain_http
        try:
            self._bucket = Bucket(
                bucket,
                client_options={"allow_http": plain_http, "timeout": timedelta(seconds=_TIMEOUT_SECONDS)},
                retry_config={"retry_timeout": timedelta(seconds=_RETRY_SECONDS)},
            )
        except (obstore.exceptions.BaseError, ValueError) as error:
            raise SettingsError(
                f"{self._address} can't be used: the AWS_ variables don't fit ({type(error).__name__}). Look at "
                "AWS_ENDPOINT_URL, AWS_REGION and the credentials."
            ) from None

    @property
    def address(self) -> str:
        """As LEADS_DATA_DIR has it."""
        return self._address

    @property
    def options(self) -> dict[str, str]:
        """A commit is created only if nobody else has created it. Other object stores than S3 need that said."""
        return {"aws_conditional_put": "etag", "allow_http": str(self._plain_http).lower()}

    def create(self, key: str, content: bytes) -> bool:
        """By If-None-Match: *, in one request, whatever its size: parts would know no condition."""
        for _ in range(_CONFLICTS):
            with self._told(key):
                try:
                    self._obstore.put(self._bucket, self._prefix + key, content, mode="create", use_multipart=False)
                except (self._obstore.exceptions.AlreadyExistsError, self._obstore.exceptions.PreconditionError):
                    # 409 means another writer of the key at this moment, who may yet fail.
                    if self.created_at(key) is not None:
                        return False
                else:
                    return True
        raise StorageError(f"{self._address}/{key} is being written by somebody else all the time. Run again.")

    def create_once(self, key: str, content: bytes) -> bool:
        """The same, and true if the key holds this content already."""
        return self.create(key, content) or self.get(key) == content

    def get(self, key: str) -> bytes | None:
        """In one request."""
        with self._told(key):
            try:
                return bytes(self._obstore.get(self._bucket, self._prefix + key).bytes())
            except FileNotFoundError:
                return None

    def list(self, prefix: str) -> list[str]:
        """A request for each thousand keys."""
        with self._told(prefix):
            found = self._obstore.list(self._bucket, self._prefix + prefix or None)
            return sorted(meta["path"].removeprefix(self._prefix) for chunk in found for meta in chunk)

    def delete(self, keys: Sequence[str]) -> None:
        """A request for each thousand keys."""
        if keys:
            with self._told(keys[0]):
                self._obstore.delete(self._bucket, [self._prefix + key for key in keys])

    def created_at(self, key: str) -> datetime | None:
        """What the bucket calls its last modification, as it has no other."""
        with self._told(key):
            try:
                return self._obstore.head(self._bucket, self._prefix + key)["last_modified"]
            except FileNotFoundError:
                return None

    @contextmanager
    def _told(self, key: str) -> Iterator[None]:
        """Turn obstore's errors into words of ours: theirs repeat what was sent and answered."""
        errors = self._obstore.exceptions
        try:
            yield
        except StorageError:
            raise
        except (errors.UnauthenticatedError, errors.PermissionDeniedError):
            raise StorageError(
                f"{self._address}/{key} was refused. Look at AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and what they "
                f"may do: {PERMISSIONS}. What was landed before is untouched."
            ) from None
        except (errors.BaseError, OSError) as error:
            raise StorageError(
                f"{self._address}/{key} couldn't be reached or kept ({type(error).__name__}). Look whether "
                "the bucket exists at AWS_ENDPOINT_URL, and whether AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or a "
                "role of this machine let it in. Then try again: what was landed before is untouched."
            ) from None


PERMISSIONS: Final = "s3:ListBucket on the bucket; s3:GetObject, s3:PutObject and s3:DeleteObject below the prefix"
