"""The memory of a data folder, and its locks, all in `.state/`.

Belongs here: small facts that outlive a process, locks between processes of this machine. Doesn't:
leads, the suppression list, tokens.

With a bucket, each machine has a `.state/` of its own. What all machines must agree on lies in the
bucket as well.
"""

import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import filelock

from leads_pipeline.domain.window import SHORTEST_RETENTION
from leads_pipeline.errors import SettingsError, StorageError
from leads_pipeline.raw.durable import PRIVATE_FILE_MODE, locked, reading, replace_file, storing
from leads_pipeline.raw.store import Store

# Longer than any holder needs: a publication of millions of leads takes seconds.
LOCK_TIMEOUT_SECONDS: Final = 600.0

# Machines with the same bucket agree on these facts. In the bucket they lie in this folder.
_SHARED_FOLDER: Final = "state/"
_SHARED: Final = ("origin", "person_key", "start_date")


class ServiceNote(NamedTuple):
    """When Dagster's daemon was seen, and which schedules and sensors were off then, by name."""

    seen_at: datetime
    names_off: list[str]


class State:
    """The `.state/` of a data folder. `shared` is the bucket, if one has the data.

    Many processes and threads may use it at once. Methods raise StorageError.
    """

    def __init__(
        self,
        folder: Path,
        shared: Store | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.path = folder / ".state"
        self._shared = shared
        self._clock = clock

    # --- locks ------------------------------------------------------------------------------------

    def lock(
        self, name: str, *, timeout_seconds: float = LOCK_TIMEOUT_SECONDS
    ) -> AbstractContextManager[None]:
        """The lock of that name. See durable.locked."""
        return locked(self._lock_path(name), timeout_seconds)

    def is_held(self, name: str) -> bool:
        """Whether any process holds the lock of that name."""
        path = self._lock_path(name)
        with reading(path):
            if not path.exists():
                return False
            try:
                with filelock.FileLock(path, mode=PRIVATE_FILE_MODE, timeout=0):
                    return False
            except filelock.Timeout:
                return True

    def pulling(self) -> AbstractContextManager[None]:
        """The lock by which pulls take turns.

        In this process, an asset that broke off may still hold it.
        """
        return locked(self._lock_path("pull"), timeout_seconds=-1, is_of_process=True)

    def is_pulling(self) -> bool:
        """Whether a pull is under way in any process."""
        return self.is_held("pull")

    def publishing(self) -> AbstractContextManager[None]:
        """The lock of publications. It also guards the other files that a publication writes."""
        return self.lock("warehouse")

    def is_publishing(self) -> bool:
        """Whether a publication is under way in any process."""
        return self.is_held("warehouse")

    @contextmanager
    def alive(self, name: str) -> Iterator[None]:
        """Hold the lock that says that the owner of that name is alive.

        Nothing is left of it afterwards.
        """
        with self.lock(name):
            try:
                yield
            finally:
                with suppress(OSError):  # an unlocked file does no harm
                    self._lock_path(name).unlink(missing_ok=True)

    def _lock_path(self, name: str) -> Path:
        return self.path / "locks" / f"{name}.lock"

    # --- what was done, and when ------------------------------------------------------------------

    def note_landed(self) -> None:
        """Remember that a publication may find something new."""
        self.touch("landed")

    def landed_at(self) -> datetime | None:
        """Return when something was last landed by this machine, None if nothing ever was."""
        return self.touched_at("landed")

    def note_rewriting(self) -> None:
        """Remember that raw files are rewritten: the next publication builds leads.duckdb anew.

        Call it before the first file changes. So a kill in between leaves nothing as it was
        published.
        """
        self._write("rewriting", secrets.token_hex(8))
        self.note_landed()

    def last_rewriting(self) -> str:
        """Return a mark of the last rewriting, empty before the first.

        Ask before any raw file is looked at.
        """
        return self._read("rewriting") or ""

    def note_looked(self, began_at: datetime) -> None:
        """Remember that files from before then hold nobody whom the suppression list keeps out."""
        self._write_moment("looked", began_at)

    def looked_at(self) -> datetime | None:
        """Return when the last look began after which files hold nobody who is kept out.

        None before the first look.
        """
        return self._moment("looked")

    def note_backup(self, made_at: datetime) -> None:
        """Remember when the newest backup of this folder was made, wherever it lies."""
        self._write_moment("last_backup", made_at)

    def last_backup(self) -> datetime | None:
        """Return when the newest backup was made, None if none is known."""
        return self._moment("last_backup")

    def note_export(self, folder: Path) -> None:
        """Remember that tables are exported to that folder, which no erasure reaches.

        Call it before they are exported.
        """
        with self.lock("state"):
            self._write("exports", "\n".join(sorted({*self.exports(), str(folder)})))

    def exports(self) -> list[str]:
        """Return the folders of this machine's exports."""
        return (self._read("exports") or "").splitlines()

    def note_derived(self, patterns: Iterable[str]) -> None:
        """Remember which personal files features make from leads, as patterns in the folder."""
        self._write("derived", "\n".join(sorted(patterns)))

    def derived(self) -> frozenset[str]:
        """Return the patterns of the personal files that features make from leads."""
        return frozenset((self._read("derived") or "").splitlines())

    def note_service(self, seen_at: datetime, names_off: Sequence[str]) -> None:
        """Remember that Dagster's daemon works, and which schedules and sensors are off."""
        self._write("service", "\n".join([seen_at.astimezone(UTC).isoformat(), *names_off]))

    def service(self) -> ServiceNote | None:
        """Return what was last noted of the service.

        None if no service ever ran here, or if the last one was ended on purpose.
        """
        text = self._read("service")
        if not text:
            return None

        seen_at, *names_off = text.splitlines()
        with suppress(ValueError):  # a damaged file counts as none
            return ServiceNote(datetime.fromisoformat(seen_at), names_off)
        return None

    def forget_service(self) -> None:
        """Remember that the service was ended on purpose: its silence is no trouble."""
        (self.path / "service").unlink(missing_ok=True)

    def note_dagster_home(self, home: Path, key_prefix: str = "") -> None:
        """Remember which Dagster home the service works with, and the prefix of asset keys there.

        One within the data folder is remembered by its path in there: a container may have the
        folder elsewhere.
        """
        folder = self.path.parent.resolve()
        home = home.resolve()
        noted = home.relative_to(folder) if home.is_relative_to(folder) else home
        text = f"{noted}\n{key_prefix}".strip()
        if text != self._read("dagster_home"):
            self._write("dagster_home", text)

    def dagster_home(self) -> tuple[Path, str] | None:
        """Return the Dagster home of the service, and the prefix there, empty if there is none.

        None if no service ever ran here.
        """
        home, _, key_prefix = (self._read("dagster_home") or "").partition("\n")
        return (self.path.parent / home, key_prefix) if home else None

    @property
    def key_prefix(self) -> str:
        """The prefix in the Dagster that the pipeline is merged into.

        It is empty until a run or a sensor there notes it.
        """
        noted = self.dagster_home()
        return noted[1] if noted else ""

    def acknowledge(self, keys: Iterable[str]) -> None:
        """Remember that a person acknowledged the findings with these keys."""
        with self.lock("state"):
            self._write("acknowledged", "\n".join(sorted(self.acknowledged() | {*keys})))

    def acknowledged(self) -> set[str]:
        """Return the keys of the findings that a person acknowledged."""
        return set((self._read("acknowledged") or "").splitlines())

    def note_unknown_members(self, members: Iterable[str]) -> None:
        """Remember unknown members of the portal's answers, as `applicant/meta.nextToken/text`."""
        members = {*members}
        if members <= self.unknown_members():
            return

        with self.lock("state"):
            self._write("unknown_members", "\n".join(sorted(self.unknown_members() | members)))

    def unknown_members(self) -> set[str]:
        """Return the unknown members of the portal's answers."""
        return set((self._read("unknown_members") or "").splitlines())

    def note_swept(self, entry: int) -> None:
        """Remember that raw and published data follow the suppression list up to that entry."""
        if entry != self.swept_to():
            self._write("swept", str(entry))

    def swept_to(self) -> int:
        """Return the number of the last entry that was swept, 0 if there was none."""
        entry = self._read("swept") or ""
        return int(entry) if entry.isdecimal() else 0

    def note_anonymous_before(self, day: date) -> None:
        """Remember that leads of windows before that day are anonymous.

        Call it before the first one is.
        """
        self._write("retained_before", day.isoformat())

    def anonymous_before(self) -> date | None:
        """Return the day before which leads are anonymous, None if retention has never run.

        A day that can't be due yet is of a clock that ran ahead, and counts for nothing.
        """
        text = self._read("retained_before")
        if not text:
            return None

        day = date.fromisoformat(text)
        newest_anonymous_day = day - timedelta(days=1)
        can_be_due = newest_anonymous_day <= self._clock().date() - SHORTEST_RETENTION
        return day if can_be_due else None

    # --- what is the same for all machines --------------------------------------------------------

    def claim(self, origin: str) -> None:
        """Remember which portal this folder's leads come from.

        Raises SettingsError if they come from another portal. Nothing would tell leads of two
        portals apart, the simulator's and real ones for example.
        """
        remembered = self._remember("origin", origin)
        if remembered != origin:
            # Not above: each own table's process would load it.
            from leads_pipeline.settings import THIS_MACHINE

            whose = f"leads from {remembered}"
            do = ""
            if remembered == THIS_MACHINE:
                whose = "the demo's leads"
            if remembered == THIS_MACHINE and not self.key_prefix:
                do = (
                    "move the demo's data aside with `leads-pipeline backfill --last 10d "
                    "--move-demo`, or "
                )
            raise SettingsError(
                f"{self.path.parent} holds {whose}, and {origin} is another portal: their leads "
                f"must not mix. To go on, {do}set LEADS_DATA_DIR to another folder. Nothing was "
                "changed.",
                reason="another portal's data folder",
            )

    def claimed_by(self) -> str | None:
        """Return which portal this folder's leads come from, None before the first claim."""
        return self._read("origin")

    def start_date(self) -> date | None:
        """Return the remembered first day, None before it was remembered."""
        return self.remembered_day("start_date")

    def remember_start_date(self, default: date) -> date:
        """Return the first day to pull: `default` the first time ever, then the remembered one."""
        return self.remember_day("start_date", default)

    def remembered_day(self, name: str) -> date | None:
        """Return the remembered day of that name, None before it was remembered."""
        remembered = self._remembered(name)
        return self._day(name, remembered) if remembered else None

    def remember_day(self, name: str, default: date) -> date:
        """Return the day of that name: `default` the first time ever, then the remembered one."""
        return self._day(name, self._remember(name, default.isoformat()))

    def _day(self, name: str, remembered: str) -> date:
        try:
            return date.fromisoformat(remembered)
        except ValueError:
            raise StorageError(
                f"{self.path / name} holds no day. Write one into it, as 2026-11-19, or set "
                f"LEADS_{name.upper()}."
            ) from None

    def remember_time_zone(self, key: str) -> None:
        """Remember the time zone of the first pull.

        Another one later makes other windows of the same days.
        """
        self._remember("time_zone", key)

    def opened_at(self) -> datetime | None:
        """Return when the folder was opened for its first pull, None before."""
        return self.touched_at("time_zone")

    def time_zone(self) -> str | None:
        """Return the time zone of the first pull, None before it."""
        return self._remembered("time_zone")

    def person_key(self) -> bytes:
        """Return the 32 bytes that people are hashed with.

        They are made at the first call, and stay the same from then on. They tell whether an e-mail
        address is in a mart.
        """
        remembered = self._remember("person_key", secrets.token_hex(32))
        if not re.fullmatch(r"[0-9a-f]{64}", remembered):
            raise StorageError(
                f"{self.path / 'person_key'} holds no key of 64 hexadecimal digits. Put the old "
                "one back from a backup, or remove the file. Without the old one, the hashes of "
                "all people change."
            )
        return bytes.fromhex(remembered)

    def exchange_with_bucket(self) -> None:
        """Copy the shared facts from the bucket to this folder, and back.

        Nothing is done without a bucket. Raises SettingsError if folder and bucket contradict each
        other: then this folder's leads aren't the bucket's.
        """
        if self._shared is None:
            return
        for name in _SHARED:
            remembered = self._remembered(name)
            if remembered and self._first(name, remembered) != remembered:
                raise SettingsError(
                    f"{self.path.parent} isn't a copy of {self._shared.address}: each has another "
                    f"{name}, so their leads must not mix. Set LEADS_WORK_DIR to an empty folder, "
                    "or LEADS_DATA_DIR to another prefix. Nothing was changed.",
                    reason="another store's data folder",
                )

    def _remember(self, name: str, value: str) -> str:
        with self.lock("state"):
            remembered = self._remembered(name)
            if remembered is None:
                remembered = self._first(name, value)
                self._write(name, remembered)
        return remembered

    def _first(self, name: str, value: str) -> str:
        """Return what the first machine remembered: this value if no other was first."""
        if self._shared is None or self._shared.create_once(
            _SHARED_FOLDER + name, f"{value}\n".encode()
        ):
            return value
        return (self._shared.get(_SHARED_FOLDER + name) or b"").decode(errors="replace").strip()

    def _remembered(self, name: str) -> str | None:
        """Return what is remembered here or else in the bucket."""
        text = self._read(name)
        if not text and self._shared and (content := self._shared.get(_SHARED_FOLDER + name)):
            text = content.decode(errors="replace").strip()
            self._write(name, text)
        return text or None

    # --- files ------------------------------------------------------------------------------------

    def _read(self, name: str) -> str | None:
        path = self.path / name
        with reading(path), suppress(FileNotFoundError):
            return path.read_text(errors="replace").strip() or None
        return None

    def touched_at(self, name: str) -> datetime | None:
        """Return when `touch` was last called with that name, None if it never was."""
        path = self.path / name
        with reading(path), suppress(FileNotFoundError):
            return datetime.fromtimestamp(path.stat().st_mtime, UTC)
        return None

    def touch(self, name: str) -> None:
        """Remember this moment under that name."""
        path = self.path / name
        now = time.time_ns()  # finer than the kernel's own stamp
        with storing(path):
            try:
                os.utime(path, ns=(now, now))
            except FileNotFoundError:
                replace_file(path, b"")

    def _write(self, name: str, text: str) -> None:
        replace_file(self.path / name, f"{text}\n".encode())

    def _write_moment(self, name: str, moment: datetime) -> None:
        self._write(name, moment.astimezone(UTC).isoformat())

    def _moment(self, name: str) -> datetime | None:
        with suppress(ValueError):
            return datetime.fromisoformat(self._read(name) or "").astimezone(UTC)
        return None
