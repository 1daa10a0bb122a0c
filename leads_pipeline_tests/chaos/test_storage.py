"""Landing, staging and publishing while the disk, the kernel and other processes are against it: the area "storage".

Belongs here: disks made small or read-only by a mount, damage, other processes, and the order of syncs. Doesn't: faults
at sampled calls of whole commands (promises/test_kills_and_full_disks.py), what the steps do on a good day.
"""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from leads_pipeline.contract import APPLICANT
from leads_pipeline.errors import StorageError
from leads_pipeline.flatten.columns import staged_tables
from leads_pipeline.flatten.lost import LostRawError
from leads_pipeline.lake import Lake
from leads_pipeline.warehouse import Grid, Warehouse, marts, tables
from leads_pipeline.window import Scope
from leads_pipeline_tests.support.sample_answers import CLOSED_AT, DAY, LATER, answer, lead
from leads_pipeline_tests.support.staging import LONDON, land, stage
from leads_pipeline_tests.support.system_calls import Fault, needs_seccomp, run

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
GRID = Grid(scopes=tuple(map(Scope.parse, ("branch-101", "branch-102"))), first_day=DAY, zone=LONDON)

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
    Lake(folder).land(answer(leads, fetched_at=at), "run")


def landed(folder: Path) -> Content:
    """The payloads of the day's readable files by id, and what was set aside."""
    lake = Lake(folder)
    paths = [
        *[window.path for window in lake.landed_windows(APPLICANT, DAY)],
        *lake.pushed_files(APPLICANT, DAY),
        *lake.inventory_files(),
    ]
    rows = [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]
    found = {row.get("lead_id") or row["item_id"]: row["payload"] for row in rows}
    return found | {"set aside": [path.read_bytes() for path in lake.quarantined()]}


def landing_clutter(folder: Path) -> list[Path]:
    return [path for path in files_below(folder / "raw") if path.suffix != ".parquet"]


def landing() -> Step:
    return Step(lambda folder: land_window(folder, OLD, CLOSED_AT), land_window, landed, landing_clutter)


# --- staging and publishing ---------------------------------------------------------------------------------------


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
        land(Lake(folder), APPLICANT, leads, scope=f"branch-{branch}", fetched_at=at)


def stage_day(folder: Path) -> None:
    stage(Lake(folder), APPLICANT)


def staged(folder: Path) -> Content:
    """The bytes of the day's staged files: the same raw files always give the same."""
    tables_there = [(table, Lake(folder).staged_files(table)) for table in staged_tables(APPLICANT)]
    return {table: [file.path.read_bytes() for file in files] for table, files in tables_there}


def staging_clutter(folder: Path) -> list[Path]:
    return [*folder.glob("staged/.*"), *folder.glob(".state/duckdb/*")]


def staging() -> Step:
    def prepare(folder: Path) -> None:
        land_version(folder, 1)
        stage_day(folder)
        land_version(folder, 2)

    return Step(prepare, stage_day, staged, staging_clutter)


def publish(folder: Path) -> None:
    Warehouse(Lake(folder)).publish(GRID, NOW)


def published(folder: Path) -> Content:
    """The rows of every table, as an analyst gets them."""
    path = Warehouse(Lake(folder)).path
    if not path.exists():
        return {}
    with duckdb.connect(path, read_only=True) as db:
        names = [*(table.name for table in tables()), *(mart.name for mart in marts())]
        return {name: sorted(map(repr, db.execute(f'from "{name}"').fetchall())) for name in names}


def publishing_clutter(folder: Path) -> list[Path]:
    return [*folder.glob(".leads.duckdb*"), *folder.glob("*.wal"), *folder.glob(".state/duckdb/*")]


def publishing() -> Step:
    def prepare(folder: Path) -> None:
        for version in (1, 2):
            land_version(folder, version)
            stage_day(folder)
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
        shutil.copytree(self._base, self.copy, copy_function=os.link)

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
        """Without the counter of what was received, the one file that is written in place."""
        files = (path for path in files_below(self._base) if path != self._base / ".state" / "sequence")
        return {path: path.read_bytes() for path in files}


@needs_seccomp
@pytest.mark.parametrize(
    ("step", "fault", "call"),
    [
        pytest.param(staging(), Fault.EROFS, "link raw/", id="link_or_copy, which copies then"),
        pytest.param(publishing(), Fault.EROFS, "chmod .leads.duckdb.draft", id="_sweep, after an error"),
        pytest.param(publishing(), Fault.EIO, "openat .state/duckdb", id="_sweep, at the beginning"),
    ],
)
def test_a_call_that_fails_outside_of_the_lake_is_a_storage_error_too(
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
    assert [name for name, _ in of_the_window] == ["mkdir", "openat", "write", "fsync", "rename", "fsync"]
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


WHOLE = [landing(), staging(), publishing()]


@pytest.mark.parametrize("step", WHOLE, ids=["landing", "staging", "publication"])
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


@pytest.mark.parametrize("step", WHOLE, ids=["landing", "staging", "publication"])
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
    """Whatever is removed, nothing is said to be there that isn't, and what can be made again is."""
    lake = Lake(tmp_path / "data")
    land_version(lake.folder, 1)
    stage_day(lake.folder)
    publish(lake.folder)
    whole = published(lake.folder)
    states = "select scope, state, rows from mart_coverage where kind = 'applicant' and day = '2026-11-19' order by all"
    here = ("branch-101", "landed", 6), ("branch-102", "landed", 6)
    gone = ("branch-101", "missing", None), ("branch-102", "missing", None)

    def removed(name: str) -> None:
        shutil.rmtree(lake.folder / name)

    def found() -> tuple[tuple[Any, ...], ...]:
        publish(lake.folder)
        _, [(leads,)] = Warehouse(lake).query("select count(*) from applicant_leads")
        _, rows = Warehouse(lake).query(states)
        assert leads == sum(row[2] or 0 for row in rows)
        return tuple(rows)

    removed("staged")
    assert found() == here  # it stays as it is published
    stage_day(lake.folder)
    removed("raw")
    assert found() == here
    with pytest.raises(LostRawError):
        stage_day(lake.folder)
    assert found() == here
    land_version(lake.folder, 1, [102])
    with pytest.raises(LostRawError):
        stage_day(lake.folder)
    assert found() == here
    removed("staged")
    with pytest.raises(LostRawError):
        stage_day(lake.folder)
    assert found() == here
    removed("")
    assert found() == gone
    land_version(lake.folder, 1)
    removed(".state")
    stage_day(lake.folder)
    removed(".state")
    assert found() == here
    assert published(lake.folder)["applicant_viewing_times"] == whole["applicant_viewing_times"]


# --- other processes ----------------------------------------------------------------------------------------------


def land_some(folder: Path, number: int) -> int:
    landings = 25
    for turn in range(landings):
        land_window(folder, [lead(number * landings + turn), lead(1000, f"{number}-{turn}")], LATER)
    return landings


def test_processes_that_land_one_window_at_once_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with ProcessPoolExecutor(8, mp_context=multiprocessing.get_context("forkserver")) as pool:
        landings = sum(pool.map(land_some, [folder] * 8, range(8)))
    (path,) = [window.path for window in Lake(folder).landed_windows(APPLICANT, DAY)]
    ids = [row["lead_id"] for row in pq.ParquetFile(path).read().to_pylist()]
    # Lead 1000 came in another version each time, and each is there.
    assert sorted(ids) == sorted([lead(number).lead_id for number in range(landings)] + [lead(1000).lead_id] * landings)
    assert landing_clutter(folder) == []


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


@pytest.mark.parametrize("where", ["raw", "staged"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_costs_its_neighbours_nothing_and_comes_back(tmp_path: Path, damage: str, where: str) -> None:
    branches = range(101, 106)
    folder = tmp_path / "data"
    lake = Lake(folder)
    land_version(folder, 1, branches)
    stage_day(folder)
    publish(folder)
    whole = published(folder)
    for path in sorted((folder / where / "applicant_leads").rglob("*.parquet"))[:2]:
        content = path.read_bytes()
        path.write_bytes(DAMAGES[damage](content))
        assert path.read_bytes() != content

    if where == "raw":
        with pytest.raises(LostRawError):
            stage_day(folder)
        publish(folder)
        _, rows = Warehouse(lake).query("select scope, count(*) from applicant_leads group by scope order by scope")
        assert rows == [(f"branch-{branch}", 6) for branch in branches]
        assert len(lake.quarantined()) == 2
        land_version(folder, 1, branches)
    else:
        publish(folder)
        assert published(folder) == whole
    stage_day(folder)
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
    stage_day(folder)
    publish(folder)
    path = Warehouse(Lake(folder)).path
    wal = path.with_name(f"{path.name}.wal")
    if log == "of a killed writer":
        path.chmod(0o600)
        command = [sys.executable, "-c", textwrap.dedent(WRITER), str(path)]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
        assert wal.stat().st_size > 0
    else:
        wal.write_bytes(b"left behind by somebody" if log == "garbage" else b"")

    land_version(folder, 2)
    stage_day(folder)
    publish(folder)

    assert publishing_clutter(folder) == []
    _, rows = Warehouse(Lake(folder)).query("select message, count(*) from applicant_leads group by message")
    assert rows == [("version 2", 14)]
