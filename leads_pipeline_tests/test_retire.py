"""Whole leads go after LEADS_KEEP_DAYS, and the figures of their days stay for ever."""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from leads_pipeline.contract import APPLICANT, LEAD_KINDS
from leads_pipeline.damage import damages
from leads_pipeline.doctor import Light
from leads_pipeline.errors import StorageError
from leads_pipeline.lake import Lake
from leads_pipeline.privacy.retire import Retired, retire_days
from leads_pipeline.spool import Placement, Spool
from leads_pipeline.verification import verify
from leads_pipeline.warehouse import Grid, Warehouse, frozen_marts
from leads_pipeline.window import Scope
from leads_pipeline_tests.command_line import run
from leads_pipeline_tests.following import assert_digests_are_right, follow
from leads_pipeline_tests.staging import DAY, LONDON, NEXT_DAY, land, stage
from leads_pipeline_tests.test_backup import backed_up, restored
from leads_pipeline_tests.test_retain import everything, lead
from leads_pipeline_tests.test_suppression import push

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
LAST = NEXT_DAY + timedelta(days=1)
DAYS = (DAY, NEXT_DAY, LAST)
SCOPES = (Scope.parse("branch-101"), Scope.parse("branch-102"))
GRID = Grid(scopes=SCOPES, first_day=DAY, zone=LONDON)
BY_DAY = [mart.name for mart in frozen_marts()]
# What is made of the leads that are there.
OF_LEADS = ("applicant_leads", "appraisal_leads", "mart_people_daily", "mart_people")
# What a removed day's leads bear wherever they are.
PLANTED = "Quenby"


def publish(lake: Lake) -> None:
    follow(lake)
    Warehouse(lake).publish(GRID, NOW)
    assert_digests_are_right(lake)


def filled(lake: Lake) -> Lake:
    """Three days of two branches and both kinds: with leads of midnight, one that a day alone holds, and one pushed."""
    for kind in LEAD_KINDS:
        for day in DAYS:
            for scope in SCOPES:
                people = ["ann1", "bob2", "ann1"]
                leads = [lead(f"{kind.name} {scope.key} {day} {n}", who, day) for n, who in enumerate(people)]
                land(lake, kind, leads, day=day, scope=scope.key)
        both, alone = (
            lead(f"{kind.name} {name}", person, NEXT_DAY, createdAt=f"{NEXT_DAY}T00:00:00Z")
            for name, person in (("both", "dan5"), ("alone", "fay7"))
        )
        land(lake, kind, [both, alone], fetched_at=NOW - timedelta(hours=1))
        land(lake, kind, [both], day=NEXT_DAY)
        for day in DAYS:
            stage(lake, kind, day)
    publish(lake)
    return lake


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(Lake(tmp_path_factory.mktemp("whole") / "data")).folder


@pytest.fixture
def lake(whole: Path, tmp_path: Path) -> Lake:
    shutil.copytree(whole, tmp_path / "data")
    lake = Lake(tmp_path / "data")
    publish(lake)  # a copy's files are others
    return lake


def figures(lake: Lake) -> dict[str, list[tuple[Any, ...]]]:
    return {name: everything(lake, name) for name in (*BY_DAY, "mart_coverage", "landed_windows")}


def files_of(lake: Lake, day: date) -> list[Path]:
    return [path for path in lake.folder.rglob(f"day={day}/**/*") if path.is_file()]


def retire(lake: Lake, before: date = NEXT_DAY, **more: Any) -> Retired:
    return retire_days(lake, before, LONDON, **more)


def counted(lake: Lake) -> dict[tuple[date, str, str], int]:
    """Leads by day, scope and kind, as an analyst counts them."""
    with Warehouse(lake).reading() as db:
        _, rows = db.query("select lead_day, scope, kind, sum(leads) from mart_leads_daily group by all")
    return {(day, scope, kind): int(leads) for day, scope, kind, leads in rows}


def truth() -> dict[tuple[date, str, str], int]:
    """The same of what was landed: three leads a window, and those of midnight, which are the next day's."""
    leads = {(day, scope.key, kind.name): 3 for kind in LEAD_KINDS for day in DAYS for scope in SCOPES}
    for kind in LEAD_KINDS:
        leads[NEXT_DAY, "branch-101", kind.name] += 2
    return leads


def red(lake: Lake) -> list[str]:
    return [f"{one.check}: {one.message}" for one in verify(lake) if one.light is not Light.GREEN]


@pytest.mark.chaos
def test_leads_go_and_the_figures_of_their_days_stay(lake: Lake) -> None:
    before = figures(lake)
    assert counted(lake) == truth()
    assert len(files_of(lake, DAY)) >= 8
    assert PLANTED in str(everything(lake, "applicant_leads"))
    assert retire(lake, is_dry=True).days == [DAY]
    assert figures(lake) == before
    assert lake.rebuild_wanted() is None

    assert retire(lake) == Retired([DAY])
    assert retire(lake) == Retired()
    assert files_of(lake, DAY) == []
    publish(lake)
    assert lake.rebuild_wanted() is None
    assert files_of(lake, DAY) == []
    assert figures(lake) == before
    assert counted(lake) == truth()
    assert {row[2] for row in everything(lake, "landed_windows")} >= {DAY, NEXT_DAY}
    with Warehouse(lake).reading() as db:
        for kind in LEAD_KINDS:
            _, rows = db.query(f"select window_day, count(*) from {kind.table} group by all order by all")  # noqa: S608
            assert rows == [(NEXT_DAY, 7), (LAST, 6)]
    assert red(lake) == []
    assert damages(lake) == []

    # The next day, and a file that is made from nothing but what is staged and frozen.
    assert retire(lake, LAST).days == [NEXT_DAY]
    publish(lake)
    assert figures(lake) == before
    Warehouse(lake).path.unlink()
    publish(lake)
    assert figures(lake) == before
    assert red(lake) == []
    for path in (lake.folder / "frozen").iterdir():
        found = str(pq.ParquetFile(path).read().to_pylist())
        assert not any(text in found for text in (PLANTED, "people.example", "07700", "branch-101 "))


@pytest.mark.chaos
def test_a_day_beside_a_removed_one_is_brought_up_to_date(lake: Lake) -> None:
    retire(lake)
    publish(lake)
    land(lake, APPLICANT, [lead("late", "eve6", NEXT_DAY)], day=NEXT_DAY)
    stage(lake, APPLICANT, NEXT_DAY)
    publish(lake)
    expected = truth()
    expected[NEXT_DAY, "branch-101", "applicant"] += 1
    assert counted(lake) == expected
    updated = figures(lake)
    Warehouse(lake).path.unlink()
    publish(lake)
    assert figures(lake) == updated


@pytest.mark.chaos
def test_a_late_push_of_a_removed_day_lands_today_and_counts_once(lake: Lake) -> None:
    retire(lake)
    publish(lake)
    push(lake, lead("applicant branch-101 2026-11-19 0", "ann1"))
    placement = Placement(SCOPES, LONDON, DAY)
    assert sum(taken.new for taken in Spool(lake).take_in(placement, "run-2")) == 1
    assert files_of(lake, DAY) == []
    assert lake.landed_days(APPLICANT) == [NEXT_DAY, LAST]
    stage(lake, APPLICANT, LAST)
    publish(lake)
    assert counted(lake) == truth()
    assert "applicant branch-101 2026-11-19 0" in str(everything(lake, "applicant_leads"))
    assert red(lake) == []
    # Nor does it once its own time has come.
    assert retire(lake, LAST + timedelta(days=1)).days == [NEXT_DAY, LAST]
    publish(lake)
    assert counted(lake) == truth()


@pytest.mark.chaos
def test_a_day_that_is_not_whole_or_not_published_stays(lake: Lake) -> None:
    [window] = [one for one in lake.landed_windows(APPLICANT, DAY) if one.scope == "branch-102"]
    content = window.path.read_bytes()
    window.path.write_bytes(content[:-9] + b"?" + content[-8:])
    left = retire(lake)
    assert (left.days, left.waiting) == ([], {})
    assert "applicant/2026-11-19/branch-102 is damaged" in left.damaged[DAY]
    assert (lake.removed_days(), lake.rebuild_wanted()) == (frozenset(), None)
    window.path.write_bytes(content)
    for path in lake.quarantined():
        path.unlink()
    # One that came in meanwhile, and is in no figure yet.
    land(lake, APPLICANT, [lead("new", "eve6")], scope="branch-102", fetched_at=NOW)
    assert "not staged" in retire(lake).waiting[DAY]
    stage(lake, APPLICANT)
    assert "isn't published" in retire(lake).waiting[DAY]
    publish(lake)
    assert retire(lake).days == [DAY]
    publish(lake)
    assert counted(lake) == truth() | {(DAY, "branch-102", "applicant"): 4}
    # What was counted once isn't counted from a file that knows nothing of it.
    retire(lake, LAST)
    assert "isn't published" in retire(lake, LAST + timedelta(days=1)).waiting[LAST]


@pytest.mark.chaos
def test_a_damaged_published_file_freezes_nothing(lake: Lake) -> None:
    path = Warehouse(lake).path
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.seek(-5, 2)
        file.write(b"?")
    assert "isn't published" in retire(lake).waiting[DAY]
    publish(lake)
    assert retire(lake).days == [DAY]


def test_figures_that_come_while_their_day_is_still_staged_keep_its_windows(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another process of this machine fetches them from a store, in the middle of a publication."""
    elsewhere = Lake(tmp_path / "elsewhere")
    shutil.copytree(lake.folder, elsewhere.folder)
    Warehouse(elsewhere).publish(GRID, NOW)
    assert retire_days(elsewhere, NEXT_DAY, LONDON).days == [DAY]
    really = Lake.inventory_files  # is asked for after staged files and before figures

    def later(self: Lake) -> list[Path]:
        if not (lake.folder / "frozen").exists():
            shutil.copytree(elsewhere.folder / "frozen", lake.folder / "frozen")
        return really(self)

    landed = "select kind, scope from landed_windows where window_day = $day order by all"
    before = Warehouse(lake).query(landed, {"day": DAY})
    monkeypatch.setattr(Lake, "inventory_files", later)
    for number in range(2):
        Warehouse(lake).publish(GRID, NOW + timedelta(days=1 + number))
        assert_digests_are_right(lake)
        assert Warehouse(lake).query(landed, {"day": DAY}) == before
    assert len(before[1]) == 4


@pytest.mark.parametrize("is_gone", [True, False])
@pytest.mark.chaos
def test_figures_that_rot_or_are_lost_stop_the_publication_that_would_lose_them(lake: Lake, is_gone: bool) -> None:
    retire(lake)
    publish(lake)
    before = figures(lake)
    [path] = lake.frozen_files().values()
    content = path.read_bytes()
    path.unlink()
    if not is_gone:
        path.write_bytes(content[:9] + b"?" + content[10:])
    land(lake, APPLICANT, [], day=LAST, scope="branch-101", fetched_at=NOW)
    with pytest.raises(StorageError, match="put it back"):
        publish(lake)
    assert figures(lake) == before
    path.write_bytes(content)
    publish(lake)
    assert figures(lake) == before


@pytest.mark.chaos
def test_a_backup_has_the_figures(lake: Lake, tmp_path: Path) -> None:
    retire(lake)
    publish(lake)
    backed_up(lake, tmp_path / "target")
    restored(tmp_path / "target", tmp_path / "again" / "data")
    again = Lake(tmp_path / "again" / "data")
    publish(again)
    assert figures(again) == figures(lake)
    assert red(again) == []


@pytest.mark.chaos
def test_the_command_counts_what_is_due_and_then_removes_it(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    today = datetime.now(UTC).date()
    long_ago = today - timedelta(days=400)
    for name, value in {
        "LEADS_DATA_DIR": str(lake.folder),
        "DAGSTER_HOME": str(lake.folder.parent / "home"),
        "LEADS_BRANCH_IDS": "101,102",
        "LEADS_START_DATE": str(long_ago),
        "LEADS_TIMEZONE": "Europe/London",
        "LEADS_KEEP_DAYS": "35",
    }.items():
        monkeypatch.setenv(name, value)
    land(lake, APPLICANT, [lead("old", "ann1", long_ago)], day=long_ago)  # landed, and neither staged nor published
    dry = run("privacy", "retain", "--dry-run")
    assert "not staged" in dry.stderr
    assert lake.removed_days() == frozenset()
    told = run("privacy", "retain")
    assert told.exit_code == 0, told.output
    assert long_ago in lake.removed_days()
    assert counted(lake)[long_ago, "branch-101", "applicant"] == 1
    assert files_of(lake, long_ago) == []
    assert red(lake) == []


class _KilledError(Exception):
    """Stands for the end of the process."""


def kills(monkeypatch: pytest.MonkeyPatch, whole: Path, folder: Path) -> Iterator[Lake]:
    """Lakes in which a removal was killed before each third thing that it deletes or replaces, by the seed."""
    import os

    for at in range(1 + sum(os.environ["CHAOS_SEED"].encode()) % 3, 200, 3):
        shutil.copytree(whole, folder / str(at))
        lake = Lake(folder / str(at))
        publish(lake)
        left = at

        def step(of: Any) -> Any:
            def call(*args: Any, **more: Any) -> Any:
                nonlocal left
                left -= 1
                if left <= 0 and "locks" not in str(args[0]):
                    raise _KilledError
                return of(*args, **more)

            return call

        with monkeypatch.context() as patched, suppress(_KilledError):
            for name in ("unlink", "rmdir", "replace"):
                patched.setattr(os, name, step(getattr(os, name)))
            retire(lake)
        yield lake
        if left > 0:
            assert at > 10
            return


@pytest.mark.chaos
def test_a_kill_at_any_step_leaves_a_day_its_leads_or_its_figures(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = None
    for lake in kills(monkeypatch, whole, tmp_path):
        expected = expected or figures(lake)
        publish(lake)
        assert figures(lake) == expected
        retire(lake)
        publish(lake)
        assert retire(lake) == Retired()
        assert files_of(lake, DAY) == []
        assert (figures(lake), red(lake)) == (expected, [])
        shutil.rmtree(lake.folder)


def test_every_measure_of_a_mart_by_day_is_known_to_be_one() -> None:
    from leads_pipeline.warehouse.frozen import MEASURES
    from leads_pipeline.warehouse.schema import FROZEN

    numbers = {column.name for column in FROZEN.columns if column.type == "bigint"}
    assert numbers - MEASURES.keys() == {"rows", "removed", "received"}  # of landed_windows
    for mart in frozen_marts():
        assert mart.columns.keys() - {"branch"} <= {column.name for column in FROZEN.columns}, mart.name
