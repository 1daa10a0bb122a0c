"""What a snapshot holds and keeps, and what a restore brings back."""

import errno
import os
import shutil
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from leads_pipeline.domain.contract import APPLICANT, ReceivedLead
from leads_pipeline.errors import SettingsError, StorageError
from leads_pipeline.features.backup.restoring import Restored, end_restore, restore
from leads_pipeline.features.backup.snapshots import BackedUp, back_up, snapshots
from leads_pipeline.features.bucket.store import open_store
from leads_pipeline.features.privacy.gatekeeper import list_of
from leads_pipeline.features.privacy.suppression import Action
from leads_pipeline.features.privacy.sweeping import sweep
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.names import RESTRICTED, Place
from leads_pipeline_tests.support.analyst import query
from leads_pipeline_tests.support.buckets import new_bucket
from leads_pipeline_tests.support.house import DAY, NEXT_DAY, House
from leads_pipeline_tests.support.people import listed, with_list
from leads_pipeline_tests.support.system_calls import NEVER, Fault, needs_seccomp, run

NOW = datetime(2026, 11, 22, 2, tzinfo=UTC)
PLACE = Place(APPLICANT, DAY, "branch-101")
NEXT_PLACE = Place(APPLICANT, NEXT_DAY, "branch-101")


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> House:
    """Two days of a branch, published, and a pushed lead of the first."""
    house = House(tmp_path_factory.mktemp("pristine") / "data")
    for day in (DAY, NEXT_DAY):
        house.land("applicant", [{"id": f"{day}-1"}, {"id": f"{day}-2"}], day)
    house.publish()
    house.data.state.claim("https://portal.example")
    house.data.raw.add(PLACE, [ReceivedLead("pushed-1", '{"id":"pushed-1"}')], house.now)
    house.now = NOW + timedelta(hours=1)
    return house


@pytest.fixture
def house(tmp_path: Path, pristine: House) -> House:
    """A copy of `pristine`."""
    return pristine.copied(tmp_path / "data")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target"


@pytest.fixture
def back(tmp_path: Path) -> DataFolder:
    """An empty data folder, to restore into."""
    return DataFolder.at(tmp_path / "restored")


def backed_up(house: House, target: Path, days_later: int = 0, keep: int = 14) -> BackedUp:
    return back_up(house.data, target, keep, NOW + timedelta(days=days_later))


def restored(source: Path, data: DataFolder) -> Restored:
    return restore(source, data, NOW + timedelta(days=30))


def contents(folder: Path, *below: str) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for part in below or ("raw", "restricted", "quarantine")
        for path in (folder / part).rglob("*")
        if path.is_file()
    }


def only_file(folder: Path, place: Place) -> Path:
    """The raw file of a window that has one."""
    [path] = (folder / place.key).glob("*.parquet")
    return path


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


# --- what a snapshot holds ------------------------------------------------------------------------


def test_a_backup_brings_everything_back(house: House, target: Path, back: DataFolder) -> None:
    house.answers([])
    house.fail("applicant")
    backed_up(house, target)

    done = restored(target, back)

    assert done.damaged == []
    assert contents(back.folder) == contents(house.folder)
    assert (back.folder / "answers.csv").exists()
    assert back.state.person_key() == house.data.state.person_key()
    assert back.state.claimed_by() == "https://portal.example"
    assert back.state.last_backup() == house.data.state.last_backup() == NOW
    # Who was erased since the backup is taken out by the publication.
    assert not (back.folder / "leads.duckdb").exists()


def test_duckdb_opens_a_snapshot_in_place(house: House, target: Path) -> None:
    snapshot = target / backed_up(house, target).name

    rows = query(snapshot / "leads.duckdb", "select lead_id from applicant_leads")

    assert {lead_id for (lead_id,) in rows} == {*house.leads("applicant")}


def test_leads_that_only_the_published_file_has_come_back(
    house: House, target: Path, tmp_path: Path
) -> None:
    shutil.rmtree(house.folder / PLACE.key)
    backed_up(house, target)

    back = house.restore(target, tmp_path / "restored")

    assert back.leads("applicant").keys() == house.leads("applicant").keys()
    assert f"{DAY}-1" in back.leads("applicant")


def test_what_can_be_made_again_or_is_the_machines_own_is_left_out(
    house: House, target: Path
) -> None:
    for name in (".dagster/history/runs.db", ".state/tokens/token", ".state/swept", ".env"):
        (house.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (house.folder / name).write_text("1")

    snapshot = target / backed_up(house, target).name

    there = {path.name for path in snapshot.iterdir()}
    assert there == {".state", ".versions", "leads.duckdb", "raw"}
    state = {path.name for path in (snapshot / ".state").iterdir()}
    assert state.isdisjoint({"tokens", "swept", "locks"})
    assert len([*(snapshot / ".versions").iterdir()]) == 1


def test_only_this_user_can_read_a_backup_and_what_was_restored(
    house: House, target: Path, back: DataFolder
) -> None:
    backed_up(house, target)
    restored(target, back)

    versions = back.folder / ".versions"  # analysts' group reads its files
    for path in (target, *target.rglob("*"), *back.folder.rglob("*")):
        mode = 0o750 if path == versions else 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == mode, path


def restrict(house: House) -> None:
    """Set a lead aside."""
    pushed = ("applicant", "pushed-1")
    listed(list_of(house.data), Action.RESTRICT, emails=(), leads=[pushed], until=None)
    sweep(house.data)


def lift(house: House) -> None:
    """Put it back into raw."""
    listed(list_of(house.data), Action.LIFT, emails=(), of=1)
    sweep(house.data)


def merge(house: House) -> None:
    """Put one file in the place of two."""
    house.land("applicant", [{"id": "meanwhile"}])


def nothing(_: House) -> None:
    """Leave the folder as it is."""


@pytest.mark.parametrize(
    ("before", "meanwhile"), [(nothing, merge), (nothing, restrict), (restrict, lift)]
)
def test_leads_that_move_while_a_backup_is_made_are_in_it(
    pristine: House,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: Callable[[House], None],
    meanwhile: Callable[[House], None],
) -> None:
    """Just before each file is opened that was listed."""
    opened = Path.open

    def run(at: int, place: Path) -> int:
        house = pristine.copied(place / "data")
        count = 0
        before(house)

        def interrupted(path: Path, mode: str = "r", *more: Any, **options: Any) -> Any:
            nonlocal count
            if mode == "rb":
                count += 1
                if count == at:
                    meanwhile(house)
            return opened(path, mode, *more, **options)

        with monkeypatch.context() as patched:
            patched.setattr(Path, "open", interrupted)
            backed_up(house, place / "target")
        return count

    for at in range(1, 1 + run(0, tmp_path / "none")):
        place = tmp_path / f"at-{at}"
        run(at, place)
        [snapshot] = (place / "target").iterdir()
        raw = DataFolder.at(snapshot).raw
        rows = [*raw.read(PLACE).rows, *raw.read(PLACE._replace(root=RESTRICTED)).rows]
        assert {row.lead_id for row in rows} >= {"2026-11-19-1", "2026-11-19-2", "pushed-1"}, at


# --- what a second snapshot costs, and which ones stay --------------------------------------------


def test_a_second_backup_copies_only_what_has_changed(house: House, target: Path) -> None:
    first = backed_up(house, target)
    # The portal answered the next day as before, so its file has a newer name.
    house.land("applicant", [{"id": f"{NEXT_DAY}-1"}, {"id": f"{NEXT_DAY}-2"}], NEXT_DAY)
    house.land("applicant", [{"id": "late"}])

    second = backed_up(house, target, 1)

    same = only_file(target / second.name, NEXT_PLACE)
    assert same.samefile(only_file(target / first.name, NEXT_PLACE))
    assert only_file(target / second.name, PLACE).stat().st_nlink == 1


def test_the_newest_backups_stay(house: House, target: Path) -> None:
    names = [backed_up(house, target, days, keep=2).name for days in range(3)]

    assert sorted(path.name for path in target.iterdir()) == names[1:]


def test_a_half_copied_backup_is_none(house: House, target: Path, back: DataFolder) -> None:
    """As a copy of the target leaves it that was interrupted."""
    whole = backed_up(house, target).name
    (target / "2026-11-22T030000Z" / "raw").mkdir(parents=True)

    assert restored(target, back).source.name == whole


def test_a_target_without_hard_links_gets_copies(
    house: House, target: Path, back: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refused)
    backed_up(house, target)
    second = backed_up(house, target, 1)

    assert second.new == second.files
    restored(target, back)
    assert contents(back.folder) == contents(house.folder)


# --- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_noticed", [False, True])
def test_a_damaged_file_never_replaces_a_good_one(
    house: House, target: Path, back: DataFolder, is_noticed: bool
) -> None:
    backed_up(house, target)
    before = contents(house.folder)
    flip_a_bit(only_file(house.folder, NEXT_PLACE))
    if is_noticed:
        house.data.raw.read(NEXT_PLACE)
        assert house.data.quarantine.files()

    backed_up(house, target, 1)

    restored(target, back)
    assert contents(back.folder).items() >= before.items()


def test_a_file_that_was_damaged_before_its_first_backup_is_left_out_and_named(
    house: House, target: Path
) -> None:
    damaged = only_file(house.folder, NEXT_PLACE)
    flip_a_bit(damaged)

    done = backed_up(house, target)

    assert done.damaged == [damaged.relative_to(house.folder).as_posix()]
    assert not [*(target / done.name / NEXT_PLACE.key).glob("*.parquet")]


def test_a_damaged_file_of_a_backup_is_left_out_and_its_leads_stay_published(
    house: House, target: Path, tmp_path: Path, back: DataFolder
) -> None:
    snapshot = target / backed_up(house, target).name
    damaged = only_file(snapshot, NEXT_PLACE)
    flip_a_bit(damaged)

    assert restored(target, back).damaged == [damaged.relative_to(snapshot).as_posix()]
    published = house.restore(target, tmp_path / "published")
    assert f"{NEXT_DAY}-1" in published.leads("applicant")


# --- kills and disks ------------------------------------------------------------------------------


@pytest.mark.slow
@needs_seccomp
def test_a_backup_that_is_killed_anywhere_leaves_whole_ones_alone(
    house: House, target: Path, tmp_path: Path
) -> None:
    backed_up(house, target)
    house.land("applicant", [{"id": "late"}])
    shutil.copytree(target, tmp_path / "before")
    changes = run(backed_up, house, target, 1, 1, folder=target, at=NEVER).changes
    for at in range(0, len(changes), max(len(changes) // 20, 1)):
        shutil.rmtree(target)
        shutil.copytree(tmp_path / "before", target)
        run(backed_up, house, target, 1, 1, folder=target, fault=Fault.KILL, at=at)
        for snapshot in snapshots(target, NOW + timedelta(days=2)):
            back = DataFolder.at(tmp_path / f"{at}-{snapshot.name}")
            restored(snapshot, back)
            assert len(back.raw.read(NEXT_PLACE).rows) == 2
            assert len(back.raw.read(PLACE).rows) >= 3
        assert len(snapshots(target, NOW)) >= 1
        done = backed_up(house, target, 2, keep=1)
        assert [path.name for path in target.iterdir()] == [done.name]


@needs_seccomp
def test_a_backup_that_fails_at_its_last_sync_has_no_final_name(house: House, target: Path) -> None:
    """Fault 82: it failed with code 2, and lay there under its final name."""
    backed_up(house, target)
    calls = run(backed_up, house, target, 1, folder=target).calls
    shutil.rmtree(max(target.iterdir()))
    last_sync = max(at for at, call in enumerate(calls) if call.startswith("fsync "))

    outcome = run(backed_up, house, target, 1, folder=target, fault=Fault.EIO, at=last_sync)

    assert outcome.error.startswith("StorageError")
    assert [path.name for path in target.iterdir()] == ["2026-11-22T020000Z"]


@needs_seccomp
def test_an_old_backup_that_cannot_be_deleted_is_named_and_the_new_one_is_whole(
    house: House, target: Path, back: DataFolder
) -> None:
    """Fault 82: the new one lay there, and the command said that it had failed."""
    backed_up(house, target)

    outcome = run(backed_up, house, target, 2, 1, folder=target, lacks={"unlinkat": errno.EACCES})

    assert outcome.error == ""
    [trouble] = outcome.result.troubles
    assert "can't be deleted: Permission" in trouble
    restored(target / outcome.result.name, back)
    assert contents(back.folder) == contents(house.folder)


def test_a_restore_that_was_killed_is_finished_by_the_next(
    house: House, target: Path, back: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    backed_up(house, target)
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
    assert contents(back.folder) != contents(house.folder)

    restored(target, back)
    assert contents(back.folder) == contents(house.folder)

    end_restore(back)
    with pytest.raises(SettingsError, match="isn't empty"):
        restored(target, back)


# --- places that are refused ----------------------------------------------------------------------


@pytest.mark.parametrize("place", ["data", "data/backups", "list/backups"])
def test_a_target_in_the_data_folder_or_with_the_list_is_refused(
    house: House, tmp_path: Path, place: str
) -> None:
    data = with_list(house.folder, tmp_path / "list")

    with pytest.raises(SettingsError, match="would be lost together with it"):
        back_up(data, tmp_path / place, 14, NOW)


def test_a_target_of_another_data_folder_is_refused(
    house: House, target: Path, tmp_path: Path
) -> None:
    backed_up(house, target)
    other = House(tmp_path / "other")
    other.land("applicant", [])

    with pytest.raises(SettingsError, match="backups of another data folder"):
        backed_up(other, target, 1)


def test_a_target_whose_newest_backup_cannot_be_read_is_named(house: House, target: Path) -> None:
    key = target / backed_up(house, target).name / ".state" / "person_key"
    key.unlink()
    key.mkdir()

    with pytest.raises(StorageError, match="person_key"):
        backed_up(house, target, 1)


def test_a_restore_overwrites_nothing(house: House, target: Path) -> None:
    backed_up(house, target)
    before = contents(house.folder, ".")

    with pytest.raises(SettingsError, match="isn't empty"):
        restored(target, house.data)

    assert contents(house.folder, ".") == before


# --- the suppression list -------------------------------------------------------------------------


def test_of_two_suppression_lists_the_longer_one_stays(
    house: House, target: Path, tmp_path: Path
) -> None:
    listed(list_of(house.data))
    backed_up(house, target / "short")
    shutil.copytree(house.folder / "privacy", tmp_path / "short list")
    listed(list_of(house.data))
    backed_up(house, target / "long", 1)
    shutil.copytree(house.folder / "privacy", tmp_path / "long list")

    for source, list_ in (("short", "long list"), ("long", "short list"), ("long", "no list")):
        back = with_list(tmp_path / f"with {list_}", tmp_path / list_)
        restored(target / source, back)
        assert back.gate.newest_entry == 2
        assert back.is_behind_list


def test_a_suppression_list_that_is_no_other_version_of_the_backups_is_refused(
    house: House, target: Path, back: DataFolder
) -> None:
    listed(list_of(house.data))
    backed_up(house, target)
    listed(list_of(back))
    list_of(back).guard.unlink()

    with pytest.raises(StorageError, match="suppression list"):
        restored(target, back)


# --- buckets --------------------------------------------------------------------------------------


def test_leads_in_a_bucket_are_backed_up_and_come_back_to_a_bucket_or_a_folder(
    moto: str, target: Path, tmp_path: Path
) -> None:
    def in_bucket(folder: str) -> House:
        house = House(tmp_path / folder)
        address = new_bucket(moto)
        house.bucket = open_store(f"{address}/leads", plain_http=True)
        return house

    here = in_bucket("work")
    here.land("applicant", [{"id": "1"}])
    listed(list_of(here.data))
    backed_up(here, target)

    for back in (in_bucket("other work").data, DataFolder.at(tmp_path / "folder")):
        restored(target, back)
        assert [row.lead_id for row in back.raw.read(PLACE).rows] == ["1"]
        assert back.gate.newest_entry == 1
