from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from dagster import DailyPartitionsDefinition, MultiPartitionKey
from hypothesis import given
from hypothesis import strategies as st

from leads_pipeline.domain.window import Scope, ScopeKind, Window, day_interval, days, today
from leads_pipeline.errors import SettingsError

LONDON = ZoneInfo("Europe/London")
BRANCH = Scope(ScopeKind.BRANCH, "101")
FIRST, LAST = date(2000, 1, 1), date(2099, 12, 31)
SECOND = timedelta(seconds=1)
MIDNIGHT_CHANGES = ("America/Havana", "Asia/Beirut", "America/Sao_Paulo", "Africa/Cairo", "Pacific/Apia")

ids = st.from_regex(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?=[A-Za-z0-9_-])){0,63}", fullmatch=True)
scopes = st.just(Scope(ScopeKind.ALL)) | st.builds(
    Scope, st.sampled_from([kind for kind in ScopeKind if kind is not ScopeKind.ALL]), ids
)


# --- days -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["UTC", "Europe/London", *MIDNIGHT_CHANGES])
def test_all_days_of_a_century_tile_and_their_moments_are_of_that_day(name: str) -> None:
    zone = ZoneInfo(name)
    intervals = {day: day_interval(day, zone) for day in days(FIRST, LAST)}
    assert len(intervals) == 36_525
    assert all(before[1] == after[0] for before, after in pairwise(intervals.values()))
    for day, (start, end) in intervals.items():
        assert start.tzinfo is end.tzinfo is UTC
        if start == end:  # Samoa crossed the date line: this day never was
            assert (name, day) == ("Pacific/Apia", date(2011, 12, 30))
        else:
            assert (today(zone, start), today(zone, end - SECOND)) == (day, day)


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/London", date(2026, 3, 28), 24),
        ("Europe/London", date(2026, 3, 29), 23),
        ("Europe/London", date(2026, 10, 25), 25),
        # The clock goes from 00:00 to 01:00: the day has no midnight.
        ("America/Havana", date(2026, 3, 8), 23),
        # From 01:00 back to 00:00: midnight comes twice, and the day begins with the first.
        ("America/Havana", date(2026, 11, 1), 25),
        # From 24:00 back to 23:00: it is the day before that has the hour twice.
        ("Asia/Beirut", date(2026, 3, 29), 23),
        ("Asia/Beirut", date(2026, 10, 24), 25),
        ("Asia/Beirut", date(2026, 10, 25), 24),
        ("Pacific/Apia", date(2011, 12, 29), 24),
        ("Pacific/Apia", date(2011, 12, 30), 0),
        ("Pacific/Apia", date(2011, 12, 31), 24),
    ],
)
def test_a_day_is_as_long_as_its_clocks_make_it(zone: str, day: date, hours: int) -> None:
    start, end = day_interval(day, ZoneInfo(zone))
    assert end - start == timedelta(hours=hours)


def test_days_include_both_ends() -> None:
    assert list(days(date(2026, 2, 27), date(2026, 3, 1))) == [date(2026, 2, 27), date(2026, 2, 28), date(2026, 3, 1)]
    assert list(days(FIRST, FIRST)) == [FIRST]
    assert list(days(LAST, FIRST)) == []


def test_today_depends_on_the_zone() -> None:
    moment = datetime(2026, 6, 30, 23, 30, tzinfo=UTC)
    assert today(ZoneInfo("UTC"), moment) == date(2026, 6, 30)
    assert today(LONDON, moment) == date(2026, 7, 1)


# --- scopes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("branch-101", BRANCH),
        ("brand-3", Scope(ScopeKind.BRAND, "3")),
        ("company-7", Scope(ScopeKind.COMPANY, "7")),
        ("group-1", Scope(ScopeKind.GROUP, "1")),
        ("all", Scope(ScopeKind.ALL)),
        ("branch-a-b_c.d", Scope(ScopeKind.BRANCH, "a-b_c.d")),
        ("branch-all", Scope(ScopeKind.BRANCH, "all")),
        ("branch-" + "9" * 64, Scope(ScopeKind.BRANCH, "9" * 64)),
    ],
)
def test_a_scope_is_read_and_written_alike(text: str, scope: Scope) -> None:
    assert Scope.parse(text) == scope
    assert scope.key == text


@pytest.mark.parametrize(
    "id_",
    [
        *("", " ", ".", "..", "a..b", ".a", "a.", "a/b", "a\\b", "a|b", "a,b", "a;b", "a=b", "a'b", "a%2Fb", "~"),
        *("9" * 65, "-1", "_1", "a b", "101\n", "\n101", "101\r", "101\x00", "é", "１０１", "١٠١", "101\u200b"),
    ],
)
def test_an_id_outside_of_the_allow_list_is_refused(id_: str) -> None:
    with pytest.raises(SettingsError, match="is not a scope") as caught:
        Scope.parse(f"branch-{id_}")
    assert repr(f"branch-{id_}") in str(caught.value)


@pytest.mark.parametrize("text", ["", "101", "branch", "branch101", "Branch-101", "office-1", "all-1", "ALL", "all\n"])
def test_a_scope_of_no_known_kind_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="is not a scope"):
        Scope.parse(text)


@given(scopes)
def test_every_scope_survives_its_key(scope: Scope) -> None:
    assert Scope.parse(scope.key) == scope


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


# --- partition keys -------------------------------------------------------------------------------------------------


@given(st.dates(FIRST, LAST), scopes)
def test_a_key_reads_as_dagster_writes_it(day: date, scope: Scope) -> None:
    window = Window.of(day, scope, LONDON)
    assert window.partition_key == MultiPartitionKey({"scope": scope.key, "day": day.isoformat()})
    assert Window.from_partition_key(window.partition_key, LONDON) == window


def test_a_window_is_the_interval_that_dagster_gives_the_day() -> None:
    # Zones where Dagster and we agree on what a day is; a skipped midnight is ours to get right (above).
    partitions = DailyPartitionsDefinition("2026-01-01", end_date="2027-01-01", timezone="Europe/London")
    for key in partitions.get_partition_keys():
        theirs = partitions.time_window_for_partition_key(key)
        ours = Window.of(date.fromisoformat(key), BRANCH, LONDON)
        assert (ours.start, ours.end) == (theirs.start, theirs.end)


@pytest.mark.parametrize(
    "key",
    [
        *("", "|", "2026-11-19", "2026-11-19|", "|branch-101", "branch-101|2026-11-19", "2026-11-19,branch-101"),
        *("20261119|branch-101", "2026-W47-4|branch-101", "2026-02-30|branch-101", "2026-11-19T00:00|branch-101"),
        *("2026-11-19|branch-101|x", "2026-11-19|branch-..", "2026-11-19|branch-101\n", "２026-11-19|branch-101"),
        # Days whose interval doesn't fit into Python's calendar.
        *("9999-12-31|branch-101", "0001-01-01|branch-101"),
    ],
)
def test_a_key_of_another_form_is_refused(key: str) -> None:
    with pytest.raises(SettingsError, match=r"is not a (partition key|scope)"):
        Window.from_partition_key(key, ZoneInfo("Asia/Tokyo") if key.startswith("0001") else ZoneInfo("UTC"))


# --- the past and retention -----------------------------------------------------------------------------------------

WINDOW = Window.of(date(2026, 11, 1), BRANCH, ZoneInfo("UTC"))


@pytest.mark.parametrize(
    ("question", "moment"),
    [
        (WINDOW.is_closed, datetime(2026, 11, 2, tzinfo=UTC)),
        (WINDOW.is_deleted, datetime(2026, 12, 2, tzinfo=UTC)),
    ],
)
def test_what_becomes_true_does_so_at_that_second(question: Callable[[datetime], bool], moment: datetime) -> None:
    assert not question(moment - SECOND)
    assert question(moment)
    assert question(moment + SECOND)


def test_windows_sort_by_day_and_then_by_scope() -> None:
    first, second = date(2026, 11, 1), date(2026, 11, 2)
    other = Scope(ScopeKind.BRANCH, "102")
    ordered = [Window.of(day, scope, LONDON) for day in (first, second) for scope in (BRANCH, other)]
    assert sorted([ordered[3], ordered[1], ordered[2], ordered[0]]) == ordered
