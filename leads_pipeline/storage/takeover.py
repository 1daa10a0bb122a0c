"""Takes over the raw files of the landed version: each is landed anew, once.

That version had one file for each window (`leads.parquet`, in a bucket `leads-<hash>.parquet`) and one for pushed leads
(`pushed.parquet`). Deliveries of pushed leads waited in `spool/`. All are read as they are, and deleted once their rows
lie in a file of today.

Belongs here: that format. Doesn't: today's (rows.py).
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from operator import itemgetter
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from leads_pipeline.domain.contract import LEAD_KINDS, ReceivedLead, lead_kind
from leads_pipeline.storage.inventory import FoundItem, Inventory
from leads_pipeline.storage.landing import Look, Raw
from leads_pipeline.storage.placement import Placement
from leads_pipeline.storage.raw import RAW, Place, State
from leads_pipeline.storage.rows import Row, merged, microseconds
from leads_pipeline.storage.store import Store

_NAME: Final = re.compile(r"(?:leads|pushed)(?:-[0-9a-f]{32})?\.parquet", re.ASCII)
_SEAL_BYTES: Final = hashlib.sha256().digest_size

# Deliveries of pushed leads waited here.
SPOOL: Final = "spool/"
_DELIVERY: Final = ".pushed"


@dataclass(frozen=True, slots=True)
class _Former:
    rows: list[Row]
    look: Look | None
    is_anonymous: bool
    replaces: frozenset[str]


def take_over(store: Store, raw: Raw, root: str = RAW) -> None:
    """Land each file of the landed version below `root` anew.

    A kill leaves old files beside new ones, and the next call goes on. A damaged file is moved to quarantine. Raises
    StorageError.
    """
    for place, keys in _found(store, root).items():
        former: dict[str, _Former] = {}
        for key in keys:
            content = store.get(key)
            if content is None:
                continue
            if (one := _read(content)) is None:
                raw.set_aside(place, key)
            else:
                former[key] = one
        # A kill of the landed version left objects behind that another stands for.
        replaced = frozenset(name for one in former.values() for name in one.replaces)
        for key, one in former.items():
            if not any(name in key for name in replaced):
                raw.merge(place, one.rows, one.look, is_anonymous=one.is_anonymous)
        store.delete(list(former))


def has_former(store: Store) -> bool:
    """Whether windows of the landed version wait to be landed anew."""
    return bool(_found(store, RAW))


class _Delivered(msgspec.Struct):
    """A pushed lead as a line of a delivery."""

    kind: str
    received_at: datetime
    lead_id: str
    payload: str


def take_over_deliveries(store: Store, raw: Raw, placement: Placement) -> None:
    """Land the deliveries of pushed leads that still wait. A damaged one stays. Raises StorageError."""
    for key in store.list(SPOOL):
        digest, _, lines = (store.get(key) or b"").partition(b"\n")
        if not key.endswith(_DELIVERY) or hashlib.sha256(lines).hexdigest().encode() != digest:
            continue
        for line in lines.splitlines():
            one = msgspec.json.decode(line, type=_Delivered)
            lead = ReceivedLead(one.lead_id, one.payload)
            raw.add(placement.of(lead_kind(one.kind), lead, one.received_at), [lead], one.received_at)
        store.delete([key])


def _found(store: Store, root: str) -> dict[Place, list[str]]:
    """Return the keys of old files by their windows."""
    found: dict[Place, list[str]] = {}
    for kind in LEAD_KINDS:
        for key in store.list(f"{root}/{kind.table}/"):
            place = Place.parse(key)
            if place and _NAME.fullmatch(key.removeprefix(place.key)):
                found.setdefault(place, []).append(key)
    return found


def _read(content: bytes) -> _Former | None:
    """Read an old file. None if it isn't as it was written."""
    if not _is_intact(content):
        return None
    file = pq.ParquetFile(pa.BufferReader(content))
    facts = {key.decode(): value.decode() for key, value in (file.metadata.metadata or {}).items()}
    return _Former(
        rows=_rows(file.read(use_threads=False).to_pylist()),
        look=_look(facts),
        is_anonymous=facts.get("personal_fields") == "anonymous",
        replaces=frozenset(facts.get("replaces", "").split()),
    )


def _is_intact(content: bytes) -> bool:
    """Compare the file with the SHA-256 that lies in the gap before its footer."""
    # A Parquet file ends with its footer, the footer's length in 4 bytes, and "PAR1".
    at = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    if at < _SEAL_BYTES:
        return False
    return hashlib.sha256(content[: at - _SEAL_BYTES] + content[at:]).digest() == content[at - _SEAL_BYTES : at]


def _look(facts: Mapping[str, str]) -> Look | None:
    """Return the newest look of a window's file. Files of pushed leads have none."""
    if "window_start" not in facts:
        return None
    state: State = "open"
    if facts["is_closed"] == "True":
        state = "partial" if facts["is_partial"] == "True" else "closed"
    # The first format noted only the last answer that changed something.
    looked_at = datetime.fromisoformat(facts.get("looked_at", facts["fetched_at"]))
    return Look(microseconds(looked_at), state, facts["body_sha256"], facts["run_id"])


def _rows(former: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return the rows with today's numbers: the old ones, in the old order if two have the same."""
    rows, highest = [], dict[str, int]()
    # The first format had no numbers.
    numbered = [{"sequence": microseconds(row["fetched_at"]), **row} for row in former]
    for row in sorted(numbered, key=itemgetter("sequence", "position")):
        lead_id = row["lead_id"]
        number = highest[lead_id] = max(row["sequence"], highest.get(lead_id, 0) + 1)
        rows.append(Row(lead_id, number, row["payload"], row["source"]))
    return merged(rows)


_INVENTORY_KEY: Final = re.compile(RAW + r"/inventory/day=(\d{4}-\d\d-\d\d)/items(?:-[0-9a-f]{32})?\.parquet", re.ASCII)


def take_over_inventory(store: Store, inventory: Inventory) -> None:
    """Land each day's inventory of the landed version anew. Raises StorageError."""
    days: dict[str, list[str]] = {}
    for key in store.list(f"{RAW}/inventory/"):
        if match := _INVENTORY_KEY.fullmatch(key):
            days.setdefault(match[1], []).append(key)
    for day, keys in days.items():
        found, whole = list[Mapping[str, Any]](), list[str]()
        for key in keys:
            content = store.get(key)
            if content is None:
                continue
            if _is_intact(content):
                found += pq.read_table(pa.BufferReader(content), use_threads=False).to_pylist()
                whole.append(key)
            else:
                inventory.set_aside(key)
        if found:
            numbered = sorted(
                found, key=lambda row: (row.get("sequence") or microseconds(row["fetched_at"]), row["position"])
            )
            items = [FoundItem(row["item_id"], row["address"], row["payload"], row["fetched_at"]) for row in numbered]
            searched_at = max(row["fetched_at"] for row in found)
            inventory.land_found(date.fromisoformat(day), items, searched_at)
        store.delete(whole)
