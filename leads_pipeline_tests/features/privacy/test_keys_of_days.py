"""The key of a day that becomes anonymous outlives kills, until it is forgotten."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from leads_pipeline.features.privacy.keys_of_days import (
    forget_key_of_day,
    key_of_day,
    make_key_of_day,
)
from leads_pipeline.raw.state import State

DAY = date(2026, 11, 19)
NOW = datetime(2026, 11, 20, 8, tzinfo=UTC)


def test_the_key_of_a_day_is_the_same_until_it_is_forgotten(tmp_path: Path) -> None:
    key = make_key_of_day(State(tmp_path), DAY)
    assert make_key_of_day(State(tmp_path), DAY) == key
    assert key_of_day(State(tmp_path), DAY) is None

    state = State(tmp_path, clock=lambda: NOW + timedelta(days=40))
    state.note_retention(DAY + timedelta(days=1))
    assert key_of_day(state, DAY) == key
    assert key_of_day(state, DAY + timedelta(days=1)) is None

    forget_key_of_day(state, DAY)
    assert key != key_of_day(state, DAY) != key_of_day(state, DAY)
