"""Tries out whether a bucket does what the pipeline needs: some accept a condition and ignore it.

Belongs here: trying it out, with an object of its own. Doesn't: the verbs (store.py).
"""

import secrets
from datetime import UTC, datetime, timedelta
from typing import Final

from leads_pipeline.errors import StorageError
from leads_pipeline.raw.store import Store

_PROOFS: Final = "proof/"


def prove(store: Store) -> timedelta:
    """Create a key twice, find it and delete it.

    Return how far the store's clock is ahead of this machine's. Raises StorageError if the store
    can't be used, or would lose what it is given.
    """
    key = f"{_PROOFS}{secrets.token_hex(8)}"
    try:
        if not store.create_once(key, b"first"):
            raise _unfit(store, "refuses to create a new key, as if it were there already")
        before = datetime.now(UTC)
        if store.create_once(key, b"second") or store.get(key) != b"first":
            raise _unfit(
                store,
                "replaces an object although it is asked not to (If-None-Match: *), so that "
                "two machines would lose each other's entries of the suppression list",
            )
        created = store.modified_at(key)
        if created is None or key not in store.list(_PROOFS):
            raise _unfit(store, "doesn't find or doesn't list a key that was just created")
    finally:
        store.delete([key])

    if store.get(key) is not None:
        raise _unfit(store, "still has an object that was deleted")

    return created - before


def _unfit(store: Store, what: str) -> StorageError:
    return StorageError(
        f"{store.address} can't hold leads: it {what}. Use another store (AWS S3 and Ceph RGW do "
        "it right), or a newer version of this one. Nothing was kept there.",
        reason="unfit store",
    )
