"""The one way from a raw window to leads: what may be shown of them, with corrections laid over.

Publications and deliveries read leads here and nowhere else, so whoever is kept out of one is kept
out of both.

Belongs here: asking the suppression list about what was read, versions with their corrections,
typed leads. Doesn't: files (raw/), which windows have changed (unpublished.py), a lead's columns
(typed_rows.py).
"""

from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any, NamedTuple

import pyarrow as pa

from leads_pipeline.domain.contract import LeadKind, lead_kind
from leads_pipeline.raw.gatekeeper import Gatekeeper
from leads_pipeline.raw.landing import Raw
from leads_pipeline.raw.names import Place
from leads_pipeline.raw.rows import LandedVersion, landed_versions, merged
from leads_pipeline.warehouse.typed_rows import read_leads

# A window by its kind's name, its day and its scope.
WindowKey = tuple[str, date, str]


class WindowLeads(NamedTuple):
    """The leads of one window. A lead may be there in several versions, oldest first.

    `hash` stands for the files that were read. `is_anonymous`: nobody is named in one of them.
    """

    kind: LeadKind
    day: date
    scope: str
    versions: Sequence[LandedVersion]
    hash: str
    is_anonymous: bool = False


def current_leads(raw: Raw, gate: Gatekeeper, window: WindowKey) -> WindowLeads:
    """Read a window's leads as they may be shown now. Raises StorageError.

    The list is asked about people if it has grown since a file was filtered. About the leads that
    it knows by their ids it is asked always, because a file may come from another folder, which has
    another list.
    """
    name, day, scope = window
    kind = lead_kind(name)
    place = Place(kind, day, scope)
    contents = raw.read(place)
    rows = merged(contents.rows)
    footers = [opened.footer for opened in contents.opened.values()]
    is_of_older_list = any(footer.newest_entry < gate.newest_entry for footer in footers)

    if is_of_older_list or gate.knows(kind, {row.lead_id for row in rows}):
        rows = gate.admit(place, rows)

    is_anonymous = any(footer.is_anonymous for footer in footers)
    return WindowLeads(kind, day, scope, landed_versions(rows), contents.folder.hash, is_anonymous)


def typed_leads(kind: LeadKind, versions: Iterable[LandedVersion]) -> "pa.ChunkedArray[Any]":
    """Return the versions as a nested, typed column, each with its corrections laid over."""
    return read_leads(kind, ((one.lead_id, one.payload, one.corrections) for one in versions))
