"""The questions of `verify`: whether files are whole, and counts agree from raw files to marts.

Belongs here: reading all of a data folder once. Doesn't: what whole means (raw/, warehouse/),
services and settings (questions.py).
"""

# ruff: noqa: S608 - only our own names are in the statements

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import duckdb

from leads_pipeline.domain.contract import LEAD_KINDS, LeadKind
from leads_pipeline.extensions import brought
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.finding import LEADS_DUCKDB, all_finders, find
from leads_pipeline.health.seen import Light, Seen, seen, summed_up
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.names import RESTRICTED, list_places
from leads_pipeline.raw.starting import how_to_publish
from leads_pipeline.warehouse.current_leads import WindowKey
from leads_pipeline.warehouse.duck import WAREHOUSE_FILE, quoted
from leads_pipeline.warehouse.editions import Editions, number_of
from leads_pipeline.warehouse.load_leads import LOADED_WINDOWS, by_window
from leads_pipeline.warehouse.published import attached, is_readable
from leads_pipeline.words import counted


class _Window(NamedTuple):
    """The hash of a window's raw files, and the ids of the leads in them."""

    hash: str
    lead_ids: set[str]


_Windows = dict[WindowKey, _Window]


def verify(facts: Facts) -> Iterator[Seen]:
    """Read every file, compare every hash, then count from raw to the marts. Raises StorageError.

    A damaged raw file is moved to quarantine, as by any run. Windows that wait for a publication,
    for example after an erasure, aren't counted.
    """
    data = facts.data
    raw = _Windows()
    files = 0
    windows = set[WindowKey]()
    for place in [*list_places(data.store), *list_places(data.store, RESTRICTED)]:
        contents = data.raw.read(place)
        if not contents.opened:  # damaged, or merged meanwhile
            continue
        files += len(contents.opened)
        window = (place.kind.name, place.day, place.scope)
        windows.add(window)
        if place.root != RESTRICTED:  # nothing of those is published
            ids = {row.lead_id for row in contents.rows}
            raw[window] = _Window(contents.folder.hash, ids)

    whole = f"{counted(files, 'file')} of {counted(len(windows), 'window')} are whole."
    yield Seen("raw files", Light.GREEN, whole)

    asked = [one for one in all_finders().values() if one.is_verified]
    yield from map(seen, find(replace(facts, is_thorough=True), asked))

    edition = Editions(data.folder).current()
    what_to_do = f"{how_to_publish(data.state)}."

    if edition is None:
        yield Seen(
            LEADS_DUCKDB,
            Light.RED,
            f"leads.duckdb is missing. The raw files have the leads. {what_to_do}",
        )
        return

    if not (data.folder / WAREHOUSE_FILE).exists():
        yield Seen(
            LEADS_DUCKDB,
            Light.YELLOW,
            "The link leads.duckdb is missing, as in a backup. The file behind it is "
            f".versions/{edition.name}. {what_to_do}",
        )

    yield from _published(data, edition, raw, what_to_do)


def _published(data: DataFolder, edition: Path, raw: _Windows, what_to_do: str) -> Iterator[Seen]:
    if not (Editions(data.folder).has_its_hash() and is_readable(data.folder, edition)):
        # The next publication then reads all of it, and makes a new one.
        data.state.note_rewriting()
        yield Seen(
            LEADS_DUCKDB,
            Light.RED,
            "leads.duckdb is damaged: its bytes aren't those that were published. A new one is "
            f"made from raw files. {what_to_do} Check the disk.",
        )
        return
    with attached(data.folder, edition) as db:
        published = by_window(db.execute(LOADED_WINDOWS).fetchall())
        waiting = {key for key, window in raw.items() if published.get(key) != window.hash}
        if waiting:
            days = ", ".join(sorted({str(day) for _, day, _ in waiting}))
            yield Seen(
                LEADS_DUCKDB, Light.YELLOW, f"Landed and not published yet: {days}. {what_to_do}"
            )
        else:
            yield Seen(
                "published",
                Light.GREEN,
                f"{edition.name} is whole, and has every window that landed.",
            )
        for kind in LEAD_KINDS:
            yield _count(db, data, kind, _ids_of(kind, raw, waiting))
        for of_feature in brought("verifier"):
            yield from of_feature(data, db, number_of(edition))


def _ids_of(kind: LeadKind, raw: _Windows, waiting: Collection[WindowKey]) -> set[str]:
    """Return the ids of the leads in raw files that wait for no publication."""
    ids = set[str]()
    for key, window in raw.items():
        kind_name, _, _ = key
        if kind_name == kind.name and key not in waiting:
            ids |= window.lead_ids
    return ids


def _count(db: duckdb.DuckDBPyConnection, data: DataFolder, kind: LeadKind, raw: set[str]) -> Seen:
    rows = db.execute(f"select lead_id from {quoted(kind.table)}").fetchall()
    published = {lead_id for (lead_id,) in rows}
    unpublished = raw - published
    missing = len(unpublished - data.gate.kept_out(kind, unpublished))
    troubles = (
        [f"{missing} of {len(raw)} leads in raw files are not in leads.duckdb."] if missing else []
    )

    if len(rows) != len(published):
        troubles.append(f"{len(rows) - len(published)} leads are in leads.duckdb twice.")

    if troubles:
        troubles.append("This is a fault of the program: please report it.")

    only = len(published - raw)
    lost = f" {only} of them have no raw file any more." if only else ""
    well = f"{len(rows)}, each once, in leads.duckdb.{lost}"
    return summed_up(f"{kind.name} leads", troubles, well)
