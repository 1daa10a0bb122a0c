"""A bucket, read through a folder of this machine.

Belongs here: which bytes may come from the folder. Doesn't: the verbs (store.py).
"""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from leads_pipeline.raw.names import RawFile
from leads_pipeline.raw.rows import hash_of
from leads_pipeline.raw.store import FolderStore, Store


class CachedStore:
    """A store whose raw files are kept in a folder too, by name. Their bytes never change.

    Files that the store doesn't list are deleted from the folder. The folder can be deleted at any
    time.
    """

    def __init__(self, store: Store, folder: Path) -> None:
        self.address = store.address
        self.options = store.options
        self._store = store
        self._cache = FolderStore(folder)

    def create(self, key: str, content: bytes) -> None:
        """In the store first."""
        self._store.create(key, content)
        if RawFile.parse(key):
            self._cache.create(key, content)

    def create_once(self, key: str, content: bytes) -> bool:
        """In the store alone, because the key has no hash of its content."""
        return self._store.create_once(key, content)

    def get(self, key: str) -> bytes | None:
        """From the folder if the bytes there are those of the name."""
        file = RawFile.parse(key)
        if file is None:
            return self._store.get(key)

        content = self._cache.get(key)
        if content is None or hash_of(content) != file.hash:
            content = self._store.get(key)
            if content is not None:
                self._cache.create(key, content)

        return content

    def list(self, prefix: str) -> list[str]:
        """List the store's keys. Delete other files from the folder."""
        keys = self._store.list(prefix)
        self._cache.delete(sorted(set(self._cache.list(prefix)) - set(keys)))
        return keys

    def rename(self, key: str, new_key: str) -> bool:
        """In the store first."""
        is_renamed = self._store.rename(key, new_key)
        if RawFile.parse(new_key):
            self._cache.rename(key, new_key)
        return is_renamed

    def delete(self, keys: Sequence[str]) -> None:
        """From the folder first, so that nothing deleted is read from there."""
        self._cache.delete(keys)
        self._store.delete(keys)

    def modified_at(self, key: str) -> datetime | None:
        """By the store's clock."""
        return self._store.modified_at(key)

    def delete_drafts(self, prefix: str) -> None:
        """Those of killed writers in the folder."""
        self._store.delete_drafts(prefix)
        self._cache.delete_drafts(prefix)
