"""Alerts: a portal fails and heals, a check turns red, a disk fills, and a real sink gets each cause once."""

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from dagster import AssetCheckEvaluation, AssetCheckSeverity, AssetKey, DagsterRunStatus

from leads_pipeline.definitions import build_definitions
from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.errors import StorageError
from leads_pipeline.observe.alerts import Memory
from leads_pipeline.observe.watch import alert_sensor
from leads_pipeline.orchestration.partitions import RANGE_END_TAG, RANGE_START_TAG
from leads_pipeline.orchestration.pulling import PUBLISH_JOB, PULL_JOB
from leads_pipeline.simulator.app import Config
from leads_pipeline.simulator.faults import Then
from leads_pipeline.transform.reading import LeadsFile
from leads_pipeline_tests.observe.test_channels import WebSink, web_sink
from leads_pipeline_tests.support.installation import Installation, installation

TOKEN = "T0KEN"
NIGHTLY = {"dagster/schedule_name": "pull_daily"}
HOUR = timedelta(hours=1)


@pytest.fixture
def web() -> Iterator[WebSink]:
    with web_sink() as sink:
        yield sink


@pytest.fixture
def here(tmp_path: Path, web: WebSink) -> Iterator[Installation]:
    (tmp_path / "branches.csv").write_text("id,name\n101,York\n")
    variables = {
        "LEADS_BRANCHES_FILE": str(tmp_path / "branches.csv"),
        "LEADS_ALERT_WEBHOOK": f"{web.url}/{TOKEN}/hook",
        "LEADS_HEARTBEAT_URL": f"{web.url}/{TOKEN}/beat",
    }
    with installation(tmp_path, Config(branches=3, leads_per_day=8), variables=variables, first=4) as started:
        yield started


class Watched:
    """An installation, the moments at which its sensor ticks, and what came of them."""

    def __init__(self, here: Installation, web: WebSink) -> None:
        self.here = here
        self.web = web
        self.now = datetime.now(UTC)
        self.cursor: str | None = None
        self.skip_message = ""

    def tick(self, later: timedelta = timedelta(0)) -> list[tuple[str, str]]:
        """What is told after that time, as occasion and title; the heartbeat's calls have the occasion `beat`."""
        self.now += later
        self.web.requests.clear()
        sensor = alert_sensor(self.here.settings, self.here.partitions, NIGHTLY, clock=lambda: self.now)
        tick = self.here.tick(sensor, self.cursor)
        self.cursor, self.skip_message = tick.cursor, tick.skip_message or ""
        assert TOKEN not in f"{self.cursor}{self.skip_message}"
        return [
            ("beat", path.partition("beat")[2]) if body == b"" else (told["occasion"], told["title"])
            for _, path, body in self.web.requests
            for told in [json.loads(body or "{}")]
        ]

    @property
    def message(self) -> str:
        """The last alert's message."""
        text: str = json.loads(self.web.requests[-1][2])["message"]
        return text

    def pull(self, then: Then | None = None, days_ago: tuple[int, ...] = (2, 3), *, nightly: bool = False) -> None:
        """Pull two days of three branches, both kinds, with that fault for all of them."""
        keys = self.here.keys(days_ago)
        self.here.simulator.set_faults(self.here.rules(keys, then) if then else [])
        range_tags = {RANGE_START_TAG: min(keys), RANGE_END_TAG: max(keys)}
        self.here.execute(tags={**range_tags, **(NIGHTLY if nightly else {})}, kinds=LEAD_KINDS)


@pytest.fixture
def watched(here: Installation, web: WebSink) -> Watched:
    return Watched(here, web)


def test_refused_windows_ring_at_once_as_one_message_and_once_more_when_they_are_landed(watched: Watched) -> None:
    assert watched.tick() == []
    watched.pull(Then(status=403))
    assert watched.tick() == [("new", "12 windows can't be pulled: refused (403)")]
    first = watched.here.key(3, 101)
    assert f"- applicant {first} (York)\n- appraisal {first} (York)\n" in watched.message
    assert "and 2 more" in watched.message
    assert "may read it; the portal's technical contact knows" in watched.message
    start = datetime.combine(watched.here.day(3) + timedelta(days=30), datetime.min.time())
    assert f"begins to delete the first of them on {start:%Y-%m-%d %H:%M} UTC" in watched.message
    assert watched.tick(HOUR) == []
    watched.pull()
    assert watched.tick() == [("over", "12 windows can't be pulled: refused (403)")]
    assert watched.tick(24 * HOUR) == []


def test_what_a_tick_told_is_not_told_again_where_dagster_gave_the_tick_up(watched: Watched) -> None:
    watched.pull(Then(status=403))
    before = watched.cursor
    assert watched.tick() == [("new", "12 windows can't be pulled: refused (403)")]
    # After a minute, on a busy machine, the daemon waits no longer: what the tick returns is lost.
    watched.cursor = before
    assert watched.tick() == []


def test_what_may_pass_rings_only_where_it_lasts_an_hour(watched: Watched) -> None:
    watched.pull(Then(status=500))
    assert watched.tick() == watched.tick(0.9 * HOUR) == []
    assert watched.tick(0.2 * HOUR) == [("new", "12 windows can't be pulled: server error (500)")]
    assert watched.tick(24 * HOUR) == [("still", "12 windows can't be pulled: server error (500)")]


def test_an_outage_rings_after_an_hour_whatever_it_looks_like_meanwhile(watched: Watched) -> None:
    watched.pull(Then(status=500))
    assert watched.tick() == []
    watched.pull(Then(status=503))
    assert watched.tick(0.9 * HOUR) == []
    assert watched.tick(0.2 * HOUR) == [("new", "12 windows can't be pulled: server error (503)")]
    watched.pull()
    assert watched.tick() == [("over", "12 windows can't be pulled: server error (503)")]


def test_a_failure_that_a_run_takes_up_at_this_moment_is_not_over(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.pull(Then(status=403), days_ago=(2, 2))
    [(occasion, _)] = watched.tick()
    assert occasion == "new"
    job = watched.here.definitions.resolve_job_def(PULL_JOB)
    run = watched.here.instance.create_run_for_job(job, status=DagsterRunStatus.STARTED)
    with monkeypatch.context() as patched:
        patched.setattr("leads_pipeline.observe.watch.known_windows", lambda *_: [])
        assert watched.tick() == []
    watched.here.instance.report_run_canceled(run)
    assert watched.tick() == []


@pytest.mark.parametrize(
    ("severity", "a_day_later"),
    [
        (AssetCheckSeverity.ERROR, [("still", "check failed: mart coverage: every branch is fresh")]),
        (AssetCheckSeverity.WARN, []),
    ],
)
def test_a_failed_check_rings_in_its_own_words(
    watched: Watched, severity: AssetCheckSeverity, a_day_later: list[tuple[str, str]]
) -> None:
    def evaluate(*, passed: bool) -> None:
        watched.here.instance.report_runless_asset_event(
            AssetCheckEvaluation(
                AssetKey("mart_coverage"), "every_branch_is_fresh", passed, severity=severity, description="Do this."
            )
        )

    evaluate(passed=False)
    assert watched.tick() == [("new", "check failed: mart coverage: every branch is fresh")]
    assert watched.message.startswith("Do this.\n\nSince ")
    assert watched.tick(24 * HOUR) == a_day_later
    evaluate(passed=True)
    assert watched.tick(HOUR) == [("over", "check failed: mart coverage: every branch is fresh")]


def test_what_is_told_by_windows_and_fields_is_not_told_by_their_checks_too(watched: Watched) -> None:
    for asset, check in (("raw_applicant_leads", "windows"), ("drift", "contract_knows_what_comes")):
        watched.here.instance.report_runless_asset_event(AssetCheckEvaluation(AssetKey(asset), check, passed=False))
    assert watched.tick() == []


@pytest.mark.slow
def test_a_publication_that_fails_or_is_old_rings_and_drift_is_told_once(
    tmp_path: Path, web: WebSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {"LEADS_ALERT_WEBHOOK": f"{web.url}/{TOKEN}"}
    with installation(tmp_path, variables=variables, first=4) as here:
        watched = Watched(here, web)
        watched.pull()
        with monkeypatch.context() as patched:
            failing = Mock(side_effect=StorageError("Full."))
            patched.setattr("leads_pipeline.orchestration.assets.published.bring_up_to_date", failing)
            assert not here.execute(PUBLISH_JOB, tags={}).success
        assert watched.tick() == []
        assert watched.tick(1.1 * HOUR) == [("new", "the last run that was to make applicant_leads failed")]
        assert here.execute(PUBLISH_JOB, tags={}).success
        told = watched.tick()
        assert ("over", "the last run that was to make applicant_leads failed") in told
        _, fields = LeadsFile(here.data).query("from drift")
        news = [title for occasion, title in told if occasion == "new" and "from the portal" in title]
        assert len(news) == min(len(fields), 1)
        later = watched.tick(28 * HOUR)
        assert ("new", "nothing has been published for more than a day") in later
        assert not any("from the portal" in title for _, title in later)


def test_a_new_member_beside_the_list_is_told_once(watched: Watched) -> None:
    body = '{"applicants": [{"id": "a"}], "requestId": "Jane Quill", "janequill": 7}'
    watched.pull(Then(status=200, body=body), days_ago=(2, 2))
    told = [title for _, title in watched.tick(HOUR) if "new member" in title]
    assert told == ["new member of the portal's answers: applicant requestId, and 1 more"]
    assert "jane" not in str(watched.web.requests).lower()
    watched.here.simulator.set_faults([])
    assert not [title for _, title in watched.tick(HOUR) if "new member" in title]


def test_a_disk_that_gets_full_rings(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    watched.pull(days_ago=(2, 2))
    free = {"bytes": 500_000_000}
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free["bytes"]))
    assert watched.tick() == [("new", "the disk gets full")]
    free["bytes"] = 5_000_000
    assert watched.tick() == [("worse", "the disk gets full")]
    free["bytes"] = 50_000_000_000
    assert watched.tick() == [("over", "the disk gets full")]


class KilledError(BaseException):
    """The process is killed here."""


@pytest.mark.parametrize(("at", "end"), [("note_told", [("over", "the disk gets full")]), ("note_may_be_told", [])])
def test_whoever_was_told_by_a_process_that_was_killed_then_hears_of_the_end(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, at: str, end: list[tuple[str, str]]
) -> None:
    watched.pull(days_ago=(2, 2))
    free = {"bytes": 500_000_000}
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free["bytes"]))
    with monkeypatch.context() as killing:
        killing.setattr(Memory, at, Mock(side_effect=KilledError))
        with pytest.raises(KilledError):
            watched.tick()
    free["bytes"] = 50_000_000_000
    assert watched.tick() == end
    assert watched.tick() == []


def test_a_backup_that_is_two_days_old_rings_where_there_ever_was_one(watched: Watched) -> None:
    watched.pull(days_ago=(2, 2))
    assert watched.tick() == []
    watched.here.data.state.note_backup(watched.now)
    assert watched.tick(47 * HOUR) == []
    assert watched.tick(2 * HOUR) == [("new", "no backup has been made for more than two days")]
    made_at = watched.now - 49 * HOUR
    assert f"made at {made_at:%Y-%m-%d %H:%M} UTC" in watched.message
    assert watched.tick(HOUR) == []
    watched.here.data.state.note_backup(watched.now)
    assert watched.tick() == [("over", "no backup has been made for more than two days")]


def test_the_heartbeat_is_called_once_for_each_nightly_pull_and_for_no_other(watched: Watched) -> None:
    watched.pull()
    assert watched.tick() == []
    watched.pull(nightly=True)
    assert watched.tick() == [("beat", "")]
    assert watched.tick() == []
    watched.pull(Then(status=500), nightly=True)
    assert watched.tick() == [("beat", "/fail")]
    records = [path for path in Path(watched.here.environment["DAGSTER_HOME"]).rglob("*") if path.is_file()]
    assert records
    assert [path.name for path in records if TOKEN.encode() in path.read_bytes()] == []


def test_a_sink_that_is_down_is_told_later_and_keeps_no_other_waiting(tmp_path: Path, web: WebSink) -> None:
    with web_sink() as other:
        variables = {
            "LEADS_ALERT_WEBHOOK": f"{web.url}/{TOKEN}",
            "LEADS_ALERT_SLACK_WEBHOOK": f"{other.url}/{TOKEN}",
        }
        with installation(tmp_path, variables=variables, first=4) as here:
            watched = Watched(here, web)
            watched.pull(Then(status=403), days_ago=(2, 2))
            web.status = 503
            assert len(watched.tick()) == 1
            assert "LEADS_ALERT_WEBHOOK answered 503" in watched.skip_message
            assert len(other.requests) == 1
            web.status = 200
            assert [occasion for occasion, _ in watched.tick()] == ["new"]
            assert watched.tick() == []
            assert len(other.requests) == 1


def test_without_a_channel_there_is_no_such_sensor(here: Installation) -> None:
    bare = {name: value for name, value in here.environment.items() if "ALERT" not in name and "HEART" not in name}
    names = [{sensor.name for sensor in build_definitions(one).sensors or ()} for one in (bare, here.environment)]
    assert names[1] - names[0] == {"tell_people"}
