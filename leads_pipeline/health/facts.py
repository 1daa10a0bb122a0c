"""The facts that findings and figures are made of, each computed when it is first asked for.

Belongs here: reading what lies in the data folder. Doesn't: judging it (findings.py). Nothing is
made or changed, no service is asked, and no Dagster is needed.
"""

import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cached_property
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from leads_pipeline.domain.contract import LEAD_KINDS, LeadKind
from leads_pipeline.domain.moments import has_passed
from leads_pipeline.domain.window import Scope, Window, days, today
from leads_pipeline.errors import LeadsPipelineError, StorageError
from leads_pipeline.raw.branches import Branches, readable_branches
from leads_pipeline.raw.data_folder import DataFolder, first_day
from leads_pipeline.raw.names import PUSH_SCOPE, QUARANTINE, RAW, Folder, Place, list_folders
from leads_pipeline.raw.publications import Publications
from leads_pipeline.raw.quarantine import Quarantined
from leads_pipeline.raw.rows import moment_of
from leads_pipeline.raw.service_lock import is_served
from leads_pipeline.raw.windows import WindowRow, WindowState, list_days, window_rows
from leads_pipeline.settings import Settings
from leads_pipeline.warehouse.duck import WAREHOUSE_FILE, quoted
from leads_pipeline.warehouse.editions import Editions
from leads_pipeline.warehouse.published import LeadsFile

# The windows that are listed: the portal's 30 days, and some days for publications, which know the
# older ones.
CHECKED_DAYS: Final = 35

# The sensor `alert` notes every five minutes that it works.
SILENCE: Final = timedelta(minutes=15)


class UnreadableFileError(StorageError):
    """leads.duckdb is missing or damaged, which is a finding of its own."""


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


@dataclass(frozen=True)
class Facts:
    """The facts about an installation at the moment `now`.

    A fact that can't be read raises StorageError. `is_thorough` lists the windows of any age to
    find missing files, not those of the last 35 days alone. That takes seconds for a year of 500
    branches.
    """

    settings: Settings
    data: DataFolder
    now: datetime
    kinds: Sequence[LeadKind] = LEAD_KINDS
    is_thorough: bool = False

    # --- windows ----------------------------------------------------------------------------------

    @cached_property
    def zone(self) -> ZoneInfo:
        """The zone of the settings; of the folder's days if they have none, as after the demo."""
        remembered, is_set = self.data.state.time_zone(), "zone" in self.settings.model_fields_set
        return ZoneInfo(remembered) if remembered and not is_set else self.settings.zone

    @cached_property
    def today(self) -> date:
        """The local day."""
        return today(self.zone, self.now)

    @cached_property
    def scopes(self) -> Sequence[Scope]:
        """The scopes of the settings; those that the folder has if they have none."""
        return self.settings.scopes or sorted(self.scopes_here)

    @cached_property
    def scopes_here(self) -> set[Scope]:
        """The scopes that have windows in the folder, whatever the settings say."""
        places = (Place.parse(key) for folders in self._folders.values() for key in folders)
        return {Scope.parse(place.scope) for place in places if place and place.scope != PUSH_SCOPE}

    @cached_property
    def _folders(self) -> dict[LeadKind, dict[str, Folder]]:
        shown = [*days(self.today - timedelta(days=CHECKED_DAYS), self.today)]
        return {kind: list_days(self.data.store, kind, shown, self.now) for kind in self.kinds}

    @cached_property
    def recent(self) -> list[WindowRow]:
        """The configured windows of the last 35 days, for each kind in the order of their days."""
        return self.windows_from(self.today - timedelta(days=CHECKED_DAYS))

    def windows_from(self, day: date) -> list[WindowRow]:
        """Return the configured windows from that day, or the first partition, to today."""
        shown = [*days(max(first_day(self.settings), day), self.today)]
        windows = [Window.of(one, scope, self.zone) for one in shown for scope in self.scopes]
        earlier = [one for one in shown if one < self.today - timedelta(days=CHECKED_DAYS)]

        return [
            row
            for kind in self.kinds
            for row in window_rows(
                self.data.store,
                kind,
                windows,
                self._folders[kind] | list_days(self.data.store, kind, earlier, self.now),
                self.now,
            )
        ]

    @cached_property
    def windows(self) -> list[WindowRow]:
        """The configured windows that the portal has not deleted."""
        return [row for row in self.recent if not row.window.is_deleted(self.now)]

    @cached_property
    def _first_days(self) -> dict[tuple[str, str], date]:
        """The day from which a scope's windows are expected.

        It is the day of the scope's first landed window, else two days before the kind's newest. If
        nothing has landed, it is the day before the folder was first opened.
        """
        first: dict[tuple[str, str], date] = {}
        recent: dict[str, date] = {}

        for row in self.recent:
            if row.state in (WindowState.LANDED, WindowState.EMPTY):
                first.setdefault((row.kind, row.scope), row.day)
                recent[row.kind] = row.day - timedelta(days=2)

        opened_at = None if self.settings.missing else self.data.state.opened_at()
        begun = today(self.zone, opened_at) - timedelta(days=1) if opened_at else date.max
        scopes = [(kind.name, scope.key) for kind in self.kinds for scope in self.scopes]
        return {
            (kind, scope): first.get((kind, scope), recent.get(kind, begun))
            for kind, scope in scopes
        }

    def is_expected(self, row: WindowRow) -> bool:
        """Whether the window was asked for, or its scope has an earlier day.

        So a first start raises no alarm, and a new branch none about the days before.
        """
        was_asked_for = row.failure is not None and row.failure.attempts > 0
        return was_asked_for or row.day >= self._first_days[row.kind, row.scope]

    @cached_property
    def branches(self) -> Branches:
        """The branches' names, as far as they can be read."""
        return readable_branches(self.settings.branches_file)

    # --- leads.duckdb -----------------------------------------------------------------------------

    @cached_property
    def has_published(self) -> bool:
        """Whether leads.duckdb was ever published here. It may be gone."""
        is_there = Editions(self.data.folder).current() is not None
        return is_there or self.publications.published_at is not None

    def query(
        self, statement: str, parameters: Mapping[str, object] | None = None
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return the column names and rows of a query on leads.duckdb.

        Raises UnreadableFileError, and BugError.
        """
        try:
            return LeadsFile(self.data).query(statement, parameters)
        except StorageError as error:
            raise UnreadableFileError(str(error)) from None

    def rows(
        self, statement: str, parameters: Mapping[str, object] | None = None, *, table: str = ""
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a query (see `query`).

        Empty before the first publication, or if that had no such table.
        """
        # An earlier release may have published the file.
        there = "select 1 from duckdb_tables() where table_name = $name"
        if not self.has_published or (table and not self.query(there, {"name": table})[1]):
            return []
        return self.query(statement, parameters)[1]

    @cached_property
    def leads_duckdb_trouble(self) -> str:
        """Why leads.duckdb can't be read, empty if it can.

        Before the first publication there is no such file, which is no trouble.
        """
        if not self.has_published:
            return ""
        if not (self.data.folder / WAREHOUSE_FILE).exists():
            return "leads.duckdb is missing."

        try:
            self.query("from landed_windows limit 1")
        except LeadsPipelineError:
            return "leads.duckdb is damaged: it can't be opened."

        return ""

    @cached_property
    def damaged(self) -> list[Damaged]:
        """The files that are damaged or missing and that nothing whole has replaced, by key."""
        aside = [
            file
            for file in self.data.quarantine.files()
            if not _is_replaced(self.data, file, self.now)
        ]
        are_aside = {file.place for file in aside}
        recent = self._folders.values()
        shown = [list_folders(self.data.store, f"{RAW}/", self.now)] if self.is_thorough else recent
        here = {key for folders in shown for key, folder in folders.items() if folder.files}
        missing = [
            place
            for place in self._published_places() - are_aside
            if place.key not in here and not self._has_files(place)
        ]

        return sorted(
            [
                *(Damaged(file.key, file.place, is_pushed=file.is_pushed) for file in aside),
                *(Damaged(place.key, place, is_pushed=False) for place in missing),
            ]
        )

    def _has_files(self, place: Place) -> bool:
        return any(
            folder.files for folder in list_folders(self.data.store, place.key, self.now).values()
        )

    def _published_places(self) -> set[Place]:
        """Return the windows that published leads are of.

        Older windows count only if they had no file at publication. None if leads.duckdb can't be
        read, which is a finding.
        """
        first = date.min if self.is_thorough else self.today - timedelta(days=CHECKED_DAYS)
        places = set[Place]()

        with suppress(LeadsPipelineError):
            for kind in self.kinds:
                statement = f"""
                    select distinct window_day, scope
                    from {quoted(kind.table)}
                    where window_day >= $first or (window_day, scope) in (
                        select (day, scope) from mart_coverage where kind = $kind and rows is null
                    )
                """  # noqa: S608 - our own names
                places |= {
                    Place(kind, day, scope)
                    for day, scope in self.query(statement, {"first": first, "kind": kind.name})[1]
                }

        return places

    @cached_property
    def damaged_windows(self) -> Collection[tuple[str, date, str]]:
        """Kind, day and scope of each window with such a file."""
        return {one.window for one in self.damaged if one.window}

    @cached_property
    def publications(self) -> Publications:
        """How publications went."""
        return Publications.read(self.data.state.path)

    # --- the installation -------------------------------------------------------------------------

    @cached_property
    def service(self) -> tuple[datetime, list[str]] | None:
        """When the daemon was last seen, and which schedules and sensors are stopped.

        None if none should run.
        """
        return self.data.state.service()

    @property
    def is_served(self) -> bool:
        """Whether the service runs."""
        if self.service:
            return not has_passed(SILENCE, self.service[0], self.now)
        return is_served(self.settings.dagster_folder)

    @cached_property
    def free_bytes(self) -> int:
        """The room that is left on the disk of the data folder."""
        folder = self.data.folder
        return shutil.disk_usage(
            next(path for path in (folder, *folder.parents) if path.exists())
        ).free


def _is_replaced(data: DataFolder, file: Quarantined, now: datetime) -> bool:
    """Whether a whole fetch has come since the file was set aside.

    Pushed leads may be nowhere else. A new leads.duckdb is made by itself.
    """
    if file.key == f"{QUARANTINE}/{WAREHOUSE_FILE}":
        return True
    if file.place is None or file.set_aside_at is None or file.is_pushed:
        return False
    folders = list_folders(data.store, file.place.key, now)
    newest = folders[file.place.key].newest if file.place.key in folders else None
    return newest is not None and moment_of(newest.fetch) > file.set_aside_at
