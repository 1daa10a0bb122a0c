"""Which partitions exist, and which of them a run is for.

Belongs here: days, days x scopes, and reading a run's request in whatever form it came. Doesn't:
what is done with a partition.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from dagster import (
    AssetExecutionContext,
    DailyPartitionsDefinition,
    MultiPartitionsDefinition,
    PartitionKeyRange,
    PartitionsDefinition,
    StaticPartitionsDefinition,
)

from leads_pipeline.settings import Settings

RANGE_START_TAG = "dagster/asset_partition_range_start"
RANGE_END_TAG = "dagster/asset_partition_range_end"


@dataclass(frozen=True, slots=True)
class Partitions:
    """The partitions of an installation: days, and days x scopes."""

    first_day: date
    days: DailyPartitionsDefinition
    windows: MultiPartitionsDefinition

    @classmethod
    def of(cls, settings: Settings, first_day: date) -> "Partitions":
        """From `first_day` up to the day under way, in the settings' time zone."""
        days = DailyPartitionsDefinition(
            start_date=first_day.isoformat(),
            timezone=settings.zone.key,
            end_offset=1,
            fmt="%Y-%m-%d",
        )
        scopes = StaticPartitionsDefinition([scope.key for scope in settings.scopes])
        return cls(first_day, days, MultiPartitionsDefinition({"day": days, "scope": scopes}))


def requested_keys(
    context: AssetExecutionContext,
    partitions: PartitionsDefinition[str],
    explicit: Sequence[str] = (),
) -> list[str]:
    """Return the partition keys that this run was started for, soonest deleted first.

    Not `context.partition_keys`: a backfill launched on a job sets the range tags *and* the first
    key's dimension tags, and `partition_keys` then names that one key alone.
    """
    tags = context.run.tags
    keys: Sequence[str]

    if explicit:
        keys = explicit
    elif RANGE_START_TAG in tags:
        # For windows, the two keys name a rectangle of days x scopes.
        keys = partitions.get_partition_keys_in_range(
            PartitionKeyRange(tags[RANGE_START_TAG], tags[RANGE_END_TAG])
        )
    else:
        keys = [context.partition_key]

    return sorted(map(str, keys))
