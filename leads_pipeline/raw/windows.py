"""One table of windows, made from names alone.

Belongs here: the state of each window. Doesn't: what is asked for (domain/due.py), who is told of
it.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from enum import StrEnum
from typing import NamedTuple
from zoneinfo import ZoneInfo

from leads_pipeline.domain.contract import LeadKind
from leads_pipeline.domain.due import FIRST_FETCH, Failure, next_fetch
from leads_pipeline.domain.window import RETENTION, Scope, Window, days, today
from leads_pipeline.raw.names import RAW, Folder, list_folders, place_of, read_failure
from leads_pipeline.raw.rows import moment_of
from leads_pipeline.raw.store import Store


class WindowState(StrEnum):
    """How a window stands.

    LANDED and EMPTY have a whole fetch between the end of the window and the moment when the portal
    began to delete it. PARTIAL has only a later one. Without such a fetch it is FAILED if the last
    run for it failed, or a file of it was damaged. Else it is OPEN until its first fetch is due, 75
    minutes after its end, and then MISSING.
    A landed window whose later fetch failed stays landed: `failure` says so.
    """

    LANDED = "landed"
    EMPTY = "empty"
    OPEN = "open"
    PARTIAL = "partial"
    FAILED = "failed"
    MISSING = "missing"


class WindowRow(NamedTuple):
    """A row of the table.

    `fetched_at` is the newest whole fetch, in UTC. `leads` adds up the files, so a lead that was
    pulled and then pushed counts twice until the next fetch.
    """

    kind: str
    window: Window
    state: WindowState
    fetched_at: datetime | None
    leads: int
    failure: Failure | None

    @property
    def day(self) -> date:
        """The window's local day."""
        return self.window.day

    @property
    def scope(self) -> str:
        """The scope's key."""
        return self.window.scope.key

    @property
    def reason(self) -> str:
        """Why it failed, empty if it didn't."""
        return self.failure.reason if self.failure else ""

    def has_its_fetches(self, now: datetime) -> bool:
        """Whether the window has each whole fetch that is due by now.

        A failed run since then takes nothing from it.
        """
        if self.fetched_at is None:
            return False
        fetch = next_fetch(self.window, self.fetched_at, self.failure, now)
        return fetch is None or fetch > now


def list_days(
    store: Store, kind: LeadKind, of_days: Iterable[date] | None, now: datetime
) -> dict[str, Folder]:
    """Return the folders of these days or of all, by their keys.

    Those of scopes that aren't configured are among them.
    """
    if of_days is None:
        return list_folders(store, f"{RAW}/{kind.table}/", now)
    folders: dict[str, Folder] = {}
    for day in of_days:
        folders |= list_folders(store, f"{RAW}/{kind.table}/day={day.isoformat()}/", now)
    return folders


def windows_at_portal(
    store: Store,
    kind: LeadKind,
    scopes: Sequence[Scope],
    zone: ZoneInfo,
    first_day: date,
    now: datetime,
) -> list[WindowRow]:
    """Return the kind's windows that the portal has not deleted, from the first day to today."""
    its_days = days(max(first_day, today(zone, now - RETENTION)), today(zone, now))
    windows = [Window.of(day, scope, zone) for day in its_days for scope in scopes]
    return window_table(store, kind, windows, now)


def window_table(
    store: Store, kind: LeadKind, windows: Iterable[Window], now: datetime
) -> list[WindowRow]:
    """Return a row for each of the windows, in their order. Only failures are read, not files."""
    windows = list(windows)
    folders = list_days(store, kind, sorted({window.day for window in windows}), now)
    return window_rows(store, kind, windows, folders, now)


def window_rows(
    store: Store,
    kind: LeadKind,
    windows: Iterable[Window],
    folders: Mapping[str, Folder],
    now: datetime,
) -> list[WindowRow]:
    """Return the rows of windows whose folders are listed already."""
    rows = []
    for window in windows:
        key = place_of(kind, window).key
        folder = folders.get(key, Folder())
        newest = folder.newest
        leads = sum(file.leads for file in folder.files)
        failure = read_failure(store, key, folder)
        is_due = now >= window.end + FIRST_FETCH
        state = _state(folder, leads, has_failed=failure is not None, is_due=is_due)
        fetched_at = moment_of(newest.fetch) if newest else None
        rows.append(WindowRow(kind.name, window, state, fetched_at, leads, failure))

    return rows


def _state(folder: Folder, leads: int, *, has_failed: bool, is_due: bool) -> WindowState:
    if folder.state == "closed":
        return WindowState.LANDED if leads else WindowState.EMPTY
    if folder.state == "partial":
        return WindowState.PARTIAL
    if has_failed:
        return WindowState.FAILED
    return WindowState.MISSING if is_due else WindowState.OPEN
