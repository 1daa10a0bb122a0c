"""What is told when: once, daily or weekly while it lasts, once when it is over, and never twice."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from leads_pipeline.observe.alerts import Alert, Cause, Level, Memory, Occasion

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
BROKEN = Cause("broken", "it is broken", "What to do.")
SLOW = Cause("slow", "it is slow", "Wait.", patience=timedelta(hours=1))
ODD = Cause("odd", "it is odd", "Look.", Level.WARNING)
NEWS = [Cause(f"news {number}", f"new field {number}", "Take it in.", is_news=True) for number in range(3)]


def told(memory: Memory, causes: list[Cause], hours: float, *, is_unsure: bool = False) -> list[tuple[Occasion, str]]:
    """What is told after that many hours, and sent."""
    alerts = memory.notice(causes, NOON + timedelta(hours=hours), lambda _: is_unsure)
    for alert in alerts:
        memory.note_told(alert)
    return [(alert.occasion, alert.title) for alert in alerts]


def test_a_cause_is_told_once_then_daily_and_once_when_it_is_over() -> None:
    memory = Memory()
    assert told(memory, [BROKEN], 0) == [(Occasion.NEW, "it is broken")]
    assert told(memory, [BROKEN], 23.9) == []
    assert told(memory, [BROKEN], 24) == [(Occasion.STILL, "it is broken")]
    assert told(memory, [BROKEN], 47) == []
    assert told(memory, [], 47.1) == [(Occasion.OVER, "it is broken")]
    assert told(memory, [], 48) == []


def test_a_warning_is_told_again_weekly() -> None:
    memory = Memory()
    assert told(memory, [ODD], 0) == [(Occasion.NEW, "it is odd")]
    assert told(memory, [ODD], 24 * 7 - 1) == []
    assert told(memory, [ODD], 24 * 7) == [(Occasion.STILL, "it is odd")]


def test_what_may_pass_is_told_once_it_has_lasted_and_its_end_only_then() -> None:
    memory = Memory()
    assert told(memory, [SLOW], 0) == []
    assert told(memory, [], 0.5) == []
    assert told(memory, [SLOW], 0.6) == []
    assert told(memory, [SLOW], 1.5) == []
    assert told(memory, [SLOW], 1.6) == [(Occasion.NEW, "it is slow")]
    assert told(memory, [], 1.7) == [(Occasion.OVER, "it is slow")]


def test_a_warning_that_becomes_an_error_is_told_at_once() -> None:
    memory = Memory()
    worse = Cause("odd", "it is worse", "Run.")
    assert told(memory, [ODD], 0) == [(Occasion.NEW, "it is odd")]
    assert told(memory, [worse], 1) == [(Occasion.WORSE, "it is worse")]
    assert told(memory, [ODD], 2) == []


def test_the_end_of_what_can_t_be_seen_now_is_not_told() -> None:
    memory = Memory()
    assert told(memory, [BROKEN], 0) == [(Occasion.NEW, "it is broken")]
    assert told(memory, [], 1, is_unsure=True) == []
    assert told(memory, [BROKEN], 2) == []
    assert told(memory, [], 3) == [(Occasion.OVER, "it is broken")]


def test_all_news_of_the_moment_are_one_message_and_are_never_told_again() -> None:
    memory = Memory()
    assert told(memory, [*NEWS[:2], BROKEN], 0) == [
        (Occasion.NEW, "it is broken"),
        (Occasion.NEW, "new field 0, and 1 more"),
    ]
    assert told(memory, [*NEWS, BROKEN], 1) == [(Occasion.NEW, "new field 2")]
    assert told(memory, [*NEWS, BROKEN], 24 * 30) == [(Occasion.STILL, "it is broken")]
    assert told(memory, [BROKEN], 24 * 30 + 1) == []


def test_what_could_not_be_sent_is_due_again() -> None:
    memory = Memory()
    [unsent] = memory.notice([BROKEN], NOON, lambda _: False)
    [again] = memory.notice([BROKEN], NOON + timedelta(minutes=5), lambda _: False)
    assert (unsent.occasion, again.occasion, again.since) == (Occasion.NEW, Occasion.NEW, NOON)
    memory.note_told(again)
    [over] = memory.notice([], NOON + timedelta(hours=1), lambda _: False)
    [over_again] = memory.notice([], NOON + timedelta(hours=2), lambda _: False)
    assert over.occasion is over_again.occasion is Occasion.OVER


def test_what_earlier_versions_kept_is_read() -> None:
    memory = Memory.unpack({"broken": [NOON.timestamp(), "it is broken", 2, NOON.timestamp(), False]})
    assert told(memory, [], 1) == [(Occasion.OVER, "it is broken")]


def test_a_message_says_since_when_and_an_end_how_long() -> None:
    memory = Memory()
    [new] = memory.notice([BROKEN], NOON, lambda _: False)
    assert new.message == "What to do.\n\nSince 2026-11-22 12:00 UTC."
    assert new.headline == "[leads_pipeline] it is broken"
    memory.note_told(new)
    [over] = memory.notice([], NOON + timedelta(hours=3), lambda _: False)
    assert over.message == "It lasted from 2026-11-22 12:00 UTC to 2026-11-22 15:00 UTC at most."
    assert over.headline == "[leads_pipeline] Over: it is broken"


@given(
    st.lists(
        st.tuples(st.sets(st.sampled_from([BROKEN, SLOW, ODD, *NEWS])), st.floats(0, 40), st.booleans()), max_size=12
    )
)
def test_a_memory_that_was_packed_goes_on_as_it_would_have(history: list[tuple[set[Cause], float, bool]]) -> None:
    """Over any history: nothing begins twice or ends without having begun, and packing changes nothing."""
    memory, packed = Memory(), Memory()
    hours, open_ = 0.0, set[str]()
    for causes, later, is_sent in history:
        hours += later
        now = NOON + timedelta(hours=hours)
        there = sorted(causes, key=lambda cause: cause.key)
        alerts: list[Alert] = memory.notice(there, now, lambda _: False)
        packed = Memory.unpack(packed.pack())
        assert packed.notice(there, now, lambda _: False) == alerts
        for alert in alerts if is_sent else []:
            memory.note_told(alert)
            packed.note_told(alert)
            keys = set(alert.keys)
            if alert.occasion is Occasion.NEW:
                assert not keys & open_
                open_ |= {key for key in keys if not key.startswith("news")}
            elif alert.occasion is Occasion.OVER:
                assert keys <= open_
                open_ -= keys
            else:
                assert keys <= open_
