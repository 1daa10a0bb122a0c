"""Landing and publishing while the disk, the kernel and other processes are against it: the area "storage".

Belongs here: disks made small or read-only by a mount, damage, other processes, and the order of syncs. Doesn't: faults
at sampled calls of whole commands (promises/test_kills_and_full_disks.py), what the steps do on a good day.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from leads_pipeline.domain.contract import APPLICANT
from leads_pipeline.errors import StorageError
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.raw import Place, list_places
from leads_pipeline.storage.rows import merged, newest_payloads
from leads_pipeline.transform.reading import LeadsFile
from leads_pipeline_tests.support import staging
from leads_pipeline_tests.support.sample_answers import CLOSED_AT, DAY, LATER, WINDOW, lead
from leads_pipeline_tests.support.staging import land
from leads_pipeline_tests.support.system_calls import Fault, needs_seccomp, run

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)

# What a step leaves in the folder, as whoever comes next sees it.
Content = Mapping[str, Any]


@dataclass(frozen=True)
class Step:
    """One step of the pipeline on a data folder: `before` makes the folder, `work` is done under the fault.

    `content` reads what the step is about. `clutter` lists what must be gone once it was done without a fault.
    """

    before: Callable[[Path], None]
    work: Callable[[Path], None]
    content: Callable[[Path], Content]
    clutter: Callable[[Path], list[Path]]


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


# --- landing ------------------------------------------------------------------------------------------------------

OLD = [lead(number) for number in range(20)]
NEW = [lead(0, "changed"), lead(1), lead(20)]


def land_window(folder: Path, leads: list[Any] = NEW, at: datetime = LATER) -> None:
    body_hash = hashlib.sha256(repr(leads).encode()).hexdigest()
    DataFolder.at(folder).raw.land(APPLICANT, WINDOW, leads, at, body_hash, "run")


def landed(folder: Path) -> Content:
    """The payloads of all readable files by id, and the files that were set aside."""
    data = DataFolder.at(folder)
    rows = merged(row for place in list_places(data.store) for row in data.raw.read(place).rows)
    return newest_payloads(rows) | {"set aside": data.quarantine.files()}


def landing_clutter(folder: Path) -> list[Path]:
    return [path for path in files_below(folder / "raw") if path.suffix != ".parquet"]


def landing() -> Step:
    return Step(lambda folder: land_window(folder, OLD, CLOSED_AT), land_window, landed, landing_clutter)


# --- publishing ---------------------------------------------------------------------------------------------------


def land_version(folder: Path, version: int, branches: Sequence[int] = (101, 102)) -> None:
    """Branches' leads of a day, all saying which version they are."""
    for branch in branches:
        leads = [
            {
                "id": f"{branch}-{number}",
                "message": f"version {version}",
                "viewingTimes": [{"earliest": f"2026-11-2{version}T10:00Z"}],
                "listingDetails": {"images": [{"filename": f"version {version}"}]},
            }
            for number in range(5 + version)
        ]
        at = CLOSED_AT + timedelta(days=1, hours=version)
        land(DataFolder.at(folder), APPLICANT, leads, scope=f"branch-{branch}", fetched_at=at)


def publish(folder: Path) -> None:
    staging.publish(DataFolder.at(folder), NOW, tables="none")


def published(folder: Path) -> Content:
    """The rows of every table, as an analyst gets them."""
    path = LeadsFile(DataFolder.at(folder)).path
    if not path.exists():
        return {}
    with duckdb.connect(path, read_only=True) as db:
        names = db.execute("from (show tables)").fetchall()
        return {name: sorted(map(repr, db.execute(f'from "{name}"').fetchall())) for (name,) in names}


def publishing_clutter(folder: Path) -> list[Path]:
    return [*folder.glob(".versions/draft*"), *folder.rglob("*.wal"), *folder.glob(".state/duckdb/*")]


def publishing() -> Step:
    def prepare(folder: Path) -> None:
        for version in (1, 2):
            land_version(folder, version)
            if version == 1:
                publish(folder)

    return Step(prepare, publish, published, publishing_clutter)


# --- a fault at every system call ---------------------------------------------------------------------------------


class Trial:
    """A step whose content before and after is known, on a new copy of the folder for each fault."""

    def __init__(self, step: Step, folder: Path) -> None:
        self.step = step
        self.copy = folder / "data"
        self._base = folder / "base"
        self._base.mkdir()
        step.before(self._base)
        self._files = self._content_of_base()
        self.renew()
        self.old = step.content(self.copy)
        self.renew()
        step.work(self.copy)
        self.new = step.content(self.copy)
        assert self.old != self.new
        self._proven: set[frozenset[tuple[Path, int] | bool]] = set()

    def renew(self) -> None:
        """Make the copy what it was before the step: by links, as the pipeline replaces files and writes into none."""
        shutil.rmtree(self.copy, ignore_errors=True)
        shutil.copytree(self._base, self.copy, copy_function=os.link, symlinks=True)

    def check(self, *, is_done: bool) -> None:
        """Whatever happened: all old or all new, what was reported is true, and the next time all is well."""
        found = {(path, path.stat().st_size if path.is_file() else 0) for path in self.copy.rglob("*")}
        content = self.step.content(self.copy)
        assert content == self.new or (content == self.old and not is_done)
        # What comes next depends on what is in the folder alone, and most faults leave it as others did.
        state = frozenset(found | {content == self.new})
        if state not in self._proven:
            self.step.work(self.copy)
            assert self.step.content(self.copy) == self.new
            assert self.step.clutter(self.copy) == []
            self._proven.add(state)

    def check_base(self) -> None:
        """No file was written into that has another name."""
        assert self._content_of_base() == self._files

    def _content_of_base(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in files_below(self._base)}


@needs_seccomp
@pytest.mark.parametrize(
    ("step", "fault", "call"),
    [
        pytest.param(publishing(), Fault.EROFS, "chmod .versions/draft", id="the draft, after an error"),
        pytest.param(publishing(), Fault.EIO, "openat .versions", id="the list of drafts, at the beginning"),
    ],
)
def test_a_call_that_fails_while_publishing_is_a_storage_error(
    tmp_path: Path, step: Step, fault: Fault, call: str
) -> None:
    trial = Trial(step, tmp_path)
    trial.renew()
    calls = run(step.work, trial.copy, folder=trial.copy, fault=fault).calls
    at = next(number for number, one in enumerate(calls) if one.startswith(call))
    trial.renew()

    outcome = run(step.work, trial.copy, folder=trial.copy, fault=fault, at=at)

    assert outcome.was_injected
    assert outcome.error == "StorageError"


@needs_seccomp
def test_a_landing_syncs_the_file_before_and_its_folders_after_the_rename(tmp_path: Path) -> None:
    calls = run(land_window, tmp_path, folder=tmp_path, fault=Fault.KILL).calls

    window = f"raw/applicant_leads/day={DAY}/scope=branch-101"
    of_the_window = [call.split() for call in calls if window in call]
    assert [name for name, _ in of_the_window] == ["mkdir", "openat", "write", "fsync", "rename", "unlink", "fsync"]
    assert [path for name, path in of_the_window if name == "fsync"] == [of_the_window[1][1], window]
    made = {str(Path(call.split()[1]).parent) for call in calls if call.startswith("mkdir raw/")}
    assert made <= {call.split()[1] for call in calls if call.startswith("fsync")}


# --- disks and folders --------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mount a file system in memory, or change how it is mounted."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = []

    def mount(options: str) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", options, "leads-test", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield mount
    if mounted:
        subprocess.run(["umount", str(folder)], check=True)


WHOLE = [landing(), publishing()]


@pytest.mark.parametrize("step", WHOLE, ids=["landing", "publication"])
def test_a_disk_that_is_full_leaves_the_old_and_says_so_until_there_is_room(
    small_disk: Callable[[str], Path], step: Step
) -> None:
    disk = small_disk("size=64m")
    trial = Trial(step, disk)
    ballast = disk / "ballast"
    full = 0
    for free_kb in (0, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192):
        trial.renew()
        free = os.statvfs(disk)
        room = free.f_bavail * free.f_frsize - free_kb * 1024
        ballast.write_bytes(bytes(room))
        error = None
        try:
            step.work(trial.copy)
        except StorageError as caught:
            error = caught
        ballast.unlink()
        if error is None:
            assert step.content(trial.copy) == trial.new
            continue
        assert "space" in str(error)
        trial.check(is_done=False)
        full += 1
    assert full
    trial.check_base()


@pytest.mark.parametrize("step", WHOLE, ids=["landing", "publication"])
def test_a_read_only_disk_is_a_storage_error_and_what_it_holds_can_still_be_read(
    small_disk: Callable[[str], Path], step: Step
) -> None:
    disk = small_disk("size=64m")
    trial = Trial(step, disk)
    trial.renew()
    small_disk("remount,ro")
    with pytest.raises(StorageError, match=r"read-only|Read-only|Mount it for writing"):
        step.work(trial.copy)
    assert step.content(trial.copy) == trial.old
    small_disk("remount,rw")
    trial.check(is_done=False)


def test_every_change_between_two_steps_of_the_folder_is_noticed_or_mended(tmp_path: Path) -> None:
    """Whatever is removed, no window is said to be there that isn't, and what is published stays."""
    data = DataFolder.at(tmp_path / "data")
    land_version(data.folder, 1)
    publish(data.folder)
    whole = published(data.folder)
    states = "select scope, state, rows from mart_coverage where kind = 'applicant' and day = '2026-11-19' order by all"
    here = [("branch-101", "landed", 6), ("branch-102", "landed", 6)]
    gone = [("branch-101", "missing", None), ("branch-102", "missing", None)]

    def removed(name: str) -> None:
        shutil.rmtree(data.folder / name)

    def found() -> tuple[int, list[tuple[Any, ...]]]:
        publish(data.folder)
        _, [(leads,)] = LeadsFile(data).query("select count(*) from applicant_leads")
        return leads, LeadsFile(data).query(states)[1]

    assert found() == (12, here)
    removed("raw")
    assert found() == (12, gone)
    land_version(data.folder, 1, [102])
    assert found() == (12, [gone[0], here[1]])
    removed(".versions")  # the link leads nowhere then
    assert found() == (6, [gone[0], here[1]])
    removed("")
    assert found() == (0, gone)
    land_version(data.folder, 1)
    removed(".state")
    assert found() == (12, here)
    assert published(data.folder)["applicant_viewing_times"] == whole["applicant_viewing_times"]


# --- other processes ----------------------------------------------------------------------------------------------


def changed_at(content: bytes, at: int) -> bytes:
    """Within a text, this is still Parquet that DuckDB reads."""
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "corrupt": lambda content: (
        content[: len(content) // 3] + bytes(len(content) // 3) + content[len(content) * 2 // 3 :]
    ),
    "empty": lambda content: content[:0],
    "cut off": lambda content: content[: len(content) * 2 // 3],
    "changed": lambda content: changed_at(content, max(0, content.find(b"version 1")) + 8),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_costs_nobody_anything_and_comes_back(tmp_path: Path, damage: str) -> None:
    branches = range(101, 106)
    folder = tmp_path / "data"
    data = DataFolder.at(folder)
    land_version(folder, 1, branches)
    publish(folder)
    whole = published(folder)
    for path in sorted((folder / "raw" / "applicant_leads").rglob("*.parquet"))[:2]:
        content = path.read_bytes()
        path.write_bytes(DAMAGES[damage](content))
        assert path.read_bytes() != content

    places = [Place(APPLICANT, DAY, f"branch-{branch}") for branch in branches]
    assert [bool(data.raw.read(place).rows) for place in places] == [False, False, True, True, True]
    publish(folder)
    _, rows = LeadsFile(data).query("select scope, count(*) from applicant_leads group by scope order by scope")
    assert rows == [(f"branch-{branch}", 6) for branch in branches]
    assert len(data.quarantine.files()) == 2
    land_version(folder, 1, branches)
    publish(folder)
    assert published(folder) == whole


WRITER = """
    import os, sys, duckdb
    db = duckdb.connect(sys.argv[1])
    db.execute("pragma disable_checkpoint_on_shutdown")
    db.execute("delete from applicant_leads")
    os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("log", ["of a killed writer", "garbage", "empty"])
def test_a_log_that_somebody_left_beside_the_file_is_neither_applied_nor_in_the_way(tmp_path: Path, log: str) -> None:
    folder = tmp_path / "data"
    land_version(folder, 1)
    publish(folder)
    path = LeadsFile(DataFolder.at(folder)).path
    beside = path.resolve() if log == "of a killed writer" else path
    wal = beside.with_name(f"{beside.name}.wal")
    if log == "of a killed writer":
        path.chmod(0o600)
        command = [sys.executable, "-c", textwrap.dedent(WRITER), str(path)]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
        assert wal.stat().st_size > 0
    else:
        wal.write_bytes(b"left behind by somebody" if log == "garbage" else b"")

    land_version(folder, 2)
    publish(folder)

    assert publishing_clutter(folder) == []
    _, rows = LeadsFile(DataFolder.at(folder)).query("select message, count(*) from applicant_leads group by message")
    assert rows == [("version 2", 14)]
