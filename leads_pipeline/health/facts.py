"""The facts that findings and figures are made of, each computed when it is first asked for.

Belongs here: reading what lies in the data folder. Doesn't: judging it (findings.py). Nothing is
made or changed, no service is asked, and no Dagster is needed.
"""

import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cached_property
from typing import Final
from zoneinfo import ZoneInfo

from leads_pipeline.domain.contract import LEAD_KINDS, LeadKind
from leads_pipeline.domain.moments import has_passed
from leads_pipeline.domain.window import Scope, Window, days, today
from leads_pipeline.health.damage import Damaged, damaged_files
from leads_pipeline.health.leads_duckdb import LeadsDuckdb
from leads_pipeline.raw.branches import Branches, readable_branches
from leads_pipeline.raw.data_folder import DataFolder, first_day
from leads_pipeline.raw.names import PUSH_SCOPE, Folder, Place
from leads_pipeline.raw.publications import Publications
from leads_pipeline.raw.service_lock import is_served
from leads_pipeline.raw.state import ServiceNote
from leads_pipeline.raw.windows import WindowRow, WindowState, list_days, window_rows
from leads_pipeline.settings import Settings

# The windows that are listed: the portal's 30 days, and some days for publications, which know the
# older ones.
CHECKED_DAYS: Final = 35

# The sensor `alert` notes every five minutes that it works.
SILENCE: Final = timedelta(minutes=15)


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
        remembered = self.data.state.time_zone()
        is_set = "zone" in self.settings.model_fields_set
        return ZoneInfo(remembered) if remembered and not is_set else self.settings.zone

    @cached_property
    def today(self) -> date:
        """The local day."""
        return today(self.zone, self.now)

    @cached_property
    def first_checked(self) -> date:
        """The first of the days whose windows are listed."""
        return self.today - timedelta(days=CHECKED_DAYS)

    @cached_property
    def scopes(self) -> Sequence[Scope]:
        """The scopes of the settings; those that the folder has if they have none."""
        return self.settings.scopes or sorted(self.scopes_here)

    @cached_property
    def scopes_here(self) -> set[Scope]:
        """The scopes that have windows in the folder, whatever the settings say."""
        places = (Place.parse(key) for folders in self.folders.values() for key in folders)
        return {Scope.parse(place.scope) for place in places if place and place.scope != PUSH_SCOPE}

    @cached_property
    def folders(self) -> dict[LeadKind, dict[str, Folder]]:
        """The windows' folders of the last 35 days, by key, whatever the settings say."""
        checked = [*days(self.first_checked, self.today)]
        return {kind: list_days(self.data.store, kind, checked, self.now) for kind in self.kinds}

    @cached_property
    def recent(self) -> list[WindowRow]:
        """The configured windows of the last 35 days, for each kind in the order of their days."""
        return self.windows_from(self.first_checked)

    def windows_from(self, day: date) -> list[WindowRow]:
        """Return the configured windows from that day, or the first partition, to today."""
        shown = [*days(max(first_day(self.settings), day), self.today)]
        windows = [Window.of(one, scope, self.zone) for one in shown for scope in self.scopes]
        earlier = [one for one in shown if one < self.first_checked]
        store = self.data.store
        rows = []

        for kind in self.kinds:
            folders = self.folders[kind] | list_days(store, kind, earlier, self.now)
            rows += window_rows(store, kind, windows, folders, self.now)

        return rows

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
        before_newest: dict[str, date] = {}

        for row in self.recent:  # in the order of days
            if row.state in (WindowState.LANDED, WindowState.EMPTY):
                first.setdefault((row.kind, row.scope), row.day)
                before_newest[row.kind] = row.day - timedelta(days=2)

        opened_at = None if self.settings.missing else self.data.state.opened_at()
        begun = today(self.zone, opened_at) - timedelta(days=1) if opened_at else date.max
        for kind in self.kinds:
            for scope in self.scopes:
                first.setdefault((kind.name, scope.key), before_newest.get(kind.name, begun))

        return first

    def is_expected(self, row: WindowRow) -> bool:
        """Whether the window was asked for, or its scope is expected to have it (see _first_days).

        So a first start raises no alarm, and a new branch none about the days before.
        """
        was_asked_for = row.failure is not None and row.failure.attempts > 0
        return was_asked_for or row.day >= self._first_days[row.kind, row.scope]

    @cached_property
    def branches(self) -> Branches:
        """The branches' names, as far as they can be read."""
        return readable_branches(self.settings.branches_file)

    # --- what is published ------------------------------------------------------------------------

    @cached_property
    def leads_duckdb(self) -> LeadsDuckdb:
        """The published leads, as far as they can be read."""
        return LeadsDuckdb(self.data, self.publications)

    @cached_property
    def damaged(self) -> list[Damaged]:
        """The files that are damaged or missing and that nothing whole has replaced, by key."""
        return damaged_files(self)

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
    def service(self) -> ServiceNote | None:
        """What was last noted of the service. None if none should run."""
        return self.data.state.service()

    @property
    def is_served(self) -> bool:
        """Whether the service runs."""
        if self.service:
            return not has_passed(SILENCE, self.service.seen_at, self.now)
        return is_served(self.settings.dagster_folder)

    @cached_property
    def free_bytes(self) -> int:
        """The room that is left on the disk of the data folder."""
        folder = self.data.folder
        return shutil.disk_usage(
            next(path for path in (folder, *folder.parents) if path.exists())
        ).free
