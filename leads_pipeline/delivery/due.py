"""Which versions are due: those that landed, without those that the ledger knows.

Nothing else tells the ledger of a lead. So no event can be lost: whatever a kill leaves out is found by the next look.
"""

import hashlib
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from leads_pipeline.delivery.ledger import Ledger, Version, VersionState
from leads_pipeline.domain.contract import LeadKind
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.transform.flatten import Batch, with_corrections
from leads_pipeline.transform.raw_windows import RawWindows
from leads_pipeline.transform.reader import read_leads

if TYPE_CHECKING:
    import pyarrow as pa

# Another machine of a bucket may land without a word to this one.
_BUCKET_LOOKS: Final = timedelta(minutes=1)

# Windows whose versions are noted together.
_AT_ONCE: Final = 200

_HASH_DIGITS: Final = 32


def note_due(data: DataFolder, ledger: Ledger, first: date, now: datetime) -> int:
    """Have the ledger know each version that has landed in the windows from that day on. Return how many are new.

    Anonymous days have none. A version that lacks a part of the contact that an earlier one has is held, because the
    endpoint would lose it, and the portal may have emptied it by mistake. Raises StorageError.
    """
    mark = _mark(data, now)
    if mark == ledger.fact("mark"):
        return 0
    first = max(first, data.state.retained_before() or first)
    ledger.forget_before(data.state.retained_before() or date.min)
    raw, known = RawWindows(data.store, data.gate), ledger.windows()
    hashes = raw.hashes(of_all_days=False)
    changed = [window for window, hash_ in hashes.items() if window[1] >= first and known.get(window) != hash_]
    new = 0
    for number, batch in enumerate(raw.read(changed), start=1):
        for version, state in _unknown(ledger, batch):
            ledger.add(version, state, now.timestamp())
            new += 1
        ledger.note_window((batch.kind.name, batch.day, batch.scope), batch.hash)
        if number % _AT_ONCE == 0:
            ledger.commit()
    ledger.set_fact("mark", mark)
    ledger.commit()
    return new


def _mark(data: DataFolder, now: datetime) -> str:
    if data.bucket:
        return str(now.timestamp() // _BUCKET_LOOKS.total_seconds())
    return f"{data.state.landed_at()} {data.state.retained_before()}"


def version_of(row: dict[str, Any]) -> str:
    """Return the name of the text of a raw row, with what corrects it."""
    text = "\0".join([row["payload"], *(row["corrections"] or ())])
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]


def _unknown(ledger: Ledger, batch: Batch) -> Iterator[tuple[Version, VersionState]]:
    """The versions of a window that are newer than what the ledger knows of their leads, in the order of each lead.

    A lead is in several windows if it came at midnight, or was moved to another branch: the number decides.
    """
    kind, table = batch.kind, with_corrections(batch.leads)
    rows = sorted(enumerate(table.to_pylist()), key=lambda row: (row[1]["lead_id"], row[1]["number"]))
    for lead_id, group in groupby(rows, lambda row: row[1]["lead_id"]):
        newest, before = ledger.newest(kind.name, lead_id), list[int]()
        for place, row in group:
            before.append(place)
            name = version_of(row)
            if newest and (row["number"] < newest[0] or name == newest[1].partition("-")[0]):
                continue
            count = ledger.times(kind.name, lead_id, name)
            name = f"{name}-{count + 1}" if count else name
            is_emptied = len(before) > 1 and _is_emptied(leads_of(kind, table.take(before)))
            state = VersionState.HELD if is_emptied else VersionState.WAITING
            yield Version(kind.name, lead_id, name, row["number"], batch.day, batch.scope), state
            newest = row["number"], name


def _is_emptied(versions: Sequence[dict[str, Any]]) -> bool:
    """Whether the last version lacks a part of the contact that an earlier one has."""
    *earlier, last = ([bool((part or "").strip()) for part in _contact(version)] for version in versions)
    return any(had and not has for parts in earlier for had, has in zip(parts, last, strict=True))


def _contact(lead: dict[str, Any]) -> tuple[str | None, str | None, str]:
    contact = lead["contact"]
    return contact["email"], contact["phoneNumber"], f"{contact['firstName'] or ''}{contact['lastName'] or ''}"


def leads_of(kind: LeadKind, versions: "pa.Table") -> list[dict[str, Any]]:
    """Return what the versions say, nested and typed as in transform/reader.py."""
    leads: list[Any] = read_leads(kind, versions)["lead"].to_pylist()
    return leads
