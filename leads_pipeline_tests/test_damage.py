"""What is damaged or gone: found, shown wherever somebody looks, healed or given up; until then no lead leaves."""

import os
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from dagster import AssetKey, AssetRecordsFilter

from leads_pipeline.assets.published import wholeness_check
from leads_pipeline.contract import APPLICANT, APPRAISAL, LEAD_KINDS
from leads_pipeline.damage import Damage, damages, give_up
from leads_pipeline.definitions import PUBLISH_JOB, STAGE_JOB
from leads_pipeline.flatten.batches import flatten_day
from leads_pipeline.flatten.columns import staged_tables, windows_table
from leads_pipeline.lake import Lake
from leads_pipeline.partitions import RANGE_END_TAG, RANGE_START_TAG
from leads_pipeline.sensors import catch_up_sensor
from leads_pipeline.warehouse import Grid, Publication, Warehouse
from leads_pipeline.window import Scope
from leads_pipeline_tests.command_line import run
from leads_pipeline_tests.installation import Installation, installation
from leads_pipeline_tests.staging import DAY, FETCHED_AT, LONDON, NEXT_DAY, land, stage, staged_leads

GRID = Grid((Scope.parse("branch-101"), Scope.parse("branch-102")), DAY, LONDON)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Two branches with two leads each, staged and published."""
    lake = Lake(tmp_path / "data")
    for branch in ("101", "102"):
        land(lake, APPLICANT, [{"id": f"{branch}-{n}"} for n in (1, 2)], scope=f"branch-{branch}")
    stage(lake, APPLICANT)
    publish(lake)
    return lake


def publish(lake: Lake) -> Publication:
    return Warehouse(lake).publish(GRID, FETCHED_AT)


def raw_of(lake: Lake, branch: str) -> Path:
    return lake.folder / "raw" / "applicant_leads" / f"day={DAY}" / f"scope=branch-{branch}" / "leads.parquet"


def published_ids(lake: Lake) -> list[str]:
    return [id_ for (id_,) in Warehouse(lake).query("select lead_id from applicant_leads order by 1")[1]]


def states(lake: Lake) -> dict[str, tuple[str, int | None]]:
    _, rows = Warehouse(lake).query(
        "select scope, state, rows from mart_coverage where kind = 'applicant' and day = '2026-11-19'"
    )
    return {scope: (state, leads) for scope, state, leads in rows}


ALL = ["101-1", "101-2", "102-1", "102-2"]


@pytest.mark.parametrize("is_gone", [False, True])
@pytest.mark.chaos
def test_readers_keep_what_a_damaged_raw_file_held_until_it_is_given_up(lake: Lake, is_gone: bool) -> None:
    path = raw_of(lake, "101")
    path.unlink() if is_gone else path.write_bytes(b"rotten")
    stage(lake, APPLICANT)
    publish(lake)
    assert published_ids(lake) == ALL
    assert states(lake) == {"branch-101": ("damaged", 2), "branch-102": ("landed", 2)}
    [damage] = damages(lake)
    assert damage == Damage(
        "applicant/2026-11-19/branch-101", (APPLICANT, DAY, "branch-101"), tuple(lake.quarantined()), 2
    )
    assert len(damage.files) == (0 if is_gone else 1)
    give_up(lake, damage, LONDON)
    publish(lake)
    assert published_ids(lake) == sorted(staged_leads(lake, APPLICANT)) == ["102-1", "102-2"]
    assert states(lake)["branch-101"] == ("missing", None)
    assert damages(lake) == []
    assert lake.quarantined() == []


@pytest.mark.chaos
def test_a_window_that_is_landed_again_is_whole(lake: Lake) -> None:
    raw_of(lake, "101").write_bytes(b"rotten")
    stage(lake, APPLICANT)
    land(lake, APPLICANT, [{"id": "101-1"}])
    assert damages(lake) == []
    stage(lake, APPLICANT)
    publish(lake)
    assert published_ids(lake) == ALL  # the portal no longer had the second one
    assert states(lake)["branch-101"] == ("landed", 1)


def test_what_is_no_windows_is_damaged_until_it_is_given_up(lake: Lake) -> None:
    aside = lake.folder / "quarantine" / "spool" / "20261119T120000.000000Z-ab.pushed"
    aside.parent.mkdir(parents=True)
    aside.write_bytes(b"rotten")
    [damage] = damages(lake)
    assert damage == Damage("spool/20261119T120000.000000Z-ab.pushed", None, (aside,), None)
    give_up(lake, damage, LONDON)
    assert damages(lake) == []
    assert published_ids(lake) == ALL


def test_one_person_can_be_deleted_as_the_readme_says(lake: Lake) -> None:
    raw_of(lake, "101").unlink()
    shutil.rmtree(lake.folder / "staged")
    (lake.folder / "leads.duckdb").unlink()
    stage(lake, APPLICANT)
    publish(lake)
    assert published_ids(lake) == ["102-1", "102-2"]
    assert damages(lake) == []


# --- staged files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "is_gone"),
    [
        # Each table once, rotten and gone by turns; the others with chaos.
        pytest.param(table, is_gone, marks=[] if is_gone is bool(number % 2) else pytest.mark.chaos)
        for number, table in enumerate(staged_tables(APPLICANT))
        for is_gone in (False, True)
    ],
)
@pytest.mark.chaos
def test_a_broken_staged_file_is_staged_again_and_stops_no_other_day(lake: Lake, table: str, is_gone: bool) -> None:
    raw_of(lake, "101").unlink()  # so that its leads are nowhere but in what is staged and published
    land(lake, APPLICANT, [{"id": "next"}], day=NEXT_DAY)
    stage(lake, APPLICANT, NEXT_DAY)
    path = lake.staged_path(table, DAY)
    whole = path.read_bytes()
    path.unlink() if is_gone else path.write_bytes(whole[:40] + bytes([whole[40] ^ 1]) + whole[41:] + b"x")
    assert publish(lake).not_staged == {}
    assert published_ids(lake) == [*ALL, "next"]
    assert lake.whole_staged(table, DAY) == path
    assert states(lake)["branch-101"] == ("damaged", 2)


@pytest.mark.chaos
def test_a_staged_file_that_rots_after_it_was_loaded_is_staged_again_once_it_is_read(lake: Lake) -> None:
    later = FETCHED_AT + timedelta(hours=1)
    land(lake, APPLICANT, [{"id": "101-1", "message": "newer"}], day=NEXT_DAY, fetched_at=later)
    stage(lake, APPLICANT, NEXT_DAY)
    publish(lake)
    path = lake.staged_path("applicant_leads", DAY)
    stat = path.stat()
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    # The other day gives the lead up, so that this day's version counts.
    shutil.rmtree(lake.folder / "raw" / "applicant_leads" / f"day={NEXT_DAY}")
    flatten_day(lake, APPLICANT, NEXT_DAY, LONDON, {"branch-101"})
    assert publish(lake).not_staged == {}
    assert published_ids(lake) == ALL
    assert Warehouse(lake).query("select message from applicant_leads where lead_id = '101-1'")[1] == [(None,)]
    assert lake.whole_staged("applicant_leads", DAY) == path


@pytest.mark.chaos
def test_a_day_that_cannot_be_staged_stays_as_it_is_published(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    land(lake, APPLICANT, [{"id": "next"}], day=NEXT_DAY)
    stage(lake, APPLICANT, NEXT_DAY)
    lake.staged_path("applicant_leads", DAY).write_bytes(b"rotten")
    with monkeypatch.context() as patched:
        patched.setattr("leads_pipeline.flatten.counts._unexplained", lambda _: f"select date '{DAY}', 1")
        publication = publish(lake)
    assert list(publication.not_staged) == [("applicant", DAY)]
    assert published_ids(lake) == [*ALL, "next"]
    check = wholeness_check(lake, publication)
    assert not check.passed
    assert check.description is not None
    assert f"- applicant {DAY} can't be staged: The applicant leads of {DAY} don't add up" in check.description
    assert publish(lake).not_staged == {}
    assert published_ids(lake) == [*ALL, "next"]


# --- as a user meets it ----------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installation]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "250")
    with installation(tmp_path, first=3) as started:
        yield started


@pytest.mark.chaos
def test_damage_shows_everywhere_and_heals_or_is_given_up(here: Installation) -> None:
    days = {RANGE_START_TAG: str(here.day(3)), RANGE_END_TAG: str(here.day(2))}

    def staged_and_published() -> bool:
        """Whether the check on whole files passes then."""
        here.execute(STAGE_JOB, tags=days)
        result = here.execute(PUBLISH_JOB, tags={})
        evaluated = {one.check_name: one.passed for one in result.get_asset_check_evaluations()}
        return evaluated["files_are_whole"]

    here.pull(here.keys([2, 3]), LEAD_KINDS)
    assert staged_and_published()
    _, [(leads,)] = Warehouse(here.lake).query("select count(*) from applicant_leads")
    assert run("damaged").exit_code == 0
    for path in [window.path for window in here.lake.landed_windows(APPLICANT, here.day(2))][:2]:
        path.write_bytes(b"rotten")
    assert not staged_and_published()
    assert Warehouse(here.lake).query("select count(*) from applicant_leads")[1] == [(leads,)]

    told = run("coverage", "--days", 3)
    assert told.exit_code == 1
    assert "2 applicant damaged." in told.output
    assert all(here.key(2, branch) in told.output for branch in (101, 102))
    assert "whole files: 2 windows or files are damaged or gone." in run("doctor").output
    listed = run("damaged")
    assert listed.exit_code == 1
    assert f"applicant/{here.day(2)}/branch-101" in listed.output

    key = f"applicant/{here.day(2)}/branch-102"
    assert run("damaged", "--give-up", "applicant/never").exit_code == 2
    assert run("damaged", "--give-up", key, "--yes").exit_code == 1  # the other one is left
    assert [damage.key for damage in damages(here.lake)] == [f"applicant/{here.day(2)}/branch-101"]
    _, scopes = Warehouse(here.lake).query(
        "select distinct scope from applicant_leads where window_day = $day", {"day": here.day(2)}
    )
    assert "branch-102" not in {scope for (scope,) in scopes}

    tick = here.tick(catch_up_sensor(here.settings, here.partitions, "pull_leads", clock=lambda: here.now))
    assert tick.run_requests is not None
    assert tick.run_requests[0].tags[RANGE_START_TAG] == here.key(2, 101)
    here.pull({here.key(2, 101), here.key(2, 102)})
    assert staged_and_published()
    assert Warehouse(here.lake).query("select count(*) from applicant_leads")[1] == [(leads,)]
    assert run("damaged").exit_code == 0
    assert run("coverage", "--days", 3).exit_code == 1  # yesterday was never pulled
    assert AssetKey("landed_windows") in here.definitions.resolve_all_asset_keys()
    assert [window.path for window in here.lake.landed_windows(APPRAISAL, here.day(2))]


@pytest.mark.chaos
def test_a_day_that_a_publication_stages_again_is_recorded_as_staged(here: Installation) -> None:
    day = str(here.day(2))
    here.pull(here.keys([2]), LEAD_KINDS)
    here.execute(STAGE_JOB, tags={RANGE_START_TAG: day, RANGE_END_TAG: day})
    here.lake.staged_path(windows_table(APPLICANT), here.day(2)).write_bytes(b"rotten")
    run_id = here.execute(PUBLISH_JOB, tags={}).run_id
    wanted = AssetRecordsFilter(AssetKey(f"stg_{APPLICANT.table}"), asset_partitions=[day])
    [newest] = here.instance.fetch_materializations(wanted, limit=1).records
    assert newest.run_id == run_id
    assert newest.asset_materialization is not None
    _, [(rows,)] = Warehouse(here.lake).query("select count(*) from applicant_leads")
    assert newest.asset_materialization.metadata["dagster/partition_row_count"].value == rows
