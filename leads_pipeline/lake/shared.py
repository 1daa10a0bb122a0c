"""Raw files that lie in an object store as well, where one holds the truth.

Belongs here: writing a raw file, here or there and here, and what each says of those that it stands for. Doesn't: which
files there are and how several of them merge (refreshing.py), rows (rows.py), the store (objects/).

An object is never replaced. A raw file here is byte for byte one object, which bears the name of its seal. Whoever
writes it anew creates the new object first, then the file, and deletes the old object last; the new one says which it
stands for. So what was landed is there at every moment, and what a crash leaves behind is known to be superseded.
Without a store nothing of this happens.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

import pyarrow as pa

from leads_pipeline.durable import reading, replace_file, storing, sync
from leads_pipeline.lake.quarantine import Quarantine
from leads_pipeline.lake.rows import Row
from leads_pipeline.lake.sealed import is_intact, open_parquet, parquet, seal_of
from leads_pipeline.objects import ObjectStore

# Half of a SHA-256 tells all objects that there will ever be apart.
NAME_DIGITS: Final = 32
# What a footer names the objects under that its file stands for.
REPLACES: Final = "replaces"
# A window is looked at some ten times. What has more ancestors than these is merged once more, to no harm.
_ANCESTORS: Final = 40
_KNOWN_FILES: Final = 131_072


class SharedFiles(Quarantine):
    """How raw files are written."""

    def write_raw(
        self,
        path: Path,
        rows: Sequence[Row],
        schema: pa.Schema,
        facts: Mapping[str, str],
        *,
        modified_ns: int | None = None,
    ) -> None:
        """Replace the raw file, whose lock is held, by these rows: in the store before here, where there is one."""
        placed = {**facts, "path": self._relative(path)}
        store = self.store
        if store is None:
            replace_file(path, parquet(rows, schema, placed), modified_ns=modified_ns)
            return
        before = self._object_name(path)
        placed.pop(REPLACES, None)
        if before is not None:
            _, facts_before = open_parquet(path, schema, placed["path"])
            placed[REPLACES] = lineage([before], [facts_before])
        content = parquet(rows, schema, placed)
        store.create(self._key_of(path, name_of(content)), content)
        replace_file(path, content, modified_ns=modified_ns)
        self._forget(store, path, before, name_of(content))

    def remove_raw(self, path: Path) -> None:
        """Delete the file, whose lock is held: in the store before here, as it would come back from there."""
        name = self._object_name(path)
        if self.store is not None and name is not None:
            self.store.delete([self._key_of(path, name)])
        with storing(path):
            path.unlink(missing_ok=True)
            sync(path.parent)

    def _forget(self, store: ObjectStore, path: Path, before: str | None, now: str) -> None:
        if before not in {None, now}:
            store.delete([self._key_of(path, before)])

    def _key_of(self, path: Path, name: str) -> str:
        """`…/scope=branch-101/leads-0f3a….parquet` of `…/scope=branch-101/leads.parquet`: a hive, as here."""
        return f"{self._relative(path.parent)}/{path.stem}-{name}{path.suffix}"

    def _object_name(self, path: Path) -> str | None:
        """The name of the object that the file is; None where there is no file, or no whole one."""
        with reading(path):
            try:
                stat = path.stat()
            except FileNotFoundError:
                return None
        return _sealed_name(path, (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino))


def name_of(content: bytes) -> str:
    """What the object with this content is called."""
    return seal_of(content).hex()[:NAME_DIGITS]


def lineage(names: Iterable[str], facts: Iterable[Mapping[str, str]]) -> str:
    """What the file notes that stands for objects of these names, with these facts in their footers."""
    older = (name for one in facts for name in one.get(REPLACES, "").split())
    return " ".join([*dict.fromkeys([*sorted(names), *older])][:_ANCESTORS])


@lru_cache(maxsize=_KNOWN_FILES)
def _sealed_name(path: Path, _: tuple[int, ...]) -> str | None:
    with reading(path):
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
    return name_of(content) if is_intact(content) else None
