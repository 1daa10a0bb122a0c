"""Which versions are due: those that landed, without those that the ledger knows.

The ledger learns of leads only by looking at raw windows. So nothing is lost by a kill: the next
look finds the rest.
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
from leads_pipeline.features.delivery.destinations import Filter
from leads_pipeline.features.delivery.ledger import Ledger, Version, VersionState
from leads_pipeline.features.delivery.message import market_of
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.rows import LandedVersion
from leads_pipeline.warehouse.current_leads import (
    WindowKey,
    WindowLeads,
    current_leads,
    typed_leads,
)
from leads_pipeline.warehouse.unpublished import RawWindows

# Another machine may have landed leads in the bucket.
_BUCKET_LOOKS: Final = timedelta(minutes=1)

# Windows whose versions are noted together.
_AT_ONCE: Final = 200

_HASH_DIGITS: Final = 32


def note_due(
    data: DataFolder, ledger: Ledger, chosen: Filter, first: date, now: datetime, until: float
) -> StorageError | None:
    """Note each version that the destination wants and that landed from that day on.

    It looks at the last 60 days. Once a day, and when the first day or the filter has changed, it
    looks at all. Windows of anonymous days have nothing to deliver. A version is held if it lacks a
    part of the contact that an earlier one has: the portal may have emptied it by mistake, and the
    destination would lose it too. After `until`, by time.monotonic, the rest is left to the next
    look. Return the error of a window that can't be read: the others are noted.
    """
    _note_filter(ledger, chosen)
    mark = _mark(data, now)
    day = f"{now.date()} {first}"
    is_first = ledger.fact("day") != day
    if mark == ledger.fact("mark") and not is_first:
        return None

    first = max(first, data.state.anonymous_before() or first)
    ledger.forget_before(data.state.anonymous_before() or date.min)
    error = None
    for number, (window, read) in enumerate(
        read_each(data, _changed(data, ledger, chosen, first, is_first)), start=1
    ):
        if isinstance(read, StorageError):
            error = read
            continue
        if not read.is_anonymous:
            for version, state, contact in _unknown(ledger, read, chosen):
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


def _note_filter(ledger: Ledger, chosen: Filter) -> None:
    """Look at all windows again if the filter has changed."""
    if (ledger.fact("filter") or "") != chosen.text:
        ledger.forget_windows()
        ledger.want_again()
        ledger.set_fact("mark", None)
        ledger.set_fact("day", None)
        ledger.set_fact("filter", chosen.text)


def _changed(
    data: DataFolder, ledger: Ledger, chosen: Filter, first: date, is_first: bool
) -> list[WindowKey]:
    """Return the windows whose versions aren't noted yet."""
    hashes_before = ledger.windows()
    changed = []
    for window, hash_ in RawWindows(data.store, data.gate).hashes(of_all_days=is_first).items():
        kind, day, scope = window
        if day >= first and chosen.takes_window(kind, scope) and hashes_before.get(window) != hash_:
            changed.append(window)
    return changed


def is_neglected(data: DataFolder, ledger: Ledger, now: datetime, after: timedelta) -> bool:
    """Whether nobody has looked for so long at what landed."""
    mark = ledger.fact("mark")
    landed_at = data.state.landed_at()
    if data.bucket:
        return (
            now.timestamp() - float(mark or 0) * _BUCKET_LOOKS.total_seconds()
            > after.total_seconds()
        )
    return landed_at is not None and has_passed(after, landed_at, now) and mark != _mark(data, now)


def read_each(
    data: DataFolder, windows: Iterable[WindowKey]
) -> Iterator[tuple[WindowKey, WindowLeads | StorageError]]:
    """Yield each window with its leads, or with the error of reading them; new days first."""
    for window in sorted(windows, key=lambda window: window[1], reverse=True):
        try:
            yield window, current_leads(data.raw, data.gate, window)
        except StorageError as error:
            yield window, error


def _mark(data: DataFolder, now: datetime) -> str:
    if data.bucket:
        return str(now.timestamp() // _BUCKET_LOOKS.total_seconds())
    return f"{data.state.landed_at()} {data.state.anonymous_before()}"


def version_of(landed: LandedVersion) -> str:
    """Return a version's name: a hash of its text and its corrections."""
    text = "\0".join([landed.payload, *landed.corrections])
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]


def _unknown(
    ledger: Ledger, window: WindowLeads, chosen: Filter
) -> Iterator[tuple[Version, VersionState, int]]:
    """Yield the wanted versions of a window that are newer than those noted, oldest first.

    Each comes with the parts of the contact that it has. A lead of midnight, or one that was moved
    to another branch, is in several windows: the number decides.
    """
    kind = window.kind
    leads: list[Any] = typed_leads(kind, window.versions).to_pylist()
    for lead_id, group in groupby(
        zip(window.versions, leads, strict=True), lambda one: one[0].lead_id
    ):
        newest = (0, "")
        had = 0
        names = set[str]()
        seen = Counter[str]()
        for number, name, contact in ledger.noted(kind.name, lead_id):
            newest = (number, name)
            had |= contact
            names.add(name)
        for landed, lead in group:
            text = version_of(landed)
            contact = _contact(lead)
            seen[text] += 1
            if not chosen.takes_market(market_of(lead)):
                continue
            if landed.number >= newest[0] and text != newest[1].partition("-")[0]:
                # The portal can go back to an earlier text.
                counted = (text if times == 1 else f"{text}-{times}" for times in count(seen[text]))
                name = next(one for one in counted if one not in names)
                state = VersionState.HELD if had & ~contact else VersionState.WAITING
                yield (
                    Version(kind.name, lead_id, name, landed.number, window.day, window.scope),
                    state,
                    contact,
                )
                newest = (landed.number, name)
                names.add(name)
            had |= contact


def _contact(lead: Mapping[str, Any]) -> int:
    """Which parts of the contact are filled, as bits: e-mail address, telephone number, name."""
    contact = lead["contact"]
    parts = (("email",), ("phoneNumber",), ("firstName", "lastName"))
    filled = 0
    for place, names in enumerate(parts):
        if any((contact[name] or "").strip() for name in names):
            filled |= 1 << place
    return filled
