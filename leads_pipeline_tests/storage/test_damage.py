"""Damaged and missing files: they are found, named wherever somebody looks, and cost no lead until they are whole."""

import os
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from leads_pipeline.assets.published import wholeness_check
from leads_pipeline.contract import APPLICANT, LEAD_KINDS
from leads_pipeline.definitions import PUBLISH_JOB, STAGE_JOB
from leads_pipeline.errors import StorageError
from leads_pipeline.flatten.columns import staged_tables
from leads_pipeline.flatten.lost import LostRawError
from leads_pipeline.flatten.windows import damaged_files, days_without_staged, unstaged_days
from leads_pipeline.lake import Lake
from leads_pipeline.partitions import RANGE_END_TAG, RANGE_START_TAG
from leads_pipeline.privacy.retain import cut_days
from leads_pipeline.privacy.sweeping import sweep
from leads_pipeline.sensors import catch_up_sensor, failure_sensor
from leads_pipeline.suppression import Action
from leads_pipeline.warehouse import Grid, Publication, Warehouse
from leads_pipeline.window import Scope
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.installation import Installation, installation
from leads_pipeline_tests.support.people import EMAIL, left_by_list, listed
from leads_pipeline_tests.support.staging import (
    DAY,
    FETCHED_AT,
    LONDON,
    NEXT_DAY,
    land,
    stage,
    staged_leads,
    staged_rows,
)

BEFORE = "2026-11-19T10:00:00Z"
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
@pytest.mark.slow
def test_readers_keep_what_a_damaged_or_missing_raw_file_held(lake: Lake, is_gone: bool) -> None:
    path = raw_of(lake, "101")
    path.unlink() if is_gone else path.write_bytes(b"rotten")
    with pytest.raises(LostRawError):
        stage(lake, APPLICANT)
    publication = publish(lake)
    assert published_ids(lake) == ALL
    [damaged] = damaged_files(lake)
    assert damaged.startswith(
        f"{'raw' if is_gone else 'quarantine/raw'}/applicant_leads/day={DAY}/scope=branch-101/leads"
    )
    check = wholeness_check(lake, publication)
    assert not check.passed
    assert damaged in (check.description or "")


@pytest.mark.slow
def test_a_window_that_is_landed_again_is_whole(lake: Lake) -> None:
    raw_of(lake, "101").write_bytes(b"rotten")
    with pytest.raises(LostRawError):
        stage(lake, APPLICANT)
    land(lake, APPLICANT, [{"id": "101-1"}, {"id": "101-2"}])
    assert damaged_files(lake) == []
    stage(lake, APPLICANT)
    assert wholeness_check(lake, publish(lake)).passed
    assert published_ids(lake) == ALL


@pytest.mark.parametrize("name", ["spool/20261119T120000.000000Z-ab.pushed", "raw/{day}/pushed.parquet.{moment}"])
def test_what_is_no_windows_is_damaged_until_it_is_deleted_by_hand(lake: Lake, name: str) -> None:
    below = name.format(day=f"applicant_leads/day={DAY}/scope=branch-101", moment="20261119T120000.000000Z")
    aside = lake.folder / "quarantine" / below
    aside.parent.mkdir(parents=True)
    aside.write_bytes(b"rotten")
    assert damaged_files(lake) == [f"quarantine/{below}"]
    aside.unlink()
    assert damaged_files(lake) == []
    assert published_ids(lake) == ALL


def test_one_person_can_be_deleted_as_the_readme_says(lake: Lake) -> None:
    raw_of(lake, "101").unlink()
    shutil.rmtree(lake.folder / "staged")
    (lake.folder / "leads.duckdb").unlink()
    stage(lake, APPLICANT)
    publish(lake)
    assert published_ids(lake) == ["102-1", "102-2"]
    assert damaged_files(lake) == []


@pytest.mark.parametrize("action", [Action.ERASE, Action.RESTRICT])
def test_whoever_is_erased_leaves_a_day_that_stays_as_it_was_staged(lake: Lake, action: Action) -> None:
    later = FETCHED_AT + timedelta(hours=1)
    theirs = {"id": "theirs", "contact": {"email": EMAIL}, "createdAt": BEFORE, "viewingTimes": [{"earliest": BEFORE}]}
    land(lake, APPLICANT, [{"id": "101-1"}, {"id": "101-2"}, theirs], fetched_at=later)
    stage(lake, APPLICANT)
    publish(lake)
    assert "theirs" in published_ids(lake)
    raw_of(lake, "101").unlink()
    listed(lake.suppression, action)
    swept = sweep(lake, LONDON)
    assert (swept.failed, swept.days) == ({}, {"applicant": 1})
    assert sorted(staged_leads(lake, APPLICANT)) == ALL
    assert staged_rows(lake, "applicant_viewing_times") == []
    with pytest.raises(LostRawError):
        stage(lake, APPLICANT)
    publish(lake)
    assert published_ids(lake) == ALL
    assert left_by_list(lake) == []


def test_retention_reaches_a_day_that_stays_as_it_was_staged(lake: Lake) -> None:
    land(lake, APPLICANT, [{"id": "new", "contact": {"email": EMAIL}, "message": "planted"}], scope="branch-102")
    stage(lake, APPLICANT)
    raw_of(lake, "101").unlink()
    assert [(day.error, day.leads) for day in cut_days(lake, NEXT_DAY, LONDON)] == [(None, 5)]
    assert [row["message"] for row in staged_rows(lake, "applicant_leads")] == [None] * 5
    assert b"planted" not in raw_of(lake, "102").read_bytes()


# --- staged files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "is_gone"),
    [
        # Each table once, rotten and gone by turns; the others with chaos.
        pytest.param(table, is_gone, marks=[] if is_gone is bool(number % 2) else pytest.mark.slow)
        for number, table in enumerate(staged_tables(APPLICANT))
        for is_gone in (False, True)
    ],
)
@pytest.mark.slow
def test_a_day_whose_staged_file_is_broken_stays_as_published_and_stops_no_other_day(
    lake: Lake, table: str, is_gone: bool
) -> None:
    whole = {table: lake.staged_path(table, DAY).read_bytes() for table in staged_tables(APPLICANT)}
    land(lake, APPLICANT, [{"id": "next"}], day=NEXT_DAY)
    stage(lake, APPLICANT, NEXT_DAY)
    assert unstaged_days(lake, APPLICANT, DAY) == []
    path = lake.staged_path(table, DAY)
    path.unlink() if is_gone else path.write_bytes(whole[table][:40] + bytes([whole[table][40] ^ 1]) + b"x")
    publication = publish(lake)
    assert publication.kept == [("applicant", DAY)]
    assert published_ids(lake) == [*ALL, "next"]
    assert not wholeness_check(lake, publication).passed
    assert not publish(lake).is_changed
    assert unstaged_days(lake, APPLICANT, DAY) == days_without_staged(lake, APPLICANT) == [DAY]
    stage(lake, APPLICANT)
    assert {table: lake.staged_path(table, DAY).read_bytes() for table in staged_tables(APPLICANT)} == whole
    assert wholeness_check(lake, publish(lake)).passed
    assert published_ids(lake) == [*ALL, "next"]


@pytest.mark.parametrize("is_unreadable", [False, True])
def test_nothing_is_built_anew_while_a_day_is_in_the_published_file_alone(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, is_unreadable: bool
) -> None:
    raw = raw_of(lake, "101").read_bytes()
    raw_of(lake, "101").unlink()
    lake.staged_path("applicant_leads", DAY).write_bytes(b"rotten")
    (lake.folder / "leads.duckdb").chmod(0o600)
    before = (lake.folder / "leads.duckdb").read_bytes()
    if is_unreadable:  # by its checksums; DuckDB can still open it
        (lake.folder / ".state" / "warehouse-pieces").write_text("0\n00000000")
    else:
        monkeypatch.setattr("leads_pipeline.warehouse.state.SCHEMA_VERSION", 99)
    for _ in range(2):
        with pytest.raises(
            StorageError, match=f"has to be built anew, and would lose days .* applicant leads of {DAY}"
        ):
            publish(lake)
        with pytest.raises(LostRawError):
            stage(lake, APPLICANT)
    assert (lake.folder / "leads.duckdb").read_bytes() == before
    raw_of(lake, "101").write_bytes(raw)
    stage(lake, APPLICANT)
    assert publish(lake).is_rebuilt
    assert published_ids(lake) == ALL


@pytest.mark.slow
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
    for table in staged_tables(APPLICANT):
        (lake.folder / "staged" / table / f"day={NEXT_DAY}" / f"{table}.parquet").unlink()
    (lake.folder / "leads.duckdb").rename(lake.folder / "aside")
    stage(lake, APPLICANT, NEXT_DAY)
    (lake.folder / "aside").rename(lake.folder / "leads.duckdb")
    assert publish(lake).kept == [("applicant", DAY)]
    assert unstaged_days(lake, APPLICANT, DAY) == [DAY]
    stage(lake, APPLICANT)
    assert publish(lake).kept == []
    assert published_ids(lake) == ALL
    assert Warehouse(lake).query("select message from applicant_leads where lead_id = '101-1'")[1] == [(None,)]


# --- as a user meets it ----------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installation]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "250")
    with installation(tmp_path, first=3) as started:
        yield started


@pytest.mark.slow
def test_damage_is_named_everywhere_and_is_over_once_the_windows_are_pulled_again(here: Installation) -> None:
    days = {RANGE_START_TAG: str(here.day(3)), RANGE_END_TAG: str(here.day(2))}

    def staged_and_published() -> tuple[bool, bool]:
        """Whether all days were staged, and whether the check on whole files passes then."""
        staged = here.execute(STAGE_JOB, tags=days).success
        result = here.execute(PUBLISH_JOB, tags={})
        evaluated = {one.check_name: one.passed for one in result.get_asset_check_evaluations()}
        return staged, evaluated["files_are_whole"]

    here.pull(here.keys([2, 3]), LEAD_KINDS)
    assert staged_and_published() == (True, True)
    _, [(leads,)] = Warehouse(here.lake).query("select count(*) from applicant_leads")
    for path in [window.path for window in here.lake.landed_windows(APPLICANT, here.day(2))][:2]:
        path.write_bytes(b"rotten")
    assert staged_and_published() == (False, False)
    assert Warehouse(here.lake).query("select count(*) from applicant_leads")[1] == [(leads,)]

    told = run("coverage", "--days", 3)
    assert told.exit_code == 1
    assert all(here.key(2, branch) in told.output for branch in (101, 102))
    doctor = run("doctor").output
    assert "whole files: 2 files are damaged or missing: quarantine/raw/applicant_leads/" in doctor
    assert f"day={here.day(2)}/scope=branch-101/leads.parquet" in doctor
    assert run("damaged").exit_code == 2

    tick = here.tick(catch_up_sensor(here.settings, here.partitions, "pull_leads", clock=lambda: here.now))
    assert tick.run_requests is not None
    assert tick.run_requests[0].tags[RANGE_START_TAG] == here.key(2, 101)
    here.pull({here.key(2, 101), here.key(2, 102)})
    assert staged_and_published() == (True, True)
    assert Warehouse(here.lake).query("select count(*) from applicant_leads")[1] == [(leads,)]
    assert "No damaged files." in run("doctor").output


@pytest.mark.slow
@pytest.mark.parametrize("by", ["daemon", "command"])
def test_a_day_whose_staged_file_is_damaged_is_staged_anew_by_itself(here: Installation, by: str) -> None:
    day = str(here.day(2))
    here.pull(here.keys([2]), LEAD_KINDS)
    here.execute(STAGE_JOB, tags={RANGE_START_TAG: day, RANGE_END_TAG: day})
    path = here.lake.staged_path("applicant_leads", here.day(2))
    whole = path.read_bytes()
    jobs = {job.name: job for job in here.definitions.jobs or ()}
    tell = failure_sensor(jobs[STAGE_JOB], jobs[PUBLISH_JOB], here.partitions.days)  # type: ignore[arg-type]  # they are of that kind
    assert not here.tick(tell).run_requests
    path.write_bytes(b"rotten")
    here.execute(PUBLISH_JOB, tags={})
    if by == "daemon":
        tick = here.tick(tell)
        assert tick.run_requests is not None
        [request] = tick.run_requests
        assert (request.job_name, request.tags[RANGE_START_TAG], request.tags[RANGE_END_TAG]) == (STAGE_JOB, day, day)
        assert here.run_requested(request, STAGE_JOB).success
        assert not here.tick(tell).run_requests
        here.execute(PUBLISH_JOB, tags={})
    else:
        told = run("backfill", "--from", day, "--to", day, "--scope", "branch-101")
        assert told.exit_code == 0, told.output
    assert path.read_bytes() == whole or by == "command"
    assert here.lake.whole_staged("applicant_leads", here.day(2)) == path
    _, [(rows,)] = Warehouse(here.lake).query("select count(*) from applicant_leads")
    assert rows == len(staged_leads(here.lake, APPLICANT, here.day(2))) > 0
