"""The facts that findings and figures are made of, each computed when it is first asked for.

Belongs here: reading what lies in the data folder. Doesn't: judging it (findings.py). Nothing is made or changed, no
service is asked, and no Dagster is needed.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Any, Final, Self
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import duckdb

from leads_pipeline.domain.contract import LEAD_KINDS, LeadKind
from leads_pipeline.domain.window import Scope, Window, day_interval, days, today
from leads_pipeline.errors import SettingsError, StorageError
from leads_pipeline.settings import Settings, is_loopback
from leads_pipeline.storage.branches import Branches, readable_branches
from leads_pipeline.storage.data_folder import DataFolder, first_day
from leads_pipeline.storage.publications import Publications
from leads_pipeline.storage.raw import PUSH_SCOPE, Folder, Place
from leads_pipeline.storage.windows import WindowRow, WindowState, list_days, window_rows
from leads_pipeline.transform.duck import WAREHOUSE_FILE, telling_errors

# The windows that a publication looks at, too: the portal's 30 days, and the losses of 30 days more.
RECENT_DAYS: Final = 60

_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {"memory_limit": "256MB", "threads": "2"}


class UnreadableFileError(StorageError):
    """leads.duckdb is missing or damaged, which is a finding of its own."""


@dataclass(frozen=True)
class Known:
    """What is known of an installation at the moment `now`. A fact that can't be read raises StorageError."""

    settings: Settings
    data: DataFolder
    now: datetime
    kinds: Sequence[LeadKind] = LEAD_KINDS

    @classmethod
    def of(cls, settings: Settings, data: DataFolder, now: datetime, kinds: Sequence[LeadKind] = LEAD_KINDS) -> Self:
        """Return the facts of an installation. Raises SettingsError if nothing was ever pulled into the folder."""
        if data.bucket is None and not data.state.path.exists() and not (data.folder / "raw").exists():
            raise SettingsError(
                f"Nothing was ever pulled into {data.folder}. If that is the wrong folder, correct LEADS_DATA_DIR. "
                "If it is new, `leads-pipeline backfill --last 3d` pulls the last days, and `make demo` tries it with "
                "made-up leads."
            )
        return cls(settings, data, now, kinds)

    # --- windows ------------------------------------------------------------------------------------------------------

    @cached_property
    def zone(self) -> ZoneInfo:
        """The zone of the settings; of the folder's days if they have none, as after `make demo`."""
        remembered = self.data.state.time_zone()
        return (
            self.settings.zone if "zone" in self.settings.model_fields_set or not remembered else ZoneInfo(remembered)
        )

    @cached_property
    def first_day(self) -> date:
        """The first partition."""
        return first_day(self.settings)

    @cached_property
    def today(self) -> date:
        """The local day."""
        return today(self.zone, self.now)

    @cached_property
    def scopes(self) -> Sequence[Scope]:
        """The scopes of the settings; those that the folder has if they have none."""
        if self.settings.scopes:
            return self.settings.scopes
        places = (Place.parse(key) for folders in self._folders.values() for key in folders)
        return sorted({Scope.parse(place.scope) for place in places if place and place.scope != PUSH_SCOPE})

    @cached_property
    def _folders(self) -> dict[LeadKind, dict[str, Folder]]:
        shown = [*days(self.today - timedelta(days=RECENT_DAYS), self.today)]
        return {kind: list_days(self.data.store, kind, shown, self.now) for kind in self.kinds}

    @cached_property
    def recent(self) -> list[WindowRow]:
        """The configured windows of the last 60 days."""
        return self.windows_from(self.today - timedelta(days=RECENT_DAYS))

    def windows_from(self, day: date) -> list[WindowRow]:
        """Return the configured windows from that day, or the first partition, up to the day under way."""
        shown = [*days(max(self.first_day, day), self.today)]
        windows = [Window.of(one, scope, self.zone) for one in shown for scope in self.scopes]
        earlier = [one for one in shown if one < self.today - timedelta(days=RECENT_DAYS)]
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
        """From which day on a scope's windows are expected: its first landed one, else two days before the newest."""
        first: dict[tuple[str, str], date] = {}
        newest: dict[str, date] = {}
        for row in self.recent:
            if row.state in (WindowState.LANDED, WindowState.EMPTY):
                first[row.kind, row.scope] = min(row.day, first.get((row.kind, row.scope), row.day))
                newest[row.kind] = max(row.day, newest.get(row.kind, row.day))
        scopes = [(kind.name, scope.key) for kind in self.kinds for scope in self.scopes]
        recent = {kind: day - timedelta(days=2) for kind, day in newest.items()}
        return {(kind, scope): first.get((kind, scope), recent.get(kind, date.max)) for kind, scope in scopes}

    def is_expected(self, row: WindowRow) -> bool:
        """Whether a window was asked for in vain, or lies behind the first day that its scope has.

        So a first start raises no alarm, and a new branch none about the days before.
        """
        was_asked_for = row.failure is not None and row.failure.attempts > 0
        return was_asked_for or row.day >= self._first_days[row.kind, row.scope]

    def window_end(self, day: date) -> datetime:
        """Return when a day's windows end, in UTC."""
        return day_interval(day, self.zone)[1]

    @cached_property
    def is_pulling(self) -> bool:
        """Whether a pull is under way."""
        return self.data.state.is_pulling()

    @cached_property
    def branches(self) -> Branches:
        """The branches' names, as far as they can be read."""
        return readable_branches(self.settings.branches_file)

    # --- leads.duckdb -------------------------------------------------------------------------------------------------

    @cached_property
    def has_published(self) -> bool:
        """Whether leads.duckdb was ever published here. It may be gone."""
        return (self.data.folder / WAREHOUSE_FILE).exists() or (self.data.folder / ".versions").exists()

    def query(
        self, statement: str, parameters: Mapping[str, object] | None = None
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return column names and rows of a query on leads.duckdb. Raises UnreadableFileError, and BugError.

        The link is resolved first: a version never changes, so this takes no folder and no lock, unlike LeadsFile.
        """
        path = str((self.data.folder / WAREHOUSE_FILE).resolve())
        try:
            with telling_errors(self.data), duckdb.connect(path, read_only=True, config=_CONFIG) as db:
                result = db.execute(statement, dict(parameters or {}))
                return [column[0] for column in result.description], result.fetchall()
        except StorageError as error:
            raise UnreadableFileError(str(error)) from None

    @cached_property
    def publications(self) -> Publications:
        """How publications went."""
        return Publications.read(self.data.state.path)

    @cached_property
    def report_written_at(self) -> datetime | None:
        """When reports/leads.html was written."""
        path = self.data.folder / "reports" / "leads.html"
        return datetime.fromtimestamp(path.stat().st_mtime, UTC) if path.exists() else None

    # --- the installation ---------------------------------------------------------------------------------------------

    @cached_property
    def has_portal(self) -> bool:
        """Whether leads come from another machine than this one, where the simulator is."""
        return bool(self.settings.base_url) and not is_loopback(urlsplit(self.settings.base_url or "").hostname or "")

    @cached_property
    def service(self) -> tuple[datetime, list[str]] | None:
        """When the daemon was last seen, and which schedules and sensors are stopped. None if none should run."""
        return self.data.state.service()

    @cached_property
    def free_bytes(self) -> int:
        """The room that is left on the disk of the data folder."""
        folder = self.data.folder
        return shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.exists())).free
