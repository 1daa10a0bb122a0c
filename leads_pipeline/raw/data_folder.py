"""A data folder as its users need it: everything that lies in it, made from the settings.

Belongs here: putting the parts together. Doesn't: the parts (raw/), fetching, publishing.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final, Self

from leads_pipeline.domain.window import RETENTION, today
from leads_pipeline.errors import QuestionError, SettingsError, StorageError
from leads_pipeline.extensions import brought
from leads_pipeline.raw.durable import make_folder, storing
from leads_pipeline.raw.format import IN_BUCKET, IN_FOLDER, check_format, note_format
from leads_pipeline.raw.gatekeeper import LIST, Gatekeeper, OpenGate
from leads_pipeline.raw.landing import Raw
from leads_pipeline.raw.names import QUARANTINE, RAW, RESTRICTED
from leads_pipeline.raw.quarantine import Quarantine
from leads_pipeline.raw.service_lock import is_served
from leads_pipeline.raw.state import State
from leads_pipeline.raw.store import FolderStore, Store
from leads_pipeline.settings import Settings, origin

# The raw files of a bucket that this machine has read. It can be deleted at any time.
CACHE: Final = ".cache"

# The demo's data goes here when real leads come.
DEMO: Final = "demo"

# In the folder while a restore is under way, or after it was killed. Then the next restore does all
# of it again.
RESTORING: Final = ".restoring"

# What moves there. The folder's origin is in .state, so that comes last: after a kill, the rest can
# still be moved.
_OF_DEMO: Final = (
    RAW,
    RESTRICTED,
    QUARANTINE,
    LIST,
    "leads.duckdb",
    "tables",
    ".versions",
    "reports",
    ".dagster",
    ".state",
)

# How many days before its first start a new folder begins. The day before those is being deleted by
# the portal.
FIRST_DAYS: Final = RETENTION - timedelta(days=1)


@dataclass(frozen=True, slots=True)
class DataFolder:
    """The parts of a data folder. `folder` is this machine's, `store` has what is raw.

    `bucket` is the store without its local copy, None if the folder has the data itself.

    Making one touches nothing. Many processes and threads may use one at once.
    """

    folder: Path
    store: Store
    bucket: Store | None
    state: State
    gate: Gatekeeper
    raw: Raw
    quarantine: Quarantine

    @classmethod
    def of(
        cls, settings: Settings, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> Self:
        """Return the data folder that the settings name.

        Raises SettingsError if the bucket's package is missing.
        """
        bucket = None
        if settings.store:
            [feature] = brought("bucket")
            bucket = feature.bucket_of(settings)
        return cls.at(settings.data_dir, bucket, clock, settings)

    @classmethod
    def at(
        cls,
        folder: Path,
        bucket: Store | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        settings: Settings | None = None,
    ) -> Self:
        """Return the data folder of that path.

        Without settings, the suppression list is in the folder.
        """
        state = State(folder, bucket, clock)
        store: Store = FolderStore(folder)
        if bucket is not None:
            [feature] = brought("bucket")
            store = feature.read_through(folder / CACHE, bucket)
        gate: Gatekeeper = OpenGate(folder, bucket)

        for gatekeeper in brought("gatekeeper"):
            gate = gatekeeper(folder, store, bucket, state, clock, settings)

        return cls(
            folder=folder,
            store=store,
            bucket=bucket,
            state=state,
            gate=gate,
            raw=Raw(store, gate, clock, state.note_landed),
            quarantine=Quarantine(store, folder),
        )

    @property
    def folder_of_raw(self) -> Path:
        """The folder of raw files on this machine. With a bucket, of those that it has read."""
        return self.folder / CACHE if self.bucket else self.folder

    @property
    def is_behind_list(self) -> bool:
        """Whether the suppression list has entries that the folder wasn't swept for."""
        return self.state.swept_to() != self.gate.newest_entry

    def forgets_if(self, newest_entry: int) -> str:
        """Return what decides who is shown: the list's entry and the last rewriting of raw files.

        leads.duckdb remembers it. If it differs, somebody may have to go, so the file is built anew
        and those from before are forgotten.
        """
        return f"{newest_entry} {self.state.last_rewriting()}"

    def want_format(self, *, reads_bucket: bool = True) -> None:
        """Raise SettingsError if another version wrote the files of the folder or the bucket.

        Nothing is written.
        """
        check_format(FolderStore(self.folder), IN_FOLDER)
        if self.bucket and reads_bucket:
            with suppress(StorageError):  # nothing is written to a bucket that is away
                check_format(self.bucket, IN_BUCKET)

    def note_format(self) -> None:
        """Write the number of the format into a new folder and a new bucket."""
        note_format(FolderStore(self.folder), IN_FOLDER)
        if self.bucket:
            note_format(self.bucket, IN_BUCKET)

    def delete_drafts(self) -> None:
        """Delete what killed writers left. It may hold anybody."""
        for root in (RAW, RESTRICTED, QUARANTINE):
            self.store.delete_drafts(f"{root}/")

    def want_outside(self, path: Path) -> None:
        """Raise QuestionError if a file that a person names is in the data folder.

        No erasure would find it.
        """
        if path.resolve().is_relative_to(self.folder.resolve()):
            raise QuestionError(
                f"{path} is in the data folder, which is for the pipeline alone. Name one outside "
                f"of {self.folder}."
            )

    def want_restored(self) -> None:
        """Raise SettingsError if a restore into the folder isn't finished."""
        if (self.folder / RESTORING).exists():
            raise SettingsError(
                f"The restore into {self.folder} isn't finished, so leads are missing. Unless it "
                "is still running, run the same `leads-pipeline restore` again."
            )

    def exchange_with_bucket(self) -> None:
        """Exchange with the bucket what all machines must agree on.

        Raises SettingsError if they contradict each other.
        """
        self.state.exchange_with_bucket()
        self.gate.exchange_with_bucket()


def move_demo(data: DataFolder, dagster_home: Path, now: datetime) -> Path:
    """Move the demo's data into a new folder in `demo/`, and return that folder.

    Raises SettingsError if the data is in use.
    """
    if is_served(dagster_home) or data.state.is_pulling() or data.state.is_publishing():
        raise SettingsError(
            f"The demo's data in {data.folder} is in use. Stop `leads-pipeline dev`, and try again."
        )

    aside = data.folder / DEMO / f"{now:%Y-%m-%dT%H%M%SZ}"
    with storing(aside):
        make_folder(aside)
        for name in _OF_DEMO:  # .state last
            with suppress(FileNotFoundError):
                (data.folder / name).rename(aside / name)

    return aside


def first_day(settings: Settings) -> date:
    """Return the first day: LEADS_START_DATE, else the remembered one, else FIRST_DAYS ago.

    A bucket is asked once for the remembered one. Raises SettingsError and StorageError.
    """
    if settings.start_date is not None:
        return settings.start_date
    remembered = DataFolder.of(settings).state.start_date()
    return remembered or today(settings.zone, datetime.now(UTC)) - FIRST_DAYS


def check_portal(settings: Settings, data: DataFolder) -> None:
    """Raise SettingsError if the folder holds leads of another portal than that of the settings."""
    if settings.base_url and data.state.claimed_by():
        data.state.claim(origin(settings.base_url))
