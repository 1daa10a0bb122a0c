from datetime import UTC, datetime, timedelta

from leads_pipeline.domain.moments import has_passed, not_after

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_a_wait_passes_at_its_end() -> None:
    assert has_passed(HOUR, NOW - HOUR, NOW)
    assert not has_passed(HOUR, NOW - HOUR + timedelta(seconds=1), NOW)


def test_a_moment_that_another_process_has_stored_meanwhile_is_none_of_the_future() -> None:
    assert not has_passed(HOUR, NOW + timedelta(minutes=5), NOW)


def test_nothing_waits_for_a_moment_that_a_clock_wrote_which_ran_ahead() -> None:
    assert has_passed(HOUR, NOW + timedelta(days=400), NOW)
    assert not_after(NOW + timedelta(days=400), NOW) == NOW
    assert not_after(NOW - HOUR, NOW) == NOW - HOUR
