"""What Dagster's books keep of its deliberations."""

import warnings
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from dagster import (
    AssetKey,
    AutomationCondition,
    BetaWarning,
    Definitions,
    asset,
    build_sensor_context,
    evaluate_automation_conditions,
)

from leads_pipeline.housekeeping import EVALUATIONS_KEPT_FOR, evaluation_sensor
from leads_pipeline_tests.installation import Installation, installation


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Installation]:
    with installation(tmp_path) as started:
        yield started


def test_evaluations_are_forgotten_after_three_days_and_not_before(here: Installation) -> None:
    @asset(automation_condition=AutomationCondition.eager())
    def something() -> None: ...

    books = here.instance.schedule_storage
    assert books is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BetaWarning)  # evaluate_automation_conditions calls what is beta itself
        result = evaluate_automation_conditions(Definitions([something]), here.instance)
    books.add_auto_materialize_asset_evaluations(
        1, [one.serializable_evaluation.with_run_ids(set()) for one in result.results]
    )

    def noted() -> int:
        return len(books.get_auto_materialize_asset_evaluations(AssetKey("something"), limit=10))

    now = datetime.now(UTC)
    for later, kept in ((timedelta(0), 1), (EVALUATIONS_KEPT_FOR - timedelta(hours=1), 1), (EVALUATIONS_KEPT_FOR, 0)):
        sensor = evaluation_sensor(clock=partial(datetime.__add__, now, later + timedelta(minutes=1)))
        with build_sensor_context(here.instance) as context:
            sensor.evaluate_tick(context)
        assert noted() == kept
