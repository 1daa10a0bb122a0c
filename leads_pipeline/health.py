"""How the whole is doing, in a few figures for a person, a probe and a monitor, and what of it wants somebody.

Belongs here: putting together what other modules know. Doesn't: finding causes to tell people of (watch.py), or
showing the figures (cli/).
"""

import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dagster import DagsterInstance

from leads_pipeline.assets.windows import FAIL_DAYS_BEFORE
from leads_pipeline.contract import LEAD_KINDS
from leads_pipeline.doctor import Light, examine_backup, examine_space
from leads_pipeline.duck import WAREHOUSE_FILE
from leads_pipeline.durable import not_read
from leads_pipeline.errors import StorageError
from leads_pipeline.flatten.windows import damaged_files
from leads_pipeline.lake import Lake
from leads_pipeline.partitions import Partitions
from leads_pipeline.resources import DataFolder
from leads_pipeline.settings import Settings
from leads_pipeline.spool import Spool
from leads_pipeline.status import OLDEST_PUBLICATION, failed_windows, last_publication, missing_windows, window_status
from leads_pipeline.warehouse import Warehouse
from leads_pipeline.window import RETENTION, days, today

# Each of the daemon's loops notes every half a minute that it is alive.
DAEMON_SILENCE = timedelta(minutes=5)

# Deliveries are taken in within a minute, and a pull that is under way doesn't hold them up.
OLDEST_DELIVERY = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Health:
    """The figures of a moment. A moment is None where the thing has never happened.

    Windows are those that are over and that the portal still has, of all kinds; `failed` and `missing` are disjoint,
    and neither counts what a run is pulling. `next_deletion_at` is when the portal begins to delete the first of them:
    the past, where it is at it. `troubles` says what somebody has to look into, a sentence each.
    """

    at: datetime
    last_landing_at: datetime | None
    last_publication_at: datetime | None
    last_backup_at: datetime | None
    daemon_seen_at: datetime | None
    missing: int
    failed_by_reason: Mapping[str, int]
    under_way: int
    next_deletion_at: datetime | None
    spool_files: int
    spool_bytes: int
    spool_oldest_at: datetime | None
    damaged: int
    quarantined_files: int
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
    partitions: Partitions,
    data: DataFolder,
    home: Path,
    now: datetime,
    *,
    is_served: bool,
) -> Health:
    """Put the figures together; `is_served`: whether `serve` or `dev` is at work on the folder at this moment.

    Opens no secret and no published file; of raw files it reads what they say about themselves, for as long as the
    portal has what they hold.
    """
    lake = data.lake
    failed = {
        (kind, window): failure.reason or "no answer"
        for (kind, window), failure in failed_windows(instance, settings, partitions).items()
        if window.is_closed(now) and not window.is_deleted(now)
    }
    missing = [
        window
        for kind in LEAD_KINDS
        for window in missing_windows(kind, settings, partitions, lake, instance, now, timedelta(0))
    ]
    at_stake = [window.start + RETENTION for window in [*(window for _, window in failed), *missing]]
    looks = [
        landed.looked_at
        for kind in LEAD_KINDS
        for day in days(today(settings.zone, now - RETENTION), today(settings.zone, now))
        for landed in lake.known_windows(kind, day)
    ]
    spool = list(_stats(Spool(lake).waiting()))
    health = Health(
        at=now,
        last_landing_at=max(looks, default=None),
        last_publication_at=last_publication(instance),
        last_backup_at=_last_backup(lake),
        daemon_seen_at=_daemon_seen_at(instance),
        missing=len(missing),
        failed_by_reason=dict(Counter(failed.values()).most_common()),
        under_way=sum(len(window_status(instance, kind, partitions.windows).under_way) for kind in LEAD_KINDS),
        next_deletion_at=min(at_stake, default=None),
        spool_files=len(spool),
        spool_bytes=sum(stat.st_size for stat in spool),
        spool_oldest_at=min((datetime.fromtimestamp(stat.st_mtime, UTC) for stat in spool), default=None),
        damaged=len(damaged_files(lake)),  # after the look at the files, so that what is damaged there is known
        quarantined_files=len(lake.quarantined()),
        sizes={
            WAREHOUSE_FILE: _size(Warehouse(lake).path),
            "staged": _size(lake.folder / "staged"),
            "dagster": _size(home),
        },
        free_bytes=shutil.disk_usage(_there(lake.folder)).free,
        troubles=(),
    )
    troubles = [*_troubles(health, is_served=is_served)]
    if lake.folder.exists() and (space := examine_space(data)).light is Light.RED:
        troubles.append(space.message)
    if (backup := examine_backup(lake, now)).light is Light.RED:
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
    if health.spool_oldest_at is not None and now - health.spool_oldest_at > OLDEST_DELIVERY:
        since = f"{health.spool_oldest_at:%Y-%m-%d %H:%M}"
        yield (
            f"{health.spool_files} files of deliveries wait in the spool, the first since {since} UTC. `leads-pipeline "
            "backfill` takes them in; the runs of take_in_pushes say what went wrong."
        )
    if health.damaged:
        yield f"{health.damaged} files are damaged or missing. `leads-pipeline doctor` names them and says what to do."


def _last_backup(lake: Lake) -> datetime | None:
    with suppress(StorageError):  # the backups' own examination says that it can't be read
        return lake.last_backup()
    return None


def _daemon_seen_at(instance: DagsterInstance) -> datetime | None:
    """When the loop of the daemon that was silent for the longest gave its last sign of life."""
    seen = [
        heartbeat.timestamp
        for kind, heartbeat in instance.get_daemon_heartbeats().items()
        if kind in instance.get_required_daemon_types()
    ]
    return datetime.fromtimestamp(min(seen), UTC) if seen else None


def _stats(paths: Iterable[Path]) -> Iterator[os.stat_result]:
    for path in paths:
        with suppress(FileNotFoundError):  # taken in at this moment
            yield path.stat()


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
