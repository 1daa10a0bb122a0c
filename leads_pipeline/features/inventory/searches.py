"""The inventory's raw files: a folder for each day.

The folder has the newest search in which every place answered.

    raw/inventory/day=2026-11-19/1795000000000000-closed-250-0123456789abcdef.parquet

Belongs here: landing and reading what searches found. Doesn't: the search (client.py), the table
(table.py).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from operator import attrgetter
from typing import Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.parquet as pq

from leads_pipeline.features.inventory.contract import InventoryItem
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.names import RAW, RawFile, list_folders, set_aside
from leads_pipeline.raw.rows import hash_of, microseconds, moment_of, parquet_of
from leads_pipeline.raw.store import Store

_FOLDER: Final = f"{RAW}/inventory/"
_DAY: Final = re.compile(_FOLDER + r"day=([12]\d{3}-(?:0\d|1[0-2])-[0-3]\d)/", re.ASCII)


class FoundItem(NamedTuple):
    """An item that a search found.

    `address` is the place that was searched for, `payload` the exact text. `fetched_at` is when a
    search of that day first found this text, in UTC.
    """

    item_id: str
    address: str
    payload: str
    fetched_at: datetime


_COLUMNS: Final[dict[str, pa.DataType]] = {
    "item_id": pa.string(),
    "address": pa.string(),
    "payload": pa.string(),
    "fetched_at": pa.timestamp("us", tz="UTC"),
}
SCHEMA: Final = pa.schema(_COLUMNS)


class Search(NamedTuple):
    """The result of a day's newest search."""

    day: date
    items: Sequence[FoundItem]


class Inventory:
    """The inventory of a store. Many processes may use it at once. Methods raise StorageError."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        note_landed: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._note_landed = note_landed

    @classmethod
    def of(cls, data: DataFolder) -> Self:
        """Return the inventory of a data folder."""
        return cls(data.store, note_landed=data.state.note_landed)

    def land(
        self, day: date, answers: Mapping[str, Sequence[InventoryItem]], searched_at: datetime
    ) -> int:
        """Land a search in which every place answered, and delete older ones.

        Return how many items it found. `answers` are the items by the place that was searched for.
        An item that two places have counts once.
        """
        found = [
            FoundItem(item.item_id, address, item.payload, searched_at)
            for address, items in answers.items()
            for item in items
        ]
        return self.land_found(day, found, searched_at)

    def land_found(self, day: date, found: Sequence[FoundItem], searched_at: datetime) -> int:
        """Land the items of a search. Of an item that is there twice, the last one counts.

        An item that the day's newest search found with the same text keeps its moment. If all are
        the same, that search stays.
        """
        folder = _folder_of(day)
        before = self._items_before(folder)
        items = _with_first_moments(found, before or ())
        if items == before:
            return len(items)

        content = _to_parquet(items)
        file = RawFile("", microseconds(searched_at), "closed", len(items), hash_of(content))
        self._store.create(file.named(folder), content)
        self._note_landed()

        newest, *older = self._newest_first(folder)
        self._store.delete([former.key for former in older if former.fetch < newest.fetch])
        return len(items)

    def _items_before(self, folder: str) -> list[FoundItem] | None:
        """Return the items of the day's newest search. None if there is none, or it is damaged."""
        files = self._newest_first(folder)
        if not files:
            return None
        return _read(self._store.get(files[0].key) or b"", files[0])

    def searches(self) -> Iterator[Search]:
        """Read the newest search of each day, by day. A damaged file is moved to quarantine."""
        matches = [_DAY.match(key) for key in self._store.list(_FOLDER)]
        days = {date.fromisoformat(match[1]) for match in matches if match}

        for day in sorted(days):
            items = self._newest_items(_folder_of(day))
            if items is not None:
                yield Search(day, items)

    def _newest_items(self, folder: str) -> list[FoundItem] | None:
        """Read the newest file that isn't damaged. Damaged ones are moved to quarantine."""
        while files := self._newest_first(folder):
            content = self._store.get(files[0].key)
            if content is None:  # a newer search came meanwhile, so the folder is listed again
                continue

            items = _read(content, files[0])
            if items is not None:
                return items
            self.set_aside(files[0].key)
        return None

    def searched_at(self) -> datetime | None:
        """Return when the newest search was made, in UTC. None if there is none."""
        files = self._newest_first(_FOLDER)
        return moment_of(files[0].fetch) if files else None

    def hashes(self) -> list[str]:
        """Return what changes with the files that `searches` reads."""
        return [file.key for file in self._newest_first(_FOLDER)]

    def set_aside(self, key: str) -> None:
        """Move a damaged file to quarantine."""
        set_aside(self._store, key, self._clock(), "Only today's inventory can be pulled again.")

    def _newest_first(self, prefix: str) -> list[RawFile]:
        folders = list_folders(self._store, prefix, self._clock()).values()
        files = (file for folder in folders for file in folder.files)
        return sorted(files, key=attrgetter("fetch", "key"), reverse=True)


def _folder_of(day: date) -> str:
    return f"{_FOLDER}day={day.isoformat()}/"


def _with_first_moments(found: Iterable[FoundItem], before: Iterable[FoundItem]) -> list[FoundItem]:
    """Return each item once, with the moment at which the day first found this text."""
    moments = {(item.item_id, item.payload): item.fetched_at for item in before}
    items: dict[str, FoundItem] = {}
    for item in found:
        fetched_at = moments.get((item.item_id, item.payload), item.fetched_at)
        items[item.item_id] = item._replace(fetched_at=fetched_at)
    return list(items.values())


def _to_parquet(items: Sequence[FoundItem]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.Table.from_pylist([item._asdict() for item in items], SCHEMA), sink, compression="zstd"
    )
    return sink.getvalue().to_pybytes()


def _read(content: bytes, file: RawFile) -> list[FoundItem] | None:
    """None if the bytes aren't those that were written, or no inventory's."""
    if hash_of(content) != file.hash:
        return None
    try:
        table = parquet_of(content).read(use_threads=False)
        if "fetched_at" not in table.column_names:  # the first files of this form had none
            moments = pa.array(
                [moment_of(file.fetch)] * len(table), SCHEMA.field("fetched_at").type
            )
            table = table.append_column("fetched_at", moments)
        return list(map(FoundItem, *(table[name].to_pylist() for name in FoundItem._fields)))
    except (pa.ArrowInvalid, KeyError):
        return None
