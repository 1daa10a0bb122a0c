"""What a snapshot holds and keeps, and what a restore brings back."""

import errno
import os
import shutil
import stat
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from leads_pipeline.domain.contract import APPLICANT, ReceivedLead
from leads_pipeline.domain.window import Scope, Window
from leads_pipeline.errors import SettingsError, StorageError
from leads_pipeline.features.backup.restoring import Restored, end_restore, restore
from leads_pipeline.features.backup.snapshots import BackedUp, back_up, snapshots
from leads_pipeline.features.bucket.store import open_store
from leads_pipeline.features.privacy.gatekeeper import list_of
from leads_pipeline.features.privacy.suppression import Action, Entry
from leads_pipeline.features.privacy.sweeping import sweep
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.names import RESTRICTED, Place
from leads_pipeline_tests.support.buckets import new_bucket
from leads_pipeline_tests.support.house import DAY, LONDON, NEXT_DAY, House
from leads_pipeline_tests.support.people import listed, with_list
from leads_pipeline_tests.support.system_calls import NEVER, Fault, needs_seccomp, run

NOW = datetime(2026, 11, 22, 2, tzinfo=UTC)
PLACE = Place(APPLICANT, DAY, "branch-101")
NEXT_PLACE = Place(APPLICANT, NEXT_DAY, "branch-101")


def two_leads_of(day: date) -> list[dict[str, str]]:
    return [{"id": f"{day}-{number}"} for number in (1, 2)]


def add(data: DataFolder, lead_id: str) -> None:
    """Have the portal deliver a lead of the first day."""
    data.raw.add(PLACE, [ReceivedLead(lead_id, f'{{"id":"{lead_id}"}}')], NOW)


def published(data: DataFolder) -> set[str]:
    return set(House(data.folder).leads("applicant"))


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days of a branch, published, and a pushed lead of the first."""
    house = House(tmp_path_factory.mktemp("pristine") / "data")
    for day in (DAY, NEXT_DAY):
        house.land("applicant", two_leads_of(day), day)
    house.publish()
    house.data.state.claim("https://portal.example")
    add(house.data, "pushed-1")
    return house.folder


@pytest.fixture
def data(tmp_path: Path, pristine: Path) -> DataFolder:
    """A copy of `pristine`."""
    shutil.copytree(pristine, tmp_path / "data", symlinks=True)
    return DataFolder.at(tmp_path / "data")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target"


def backed_up(data: DataFolder, target: Path, days_later: int = 0, keep: int = 14) -> BackedUp:
    return back_up(data, target, keep, NOW + timedelta(days=days_later))


def restored(source: Path, data: DataFolder) -> Restored:
    return restore(source, data, NOW + timedelta(days=30))


def contents(folder: Path, *below: str) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for part in below or ("raw", "restricted", "quarantine")
        for path in (folder / part).rglob("*")
        if path.is_file()
    }


def back_up_once(folder: Path, target: Path, days_later: int, keep: int) -> BackedUp:
    """Back up, in a process of its own."""
    return backed_up(DataFolder.at(folder), target, days_later, keep)


def only_file(folder: Path, place: Place) -> Path:
    """The raw file of a window that has one."""
    [path] = (folder / place.key).glob("*.parquet")
    return path


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


# --- what a snapshot holds ------------------------------------------------------------------------


def test_a_backup_brings_everything_back(data: DataFolder, target: Path, tmp_path: Path) -> None:
    (data.folder / "answers.csv").write_text("lead_id,answered_at\n")
    data.raw.fail(PLACE, "refused", is_permanent=True)
    backed_up(data, target)
    back = DataFolder.at(tmp_path / "restored")

    done = restored(target, back)

    assert done.damaged == []
    assert contents(back.folder) == contents(data.folder)
    assert (back.folder / "answers.csv").exists()
    assert back.state.person_key() == data.state.person_key()
    assert back.state.claimed_by() == "https://portal.example"
    assert back.state.last_backup() == NOW == data.state.last_backup()
    # Who was erased since the backup is taken out by the publication.
    assert not (back.folder / "leads.duckdb").exists()
    House(back.folder).publish()
    assert published(back) == published(data) | {"pushed-1"}


def test_duckdb_opens_a_snapshot_in_place_as_it_was_published(
    data: DataFolder, target: Path
) -> None:
    before = published(data)
    snapshot = target / backed_up(data, target).name
    add(data, "later")
    House(data.folder).publish()

    with duckdb.connect(snapshot / "leads.duckdb", read_only=True) as db:
        rows = db.execute("select lead_id from applicant_leads").fetchall()

    assert {lead_id for (lead_id,) in rows} == before


def test_leads_that_only_the_published_file_has_come_back(
    data: DataFolder, target: Path, tmp_path: Path
) -> None:
    shutil.rmtree(data.folder / PLACE.key)
    backed_up(data, target)
    back = DataFolder.at(tmp_path / "restored")
    restored(target, back)
    House(back.folder).publish()
    assert published(back) == published(data)
    assert len(published(back)) == 4


def test_what_can_be_made_again_or_is_the_machines_own_is_left_out(
    data: DataFolder, target: Path
) -> None:
    own = ".dagster/history/runs.db", ".state/tokens/token", ".state/swept", "README.md", ".env"
    for name in own:
        (data.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (data.folder / name).write_text("1")

    snapshot = target / backed_up(data, target).name

    there = {path.name for path in snapshot.iterdir()}
    assert there == {".state", ".versions", "leads.duckdb", "raw"}
    assert [name for name in own if (snapshot / name).exists()] == []
    assert not (snapshot / ".state" / "locks").exists()
    assert len([*(snapshot / ".versions").rglob("*")]) == 1


def test_only_this_user_can_read_a_backup_and_what_was_restored(
    data: DataFolder, target: Path, tmp_path: Path
) -> None:
    backed_up(data, target)
    restored(target, DataFolder.at(tmp_path / "restored"))
    versions = tmp_path / "restored" / ".versions"  # analysts' group reads its files
    for path in (target, *target.rglob("*"), *(tmp_path / "restored").rglob("*")):
        mode = 0o750 if path == versions else 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == mode, path


def restrict(data: DataFolder) -> None:
    """Set a lead aside."""
    listed(
        list_of(data), Action.RESTRICT, emails=(), leads=[(APPLICANT.name, "pushed-1")], until=None
    )
    sweep(data)


def lift(data: DataFolder) -> None:
    """Put it back into raw."""
    [restriction] = list_of(data).read().active
    list_of(data).append(
        lambda _, number: Entry(number=number, at=NOW, action=Action.LIFT, of=restriction.number)
    )
    sweep(data)


def merge(data: DataFolder) -> None:
    """Put one file in the place of two."""
    window = Window.of(DAY, Scope.parse("branch-101"), LONDON)
    meanwhile = ReceivedLead("meanwhile", '{"id":"meanwhile"}')
    data.raw.land(APPLICANT, window, [meanwhile], NOW, "hash", "run")


def nothing(_: DataFolder) -> None:
    """Leave the folder as it is."""


@pytest.mark.parametrize(
    ("before", "meanwhile"), [(nothing, merge), (nothing, restrict), (restrict, lift)]
)
def test_leads_that_move_while_a_backup_is_made_are_in_it(
    pristine: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: Callable[[DataFolder], None],
    meanwhile: Callable[[DataFolder], None],
) -> None:
    """Just before each file is opened that was listed."""
    opened = Path.open

    def run(at: int, place: Path) -> int:
        here = with_list(place / "data", place / "list")
        count = 0
        shutil.copytree(pristine, here.folder, symlinks=True)
        before(here)

        def interrupted(path: Path, mode: str = "r", *more: Any, **options: Any) -> Any:
            nonlocal count
            if mode == "rb":
                count += 1
                if count == at:
                    meanwhile(here)
            return opened(path, mode, *more, **options)

        with monkeypatch.context() as patched:
            patched.setattr(Path, "open", interrupted)
            backed_up(here, place / "target")
        return count

    for at in range(1, 1 + run(0, tmp_path / "none")):
        place = tmp_path / f"at-{at}"
        run(at, place)
        back = with_list(place / "restored", place / "other list")
        restored(place / "target", back)
        rows = [*back.raw.read(PLACE).rows, *back.raw.read(PLACE._replace(root=RESTRICTED)).rows]
        assert {row.lead_id for row in rows} >= {"2026-11-19-1", "2026-11-19-2", "pushed-1"}, at


# --- what a second snapshot costs, and which ones stay --------------------------------------------


def test_a_second_backup_copies_only_what_has_changed(data: DataFolder, target: Path) -> None:
    first = backed_up(data, target)
    # The portal answered the next day as before, so its file has a newer name.
    house = House(data.folder)
    house.now = NOW
    house.land("applicant", two_leads_of(NEXT_DAY), NEXT_DAY)
    house.land("applicant", [{"id": "late"}])
    second = backed_up(data, target, 1)

    same = only_file(target / second.name, NEXT_PLACE)
    assert same.samefile(only_file(target / first.name, NEXT_PLACE))
    assert only_file(target / second.name, PLACE).stat().st_nlink == 1


def test_the_newest_backups_stay(data: DataFolder, target: Path) -> None:
    names = [backed_up(data, target, days, keep=2).name for days in range(4)]
    assert [path.name for path in snapshots(target, NOW + timedelta(days=9))] == names[2:]
    assert sorted(path.name for path in target.iterdir()) == names[2:]


def test_a_half_copied_backup_is_none(data: DataFolder, target: Path, tmp_path: Path) -> None:
    """As a copy of the target leaves it that was interrupted."""
    whole = backed_up(data, target).name
    (target / "2026-11-22T030000Z" / "raw").mkdir(parents=True)
    assert restored(target, DataFolder.at(tmp_path / "restored")).source.name == whole


def test_a_target_without_hard_links_gets_copies(
    data: DataFolder, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refused)
    first = backed_up(data, target)
    second = backed_up(data, target, 1)
    assert (first.new, second.new) == (first.files, second.files)
    restored(target, DataFolder.at(tmp_path / "restored"))
    assert contents(tmp_path / "restored") == contents(data.folder)


# --- damage ---------------------------------------------------------------------------------------


def test_a_damaged_file_never_replaces_a_good_one(
    data: DataFolder, target: Path, tmp_path: Path
) -> None:
    """Whether nobody has noticed yet, or it lies in quarantine."""
    backed_up(data, target)
    before = contents(data.folder)
    flip_a_bit(only_file(data.folder, NEXT_PLACE))
    backed_up(data, target, 1)
    restored(target, DataFolder.at(tmp_path / "unnoticed"))
    assert contents(tmp_path / "unnoticed", "raw") == before

    data.raw.read(NEXT_PLACE)
    assert data.quarantine.files()
    backed_up(data, target, 2)
    restored(target, DataFolder.at(tmp_path / "noticed"))
    assert contents(tmp_path / "noticed", "raw").items() >= before.items()


def test_a_file_that_was_damaged_before_its_first_backup_is_left_out_and_named(
    data: DataFolder, target: Path
) -> None:
    damaged = only_file(data.folder, NEXT_PLACE)
    flip_a_bit(damaged)
    done = backed_up(data, target)
    assert done.damaged == [damaged.relative_to(data.folder).as_posix()]
    assert not list((target / done.name / NEXT_PLACE.key).glob("*.parquet"))


def test_a_damaged_file_of_a_backup_is_left_out_and_its_leads_stay_published(
    data: DataFolder, target: Path, tmp_path: Path
) -> None:
    done = backed_up(data, target)
    damaged = only_file(target / done.name, NEXT_PLACE)
    flip_a_bit(damaged)
    back = DataFolder.at(tmp_path / "restored")
    assert restored(target, back).damaged == [damaged.relative_to(target / done.name).as_posix()]
    House(back.folder).publish()
    assert f"{NEXT_DAY}-1" in published(back)


# --- kills and disks ------------------------------------------------------------------------------


@pytest.mark.slow
@needs_seccomp
def test_a_backup_that_is_killed_anywhere_leaves_whole_ones_alone(
    data: DataFolder, target: Path, tmp_path: Path
) -> None:
    backed_up(data, target)
    House(data.folder).land("applicant", [{"id": "late"}])
    shutil.copytree(target, tmp_path / "before")
    changes = run(back_up_once, data.folder, target, 1, 1, folder=target, at=NEVER).changes
    for at in range(0, len(changes), max(len(changes) // 20, 1)):
        shutil.rmtree(target)
        shutil.copytree(tmp_path / "before", target)
        run(back_up_once, data.folder, target, 1, 1, folder=target, fault=Fault.KILL, at=at)
        for snapshot in snapshots(target, NOW + timedelta(days=2)):
            back = DataFolder.at(tmp_path / f"{at}-{snapshot.name}")
            restored(snapshot, back)
            assert len(back.raw.read(NEXT_PLACE).rows) == 2
            assert len(back.raw.read(PLACE).rows) >= 3
        assert len(snapshots(target, NOW)) >= 1
        done = backed_up(data, target, 2, keep=1)
        assert [path.name for path in target.iterdir()] == [done.name]


@needs_seccomp
def test_a_backup_that_fails_at_its_last_sync_has_no_final_name(
    data: DataFolder, target: Path
) -> None:
    """Fault 82: it failed with code 2, and lay there under its final name."""
    backed_up(data, target)
    calls = run(back_up_once, data.folder, target, 1, 14, folder=target).calls
    shutil.rmtree(max(target.iterdir()))
    last_sync = max(at for at, call in enumerate(calls) if call.startswith("fsync "))

    outcome = run(
        back_up_once, data.folder, target, 1, 14, folder=target, fault=Fault.EIO, at=last_sync
    )

    assert outcome.error.startswith("StorageError")
    assert [path.name for path in target.iterdir()] == ["2026-11-22T020000Z"]


@needs_seccomp
def test_an_old_backup_that_cannot_be_deleted_is_named_and_the_new_one_is_whole(
    data: DataFolder, target: Path, tmp_path: Path
) -> None:
    """Fault 82: the new one lay there, and the command said that it had failed."""
    backed_up(data, target)

    refusing = {"unlinkat": errno.EACCES}
    outcome = run(back_up_once, data.folder, target, 2, 1, folder=target, lacks=refusing)

    assert outcome.error == ""
    [trouble] = outcome.result.troubles
    assert "can't be deleted: Permission" in trouble
    back = DataFolder.at(tmp_path / "restored")
    restored(target / outcome.result.name, back)
    assert contents(back.folder) == contents(data.folder)


def test_a_restore_that_was_killed_is_finished_by_the_next(
    data: DataFolder, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backed_up(data, target)
    back = DataFolder.at(tmp_path / "restored")
    left = 3
    replace = Path.replace

    def killed(path: Path, to: Path) -> Path:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return replace(path, to)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            restored(target, back)
    assert contents(back.folder) != contents(data.folder)
    restored(target, back)
    assert contents(back.folder) == contents(data.folder)
    end_restore(back)
    with pytest.raises(SettingsError, match="isn't empty"):
        restored(target, back)


# --- places that are refused ----------------------------------------------------------------------


def test_a_target_in_the_data_folder_is_refused(data: DataFolder, tmp_path: Path) -> None:
    here = with_list(data.folder, tmp_path / "list")
    for place in ("data", "data/backups", "list/backups"):
        with pytest.raises(SettingsError, match="would be lost together with it"):
            backed_up(here, tmp_path / place)
    assert not (data.folder / "backups").exists()


def test_a_target_of_another_data_folder_is_refused(
    data: DataFolder, target: Path, tmp_path: Path
) -> None:
    backed_up(data, target)
    other = House(tmp_path / "other")
    other.land("applicant", [{"id": "1"}])
    with pytest.raises(SettingsError, match="backups of another data folder"):
        backed_up(other.data, target, 1)


def test_a_restore_overwrites_nothing(data: DataFolder, target: Path) -> None:
    backed_up(data, target)
    before = contents(data.folder, ".")
    with pytest.raises(SettingsError, match="isn't empty"):
        restored(target, data)
    assert contents(data.folder, ".") == before


# --- the suppression list -------------------------------------------------------------------------


def test_of_two_suppression_lists_the_longer_one_stays(
    data: DataFolder, target: Path, tmp_path: Path
) -> None:
    here = with_list(data.folder, tmp_path / "list")
    list_ = tmp_path / "list"
    later = "later"
    listed(list_of(here))
    backed_up(here, target)
    older = tmp_path / "older list"
    shutil.copytree(list_, older)
    listed(list_of(here), emails=["other@people.example"])
    backed_up(here, tmp_path / later, 1)

    for source, kept in ((target, list_), (tmp_path / later, older), (tmp_path / later, "none")):
        back = with_list(tmp_path / f"restored {Path(kept).name}", tmp_path / kept)
        restored(source, back)
        assert back.gate.newest_entry == 2
        assert back.is_behind


def test_a_suppression_list_that_is_no_other_version_of_the_backups_is_refused(
    data: DataFolder, target: Path, tmp_path: Path
) -> None:
    listed(list_of(data))
    backed_up(data, target)
    other = with_list(tmp_path / "restored", tmp_path / "other list")
    listed(list_of(other))
    list_of(other).guard.unlink()
    with pytest.raises(StorageError, match="suppression list"):
        restored(target, other)


# --- buckets --------------------------------------------------------------------------------------


def test_leads_in_a_bucket_are_backed_up_and_come_back_to_a_bucket_or_a_folder(
    moto: str, target: Path, tmp_path: Path
) -> None:
    def in_bucket(folder: str) -> House:
        house = House(tmp_path / folder)
        house.bucket = open_store(f"{new_bucket(moto)}/leads", plain_http=True)
        return house

    here = in_bucket("work")
    here.land("applicant", [{"id": "1"}])
    listed(list_of(here.data))
    backed_up(here.data, target)

    for back in (in_bucket("other work").data, DataFolder.at(tmp_path / "folder")):
        restored(target, back)
        assert [row.lead_id for row in back.raw.read(PLACE).rows] == ["1"]
        assert back.gate.newest_entry == 1
