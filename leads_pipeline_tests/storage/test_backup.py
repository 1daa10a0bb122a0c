"""What a backup copies and keeps, and what a restore brings back."""

import errno
import multiprocessing
import os
import resource
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

import pytest

from leads_pipeline.domain.contract import APPLICANT, ReceivedLead
from leads_pipeline.errors import SettingsError, StorageError
from leads_pipeline.privacy.sweeping import sweep
from leads_pipeline.storage.backup import (
    BackedUp,
    Restored,
    Roots,
    Store,
    back_up,
    copying,
    parts,
    restore,
    settings_files,
)
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.raw import RESTRICTED, Place
from leads_pipeline.storage.suppression import Action, Entry
from leads_pipeline_tests.storage.test_store import moto, new_bucket
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.people import listed
from leads_pipeline_tests.support.staging import DAY, FETCHED_AT, NEXT_DAY, land, publish, published_leads

__all__ = ["moto"]  # a fixture

NOW = datetime(2026, 11, 22, 2, tzinfo=UTC)
PLACE, NEXT_PLACE = Place(APPLICANT, DAY, "branch-101"), Place(APPLICANT, NEXT_DAY, "branch-101")


@pytest.fixture
def data(tmp_path: Path, pristine: Path) -> DataFolder:
    """A copy of `pristine`."""
    shutil.copytree(pristine, tmp_path / "data", symlinks=True)
    return DataFolder.at(tmp_path / "data")


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days of a branch, published, a pushed lead of the first, and a Dagster that has something to remember."""
    data = DataFolder.at(tmp_path_factory.mktemp("pristine") / "data")
    for day in (DAY, NEXT_DAY):
        land(data, APPLICANT, [{"id": f"{day}-{n}"} for n in (1, 2)], day=day)
    publish(data, scopes=["branch-101"])
    data.state.claim("https://portal.example")
    deliver(data, "pushed-1")
    (data.folder / ".dagster" / "history").mkdir(parents=True)
    remember(data, "the first run")
    return data.folder


def deliver(data: DataFolder, lead_id: str) -> None:
    data.raw.add(PLACE, [ReceivedLead(lead_id, f'{{"id":"{lead_id}","portalBranchId":101}}')], FETCHED_AT)


def files_of(folder: Path, place: Place) -> list[Path]:
    """The raw files of a window."""
    return sorted((folder / place.key).glob("*.parquet"))


def remember(data: DataFolder, what: str) -> None:
    with sqlite3.connect(data.folder / ".dagster" / "history" / "runs.db") as db:
        db.execute("pragma journal_mode = wal")
        db.execute("create table if not exists runs (what)")
        db.execute("insert into runs values (?)", [what])
    db.close()


def roots(folder: Path) -> Roots:
    return {"data": folder, "dagster": folder / ".dagster", "privacy": folder.parent / "privacy"}


def backed_up(data: DataFolder, target: Path, settings: Mapping[str, bytes] | None = None, keep: int = 14) -> BackedUp:
    return back_up(roots(data.folder), target, settings or {}, keep, NOW)


def restored(target: Path, folder: Path, *, leave_out_damaged: bool = False) -> Restored:
    store = Store(target)
    return restore(store, store.read(store.names()[-1]), roots(folder), leave_out_damaged=leave_out_damaged)


def contents(folder: Path, *below: str) -> dict[str, bytes]:
    """What is there that nobody can give back; no database, which is compared by what it says."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for part in below or ("raw", "quarantine")
        for path in (folder / part).rglob("*")
        if path.is_file()
    }


def objects(target: Path) -> list[Path]:
    return [path for path in (target / "files").glob("??/*") if path.is_file()]


def content_of(target: Path, ends: str) -> Path:
    """Where the newest backup's file of that path lies."""
    store = Store(target)
    entry = next(entry for entry in store.read(store.names()[-1]).files if entry.path.endswith(ends))
    return target / "files" / entry.sha256[:2] / entry.sha256


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_what_was_backed_up_comes_back_byte_for_byte(data: DataFolder, tmp_path: Path) -> None:
    (tmp_path / "privacy").mkdir()
    (tmp_path / "privacy" / "suppressed").write_text("a hash\n")
    before = contents(data.folder)
    done = backed_up(data, tmp_path / "target")
    shutil.rmtree(data.folder)
    shutil.rmtree(tmp_path / "privacy")
    result = restored(tmp_path / "target", data.folder)
    assert contents(data.folder) == before
    assert (result.files, result.damaged, done.damaged) == (done.files, (), [])
    assert (tmp_path / "privacy" / "suppressed").read_text() == "a hash\n"
    with sqlite3.connect(data.folder / ".dagster" / "history" / "runs.db") as db:
        assert db.execute("select what from runs").fetchall() == [("the first run",)]
    db.close()
    again = DataFolder.at(data.folder)
    assert again.state.person_key() == data.state.person_key()
    assert again.state.claimed_by() == "https://portal.example"


def test_leads_that_only_the_published_file_had_come_back_and_are_published(data: DataFolder, tmp_path: Path) -> None:
    shutil.rmtree(data.folder / "raw" / "applicant_leads" / f"day={DAY}")
    backed_up(data, tmp_path / "target")
    restored(tmp_path / "target", tmp_path / "restored")
    back = DataFolder.at(tmp_path / "restored")
    before = published_leads(back, APPLICANT)
    land(back, APPLICANT, [{"id": "late"}], day=NEXT_DAY)
    publish(back, scopes=["branch-101"])
    assert published_leads(back, APPLICANT).keys() == before.keys() | {"late"}
    assert len(before) == 4


def test_figures_that_an_earlier_release_kept_come_back(data: DataFolder, tmp_path: Path) -> None:
    figures = data.folder / "frozen" / "2026-10-01.parquet"
    figures.parent.mkdir()
    figures.write_bytes(b"figures")
    backed_up(data, tmp_path / "target")
    restored(tmp_path / "target", tmp_path / "restored")
    assert contents(tmp_path / "restored", "frozen") == {"frozen/2026-10-01.parquet": b"figures"}


def test_only_this_user_can_read_a_backup_and_what_was_restored(data: DataFolder, tmp_path: Path) -> None:
    backed_up(data, tmp_path / "target")
    restored(tmp_path / "target", tmp_path / "restored")
    for path in (*(tmp_path / "target").rglob("*"), *(tmp_path / "restored").rglob("*"), tmp_path / "target"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_second_backup_writes_only_what_has_changed(data: DataFolder, tmp_path: Path) -> None:
    first = backed_up(data, tmp_path / "target")
    unchanged = backed_up(data, tmp_path / "target")
    assert unchanged.written == 0
    land(data, APPLICANT, [{"id": "late"}], day=NEXT_DAY)
    changed = backed_up(data, tmp_path / "target")
    assert (first.is_first, unchanged.is_first) == (True, False)
    assert changed.written == 1
    assert changed.files == first.files


def test_the_folder_knows_of_its_last_backup_and_a_restored_one_of_that_which_it_came_from(
    data: DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert data.state.last_backup() is None
    backed_up(data, tmp_path / "target")
    assert data.state.last_backup() == NOW
    for variable, folder in (("LEADS_DATA_DIR", "restored"), ("DAGSTER_HOME", "restored/.dagster")):
        monkeypatch.setenv(variable, str(tmp_path / folder))
    assert run("restore", tmp_path / "target").exit_code == 0
    assert DataFolder.at(tmp_path / "restored").state.last_backup() == NOW


def test_a_backup_that_the_folder_cannot_note_is_there_all_the_same(data: DataFolder, tmp_path: Path) -> None:
    (data.folder / ".state" / "last_backup" / "in the way").mkdir(parents=True)
    done = backed_up(data, tmp_path / "target")
    assert Store(tmp_path / "target").names() == [done.name]
    assert "last_backup can't be written" in done.not_noted


def test_a_file_that_did_not_change_is_not_even_read(
    data: DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backed_up(data, tmp_path / "target")
    opened: list[str] = []
    read = Path.read_bytes

    def noted(path: Path) -> bytes:
        opened.append(path.suffix)
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", noted)
    backed_up(data, tmp_path / "target")
    assert ".parquet" not in opened


def restrict(data: DataFolder) -> None:
    """Set a lead aside."""
    listed(data.gate.entries, Action.RESTRICT, emails=(), leads=[(APPLICANT.name, "pushed-1")], until=None)
    sweep(data)


def lift(data: DataFolder) -> None:
    """Put it back into raw."""
    [restriction] = data.gate.entries.read().active
    data.gate.entries.append(lambda _, number: Entry(number=number, at=NOW, action=Action.LIFT, of=restriction.number))
    sweep(data)


def merge(data: DataFolder) -> None:
    """Put one file in the place of two."""
    land(data, APPLICANT, [{"id": "meanwhile"}])


def nothing(_: DataFolder) -> None:
    """Leave the folder as it is."""


@pytest.mark.parametrize(("before", "meanwhile"), [(nothing, merge), (nothing, restrict), (restrict, lift)])
def test_leads_that_move_while_a_backup_is_made_are_in_it(
    pristine: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: Callable[[DataFolder], None],
    meanwhile: Callable[[DataFolder], None],
) -> None:
    """At every step between two files."""

    def run(at: int, place: Path) -> int:
        folder, count = place / "data", 0
        shutil.copytree(pristine, folder, symlinks=True)
        here = DataFolder.at(folder, place / "privacy")
        before(here)
        find = {part: part.find for part in parts.PARTS}

        def interrupted(part: parts.Part) -> Callable[[Path], Iterator[Path]]:
            def iterate(root: Path) -> Iterator[Path]:
                nonlocal count
                for path in chain(find[part](root), [None]):
                    if count == at:
                        meanwhile(here)
                    count += 1
                    if path is not None:
                        yield path

            return iterate

        plan = [parts.Part(part.root, interrupted(part), part.is_whole, part.is_database) for part in parts.PARTS]
        with monkeypatch.context() as patched:
            patched.setattr(copying, "PARTS", plan)
            backed_up(here, place / "target")
        return count

    for at in range(run(-1, tmp_path / "none")):
        place = tmp_path / f"at-{at}"
        run(at, place)
        restored(place / "target", place / "restored" / "data")
        back = DataFolder.at(place / "restored" / "data", place / "restored" / "privacy")
        rows = [*back.raw.read(PLACE).rows, *back.gate.restricted.read(PLACE._replace(root=RESTRICTED)).rows]
        assert {row.lead_id for row in rows} >= {"2026-11-19-1", "2026-11-19-2", "pushed-1"}, at


def killed_at(call: int, folder: Path, target: Path) -> None:
    """Back up, and die without a word at the so many-th call that changes something on the disk."""
    calls = 0

    def counting(function: Callable[..., object]) -> Callable[..., object]:
        def wrapped(*arguments: object, **options: object) -> object:
            nonlocal calls
            calls += 1
            if calls == call:
                os._exit(9)
            return function(*arguments, **options)

        return wrapped

    for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "unlink"), (Path, "mkdir")):
        setattr(owner, name, counting(getattr(owner, name)))
    backed_up(DataFolder.at(folder), target, keep=1)
    os._exit(0)


@pytest.mark.slow
def test_a_backup_that_is_killed_anywhere_leaves_the_last_one_usable(data: DataFolder, tmp_path: Path) -> None:
    target = tmp_path / "target"
    backed_up(data, target)
    before = contents(data.folder)
    land(data, APPLICANT, [{"id": "late"}])
    deliver(data, "pushed-2")
    after = contents(data.folder)
    fork = multiprocessing.get_context("fork")
    endings = []
    for call in range(1, 100):
        copy = tmp_path / f"killed-{call}"
        shutil.copytree(target, copy)
        process = fork.Process(target=killed_at, args=(call, data.folder, copy))
        process.start()
        process.join()
        endings.append(process.exitcode)
        restored(copy, tmp_path / f"restored-{call}")
        assert contents(tmp_path / f"restored-{call}") in (before, after), call
        done = backed_up(data, copy)
        assert not list(copy.rglob("*.tmp")), "what the killed one left is swept"
        assert done.damaged == []
        if process.exitcode == 0:
            break
    assert endings[-1] == 0
    assert endings.count(9) > 10


def test_a_full_target_leaves_the_last_backup_usable(
    data: DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backed_up(data, tmp_path / "target")
    before = contents(data.folder)
    land(data, APPLICANT, [{"id": "late"}])
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", no_space)
        with pytest.raises(StorageError, match="No space left on device"):
            backed_up(data, tmp_path / "target")
    restored(tmp_path / "target", tmp_path / "restored")
    assert contents(tmp_path / "restored") == before


def no_space(_: int) -> None:
    raise OSError(28, "No space left on device")


def test_a_flipped_bit_in_the_backup_keeps_everything_from_being_put_in_place(data: DataFolder, tmp_path: Path) -> None:
    backed_up(data, tmp_path / "target")
    [path] = files_of(data.folder, NEXT_PLACE)
    flip_a_bit(content_of(tmp_path / "target", path.name))
    with pytest.raises(StorageError, match=r"1 of \d+ files .* damaged.*day=2026-11-20/scope=branch-101"):
        restored(tmp_path / "target", tmp_path / "restored")
    assert list((tmp_path / "restored").iterdir()) == []
    done = restored(tmp_path / "target", tmp_path / "restored", leave_out_damaged=True)
    assert len(done.damaged) == 1
    assert files_of(tmp_path / "restored", PLACE) != []
    assert files_of(tmp_path / "restored", NEXT_PLACE) == []


def test_a_backup_whose_list_is_damaged_is_refused_and_the_next_copies_everything(
    data: DataFolder, tmp_path: Path
) -> None:
    first = backed_up(data, tmp_path / "target")
    flip_a_bit(tmp_path / "target" / "backups" / first.name)
    with pytest.raises(StorageError, match="is damaged"):
        restored(tmp_path / "target", tmp_path / "restored")
    done = backed_up(data, tmp_path / "target", keep=1)
    assert done.forgotten == 1, "one that isn't to stay needs nothing"
    flip_a_bit(tmp_path / "target" / "backups" / done.name)
    done = backed_up(data, tmp_path / "target", keep=2)
    assert (done.forgotten, "is damaged" in done.not_forgotten) == (0, True), "nobody knows which files it needs"
    restored(tmp_path / "target", tmp_path / "restored")
    assert contents(tmp_path / "restored") == contents(data.folder)


def test_a_content_that_is_gone_from_the_target_is_copied_again(data: DataFolder, tmp_path: Path) -> None:
    backed_up(data, tmp_path / "target")
    content_of(tmp_path / "target", ".parquet").unlink()
    assert backed_up(data, tmp_path / "target").written == 1
    restored(tmp_path / "target", tmp_path / "restored")


def test_a_raw_file_that_rots_does_not_replace_its_copy(data: DataFolder, tmp_path: Path) -> None:
    backed_up(data, tmp_path / "target")
    before = contents(data.folder)
    [path] = files_of(data.folder, NEXT_PLACE)
    flip_a_bit(path)
    done = backed_up(data, tmp_path / "target")
    assert done.damaged == [f"data/{NEXT_PLACE.key}{path.name}"]
    restored(tmp_path / "target", tmp_path / "restored")
    assert contents(tmp_path / "restored") == before


def test_only_the_newest_backups_are_kept_with_what_they_need(data: DataFolder, tmp_path: Path) -> None:
    for number in range(4):
        land(data, APPLICANT, [{"id": f"late-{number}"}])
        backed_up(data, tmp_path / "target", keep=2)
    store = Store(tmp_path / "target")
    assert [name[:6] for name in store.names()] == ["000003", "000004"]
    needed = {entry.sha256 for name in store.names() for entry in store.read(name).files}
    assert {path.name for path in objects(tmp_path / "target")} == needed
    for name in store.names():
        restore(store, store.read(name), roots(tmp_path / name / "data"), leave_out_damaged=False)


@pytest.mark.parametrize("place", ["data", "data/backups", "."])
def test_a_target_that_lies_in_the_data_folder_or_around_it_is_refused(
    data: DataFolder, tmp_path: Path, place: str
) -> None:
    before = sorted(path for path in tmp_path.rglob("*"))
    with pytest.raises(SettingsError, match="lie in each other"):
        backed_up(data, tmp_path / place)
    assert sorted(path for path in tmp_path.rglob("*")) == before


def test_data_in_a_bucket_is_refused(moto: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADS_DATA_DIR", new_bucket(moto, monkeypatch))
    monkeypatch.setenv("LEADS_WORK_DIR", str(tmp_path / "work"))
    result = run("backup", tmp_path / "target")
    assert result.exit_code == 2
    assert "Have the bucket keep versions" in result.output
    assert not (tmp_path / "target").exists()


def test_a_target_of_another_data_folder_is_refused(data: DataFolder, tmp_path: Path) -> None:
    backed_up(data, tmp_path / "target")
    other = DataFolder.at(tmp_path / "other")
    land(other, APPLICANT, [{"id": "1"}])
    with pytest.raises(SettingsError, match="backups of another data folder"):
        backed_up(other, tmp_path / "target")


def test_a_living_folder_is_never_restored_over(data: DataFolder, tmp_path: Path) -> None:
    backed_up(data, tmp_path / "target")
    before = contents(data.folder, ".")
    with pytest.raises(SettingsError, match="isn't empty"):
        restored(tmp_path / "target", data.folder)
    assert contents(data.folder, ".") == before


def test_a_suppression_list_that_is_there_stays(data: DataFolder, tmp_path: Path) -> None:
    (tmp_path / "privacy").mkdir()
    (tmp_path / "privacy" / "suppressed").write_text("then\n")
    backed_up(data, tmp_path / "target")
    (tmp_path / "privacy" / "suppressed").write_text("then\nand since\n")
    done = restored(tmp_path / "target", tmp_path / "restored")
    assert done.kept == (tmp_path / "privacy",)
    assert (tmp_path / "privacy" / "suppressed").read_text() == "then\nand since\n"


def test_a_restore_that_was_killed_while_it_moved_its_files_is_finished(
    data: DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backed_up(data, tmp_path / "target")
    rename, renamed = Path.rename, 0

    def killed(path: Path, target: Path) -> Path:
        nonlocal renamed
        renamed += 1
        if renamed == 3:
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            restored(tmp_path / "target", tmp_path / "restored")
    assert contents(tmp_path / "restored") != contents(data.folder)
    restored(tmp_path / "target", tmp_path / "restored")
    assert contents(tmp_path / "restored") == contents(data.folder)


def elsewhere(_: Path, __: Path) -> Path:
    """What moving a file to another disk comes to."""
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


@pytest.mark.parametrize("is_another_disk", [False, True])
def test_a_suppression_list_of_which_half_was_moved_when_a_restore_was_killed_is_put_back_whole(
    data: DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_another_disk: bool
) -> None:
    (tmp_path / "privacy").mkdir()
    for name in ("key", "suppressed"):
        (tmp_path / "privacy" / name).write_text(f"{name} of then\n")
    backed_up(data, tmp_path / "target")
    shutil.rmtree(tmp_path / "privacy")
    rename = Path.rename

    def killed(path: Path, target: Path) -> Path:
        if path.name == "suppressed":
            raise KeyboardInterrupt
        return elsewhere(path, target) if is_another_disk else rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            restored(tmp_path / "target", tmp_path / "restored")
    assert contents(tmp_path, "privacy") == {"privacy/key": b"key of then\n"}
    if is_another_disk:
        monkeypatch.setattr(Path, "rename", elsewhere)
    done = restored(tmp_path / "target", tmp_path / "restored")
    assert contents(tmp_path, "privacy") == {
        "privacy/key": b"key of then\n",
        "privacy/suppressed": b"suppressed of then\n",
    }
    assert done.kept == ()


def test_a_restore_to_several_disks_that_was_killed_while_it_copied_is_finished(
    data: DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backed_up(data, tmp_path / "target")
    left = 3  # the first is that before anything is put in place

    def killed() -> None:  # what each copied tree or file ends with
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", elsewhere)
    with monkeypatch.context() as patched:
        patched.setattr(os, "sync", killed)
        with pytest.raises(KeyboardInterrupt):
            restored(tmp_path / "target", tmp_path / "restored")
    assert contents(tmp_path / "restored") != contents(data.folder)
    restored(tmp_path / "target", tmp_path / "restored")
    assert contents(tmp_path / "restored") == contents(data.folder)


def test_a_disk_that_takes_half_of_a_file_stops_a_restore_before_anything_is_put_in_place(
    data: DataFolder, tmp_path: Path
) -> None:
    """As a full one does: the first write takes what fits, and only the next one fails."""
    backed_up(data, tmp_path / "target")
    largest = max(path.stat().st_size for path in objects(tmp_path / "target"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest - 1, hard))
    try:
        with pytest.raises(StorageError, match="can't be written: File too large"):
            restored(tmp_path / "target", tmp_path / "restored")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list((tmp_path / "restored").iterdir()) == []


def test_a_backup_of_a_newer_version_is_left_alone_and_says_so(data: DataFolder, tmp_path: Path) -> None:
    backed_up(data, tmp_path / "target")
    store = Store(tmp_path / "target")
    now = store.read(store.names()[-1])
    store.write(type(now)(9, now.number + 1, now.made_at, now.owner, now.files))
    for attempt in (
        lambda: restored(tmp_path / "target", tmp_path / "restored"),
        lambda: backed_up(data, store.target),
    ):
        with pytest.raises(SettingsError, match="has format 9, and this version of leads-pipeline reads up to 1"):
            attempt()


def test_secrets_go_along_on_request_only(tmp_path: Path) -> None:
    (tmp_path / "key.asc").write_text("a private key")
    (tmp_path / "names.csv").write_text("id,name\n101,Bath\n")
    environment = {
        "LEADS_BRANCH_IDS": "101",
        "LEADS_CLIENT_ID": "it's",
        "LEADS_CLIENT_SECRET": "hush",
        "LEADS_ALERT_WEBHOOK": "https://hooks.example/hush",
        "LEADS_PGP_PRIVATE_KEY_FILE": str(tmp_path / "key.asc"),
        "LEADS_BRANCHES_FILE": str(tmp_path / "names.csv"),
        "HOME": "/home",
    }
    plain = settings_files(environment, with_secrets=False)
    assert set(plain) == {"settings.env", "LEADS_BRANCHES_FILE.csv"}
    assert b"hush" not in plain["settings.env"]
    assert b"LEADS_CLIENT_ID='it\\'s'\n" in plain["settings.env"]
    whole = settings_files(environment, with_secrets=True)
    assert whole["LEADS_PGP_PRIVATE_KEY_FILE.asc"] == b"a private key"
    assert b"LEADS_CLIENT_SECRET='hush'\n" in whole["settings.env"]
    assert b"HOME" not in whole["settings.env"]


def test_a_database_is_copied_as_it_is_while_another_process_writes_to_it(data: DataFolder, tmp_path: Path) -> None:
    with sqlite3.connect(data.folder / ".dagster" / "history" / "runs.db") as writer:
        writer.execute("insert into runs values ('committed, and only in the log')")
        writer.commit()
        writer.execute("insert into runs values ('not committed')")
        backed_up(data, tmp_path / "target")
        writer.rollback()
    writer.close()
    restored(tmp_path / "target", tmp_path / "restored")
    with sqlite3.connect(tmp_path / "restored" / ".dagster" / "history" / "runs.db") as db:
        found = [what for (what,) in db.execute("select what from runs").fetchall()]
    db.close()
    assert found == ["the first run", "committed, and only in the log"]


def test_a_run_that_is_forgotten_meanwhile_does_not_stop_a_backup(
    data: DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data.folder / ".dagster" / "history" / "runs").mkdir()
    with sqlite3.connect(data.folder / ".dagster" / "history" / "runs" / "old.db") as db:
        db.execute("create table event_logs (event)")
    db.close()
    look = parts.identity

    def then_forgotten(path: Path, *, is_database: bool) -> tuple[int, ...]:
        found = look(path, is_database=is_database)
        if path.name == "old.db":
            path.unlink()
        return found

    monkeypatch.setattr("leads_pipeline.storage.backup.copying.identity", then_forgotten)
    assert backed_up(data, tmp_path / "target").damaged == []
    restored(tmp_path / "target", tmp_path / "restored")
    assert [path.name for path in (tmp_path / "restored" / ".dagster").rglob("*.db")] == ["runs.db"]


def test_the_commands_take_the_suppression_list_along(
    data: DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, folder in (("DATA_DIR", "data"), ("PRIVACY_DIR", "list")):
        monkeypatch.setenv(f"LEADS_{variable}", str(tmp_path / folder))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "data" / ".dagster"))
    (tmp_path / "list").mkdir()
    (tmp_path / "list" / "suppressed").write_text("a hash\n")
    (data.folder / ".state" / "privacy").write_text("the last entry that the folder knew\n")
    assert run("backup", tmp_path / "target").exit_code == 0
    shutil.rmtree(tmp_path / "list")
    result = run("restore", tmp_path / "target", "--to", tmp_path / "restored")
    assert result.exit_code == 0, result.output
    assert "`leads-pipeline privacy apply` erases whom the suppression list names." in result.output
    assert "That list may be as old as the backup" in result.output
    assert (tmp_path / "list" / "suppressed").read_text() == "a hash\n"
    assert (tmp_path / "restored" / ".state" / "privacy").read_text() == "the last entry that the folder knew\n"
    assert (tmp_path / "restored" / ".dagster" / "history" / "runs.db").exists()
    result = run("restore", tmp_path / "target", "--to", tmp_path / "once-more")
    assert "privacy apply" in result.output
    assert "That list" not in result.output, "it was there already"
    assert run("restore", tmp_path / "target").exit_code == 2, "the data folder is a living one"
    assert run("verify", "--backup", tmp_path / "target").exit_code == 0
