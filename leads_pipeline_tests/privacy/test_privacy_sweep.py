"""The asset `privacy_sweep`: files that somebody put back are noticed, and a quiet night reads next to nothing."""

import shutil
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
from leads_pipeline.privacy.nightly import Night, keep_clean
from leads_pipeline.privacy.requests import note_done
from leads_pipeline.resources import DataFolder
from leads_pipeline.settings import Settings
from leads_pipeline.warehouse import Grid
from leads_pipeline.window import Scope
from leads_pipeline_tests.privacy.test_suppression import push, take_in
from leads_pipeline_tests.support.people import EMAIL, lead, left_by_list, listed
from leads_pipeline_tests.support.staging import DAY, LONDON, NEXT_DAY, land, publish, stage

BEFORE = "2026-11-19T10:00:00Z"
JANE = lead("jane", email=EMAIL, createdAt=BEFORE)
JOHN = lead("john", email="john@people.example", createdAt=BEFORE)
NOW = datetime(2026, 11, 22, 2, tzinfo=UTC)
GRID = Grid(scopes=tuple(map(Scope.parse, ("branch-101", "branch-102"))), first_day=DAY, zone=LONDON)
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
def read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The raw files that went through the gate once more."""
    found: list[Path] = []
    pass_again = Lake.pass_again

    def noting(self: Lake, path: Path, *args: Any, **kwargs: Any) -> set[str] | None:
        found.append(path)
        return pass_again(self, path, *args, **kwargs)

    monkeypatch.setattr(Lake, "pass_again", noting)
    return found


def settings_of(lake: Lake, **more: str) -> Settings:
    return Settings.from_variables(
        {"LEADS_DATA_DIR": str(lake.folder), "LEADS_PRIVACY_DIR": str(lake.suppression.folder), **more}
    )


def night(lake: Lake, now: datetime = NOW, **more: str) -> Night:
    return keep_clean(lake, settings_of(lake, **more), now)


def test_a_night_looks_at_files_that_appeared_since_the_last_and_not_at_others(lake: Lake, read: list[Path]) -> None:
    assert night(lake).counts == {"requests_not_shown_done": 0}
    assert read == []  # nobody is on the list
    listed(lake.suppression)
    assert night(lake).counts == {"requests_not_shown_done": 1}
    assert read == []  # the publication that follows sweeps
    publish(lake, GRID, NOW)
    assert left_by_list(lake) == []
    night(lake)
    read.clear()
    assert night(lake).counts == QUIET | {"requests_not_shown_done": 1}
    assert read == []
    push(lake, JOHN)
    take_in(lake)
    night(lake)
    assert [path.name for path in read] == ["pushed.parquet"]


def test_a_restored_file_is_noticed_whatever_time_it_bears(lake: Lake, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    subject = next(lake.raw_lead_files())
    shutil.copytree(lake.folder, backup)
    listed(lake.suppression)
    publish(lake, GRID, NOW)
    night(lake)
    note_done(lake, NOW)
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
    raw = {path: path.read_bytes() for path in lake.raw_lead_files()}
    publish(lake, GRID, NOW)
    for path, before in raw.items():
        path.write_bytes(before)
    run = asset_run()
    [made] = run.get_asset_materialization_events()
    assert made.materialization.metadata["leads_taken_out"].value == 4
    assert made.materialization.metadata["erased_people_were_back"].value is False


@pytest.mark.slow
def test_retention_runs_where_it_is_set(lake: Lake) -> None:
    later = NOW + timedelta(days=40)
    keep = {"LEADS_KEEP_PERSONAL_DAYS": "35"}
    assert "days_cut" not in night(lake, later).counts
    first = night(lake, later, **keep)
    assert (first.counts["days_cut"], first.counts["leads_cut"], first.troubles) == (2, 4, [])
    assert lake.rebuild_wanted() is not None
    assert night(lake, later, **keep).counts["days_cut"] == 0
    push(lake, JOHN)
    take_in(lake)
    assert night(lake, later, **keep).counts["days_cut"] == 1


def test_it_runs_each_night_and_a_publication_follows(tmp_path: Path) -> None:
    definitions = build_definitions({"LEADS_DATA_DIR": str(tmp_path), "LEADS_TIMEZONE": "Europe/London"})
    schedule = definitions.resolve_schedule_def("sweep_for_privacy_nightly")
    assert (schedule.job_name, schedule.cron_schedule) == (PRIVACY_JOB, "0 2 * * *")
    assert schedule.default_status.value == "RUNNING"
    assert schedule.execution_timezone == ZoneInfo("Europe/London").key
    graph = definitions.resolve_asset_graph()
    followed = [key for key in graph.get_all_asset_keys() if AssetKey("privacy_sweep") in graph.get(key).parent_keys]
    assert followed == [AssetKey("landed_windows")]
