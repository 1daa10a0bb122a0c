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

from leads_pipeline.domain.moments import has_passed
from leads_pipeline.errors import StorageError
from leads_pipeline.features.delivery.ledger import Ledger, Version, VersionState
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.rows import LandedVersion
from leads_pipeline.warehouse.current_leads import WindowKey, WindowLeads, current_leads, typed_leads
from leads_pipeline.warehouse.unpublished import RawWindows

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
    hashes = RawWindows(data.store, data.gate).hashes(of_all_days=is_first)
    known, error = ledger.windows(), None
    changed = [window for window, hash_ in hashes.items() if window[1] >= first and known.get(window) != hash_]
    for number, (window, read) in enumerate(read_each(data, changed), start=1):
        if isinstance(read, StorageError):
            error = read
            continue
        for version, state, contact in () if read.is_anonymous else _unknown(ledger, read):
            ledger.add(version, state, contact, now.timestamp())
        ledger.note_window(window, read.hash)
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


def read_each(data: DataFolder, windows: Iterable[WindowKey]) -> Iterator[tuple[WindowKey, WindowLeads | StorageError]]:
    """Yield each window with its leads, or with the error that keeps them from being read; new days first."""
    for window in sorted(windows, key=lambda window: window[1], reverse=True):
        try:
            yield window, current_leads(data.raw, data.gate, window)
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


def _unknown(ledger: Ledger, window: WindowLeads) -> Iterator[tuple[Version, VersionState, int]]:
    """Yield the versions of a window that are newer than the newest noted one of their lead, oldest first.

    Each comes with the parts of the contact that it has. A lead of midnight, or one that was moved to another branch,
    is in several windows: the number decides.
    """
    kind = window.kind
    leads: list[Any] = typed_leads(kind, window.versions).to_pylist()
    contacts = map(_contact, leads)
    for lead_id, group in groupby(zip(window.versions, contacts, strict=True), lambda one: one[0].lead_id):
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
                yield Version(kind.name, lead_id, name, landed.number, window.day, window.scope), state, contact
                newest = (landed.number, name)
                names.add(name)
            had |= contact


def _contact(lead: Mapping[str, Any]) -> int:
    """Which parts of the contact are filled, as bits: e-mail address, telephone number, name."""
    contact, names = lead["contact"], (("email",), ("phoneNumber",), ("firstName", "lastName"))
    return sum(1 << place for place, part in enumerate(names) if any((contact[name] or "").strip() for name in part))
