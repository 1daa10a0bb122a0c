"""Which files are damaged or missing, and what replaces them.

Belongs here: comparing quarantine/, raw files and published leads. Doesn't: the finding
(window_findings.py), moving a damaged file to quarantine (raw/).
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import date
from typing import TYPE_CHECKING, NamedTuple

from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.raw.names import QUARANTINE, RAW, Folder, Place, list_folders
from leads_pipeline.raw.quarantine import Quarantined
from leads_pipeline.raw.rows import moment_of
from leads_pipeline.warehouse.duck import WAREHOUSE_FILE, quoted

if TYPE_CHECKING:
    from leads_pipeline.health.facts import Facts


class Damaged(NamedTuple):
    """A file in quarantine/, or the folder of a window with published leads and no file.

    `place` is the window's, None if the file is no window's. The portal doesn't send pushed leads
    again.
    """

    key: str
    place: Place | None
    is_pushed: bool

    @property
    def window(self) -> tuple[str, date, str] | None:
        """Kind, day and scope of the window."""
        return (self.place.kind.name, self.place.day, self.place.scope) if self.place else None


def damaged_files(facts: "Facts") -> list[Damaged]:
    """Return the files that are damaged or missing and that nothing whole has replaced, by key."""
    in_quarantine = facts.data.quarantine.files()
    files = [file for file in in_quarantine if not _is_replaced(facts, file)]
    damaged = [Damaged(file.key, file.place, is_pushed=file.is_pushed) for file in files]

    places = {file.place for file in files}
    keys_with_files = _keys_with_files(facts)
    missing = [
        Damaged(place.key, place, is_pushed=False)
        for place in _published_places(facts) - places
        # `keys_with_files` may have the last 35 days alone: an older folder is looked up.
        if place.key not in keys_with_files and not _keys_below(facts, place.key)
    ]
    return sorted([*damaged, *missing])


def _is_replaced(facts: "Facts", file: Quarantined) -> bool:
    """Whether a whole fetch has come since the file was set aside.

    Pushed leads may be nowhere else. A new leads.duckdb is made by itself.
    """
    if file.key == f"{QUARANTINE}/{WAREHOUSE_FILE}":
        return True
    if file.place is None or file.set_aside_at is None or file.is_pushed:
        return False

    key = file.place.key
    newest = list_folders(facts.data.store, key, facts.now).get(key, Folder()).newest
    return newest is not None and moment_of(newest.fetch) > file.set_aside_at


def _keys_with_files(facts: "Facts") -> set[str]:
    """Return the keys of the folders that have raw files: of any age, or of the last 35 days."""
    if facts.is_thorough:
        return _keys_below(facts, f"{RAW}/")
    return set().union(*map(_with_files, facts.folders.values()))


def _keys_below(facts: "Facts", prefix: str) -> set[str]:
    return _with_files(list_folders(facts.data.store, prefix, facts.now))


def _with_files(folders: Mapping[str, Folder]) -> set[str]:
    return {key for key, folder in folders.items() if folder.files}


def _published_places(facts: "Facts") -> set[Place]:
    """Return the windows that published leads are of.

    Older windows count only if they had no file at publication. If leads.duckdb can't be read, or
    lacks mart_coverage, those that were read until then. Both are findings of their own.
    """
    first = date.min if facts.is_thorough else facts.first_checked
    places = set[Place]()

    with suppress(LeadsPipelineError):
        for kind in facts.kinds:
            statement = f"""
                select distinct window_day, scope
                from {quoted(kind.table)}
                where window_day >= $first or (window_day, scope) in (
                    select (day, scope) from mart_coverage where kind = $kind and rows is null
                )
            """  # noqa: S608 - our own names
            _, rows = facts.leads_duckdb.query(statement, {"first": first, "kind": kind.name})
            places |= {Place(kind, day, scope) for day, scope in rows}

    return places
