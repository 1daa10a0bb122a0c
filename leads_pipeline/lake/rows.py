"""What a raw file's rows are, and how what was received merges with what a file has.

Belongs here: columns, a row of each thing received, versions and their order. Doesn't: files (sealed.py, raw.py).
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from operator import itemgetter
from typing import Any, Final, NamedTuple

import pyarrow as pa

from leads_pipeline.contract import Answer, InventoryItem, LeadKind, PushedLead, ReceivedLead
from leads_pipeline.lake.arrays import microseconds


class RawColumn(NamedTuple):
    """A column of a raw file: its type, and what whoever opens the file reads of it."""

    type: pa.DataType
    description: str


_MOMENT: Final = pa.timestamp("us", tz="UTC")

RAW_COLUMNS: Final = {
    "kind": RawColumn(pa.string(), "Kind of lead"),
    "day": RawColumn(pa.date32(), "Day of the window"),
    "scope": RawColumn(pa.string(), "Scope of the window"),
    "lead_id": RawColumn(pa.string(), "The lead's own id; sha256: and the payload's hash where it has none"),
    "position": RawColumn(pa.int32(), "Place in the answer, from 0"),
    "sequence": RawColumn(pa.int64(), "Number of the last answer or delivery that held it; the highest counts"),
    "fetched_at": RawColumn(_MOMENT, "When this version of the lead was first received"),
    "run_id": RawColumn(pa.string(), "Dagster run that landed it"),
    "source": RawColumn(pa.string(), "pull, push for a delivery, or correction for a change to lay over the others"),
    "payload": RawColumn(pa.string(), "The exact JSON text received: personal data"),
    "oddity": RawColumn(pa.string(), "What is wrong with a lead that was kept all the same, else NULL"),
}
RAW_SCHEMA: Final = pa.schema({name: column.type for name, column in RAW_COLUMNS.items()})

# Those that say whose a row is.
WHOSE_COLUMNS: Final = ["kind", "lead_id", "day", "payload"]

RAW_INVENTORY_COLUMNS: Final = {
    "day": RawColumn(pa.date32(), "Day on which it was fetched"),
    "item_id": RawColumn(pa.string(), "The item's own id; sha256: and the payload's hash where it has none"),
    "address": RawColumn(pa.string(), "The place that was searched for"),
    "page": RawColumn(pa.int32(), "Page of the search's answer, from 1"),
    "position": RawColumn(pa.int32(), "Place in the answer, from 0"),
    "sequence": RawColumn(pa.int64(), "Number of the last search that found this version; the highest counts"),
    "fetched_at": RawColumn(_MOMENT, "When this version of the item was first received"),
    "run_id": RawColumn(pa.string(), "Dagster run that landed it"),
    "payload": RawColumn(pa.string(), "The exact JSON text received"),
    "oddity": RawColumn(pa.string(), "What is wrong with an item that was kept all the same, else NULL"),
}
RAW_INVENTORY_SCHEMA: Final = pa.schema({name: column.type for name, column in RAW_INVENTORY_COLUMNS.items()})

Row = dict[str, Any]

PUSH: Final = "push"
# Its payload is a JSON merge patch (RFC 7396), which whoever reads the lead lays over its newest version.
CORRECTION: Final = "correction"


@dataclass(frozen=True, slots=True)
class Merge:
    """What merging gives.

    `ids` counts different ids, `highest` is the highest sequence among all rows (0 without any).
    """

    rows: list[Row]
    ids: int
    highest: int
    new: int
    changed: int
    unchanged: int
    kept: int

    @property
    def has_changed(self) -> bool:
        """Whether any id is new, or counts in another version."""
        return bool(self.new or self.changed)


def merge(before: Sequence[Row], received: Sequence[Row], id_column: str) -> Merge:
    """All versions of each id that either has."""
    if not before and len({row[id_column] for row in received}) == len(received):  # as nearly all that is pulled
        rows = sorted(received, key=itemgetter(id_column))
        return Merge(rows, len(rows), _highest(rows), new=len(rows), changed=0, unchanged=0, kept=0)
    versions_before, answered = _versions(before, id_column), _versions(received, id_column)
    merged = _versions([*before, *received], id_column) if before else answered
    again = answered.keys() & versions_before.keys()
    changed = sum(_newest(versions_before[id_])["payload"] != _newest(merged[id_])["payload"] for id_ in again)
    rows = [row for _, versions in sorted(merged.items()) for row in sorted(versions.values(), key=_place)]
    return Merge(
        rows=rows,
        ids=len(merged),
        highest=_highest(rows),
        new=len(answered) - len(again),
        changed=changed,
        unchanged=len(again) - changed,
        kept=len(versions_before.keys() - answered.keys()),
    )


def _highest(rows: Iterable[Row]) -> int:
    return max((row["sequence"] for row in rows), default=0)


def _versions(rows: Iterable[Row], id_column: str) -> dict[str, dict[str, Row]]:
    """The rows by id and payload. Of a payload that came several times: the first row, with the last one's place."""
    by_id: dict[str, dict[str, Row]] = {}
    for row in rows:
        versions = by_id.setdefault(row[id_column], {})
        first = versions.setdefault(row["payload"], row)
        if _place(row) > _place(first):
            versions[row["payload"]] = first | {"sequence": row["sequence"], "position": row["position"]}
    return by_id


def _newest(versions: Mapping[str, Row]) -> Row:
    return max(versions.values(), key=_place)


def _place(row: Row) -> tuple[int, int]:
    """Where a row stands in the order of receipt: the highest of an id is the version that counts."""
    return row["sequence"], row["position"]


def sequence_of(drawn: int | None, moment: datetime) -> int:
    """What was received before there were sequences counts by its moment, in microseconds since 1970."""
    return microseconds(moment) if drawn is None else drawn


def lead_rows(answer: Answer, run_id: str) -> list[Row]:
    """A row per lead of the answer."""
    window, sequence = answer.window, sequence_of(answer.sequence, answer.fetched_at)
    received = [(lead, sequence, answer.fetched_at) for lead in answer.leads]
    return _rows(answer.kind, window.day, window.scope.key, "pull", run_id, received)


def pushed_rows(
    kind: LeadKind, day: date, scope: str, pushed: Sequence[PushedLead], run_id: str, source: str = PUSH
) -> list[Row]:
    """A row per delivery, in their order."""
    received = [(one.lead, sequence_of(one.sequence, one.received_at), one.received_at) for one in pushed]
    return _rows(kind, day, scope, source, run_id, sorted(received, key=lambda one: one[1]))


def _rows(
    kind: LeadKind,
    day: date,
    scope: str,
    source: str,
    run_id: str,
    received: Iterable[tuple[ReceivedLead, int, datetime]],
) -> list[Row]:
    """A row per lead, in their order, each with its sequence and the moment at which it was received."""
    return [
        {
            "kind": kind.name,
            "day": day,
            "scope": scope,
            "lead_id": _storable(lead.lead_id),
            "position": position,
            "sequence": sequence,
            "fetched_at": fetched_at,
            "run_id": run_id,
            "source": source,
            "payload": _storable(lead.payload),
            "oddity": lead.oddity,
        }
        for position, (lead, sequence, fetched_at) in enumerate(received)
    ]


def inventory_rows(
    day: date, items_by_address: Mapping[str, Sequence[InventoryItem]], sequence: int, fetched_at: datetime, run_id: str
) -> list[Row]:
    """A row per item, and address that it was found at."""
    items = ((address, item) for address, items in items_by_address.items() for item in items)
    return [
        {
            "day": day,
            "item_id": _storable(item.item_id or f"sha256:{_sha256(_storable(item.payload))}"),
            "address": address,
            "page": item.page,
            "position": position,
            "sequence": sequence,
            "fetched_at": fetched_at,
            "run_id": run_id,
            "payload": _storable(item.payload),
            "oddity": item.oddity,
        }
        for position, (address, item) in enumerate(items)
    ]


def _storable(text: str) -> str:
    """The text with lone surrogates, which have no UTF-8 form, as the JSON escapes that mean the same."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
