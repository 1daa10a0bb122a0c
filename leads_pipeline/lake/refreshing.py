"""The folder made the same as the object store, where one holds the truth: fetched, merged, or put there.

Belongs here: which objects a file is to be made of, and how several merge. Doesn't: writing one (shared.py), rows
(rows.py), the store (objects/).

Several objects of one window are there when machines landed it without knowing of each other, or when one was ended
between creating and deleting. Merging is the same in whatever order and on whichever machine, and as often as anybody
likes: the merged object says which it stands for, and only those are deleted.
"""

import logging
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from leads_pipeline.contract import LEAD_KINDS
from leads_pipeline.durable import reading, replace_file, storing, sweep
from leads_pipeline.lake.gate import ANONYMOUS, CUT
from leads_pipeline.lake.inventory import Inventory
from leads_pipeline.lake.quarantine import INVENTORY, QUARANTINE, RAW, RESTRICTED, raw_lock
from leads_pipeline.lake.raw import LandedWindow, landed_window
from leads_pipeline.lake.rewriting import RawRewriting
from leads_pipeline.lake.rows import RAW_INVENTORY_SCHEMA, RAW_SCHEMA, merge
from leads_pipeline.lake.sealed import UnreadableError, opened, parquet, rows_of
from leads_pipeline.lake.shared import NAME_DIGITS, REPLACES, lineage, name_of
from leads_pipeline.lake.state import days_in, found_in
from leads_pipeline.objects import SIDE_BY_SIDE, ObjectStore, prove

logger = logging.getLogger(__name__)


class Refreshing(RawRewriting, Inventory):
    """A folder that is a copy."""

    def refresh(self, days: Collection[date] | None = None) -> None:
        """Have here what the store has of these days, or of all, and there what only this folder has.

        With it come the suppression list and what is remembered. Nothing is done without a store. Raises StorageError,
        and SettingsError where the folder isn't the store's.
        """
        store = self.store
        if store is None:
            return
        self._prove(store)
        self.share_memory()
        self.suppression.refresh()
        with ThreadPoolExecutor(SIDE_BY_SIDE, "refreshing") as pool:
            objects: defaultdict[Path, set[str]] = defaultdict(set)
            for keys in pool.map(store.list, self._prefixes(days)):
                for key in keys:
                    if (named := self._named(key)) is not None:
                        objects[named[0]].add(named[1])
            for path in self._here(days):
                objects.setdefault(path, set())
            differing = [path for path, names in objects.items() if {self._object_name(path)} != names]
            for _ in pool.map(lambda path: self._make_same(store, path, objects[path]), differing):
                """What one raises is raised here."""

    def _prove(self, store: ObjectStore) -> None:
        """Once for each folder and store: what leads are entrusted to has to keep them."""
        path = self._state / "proved_store"
        with reading(path):
            if path.exists() and path.read_text(errors="replace").strip() == store.address:
                return
        prove(store)
        replace_file(path, f"{store.address}\n".encode())

    def _prefixes(self, days: Collection[date] | None) -> Iterator[str]:
        for folder in _FOLDERS:
            if days is None:
                yield f"{folder}/"
            else:
                yield from (f"{folder}/day={day}/" for day in sorted(days))

    def _here(self, days: Collection[date] | None) -> Iterator[Path]:
        for folder in (self._folder / one for one in _FOLDERS):
            for day in days_in(folder) if days is None else days:
                yield from found_in(
                    folder / f"day={day}", "items.parquet" if folder.name == INVENTORY else "scope=*/*.parquet"
                )

    def _named(self, key: str) -> tuple[Path, str] | None:
        """The file and the name of `…/scope=branch-101/leads-0f3a….parquet`; None of what isn't ours."""
        with suppress(ValueError):
            if (match := _KEY.fullmatch(key)) and date.fromisoformat(match["day"]):
                return self._folder / f"{match['file']}.parquet", match["name"]
        return None

    def _names(self, store: ObjectStore, path: Path) -> set[str]:
        """The objects of one file, as they are now."""
        named = map(self._named, store.list(f"{self._relative(path.parent)}/"))
        return {one[1] for one in named if one is not None and one[0] == path}

    def _make_same(self, store: ObjectStore, path: Path, names: set[str]) -> None:
        with self.lock(raw_lock(path)):
            sweep(path)
            contents = dict(self._fetched(store, path, names))
            while not contents.keys() >= names:
                # What is gone since it was listed is part of another, or set aside.
                names = self._names(store, path)
                contents = dict(self._fetched(store, path, names))
            here = self._whole(path)
            if here is not None:
                contents.setdefault(name_of(here), here)
            if not contents:
                return
            files = {name: self._open(path, content) for name, content in sorted(contents.items())}
            superseded = {old for _, facts in files.values() for old in facts.get(REPLACES, "").split()}
            left = {name: file for name, file in files.items() if name not in superseded} or files
            content = contents[next(iter(left))] if len(left) == 1 else self._merged(path, left)
            name = name_of(content)
            if name not in names:
                store.create(self._key_of(path, name), content)
            if content != here:
                replace_file(path, content)
            if here is None:
                self._forget_damaged(path)
            store.delete([self._key_of(path, old) for old in names - {name}])
        if content != here and self._is_raw_leads(path):
            self.pass_again(path)
        sequences = rows_of(self._open(path, content)[0], ["sequence", "fetched_at"])
        self._keep_sequence_above(max((row["sequence"] for row in sequences), default=0))

    def _forget_damaged(self, path: Path) -> None:
        """Of a file that is whole again, what was set aside is of no use to anybody."""
        for aside in found_in(self._folder / QUARANTINE / self._relative(path.parent), f"{path.name}.*"):
            with storing(aside):
                aside.unlink()
            logger.info("%s was damaged, and is whole in the store: it was fetched again.", path)

    def _fetched(self, store: ObjectStore, path: Path, names: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """The objects that are still there and whole, by name. What this file is needn't come from far away."""
        here = self._object_name(path)
        for name in sorted(names):
            content = self._whole(path) if name == here else None
            content = content or store.get(self._key_of(path, name))
            if content is None:
                continue  # deleted since it was listed, and so part of another
            with suppress(UnreadableError):
                self._open(path, content)
                if name_of(content) == name:
                    yield name, content
                    continue
            self._set_object_aside(store, path, name, content)

    def _open(self, path: Path, content: bytes) -> "_Opened":
        schema = RAW_INVENTORY_SCHEMA if INVENTORY in path.parts[-3:] else RAW_SCHEMA
        return opened(content, schema, self._relative(path), f"an object of {path}")

    def _whole(self, path: Path) -> bytes | None:
        with reading(path), suppress(FileNotFoundError, UnreadableError):
            content = path.read_bytes()
            self._open(path, content)
            return content
        return None

    def _set_object_aside(self, store: ObjectStore, path: Path, name: str, content: bytes) -> None:
        key = self._key_of(path, name)
        store.create(f"{QUARANTINE}/{key}", content)
        store.delete([key])
        logger.warning(
            "%s/%s is damaged. It was moved to %s/ there; what only it held is pulled again while the portal has it.",
            store.address,
            key,
            QUARANTINE,
        )

    def _merged(self, path: Path, files: Mapping[str, "_Opened"]) -> bytes:
        """The file with every row of these that passes the gate."""
        is_inventory = INVENTORY in path.parts[-3:]
        all_facts = [facts for _, facts in files.values()]
        rows = [row for file, _ in files.values() for row in rows_of(file)]
        rows.sort(key=lambda row: (row["fetched_at"], row["sequence"]))  # a version's first receipt is what is kept
        facts: dict[str, str] = {}
        if self._is_raw_leads(path):
            verdict = self.asked(path, rows)
            rows = verdict.passed(rows)
            removed = " ".join(one.get("removed", "") for one in all_facts)
            facts |= self.removed_fact(removed.strip(), verdict.out, rows)
        merged = merge([], rows, "item_id" if is_inventory else "lead_id")
        if path.stem == "leads" and self._is_raw_leads(path):
            facts |= _window_facts([(landed_window(path, facts, file), facts) for file, facts in files.values()])
            facts["leads"] = str(merged.ids)
        if all(one.get(CUT) == ANONYMOUS for one in all_facts):
            facts[CUT] = ANONYMOUS
        facts |= {"path": self._relative(path), REPLACES: lineage(files, all_facts)}
        return parquet(merged.rows, RAW_INVENTORY_SCHEMA if is_inventory else RAW_SCHEMA, facts)

    def _is_raw_leads(self, path: Path) -> bool:
        folder = path.relative_to(self._folder).parts
        return folder[0] == RAW and folder[1] != INVENTORY


_Opened = tuple[pq.ParquetFile, dict[str, str]]

_FOLDERS: Final = (*(f"{root}/{kind.table}" for root in (RAW, RESTRICTED) for kind in LEAD_KINDS), f"{RAW}/{INVENTORY}")

# What lies elsewhere in the store isn't ours, and no key leads out of the folder.
_KEY: Final = re.compile(
    rf"(?P<file>(?:{'|'.join(_FOLDERS)})/day=(?P<day>[0-9-]+)/"
    rf"(?:scope=\w[\w.-]*/(?:leads|pushed)|items))-(?P<name>[0-9a-f]{{{NAME_DIGITS}}})\.parquet",
    re.ASCII,
)


def _window_facts(files: Sequence[tuple[LandedWindow, Mapping[str, str]]]) -> dict[str, str]:
    """What landing one after the other would have noted; of a window that another time zone had, the newer one's."""
    newest, _ = max(files, key=lambda file: file[0].sequence)
    same = [file for file in files if (file[0].start, file[0].end) == (newest.start, newest.end)]
    changed, last_change = max(same, key=lambda file: file[0].fetched_at)
    is_closed = any(window.is_closed for window, _ in same)
    is_complete = any(window.is_closed and not window.is_partial for window, _ in same)
    return {
        "window_start": newest.start.isoformat(),
        "window_end": newest.end.isoformat(),
        "looked_at": newest.looked_at.isoformat(),
        "sequence": str(newest.sequence),
        "is_closed": str(is_closed),
        "is_partial": str(is_closed and not is_complete),
        "fetched_at": changed.fetched_at.isoformat(),
        **{name: last_change[name] for name in ("run_id", "request", "attempts")},
        "body_sha256": "",  # no one answer held all of it
    }
