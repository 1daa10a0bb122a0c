"""The asset `privacy_sweep`: each night the folder is as privacy wants it, and a quiet night reads next to nothing."""

import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from dagster import AssetKey, DagsterInstance, materialize

from leads_pipeline.assets.privacy import privacy_sweep_asset
from leads_pipeline.contract import APPLICANT
from leads_pipeline.definitions import PRIVACY_JOB, build_definitions
from leads_pipeline.lake import Lake
from leads_pipeline.privacy.erase import Swept, left_by_list, note_done, sweep
from leads_pipeline.privacy.nightly import Night, keep_clean
from leads_pipeline.resources import DataFolder
from leads_pipeline.settings import Settings
from leads_pipeline_tests.privacy.test_suppression import push, take_in
from leads_pipeline_tests.support.people import EMAIL, lead, listed
from leads_pipeline_tests.support.staging import DAY, NEXT_DAY, land, stage, staged_leads

BEFORE = "2026-11-19T10:00:00Z"
JANE = lead("jane", email=EMAIL, createdAt=BEFORE)
JOHN = lead("john", email="john@people.example", createdAt=BEFORE)
NOW = datetime(2026, 11, 22, 2, tzinfo=UTC)
QUIET = {
    "requests_not_shown_done": 0,
    "leads_taken_out": 0,
    "raw_files_rewritten": 0,
    "deliveries_taken_out": 0,
    "days_staged_anew": 0,
}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path / "data", tmp_path / "list")
    for day in (DAY, NEXT_DAY):
        for scope in ("branch-101", "branch-102"):
            land(lake, APPLICANT, [JANE, JOHN], day=day, scope=scope)
        stage(lake, APPLICANT, day)
    return lake


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts raw files that are read, and staged ones."""
    found: Counter[str] = Counter()

    def counted(name: str) -> None:
        whole = getattr(Lake, name)

        def call(self: Lake, *args: Any) -> Any:
            found[name] += 1
            return whole(self, *args)

        monkeypatch.setattr(Lake, name, call)

    for name in ("rewrite_raw", "is_cut", "whole_staged"):
        counted(name)
    return found


def settings_of(lake: Lake, **more: str) -> Settings:
    return Settings.from_variables(
        {"LEADS_DATA_DIR": str(lake.folder), "LEADS_PRIVACY_DIR": str(lake.suppression.folder), **more}
    )


def night(lake: Lake, now: datetime = NOW, **more: str) -> Night:
    return keep_clean(lake, settings_of(lake, **more), now)


@pytest.mark.slow
def test_a_killed_erasure_is_finished_and_the_next_nights_read_nothing(lake: Lake, read: Counter[str]) -> None:
    assert night(lake).counts == QUIET
    assert read == {}  # nobody is on the list
    listed(lake.suppression)
    push(lake, JOHN, JANE)
    first = night(lake)
    assert first.counts == QUIET | {
        "requests_not_shown_done": 1,
        "leads_taken_out": 4,
        "raw_files_rewritten": 4,
        "days_staged_anew": 2,
    }
    assert (first.troubles, first.came_back) == ([], False)
    assert left_by_list(lake) == []
    assert staged_leads(lake, APPLICANT).keys() == {"john"}
    night(lake)
    read.clear()
    assert night(lake).counts == QUIET | {"requests_not_shown_done": 1}
    assert read == {}
    # What is landed is another file.
    take_in(lake)
    night(lake)
    assert read["rewrite_raw"] == 1
    # And whoever is added is looked for everywhere.
    listed(lake.suppression, emails=["john@people.example"])
    night(lake)
    assert [row for path in lake.raw_lead_files() for row in lake.lead_ids(APPLICANT, DAY)] == []
    assert left_by_list(lake) == []


def test_an_id_that_the_list_learns_has_those_files_read_that_hold_it(lake: Lake, read: Counter[str]) -> None:
    moved = {"id": "moved", "createdAt": BEFORE, "contact": JOHN["contact"]}
    land(lake, APPLICANT, [moved], scope="branch-103")
    land(lake, APPLICANT, [moved | {"id": "lost"}], scope="branch-104")
    stage(lake, APPLICANT)
    next(lake.folder.glob("raw/*/*/scope=branch-104/*.parquet")).unlink()
    listed(lake.suppression)
    for _ in range(3):
        night(lake)
    read.clear()
    land(lake, APPLICANT, [moved | {"contact": JANE["contact"]}], day=NEXT_DAY, scope="branch-103")  # refused
    learned = night(lake)
    assert (learned.counts["leads_taken_out"], learned.counts["days_staged_anew"]) == (1, 1)
    assert read["rewrite_raw"] == 2  # what is new, and the one of six that holds another version
    assert "moved" not in staged_leads(lake, APPLICANT)
    assert left_by_list(lake) == []

    # And in a staged day alone, as its raw file is lost.
    night(lake)
    lake.know_leads(lake.suppression.read(), {("applicant", "lost"): 1})
    assert night(lake).counts == QUIET | {"requests_not_shown_done": 1, "days_staged_anew": 1}
    assert staged_leads(lake, APPLICANT).keys() == {"john"}


def test_a_list_that_was_put_back_has_all_read_that_it_learns_by_the_numbers_of_others(lake: Lake) -> None:
    moved = {"id": "moved", "createdAt": BEFORE, "contact": JOHN["contact"]}
    land(lake, APPLICANT, [moved], scope="branch-103")
    stage(lake, APPLICANT)
    listed(lake.suppression)
    before = {path: path.read_bytes() for path in (lake.suppression.path, lake.suppression.guard)}
    lake.know_leads(lake.suppression.read(), {("applicant", "another"): 1})
    for _ in range(2):
        night(lake)
    for path, content in before.items():
        path.write_bytes(content)
    lake.know_leads(lake.suppression.read(), {("applicant", "moved"): 1})
    night(lake)
    assert "moved" not in staged_leads(lake, APPLICANT)
    assert left_by_list(lake) == []


def test_an_id_that_an_erasure_learns_has_no_other_file_read_twice(lake: Lake, read: Counter[str]) -> None:
    moved = {"id": "moved", "createdAt": BEFORE, "contact": JOHN["contact"]}
    for number in range(5):
        land(lake, APPLICANT, [moved | {"id": f"john {number}"}], day=DAY - timedelta(days=number + 1))
    land(lake, APPLICANT, [moved], day=DAY - timedelta(days=9))
    land(lake, APPLICANT, [moved | {"contact": JANE["contact"]}], day=NEXT_DAY, scope="branch-103")
    listed(lake.suppression)
    assert sweep(lake, ZoneInfo("UTC")).leads == 6
    assert read["rewrite_raw"] == 11 + 6  # all, and again those of two days that were staged anew, and hers
    assert left_by_list(lake) == []


def test_a_restored_file_is_noticed_whatever_time_it_bears(lake: Lake, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    subject = next(lake.raw_lead_files())
    shutil.copytree(lake.folder, backup)
    entry = listed(lake.suppression)
    night(lake)
    night(lake)
    note_done(lake, entry, Swept())
    assert not night(lake).came_back
    shutil.copy2(backup / subject.relative_to(lake.folder), subject)
    again = night(lake)
    assert (again.counts["leads_taken_out"], again.came_back) == (1, True)
    # Of the staged files as well, by themselves.
    staged = lake.staged_path("applicant_leads", DAY)
    shutil.copy2(backup / staged.relative_to(lake.folder), staged)
    again = night(lake)
    assert (again.counts["leads_taken_out"], again.counts["days_staged_anew"], again.came_back) == (0, 1, True)
    assert left_by_list(lake) == []
    assert not night(lake).came_back


def test_a_step_that_cannot_be_done_fails_loudly(lake: Lake) -> None:
    listed(lake.suppression)

    def asset_run() -> Any:
        asset = privacy_sweep_asset(settings_of(lake))
        data = DataFolder(path=str(lake.folder), privacy_path=str(lake.suppression.folder))
        with DagsterInstance.ephemeral() as instance:
            return materialize([asset], resources={"data": data}, instance=instance, raise_on_error=False)

    key = lake.suppression.folder / "key"
    content = key.read_bytes()
    key.unlink()
    run = asset_run()
    [failed] = [event for event in run.all_events if event.is_step_failure]
    told = failed.step_failure_data.user_failure_data.description
    assert "The suppression list couldn't be applied" in told
    assert "Put list and key back" in told
    key.write_bytes(content)
    run = asset_run()
    [made] = run.get_asset_materialization_events()
    assert made.materialization.metadata["leads_taken_out"].value == 4
    assert made.materialization.metadata["erased_people_were_back"].value is False


@pytest.mark.slow
def test_retention_runs_where_it_is_set_and_reads_what_is_new(lake: Lake, read: Counter[str]) -> None:
    later = NOW + timedelta(days=40)
    keep = {"LEADS_KEEP_PERSONAL_DAYS": "35"}
    assert "days_cut" not in night(lake, later).counts
    first = night(lake, later, **keep)
    assert (first.counts["days_cut"], first.counts["leads_cut"], first.troubles) == (2, 4, [])
    assert lake.rebuild_wanted() is not None
    night(lake, later, **keep)
    read.clear()
    assert night(lake, later, **keep).counts["days_cut"] == 0
    assert read == {}
    push(lake, JOHN)
    take_in(lake)
    again = night(lake, later, **keep)
    assert (again.counts["days_cut"], read["is_cut"]) == (1, 1)


def test_it_runs_each_night_and_a_publication_follows(tmp_path: Path) -> None:
    definitions = build_definitions({"LEADS_DATA_DIR": str(tmp_path), "LEADS_TIMEZONE": "Europe/London"})
    schedule = definitions.resolve_schedule_def("sweep_for_privacy_nightly")
    assert (schedule.job_name, schedule.cron_schedule) == (PRIVACY_JOB, "0 2 * * *")
    assert schedule.default_status.value == "RUNNING"
    assert schedule.execution_timezone == ZoneInfo("Europe/London").key
    graph = definitions.resolve_asset_graph()
    followed = [key for key in graph.get_all_asset_keys() if AssetKey("privacy_sweep") in graph.get(key).parent_keys]
    assert followed == [AssetKey("landed_windows")]
