"""Which partitions exist, and which of them a run is for."""

from datetime import date, timedelta
from types import SimpleNamespace
from typing import cast

from dagster import AssetExecutionContext

from leads_pipeline.domain.window import Window
from leads_pipeline.orchestration.partitions import RANGE_END_TAG, RANGE_START_TAG, Partitions, requested_keys
from leads_pipeline.settings import Settings

FIRST = date(2026, 10, 20)
SETTINGS = Settings.from_variables({"LEADS_BRANCH_IDS": "103,101,102", "LEADS_TIMEZONE": "Europe/London"})
PARTITIONS = Partitions.of(SETTINGS, FIRST)


def window(day: int, scope: int) -> Window:
    """A window by its day after the first and by its scope's place in the settings."""
    return Window.of(FIRST + timedelta(days=day), SETTINGS.scopes[scope], SETTINGS.zone)


def context(tags: dict[str, str], key: str = "none") -> AssetExecutionContext:
    return cast("AssetExecutionContext", SimpleNamespace(run=SimpleNamespace(tags=tags), partition_key=key))


def range_tags(first: str, last: str) -> dict[str, str]:
    return {RANGE_START_TAG: first, RANGE_END_TAG: last}


def test_keys_are_those_of_the_windows() -> None:
    assert PARTITIONS.windows.get_partition_keys()[:4] == [
        window(0, 0).partition_key,
        window(0, 1).partition_key,
        window(0, 2).partition_key,
        window(1, 0).partition_key,
    ]


def test_an_explicit_list_comes_before_everything_else() -> None:
    keys = [window(3, 0).partition_key, window(1, 1).partition_key]
    tags = range_tags(window(0, 0).partition_key, window(5, 2).partition_key)
    assert requested_keys(context(tags), PARTITIONS.windows, keys) == sorted(keys)


def test_range_tags_come_before_the_first_keys_own_tags() -> None:
    # What a backfill of a job sets: dagster/_core/execution/job_backfill.py, submit_backfill_runs.
    first, last = window(0, 0).partition_key, window(1, 2).partition_key
    day, scope = first.split("|")
    tags = range_tags(first, last) | {"dagster/partition/day": day, "dagster/partition/scope": scope}
    assert len(requested_keys(context(tags, first), PARTITIONS.windows)) == 6


def test_a_single_key_is_enough() -> None:
    assert requested_keys(context({}, "2026-10-20|branch-101"), PARTITIONS.windows) == ["2026-10-20|branch-101"]


def test_days_have_ranges_too() -> None:
    tags = range_tags("2026-10-24", "2026-10-26")  # the clocks of London change on the 25th
    assert requested_keys(context(tags), PARTITIONS.days) == ["2026-10-24", "2026-10-25", "2026-10-26"]
