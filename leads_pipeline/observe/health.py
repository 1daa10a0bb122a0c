"""How the whole is doing, in a few figures for a person, a probe and a monitor, and what of it wants somebody.

Belongs here: putting together what other modules know. Doesn't: finding causes to tell people of (observe/watch.py), or
showing the figures (cli/).
"""

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from dagster import DagsterInstance

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.domain.window import RETENTION
from leads_pipeline.errors import StorageError
from leads_pipeline.observe.damage import damaged_files
from leads_pipeline.observe.doctor import Light, examine_backup, examine_space
from leads_pipeline.orchestration.assets.windows import FAIL_DAYS_BEFORE
from leads_pipeline.orchestration.publishing import OLDEST_PUBLICATION, Publications
from leads_pipeline.orchestration.pulling import known_windows
from leads_pipeline.settings import Settings
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.durable import not_read
from leads_pipeline.storage.windows import WindowState
from leads_pipeline.transform.duck import WAREHOUSE_FILE
from leads_pipeline.transform.reading import LeadsFile

# Each of the daemon's loops notes every half a minute that it is alive.
DAEMON_SILENCE = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Health:
    """The figures of a moment. A moment is None where the thing has never happened.

    Windows are those that are over and that the portal still has, of all kinds; `failed` and `missing` are disjoint.
    `former_deliveries` are damaged files of an earlier release. `next_deletion_at` is when the portal begins to delete
    the first of them: the past, where it is at it. `troubles` says what somebody has to look into, a sentence each.
    """

    at: datetime
    last_landing_at: datetime | None
    last_publication_at: datetime | None
    last_backup_at: datetime | None
    daemon_seen_at: datetime | None
    missing: int
    failed_by_reason: Mapping[str, int]
    is_pulling: bool
    next_deletion_at: datetime | None
    damaged: int
    quarantined_files: int
    former_deliveries: int
    sizes: Mapping[str, int]
    free_bytes: int
    troubles: tuple[str, ...]

    @property
    def failed(self) -> int:
        """How many windows failed, whatever the reason."""
        return sum(self.failed_by_reason.values())

    @property
    def is_well(self) -> bool:
        """Whether nobody has to look into anything."""
        return not self.troubles


def examine_health(
    instance: DagsterInstance,
    settings: Settings,
    first_day: date,
    data: DataFolder,
    home: Path,
    now: datetime,
    *,
    is_served: bool,
) -> Health:
    """Put the figures together; `is_served`: whether `serve` or `dev` is at work on the folder at this moment.

    Raises StorageError.
    """
    rows = [
        row
        for kind in LEAD_KINDS
        for row in known_windows(data.store, kind, settings.scopes, settings.zone, first_day, now)
    ]
    failed = [row for row in rows if row.state is WindowState.FAILED and row.window.is_closed(now)]
    missing = [row for row in rows if row.state is WindowState.MISSING]
    at_stake = [row.window.start + RETENTION for row in (*failed, *missing)]
    health = Health(
        at=now,
        last_landing_at=max((row.looked_at for row in rows if row.looked_at), default=None),
        last_publication_at=Publications.read(data.state.path).published_at,
        last_backup_at=_last_backup(data),
        daemon_seen_at=_daemon_seen_at(instance),
        missing=len(missing),
        failed_by_reason=dict(Counter(row.reason for row in failed).most_common()),
        is_pulling=data.state.is_pulling(),
        next_deletion_at=min(at_stake, default=None),
        damaged=len(damaged_files(data)),
        quarantined_files=len(data.quarantine.files()),
        former_deliveries=len([*(data.folder / "spool").glob("*.pushed")]),
        sizes={
            WAREHOUSE_FILE: _size(LeadsFile(data).path),
            "tables": _size((data.folder / "tables").resolve()),
            "dagster": _size(home),
        },
        free_bytes=shutil.disk_usage(_there(data.folder)).free,
        troubles=(),
    )
    troubles = [*_troubles(health, is_served=is_served)]
    if data.folder.exists() and (space := examine_space(data)).light is Light.RED:
        troubles.append(space.message)
    if (backup := examine_backup(data, now)).light is Light.RED:
        troubles.append(f"Backups: {backup.message}")
    return replace(health, troubles=tuple(troubles))


def _troubles(health: Health, *, is_served: bool) -> Iterator[str]:
    now, deleted_from = health.at, health.next_deletion_at
    if deleted_from is not None and deleted_from <= now + timedelta(days=FAIL_DAYS_BEFORE):
        begins = "is deleting" if deleted_from <= now else f"begins on {deleted_from:%Y-%m-%d %H:%M} UTC to delete"
        yield (
            f"{health.missing + health.failed} windows aren't landed, and the portal {begins} the first of them. "
            "`leads-pipeline coverage` names them, and the command that pulls them."
        )
    if health.last_publication_at is not None and now - health.last_publication_at > OLDEST_PUBLICATION:
        yield (
            f"Nothing has been published since {health.last_publication_at:%Y-%m-%d %H:%M} UTC, and each night "
            "something is. See in the Dagster UI whether the daemon runs, and what the last runs say."
        )
    if is_served and (health.daemon_seen_at is None or now - health.daemon_seen_at > DAEMON_SILENCE):
        yield "Dagster's daemon gives no sign of life, so nothing is pulled. See what it printed, and start it again."
    if health.former_deliveries:
        yield (
            f"{health.former_deliveries} deliveries in spool/, left by an earlier release, are damaged. "
            "Their leads are pulled with their windows, if the portal still has them. Look into the files, then delete "
            "them."
        )
    if health.damaged:
        yield f"{health.damaged} files are damaged or missing. `leads-pipeline doctor` names them and says what to do."


def _last_backup(data: DataFolder) -> datetime | None:
    with suppress(StorageError):  # the backups' own examination says that it can't be read
        return data.state.last_backup()
    return None


def _daemon_seen_at(instance: DagsterInstance) -> datetime | None:
    """When the loop of the daemon that was silent for the longest gave its last sign of life."""
    seen = [
        heartbeat.timestamp
        for kind, heartbeat in instance.get_daemon_heartbeats().items()
        if kind in instance.get_required_daemon_types()
    ]
    return datetime.fromtimestamp(min(seen), UTC) if seen else None


def _size(path: Path) -> int:
    """The bytes of a file, or of all files in a folder; what goes while it is counted counts nothing."""
    try:
        if not path.is_dir():
            return path.stat().st_size
        return sum(_size(Path(entry.path)) for entry in os.scandir(path) if not entry.is_symlink())
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise not_read(path, error) from error


def _there(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if path.exists())
