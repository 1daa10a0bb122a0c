"""Which partitions exist, and which of them a run is for.

Belongs here: days, days x scopes, and reading a run's request in whatever form it came. Doesn't: what is done with a
partition.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby

from dagster import (
    AssetExecutionContext,
    Config,
    DailyPartitionsDefinition,
    MultiPartitionsDefinition,
    PartitionKeyRange,
    PartitionsDefinition,
    StaticPartitionsDefinition,
)

from leads_pipeline.settings import Settings
from leads_pipeline.window import Scope, Window

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
            start_date=first_day.isoformat(), timezone=settings.zone.key, end_offset=1, fmt="%Y-%m-%d"
        )
        scopes = StaticPartitionsDefinition([scope.key for scope in settings.scopes])
        return cls(first_day, days, MultiPartitionsDefinition({"day": days, "scope": scopes}))


class PullConfig(Config):
    """What to pull, where Dagster's own tags can't say it: sparse keys, as the retry sensor sends them."""

    partition_keys: list[str] = []  # noqa: RUF012 - a field of a pydantic model, copied for each


def requested_keys(
    context: AssetExecutionContext, partitions: PartitionsDefinition[str], explicit: Sequence[str] = ()
) -> list[str]:
    """The partition keys that this run was started for, in the order of their days: soonest deleted first.

    Not `context.partition_keys`: a backfill launched on a job sets the range tags *and* the first key's dimension
    tags, and `partition_keys` then names that one key alone.
    """
    tags = context.run.tags
    keys: Sequence[str]
    if explicit:
        keys = explicit
    elif RANGE_START_TAG in tags:
        # For windows, the two keys name a rectangle of days x scopes.
        keys = partitions.get_partition_keys_in_range(PartitionKeyRange(tags[RANGE_START_TAG], tags[RANGE_END_TAG]))
    else:
        keys = [context.partition_key]
    return sorted(map(str, keys))


@dataclass(frozen=True, slots=True)
class Rectangle:
    """Days x scopes, both without a gap, as two range tags can name them."""

    first_day: date
    last_day: date
    first_scope: Scope
    last_scope: Scope

    @property
    def tags(self) -> dict[str, str]:
        """The tags by which Dagster knows which partitions a run is for."""
        return {
            RANGE_START_TAG: f"{self.first_day}|{self.first_scope.key}",
            RANGE_END_TAG: f"{self.last_day}|{self.last_scope.key}",
        }


def rectangles(windows: Iterable[Window], scopes: Sequence[Scope]) -> Iterator[Rectangle]:
    """Cover exactly those windows with few rectangles; `scopes` is the order of the partition definition.

    Runs are launched by rectangles rather than key lists, because only then does Dagster know what was planned and
    show a window that failed as failed.
    """
    order = {scope: place for place, scope in enumerate(scopes)}
    by_day: dict[date, tuple[int, ...]] = {}
    for day, group in groupby(sorted(windows), key=lambda window: window.day):
        by_day[day] = tuple(sorted(order[window.scope] for window in group))
    for places, days in _stretches(by_day):
        for block in _blocks(places):
            yield Rectangle(days[0], days[-1], scopes[block[0]], scopes[block[-1]])


def _stretches(by_day: Mapping[date, tuple[int, ...]]) -> Iterator[tuple[tuple[int, ...], list[date]]]:
    """Consecutive days with the same places."""
    for (_, places), group in groupby(
        enumerate(sorted(by_day)), key=lambda item: (item[1].toordinal() - item[0], by_day[item[1]])
    ):
        yield places, [day for _, day in group]


def _blocks(places: Sequence[int]) -> Iterator[list[int]]:
    """Runs of consecutive numbers."""
    for _, group in groupby(enumerate(places), key=lambda item: item[1] - item[0]):
        yield [place for _, place in group]


def consecutive(days: Iterable[date]) -> Iterator[tuple[date, date]]:
    """First and last day of each stretch without a gap."""
    for _, stretch in _stretches(dict.fromkeys(days, ())):
        yield stretch[0], stretch[-1]
