"""What the core asks for, if LEADS_DATA_DIR names a bucket."""

from pathlib import Path

from leads_pipeline.features.bucket.cache import CachedStore
from leads_pipeline.features.bucket.proof import prove
from leads_pipeline.features.bucket.settings import BucketSettings
from leads_pipeline.features.bucket.store import open_store
from leads_pipeline.raw.store import Store
from leads_pipeline.settings import Settings


def bucket_of(settings: Settings) -> Store:
    """Return the bucket that LEADS_DATA_DIR names.

    Raises SettingsError if its package is missing, or if the AWS_ variables don't fit.
    """
    bucket = settings.of(BucketSettings)
    return open_store(bucket.address, plain_http=bucket.plain_http)


def read_through(folder: Path, bucket: Store) -> Store:
    """Return the bucket, read through a folder of this machine."""
    return CachedStore(bucket, folder)


def want_fit(bucket: Store) -> None:
    """Raise StorageError if the bucket can't be used, or would lose what it is given."""
    prove(bucket)
