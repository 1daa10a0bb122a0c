"""An object store: where the data folder's truth lies when no machine's disk is to hold it.

Belongs here: five verbs over a bucket or a folder that machines share, and what their errors mean. Doesn't: which files
are kept there and how they merge (lake/).

What can't be had again is created and deleted, and never replaced: of all conditional writes, If-None-Match: * alone is
understood everywhere.
"""

from functools import lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from leads_pipeline.objects.folder import FolderStore
from leads_pipeline.objects.proof import prove
from leads_pipeline.objects.s3 import S3Store
from leads_pipeline.objects.store import ObjectStore

__all__ = ["SIDE_BY_SIDE", "FolderStore", "ObjectStore", "open_store", "prove", "store_of"]

# A store answers within tens of milliseconds, and many at once.
SIDE_BY_SIDE: Final = 16


@lru_cache
def open_store(address: str, *, plain_http: bool = False) -> ObjectStore:
    """The store of an address as LEADS_DATA_DIR has it: s3://bucket/prefix, or file:// and a folder.

    Endpoint, region and credentials of a bucket come from the AWS_ variables. Raises SettingsError where what it takes
    isn't installed, or the variables don't fit.
    """
    parts = urlsplit(address)
    if parts.scheme == "file":
        return FolderStore(Path(unquote(parts.path)))
    return S3Store(parts.netloc, parts.path.strip("/"), plain_http=plain_http)


def store_of(address: str | None, *, plain_http: bool) -> ObjectStore | None:
    """The store that has the truth of a data folder; None where there is no address, as the folder has it itself."""
    return open_store(address, plain_http=plain_http) if address else None
