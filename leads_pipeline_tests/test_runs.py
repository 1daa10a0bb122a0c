"""Every way to start a run, and what it asks of the portal."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from dagster import AssetKey

from leads_pipeline.contract import APPLICANT, APPRAISAL
from leads_pipeline.definitions import PULL_JOB
from leads_pipeline_tests.installation import Installation, installation


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Installation]:
    with installation(tmp_path) as started:
        yield started


def once(keys: set[str]) -> dict[str, int]:
    return dict.fromkeys(keys, 1)


# --- every window that a run was started for is pulled, once ---------------------------------------------------------


def test_one_key_launched_in_the_ui_is_pulled(here: Installation) -> None:
    # The tags that the launchpad sets: dagster_graphql's launchPipelineExecution takes them as the page sends them.
    day, scope = here.key(3).split("|")
    tags = {"dagster/partition": here.key(3), "dagster/partition/day": day, "dagster/partition/scope": scope}
    assert here.execute(tags=tags, kinds=[APPLICANT]).success
    assert here.asked() == once({here.key(3)})
    assert here.asked(APPRAISAL) == {}
    assert here.status().landed == {here.key(3)}


def test_a_range_launched_in_the_ui_is_pulled(here: Installation) -> None:
    wanted = here.keys([2, 3, 4])
    assert here.pull(wanted, [APPLICANT, APPRAISAL]).success
    assert here.asked() == here.asked(APPRAISAL) == once(wanted)
    assert here.status().landed == here.status(APPRAISAL).landed == wanted


def test_a_range_is_a_rectangle_of_days_and_scopes(here: Installation) -> None:
    wanted = here.keys([2, 3, 4], [101, 102])
    assert here.pull(wanted).success
    assert here.asked() == once(wanted)


def test_a_backfill_of_assets_pulls_each_of_its_windows(here: Installation) -> None:
    wanted = here.keys([2, 3, 4], [101, 102]) | {here.key(7, 103)}
    with here.daemon() as daemon:
        daemon.backfill_assets([AssetKey("raw_applicant_leads")], sorted(wanted))
    assert here.asked() == once(wanted)
    assert here.status().landed == wanted


def test_a_backfill_of_a_job_pulls_each_of_its_windows(here: Installation) -> None:
    wanted = here.keys([2, 3, 4], [101, 102]) | {here.key(7, 103)}
    with here.daemon() as daemon:
        daemon.backfill_job(PULL_JOB, sorted(wanted))
    assert here.asked() == here.asked(APPRAISAL) == once(wanted)
    assert here.status().landed == here.status(APPRAISAL).landed == wanted
