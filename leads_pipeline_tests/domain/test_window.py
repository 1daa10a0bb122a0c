from datetime import date, timedelta
from zoneinfo import ZoneInfo

import pytest
from dagster import MultiPartitionKey
from hypothesis import given
from hypothesis import strategies as st

from leads_pipeline.domain.window import Scope, ScopeKind, Window, day_interval, days, today
from leads_pipeline.errors import SettingsError

LONDON = ZoneInfo("Europe/London")

FIRST = date(2000, 1, 1)
LAST = date(2099, 12, 31)
SECOND = timedelta(seconds=1)

ids = st.from_regex(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?=[A-Za-z0-9_-])){0,63}", fullmatch=True)
scopes = st.just(Scope(ScopeKind.ALL)) | st.builds(
    Scope, st.sampled_from([kind for kind in ScopeKind if kind is not ScopeKind.ALL]), ids
)


# --- days -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Europe/London", "America/Havana", "Pacific/Apia"])
def test_all_days_of_a_century_tile_and_their_moments_are_of_that_day(name: str) -> None:
    zone = ZoneInfo(name)
    tiled_until, _ = day_interval(FIRST, zone)

    for day in days(FIRST, LAST):
        start, end = day_interval(day, zone)
        assert start == tiled_until
        if start == end:  # Samoa crossed the date line: this day never was
            assert day == date(2011, 12, 30)
        else:
            assert today(zone, start) == day
            assert today(zone, end - SECOND) == day
        tiled_until = end


# --- scopes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["branch-..", "branch-" + "9" * 65, "branch-١٠١", "office-1"])
def test_another_text_is_no_scope(text: str) -> None:
    with pytest.raises(SettingsError, match="is not a scope") as caught:
        Scope.parse(text)

    assert repr(text) in str(caught.value)


@given(st.text())
def test_a_scope_that_is_read_is_a_safe_folder_name(text: str) -> None:
    try:
        key = Scope.parse(f"branch-{text}").key
    except SettingsError:
        return
    assert key.isascii()
    assert not set(key) & set("/\\|,:*?\"<>' \0\n")
    assert ".." not in key
    assert not key.endswith(".")


# --- partition keys -------------------------------------------------------------------------------


@given(st.dates(FIRST, LAST), scopes)
def test_a_key_reads_as_dagster_writes_it(day: date, scope: Scope) -> None:
    window = Window.of(day, scope, LONDON)
    assert window.partition_key == MultiPartitionKey({"scope": scope.key, "day": day.isoformat()})
    assert Window.from_partition_key(window.partition_key, LONDON) == window


@pytest.mark.parametrize(
    "key", ["branch-101|2026-11-19", "2026-02-30|branch-101", "9999-12-31|branch-101"]
)
def test_a_key_of_another_form_is_refused(key: str) -> None:
    with pytest.raises(SettingsError, match=r"is not a (partition key|scope)"):
        Window.from_partition_key(key, LONDON)
