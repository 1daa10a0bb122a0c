"""From the portal to an analyst's query: every lead that the portal holds, once, whatever happens on the way."""

from pathlib import Path

import pytest

from leads_pipeline.contract import LEAD_KINDS
from leads_pipeline.partitions import rectangles
from leads_pipeline.runs import PullReport
from leads_pipeline.simulator.app import Config
from leads_pipeline.simulator.faults import Rule, Then, When
from leads_pipeline.warehouse import Warehouse
from leads_pipeline.window import Window
from leads_pipeline_tests.support.installation import Installation, installation

EMPTY = Then(status=200, body='{"applicants":[],"appraisals":[]}')


def pull_stage_publish(here: Installation, days_ago: range) -> PullReport:
    report = PullReport()
    windows = [
        Window.of(here.day(ago), scope, here.settings.zone) for ago in days_ago for scope in here.settings.scopes
    ]
    for area in rectangles(windows, here.settings.scopes):
        here.runner.pull(LEAD_KINDS, area, report, lambda: None)
    assert here.runner.stage(here.day(max(days_ago)), here.day(min(days_ago))) is None
    assert here.runner.publish() is None
    return report


def test_the_query_finds_every_lead_of_the_portal_once(tmp_path: Path) -> None:
    days_ago = range(1, 4)
    config = Config(branches=3, leads_per_day=6)
    with installation(tmp_path, config, variables={"LEADS_TIMEZONE": "Europe/London"}) as here:
        report = pull_stage_publish(here, days_ago)
        assert report.succeeded
        warehouse = Warehouse(here.lake)
        for kind in LEAD_KINDS:
            _, rows = warehouse.query(f"select lead_id from {kind.table}")  # noqa: S608 - our own name
            ids = [lead_id for (lead_id,) in rows]
            assert len(ids) == len(set(ids)) > 0
            assert set(ids) == here.truth(kind, days_ago)
        assert here.simulator.counters().token_requests == 1
        _, rows = warehouse.query("select sum(leads) from mart_leads_daily")
        assert rows == [(sum(len(here.truth(kind, days_ago)) for kind in LEAD_KINDS),)]


@pytest.mark.slow
def test_what_failed_at_first_is_complete_after_a_second_pull(tmp_path: Path) -> None:
    days_ago = range(1, 4)
    with installation(tmp_path) as here:
        here.simulator.set_faults(
            [Rule(Then(status=500), When(path=path, first=3)) for path in ("/applicant-leads", "/appraisal-leads")]
        )
        first = pull_stage_publish(here, days_ago)
        assert len(first.failed) == 6
        assert not first.succeeded
        second = pull_stage_publish(here, days_ago)
        assert second.succeeded
        for kind in LEAD_KINDS:
            _, rows = Warehouse(here.lake).query(f"select lead_id from {kind.table}")  # noqa: S608 - our own name
            assert sorted(lead_id for (lead_id,) in rows) == sorted(here.truth(kind, days_ago))


@pytest.mark.slow
def test_leads_that_come_late_are_added_and_none_is_taken_away(tmp_path: Path) -> None:
    with installation(tmp_path, Config(branches=3, leads_per_day=6)) as here:
        days_ago = range(2, 4)
        here.simulator.set_faults(here.rules(here.keys(days_ago), EMPTY))
        assert pull_stage_publish(here, days_ago).leads == 0
        here.simulator.set_faults([])
        complete = pull_stage_publish(here, days_ago)
        assert complete.new == complete.leads > 10
        here.simulator.set_faults(here.rules(here.keys(days_ago), EMPTY))
        again = pull_stage_publish(here, days_ago)
        assert (again.new, again.leads) == (0, complete.leads)
        _, [(leads,)] = Warehouse(here.lake).query("select count(*) from applicant_leads")
        assert leads == len(here.truth(LEAD_KINDS[0], days_ago))
