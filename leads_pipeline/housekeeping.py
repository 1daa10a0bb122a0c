"""What Dagster writes down of its own deliberations, and how soon that is forgotten.

Belongs here: the books that grow while nothing happens. Doesn't: runs and their events, which are never deleted, since
the state of each window is read from them; ticks, whose retention is in dagster.yaml (runs.py).
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from dagster import DefaultSensorStatus, SensorDefinition, SensorEvaluationContext, SkipReason, sensor

# Dagster itself keeps them for 30 days: a gigabyte, of which nobody reads more than the last hours.
EVALUATIONS_KEPT_FOR = timedelta(days=3)


def _utc_now() -> datetime:
    return datetime.now(UTC)


def evaluation_sensor(*, clock: Callable[[], datetime] = _utc_now) -> SensorDefinition:
    """Forgets why assets weren't requested, once nobody asks any more."""

    @sensor(
        name="forget_old_evaluations",
        minimum_interval_seconds=6 * 3600,
        default_status=DefaultSensorStatus.RUNNING,
        description=(
            f"Deletes what `follow_sources` noted of its decisions more than {EVALUATIONS_KEPT_FOR.days} days ago: "
            "each hour some 500 kB."
        ),
    )
    def forget_old_evaluations(context: SensorEvaluationContext) -> SkipReason:
        before = clock() - EVALUATIONS_KEPT_FOR
        if (storage := context.instance.schedule_storage) is not None:
            storage.purge_asset_evaluations(before=before.timestamp())
        return SkipReason(f"What was noted before {before:%Y-%m-%d %H:%M} UTC is forgotten.")

    return forget_old_evaluations
