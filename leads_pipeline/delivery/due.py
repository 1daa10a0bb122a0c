"""Which versions are due: those that landed, without those that the ledger knows.

The ledger learns of leads only by looking at raw windows. So nothing is lost by a kill: the next look finds the rest.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime, timedelta
from itertools import count, groupby
from typing import Any, Final

from leads_pipeline.delivery.ledger import Ledger, Version, VersionState
from leads_pipeline.domain.contract import LeadKind
from leads_pipeline.domain.moments import has_passed
from leads_pipeline.errors import StorageError
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.rows import LandedVersion, landed_versions
from leads_pipeline.transform.flatten import Batch
from leads_pipeline.transform.publish import WindowKey
from leads_pipeline.transform.raw_windows import RawWindows
from leads_pipeline.transform.reader import read_leads

# Another machine may have landed leads in the bucket.
_BUCKET_LOOKS: Final = timedelta(minutes=1)

# Windows whose versions are noted together.
_AT_ONCE: Final = 200

_HASH_DIGITS: Final = 32


def note_due(data: DataFolder, ledger: Ledger, first: date, now: datetime, until: float) -> StorageError | None:
    """Note each version that has landed in the windows from that day on in the ledger.

    It looks at the last 60 days. Once a day, and when the first day has changed, it looks at all. Windows of anonymous
    days have nothing to deliver. A version is held if it lacks a part of the contact that an earlier one has: the
    portal may have emptied it by mistake, and the endpoint would lose it too. After `until`, by time.monotonic, the
    rest is left to the next look. Return the error of a window that can't be read: the others are noted.
    """
    mark, day = _mark(data, now), f"{now.date()} {first}"
    is_first = ledger.fact("day") != day
    if mark == ledger.fact("mark") and not is_first:
        return None
    first = max(first, data.state.retained_before() or first)
    ledger.forget_before(data.state.retained_before() or date.min)
    raw, known, error = RawWindows(data.store, data.gate), ledger.windows(), None
    hashes = raw.hashes(of_all_days=is_first)
    changed = [window for window, hash_ in hashes.items() if window[1] >= first and known.get(window) != hash_]
    for number, (window, batch) in enumerate(read_each(raw, changed), start=1):
        if isinstance(batch, StorageError):
            error = batch
            continue
        for version, state, contact in () if batch.is_anonymous else _unknown(ledger, batch):
            ledger.add(version, state, contact, now.timestamp())
        ledger.note_window(window, batch.hash)
        if number % _AT_ONCE == 0:
            ledger.commit()
        if time.monotonic() > until:
            break
    else:
        if error is None:
            ledger.set_fact("mark", mark)
            ledger.set_fact("day", day)
    ledger.commit()
    return error


def is_neglected(data: DataFolder, ledger: Ledger, now: datetime, after: timedelta) -> bool:
    """Whether nobody has looked for so long at what landed."""
    mark, landed_at = ledger.fact("mark"), data.state.landed_at()
    if data.bucket:
        return now.timestamp() - float(mark or 0) * _BUCKET_LOOKS.total_seconds() > after.total_seconds()
    return landed_at is not None and has_passed(after, landed_at, now) and mark != _mark(data, now)


def read_each(raw: RawWindows, windows: Iterable[WindowKey]) -> Iterator[tuple[WindowKey, Batch | StorageError]]:
    """Yield each window with its rows, or with the error that keeps them from being read; new days first."""
    for window in sorted(windows, key=lambda window: window[1], reverse=True):
        try:
            yield window, next(raw.read([window]))
        except StorageError as error:
            yield window, error


def _mark(data: DataFolder, now: datetime) -> str:
    if data.bucket:
        return str(now.timestamp() // _BUCKET_LOOKS.total_seconds())
    return f"{data.state.landed_at()} {data.state.retained_before()}"


def version_of(landed: LandedVersion) -> str:
    """Return a version's name: a hash of its text and its corrections."""
    text = "\0".join([landed.payload, *landed.corrections])
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]


def _unknown(ledger: Ledger, batch: Batch) -> Iterator[tuple[Version, VersionState, int]]:
    """Yield the versions of a window that are newer than the newest noted one of their lead, oldest first.

    Each comes with the parts of the contact that it has. A lead of midnight, or one that was moved to another branch,
    is in several windows: the number decides.
    """
    kind = batch.kind
    versions = landed_versions(batch.rows)
    contacts = map(_contact, leads_of(kind, versions))
    for lead_id, group in groupby(zip(versions, contacts, strict=True), lambda one: one[0].lead_id):
        newest, had, names, seen = (0, ""), 0, set[str](), Counter[str]()
        for number, name, contact in ledger.noted(kind.name, lead_id):
            newest, had = (number, name), had | contact
            names.add(name)
        for landed, contact in group:
            text = version_of(landed)
            seen[text] += 1
            if landed.number >= newest[0] and text != newest[1].partition("-")[0]:
                # The portal can go back to an earlier text.
                counted = (text if times == 1 else f"{text}-{times}" for times in count(seen[text]))
                name = next(one for one in counted if one not in names)
                state = VersionState.HELD if had & ~contact else VersionState.WAITING
                yield Version(kind.name, lead_id, name, landed.number, batch.day, batch.scope), state, contact
                newest = (landed.number, name)
                names.add(name)
            had |= contact


def _contact(lead: Mapping[str, Any]) -> int:
    """Which parts of the contact are filled, as bits: e-mail address, telephone number, name."""
    contact, names = lead["contact"], (("email",), ("phoneNumber",), ("firstName", "lastName"))
    return sum(1 << place for place, part in enumerate(names) if any((contact[name] or "").strip() for name in part))


def leads_of(kind: LeadKind, versions: Iterable[LandedVersion]) -> list[dict[str, Any]]:
    """Return the versions as nested, typed leads, as in transform/reader.py."""
    leads: list[Any] = read_leads(kind, ((one.lead_id, one.payload, one.corrections) for one in versions)).to_pylist()
    return leads
