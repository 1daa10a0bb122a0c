"""Which windows a run is for."""

from datetime import date
from types import SimpleNamespace
from typing import cast

from dagster import AssetExecutionContext

from leads_pipeline.orchestration.partitions import Partitions, requested_keys
from leads_pipeline.settings import Settings

SETTINGS = Settings.from_variables(
    {"LEADS_BRANCH_IDS": "101,102", "LEADS_TIMEZONE": "Europe/London"}
)
WINDOWS = Partitions.of(SETTINGS, date(2026, 10, 20)).windows


def context(key: str) -> AssetExecutionContext:
    """A run for this key alone."""
    return cast(
        "AssetExecutionContext", SimpleNamespace(run=SimpleNamespace(tags={}), partition_key=key)
    )


def test_the_windows_of_a_list_are_asked_for_soonest_deleted_first() -> None:
    keys = ["2026-10-23|branch-101", "2026-10-21|branch-102"]
    assert requested_keys(context("none"), WINDOWS, keys) == sorted(keys)


def test_a_single_key_is_enough() -> None:
    assert requested_keys(context("2026-10-20|branch-101"), WINDOWS) == ["2026-10-20|branch-101"]
