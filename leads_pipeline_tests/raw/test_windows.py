"""The table of windows, made from names."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from leads_pipeline.domain.contract import APPLICANT
from leads_pipeline.domain.window import Scope, Window
from leads_pipeline.raw.landing import Raw
from leads_pipeline.raw.names import place_of
from leads_pipeline.raw.store import FolderStore
from leads_pipeline.raw.windows import window_table
from leads_pipeline_tests.support.keeping_out import KeptOut
from leads_pipeline_tests.support.sample_answers import (
    CLOSED_AT,
    DAY,
    TWENTY,
    UTC_ZONE,
    WINDOW,
    lead,
)

NOW = CLOSED_AT + timedelta(hours=1)
HOUR = timedelta(hours=1)


class OnlyNames(FolderStore):
    """A store that opens no Parquet file."""

    def get(self, key: str) -> bytes | None:
        assert key.endswith("_failed.json")
        return super().get(key)


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return OnlyNames(tmp_path / "data")


@pytest.fixture
def raw(tmp_path: Path) -> Raw:
    return Raw(FolderStore(tmp_path / "data"), KeptOut(tmp_path / "list"), lambda: NOW)


def window(name: str, days_ago: int = 0) -> Window:
    return Window.of(DAY - timedelta(days=days_ago), Scope.parse(f"branch-{name}"), UTC_ZONE)


def land(raw: Raw, window: Window, asked_at: datetime, count: int = 20) -> None:
    raw.land(APPLICANT, window, TWENTY[:count], asked_at, "hash", "run")


def fail(raw: Raw, window: Window) -> None:
    raw.fail(place_of(APPLICANT, window), "busy (429)", is_permanent=False)


def test_each_state_is_told_from_names(store: FolderStore, raw: Raw) -> None:
    land(raw, window("landed"), CLOSED_AT)
    land(raw, window("empty"), CLOSED_AT, count=0)
    land(raw, window("half"), WINDOW.end - HOUR)
    raw.add(place_of(APPLICANT, window("pushed")), [lead(1)], CLOSED_AT)
    land(raw, window("failed"), WINDOW.end - HOUR)
    fail(raw, window("failed"))
    land(raw, window("landed-failed"), CLOSED_AT)
    fail(raw, window("landed-failed"))
    land(raw, window("late", days_ago=30), CLOSED_AT)

    expected = {
        window("landed"): ("landed", 20),
        window("empty"): ("empty", 0),
        window("half"): ("missing", 20),
        window("nothing"): ("missing", 0),
        window("pushed"): ("missing", 1),
        window("failed"): ("failed", 20),
        window("landed-failed"): ("landed", 20),
        window("late", days_ago=30): ("partial", 20),
    }
    table = window_table(store, APPLICANT, [*expected], NOW)

    assert [(str(row.state), row.leads) for row in table] == [*expected.values()]


def test_a_window_is_open_until_its_day_is_over(store: FolderStore, raw: Raw) -> None:
    land(raw, window("half"), WINDOW.end - HOUR)

    asked = [window("half"), window("nothing")]
    before = window_table(store, APPLICANT, asked, WINDOW.end - HOUR)

    assert [str(row.state) for row in before] == ["open", "open"]
