"""The table of windows, made from names."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from leads_pipeline.domain.contract import APPLICANT, APPRAISAL
from leads_pipeline.domain.window import Scope, Window
from leads_pipeline.raw.landing import Raw
from leads_pipeline.raw.names import place_of
from leads_pipeline.raw.store import FolderStore
from leads_pipeline.raw.windows import WindowState, window_table
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


def window(scope: str, days_ago: int = 0) -> Window:
    return Window.of(DAY - timedelta(days=days_ago), Scope.parse(scope), UTC_ZONE)


def land(raw: Raw, one: Window, asked_at: datetime, count: int = 20) -> None:
    raw.land(APPLICANT, one, TWENTY[:count], asked_at, "hash", "run")


def test_each_state_is_told_from_names(store: FolderStore, raw: Raw) -> None:
    old = window("branch-1", days_ago=30)
    names = "landed", "empty", "half", "missing", "pushed", "failed", "late"
    places = {name: window(f"branch-{name}") for name in names}
    land(raw, places["landed"], CLOSED_AT)
    land(raw, places["empty"], CLOSED_AT, count=0)
    land(raw, places["half"], WINDOW.end - HOUR)
    land(raw, old, CLOSED_AT)
    raw.add(place_of(APPLICANT, places["pushed"]), [lead(1)], CLOSED_AT)
    land(raw, places["failed"], WINDOW.end - HOUR)
    land(raw, places["late"], CLOSED_AT)
    for name in ("failed", "late"):
        raw.fail(place_of(APPLICANT, places[name]), "busy (429)", is_permanent=False)

    table = window_table(store, APPLICANT, [*places.values(), old], NOW)

    assert [(row.scope, str(row.state), row.leads) for row in table] == [
        ("branch-landed", "landed", 20),
        ("branch-empty", "empty", 0),
        ("branch-half", "missing", 20),
        ("branch-missing", "missing", 0),
        ("branch-pushed", "missing", 1),
        ("branch-failed", "failed", 20),
        ("branch-late", "landed", 20),
        ("branch-1", "partial", 20),
    ]
    assert [row.reason for row in table if row.reason] == ["busy (429)"] * 2
    before = window_table(store, APPLICANT, [places["half"], places["missing"]], WINDOW.end - HOUR)
    assert [str(row.state) for row in before] == ["open", "open"]
    [other_kind] = window_table(store, APPRAISAL, [places["landed"]], NOW)
    assert other_kind.state is WindowState.MISSING
