"""The step that notes what is known of each window: landed, empty, open, failed or missing.

Belongs here: the table that marts read. Doesn't: what a listing tells (raw/windows.py).
"""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final, Protocol
from zoneinfo import ZoneInfo

from leads_pipeline.domain.contract import LEAD_KINDS, LeadKind
from leads_pipeline.domain.window import RETENTION, Scope, Window, days, today
from leads_pipeline.raw.names import PUSH_SCOPE, Folder, Place
from leads_pipeline.raw.store import Store
from leads_pipeline.raw.windows import WindowRow, window_rows
from leads_pipeline.warehouse.step import Draft, Step
from leads_pipeline.warehouse.tables import insert
from leads_pipeline.warehouse.unpublished import recent_days

_COLUMNS: Final = (
    "kind varchar, day date, scope varchar, state varchar, window_start timestamptz, "
    "window_end timestamptz, is_closed boolean, rows bigint, last_looked_at timestamptz, "
    "failed_attempts integer, last_error varchar, is_refused boolean, deleted_from_at timestamptz, "
    "is_configured boolean"
)


class Folders(Protocol):
    """The folders of raw windows."""

    def folders(self, kind: LeadKind, *, of_all_days: bool) -> dict[str, Folder]:
        """List the folders of the last 60 days, or of all."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The windows that are asked for: each configured scope on each local day from the first on."""

    scopes: Sequence[Scope]
    first_day: date
    zone: ZoneInfo


class NoteWindowStates(Step):
    """Notes the windows that are configured or landed: of the last 60 days, or of all.

    All are noted in the first publication of a day, and in a new file.
    """

    def __init__(
        self, store: Store, folders: Folders, grid: Grid, now: datetime, *, is_first_of_day: bool
    ) -> None:
        self._store = store
        self._folders = folders
        self._grid = grid
        self._now = now
        self._is_first_of_day = is_first_of_day
        self._known: dict[bool, _ListedWindows] = {}

    def updates_if(self) -> str:
        """Return what is known of the windows, but for moments of fetches that found nothing new.

        The next publication notes those. Otherwise each pull would write the whole file. Windows
        from before the last 60 days are noted by the first publication of a day, which has another
        day in any case.
        """
        windows = self._windows(of_all_days=False)
        return repr([_what_matters(row, windows.configured) for row in windows.rows])

    def rebuilds_if(self) -> str:
        """The columns."""
        return _COLUMNS

    def fill(self, draft: Draft) -> None:
        """Write what is known in the place of what was known."""
        windows = self._windows(of_all_days=self._is_first_of_day or draft.changes.is_new)
        states = [_row_of_table(row, windows.configured) for row in windows.rows]
        with draft.transaction():
            draft.db.execute(f"create table if not exists pipeline.window_states ({_COLUMNS})")
            draft.db.execute(
                "delete from pipeline.window_states where day >= $since", {"since": windows.since}
            )
            insert(draft.db, "pipeline.window_states", states)

    def _windows(self, *, of_all_days: bool) -> "_ListedWindows":
        if of_all_days not in self._known:
            self._known[of_all_days] = self._listed(of_all_days=of_all_days)
        return self._known[of_all_days]

    def _listed(self, *, of_all_days: bool) -> "_ListedWindows":
        zone = self._grid.zone
        to_day = today(zone, self._now)
        # Folders are listed from this day on.
        since = date.min if of_all_days else next(recent_days(self._now))

        asked_for = days(max(self._grid.first_day, since), to_day)
        configured = [
            Window.of(day, scope, zone) for day in asked_for for scope in self._grid.scopes
        ]
        rows = []
        for kind in LEAD_KINDS:
            folders = self._folders.folders(kind, of_all_days=of_all_days)
            in_folders = _windows_of(folders, since, zone)
            windows = dict.fromkeys([*configured, *in_folders])
            rows += window_rows(self._store, kind, windows, folders, self._now)
        return _ListedWindows(rows, frozenset(configured), since)


def _windows_of(folders: Iterable[str], since: date, zone: ZoneInfo) -> list[Window]:
    """Return the windows of these folders from that day on."""
    windows = []
    for key in folders:
        place = Place.parse(key)
        if place and place.scope != PUSH_SCOPE and place.day >= since:
            windows.append(Window.of(place.day, Scope.parse(place.scope), zone))
    return windows


@dataclass(frozen=True, slots=True)
class _ListedWindows:
    """The windows from the day `since` on, and those of them that are configured."""

    rows: Sequence[WindowRow]
    configured: AbstractSet[Window]
    since: date


def _what_matters(row: WindowRow, configured: AbstractSet[Window]) -> tuple[object, ...]:
    return (
        row.kind,
        row.window.partition_key,
        row.state,
        row.leads,
        _was_fetched_after_its_end(row),
        row.failure,
        row.window in configured,
    )


def _was_fetched_after_its_end(row: WindowRow) -> bool:
    """Whether its newest fetch was after its end, as the column `is_closed` says."""
    return row.fetched_at is not None and row.window.is_closed(row.fetched_at)


def _row_of_table(row: WindowRow, configured: AbstractSet[Window]) -> tuple[object, ...]:
    failure = row.failure
    # Pushes bring leads to a window that was never fetched.
    has_count = row.fetched_at is not None or row.leads > 0

    return (
        row.kind,
        row.day,
        row.scope,
        str(row.state),
        row.window.start,
        row.window.end,
        _was_fetched_after_its_end(row),
        row.leads if has_count else None,
        row.fetched_at,
        failure.attempts if failure else 0,
        (failure.message or failure.reason) if failure else None,
        failure is not None and failure.verdict == "refused",
        row.window.start + RETENTION,
        row.window in configured,
    )
