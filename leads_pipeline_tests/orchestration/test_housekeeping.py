"""What Dagster's books keep of its deliberations, and of runs that ended long ago."""

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from dagster import (
    AssetKey,
    AutomationCondition,
    BetaWarning,
    DagsterRunStatus,
    Definitions,
    asset,
    build_sensor_context,
    evaluate_automation_conditions,
)
from sqlalchemy import text

from leads_pipeline.contract import APPLICANT, LEAD_KINDS
from leads_pipeline.definitions import PULL_JOB, STAGE_JOB
from leads_pipeline.housekeeping import EVALUATIONS_KEPT_FOR, evaluation_sensor, forget_history, history_sensor
from leads_pipeline.partitions import RANGE_END_TAG, RANGE_START_TAG
from leads_pipeline.sensors import catch_up_sensor, retry_sensor
from leads_pipeline.simulator.faults import Then
from leads_pipeline.status import WindowStatus, failed_windows, last_evaluation, last_landed, raw_key
from leads_pipeline_tests.support.installation import Installation, installation


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


@dataclass(frozen=True)
class Known:
    """What Dagster and the sensors know of windows, days and checks."""

    status: WindowStatus
    reasons: Mapping[str, tuple[bool, str]]
    staged: Set[str]
    last_landed: Mapping[str, int]
    requested: Sequence[str]
    checks: Mapping[str, bool]


def known(here: Installation, now: datetime) -> Known:
    """Made out anew: what Dagster has worked out before is forgotten, so that it has to look at the events."""
    for kind in LEAD_KINDS:
        here.instance.event_log_storage.wipe_asset_cached_status(raw_key(kind))
    status = here.status()
    failed = failed_windows(here.instance, here.settings, here.partitions)
    sensors = (
        catch_up_sensor(here.settings, here.partitions, PULL_JOB, clock=lambda: now),
        retry_sensor(here.settings, here.partitions, PULL_JOB, clock=lambda: now),
    )
    checks = {
        key: last_evaluation(here.instance, key) for key in here.definitions.resolve_asset_graph().asset_check_keys
    }
    return Known(
        status,
        {
            f"{kind.name} {window.partition_key}": (one.is_permanent, one.error)
            for (kind, window), one in failed.items()
        },
        here.instance.get_materialized_partitions(AssetKey(f"stg_{APPLICANT.table}")),
        last_landed(here.instance, APPLICANT, sorted(status.landed | status.failed)),
        [
            json.dumps(request.run_config, sort_keys=True)
            for sensor in sensors
            for request in here.tick(sensor).run_requests or []
        ],
        {key.to_user_string(): evaluation.passed for key, evaluation in checks.items() if evaluation is not None},
    )


def at_once() -> bool:
    return False


def events(here: Installation) -> list[int]:
    with here.instance.event_log_storage.index_connection() as connection:  # type: ignore[attr-defined]  # that of an SQL storage
        return [id_ for (id_,) in connection.execute(text("select id from event_logs order by id"))]


def some_history(here: Installation) -> None:
    """Windows that landed, failed, were refused, failed and landed, landed and failed; some of them twice."""
    here.simulator.set_faults(
        [
            *here.rules([here.key(2, 101)], Then(status=500)),
            *here.rules([here.key(2, 102)], Then(status=403)),
            *here.rules([here.key(3, 103)], Then(status=500)),
        ]
    )
    here.pull(here.keys([2, 3]))
    here.simulator.set_faults(here.rules(here.keys([2]), Then(status=500)))
    here.pull(here.keys([3]))
    here.pull(here.keys([2]))


def check_that_no_state_is_read_from_what_is_forgotten(here: Installation) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    before, events_before, runs = known(here, later), events(here), {run.run_id for run in here.runs()}
    assert before.status.failed == here.keys([2])
    assert before.status.landed == here.keys([3])
    assert before.requested

    forget_history(here.instance, later, is_over=at_once)
    assert known(here, later) == before
    left = events(here)
    assert len(left) < 0.7 * len(events_before)
    assert "Forgot 0 events and 0 runs" in forget_history(here.instance, later, is_over=at_once)
    assert events(here) == left

    # Runs go, but for the rows of those that a failure is read from; the logs of all go.
    stayed = {run.run_id for run in here.runs()}
    assert stayed
    assert runs - stayed
    home = Path(here.environment["DAGSTER_HOME"])
    assert [path for run_id in runs for path in home.rglob(f"*{run_id}*")] == []
    with here.instance.run_storage.connect() as db:  # type: ignore[attr-defined]  # that of an SQL storage
        assert {run_id for (run_id,) in db.execute(text("select run_id from run_tags"))} <= stayed

    # What happens now is seen as ever.
    here.simulator.set_faults(here.rules([here.key(3, 101)], Then(status=500)))
    here.pull(here.keys([3]))
    assert here.status().failed == here.keys([2]) | {here.key(3, 101)}
    here.simulator.set_faults([])
    here.pull(here.keys([2, 3]))
    assert here.status().failed == set()
    assert here.status().landed == here.keys([2, 3])


def test_no_state_is_read_from_what_is_forgotten(here: Installation) -> None:
    some_history(here)
    check_that_no_state_is_read_from_what_is_forgotten(here)


@pytest.mark.slow
def test_no_state_of_a_staged_day_and_no_check_is_read_from_what_is_forgotten(here: Installation) -> None:
    for _ in range(2):
        some_history(here)
        here.execute(STAGE_JOB, tags={RANGE_START_TAG: str(here.day(3)), RANGE_END_TAG: str(here.day(2))}, kinds=None)
        here.runner.publish()
    before = known(here, datetime.now(UTC))
    assert before.checks
    assert before.staged == {str(here.day(2)), str(here.day(3))}
    check_that_no_state_is_read_from_what_is_forgotten(here)


def test_nothing_is_forgotten_that_is_young_or_while_a_run_is_under_way(here: Installation) -> None:
    for _ in range(2):
        here.pull([here.key(2)])
    before = events(here)
    day = f"{datetime.now(UTC) - timedelta(35):%Y-%m-%d}"
    assert here.tick(history_sensor(timedelta(35))).skip_message == f"Forgot 0 events and 0 runs from before {day}."
    assert (events(here), here.instance.get_runs_count()) == (before, 2)

    sensor = history_sensor(timedelta(0), clock=lambda: datetime.now(UTC) + timedelta(hours=1))
    here.instance.create_run_for_job(
        here.definitions.resolve_job_def(PULL_JOB),
        status=DagsterRunStatus.STARTED,
        tags={"dagster/partition": here.key(2)},
    )
    before = events(here)
    assert "under way" in (here.tick(sensor).skip_message or "")
    assert (events(here), here.instance.get_runs_count()) == (before, 3)


def test_what_is_left_when_the_time_is_over_goes_the_next_time(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.simulator.set_faults(here.rules([here.key(2, 101)], Then(status=500)))
    for _ in range(2):
        here.pull(here.keys([2]))
    monkeypatch.setattr("leads_pipeline.event_log.gathering._PORTION", 2)
    later = datetime.now(UTC) + timedelta(hours=1)
    before, sizes = here.status(), [len(events(here))]
    while len(sizes) < 2 or sizes[-1] < sizes[-2]:
        turns = count()
        forget_history(here.instance, later, is_over=partial(_is_third, turns))
        here.instance.event_log_storage.wipe_asset_cached_status(raw_key(APPLICANT))
        assert here.status() == before
        sizes.append(len(events(here)))
    assert len(sizes) > 3


def _is_third(turns: "count[int]") -> bool:
    return next(turns) >= 2
