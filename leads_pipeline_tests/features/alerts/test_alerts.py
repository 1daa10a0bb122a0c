"""What is told when: once, daily while it lasts, once when it is over.

Kills and broken channels lose no message.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leads_pipeline.errors import UnansweredError, UnreachableError
from leads_pipeline.features.alerts import channels
from leads_pipeline.features.alerts.alerts import AlertMemory, Alerts
from leads_pipeline.features.alerts.channels import Heartbeat
from leads_pipeline.features.alerts.digest import Digest
from leads_pipeline.health.findings import Finding, Level

MIDNIGHT = datetime(2026, 11, 22, tzinfo=UTC)


def finding(key: str, level: Level = Level.ERROR, *, may_pass: bool = False) -> Finding:
    message = f"{key} is broken. Leads wait."
    link = f"leads-pipeline explain {key}"
    return Finding(level, message, f"Mend {key}.", None, link, may_pass, key=key)


DISK = finding("disk")
REFUSED = finding("windows-refused")
OUTAGE = finding("windows-failing", may_pass=True)
DRIFT = finding("drift/newField", Level.WARNING)
BACKUP = finding("backup", Level.WARNING)


class Channel(channels.Channel):
    """Keeps its messages, unless it is down."""

    def __init__(self, name: str = "LEADS_ALERT_WEBHOOK") -> None:
        self.name = name  # type: ignore[misc]  # several of one class
        self.messages: list[Digest] = []
        self.error: BaseException | None = None
        self.trouble: str | None = None

    def send(self, digest: Digest) -> str | None:
        has_arrived = not isinstance(self.error, Exception) or isinstance(
            self.error, UnansweredError
        )
        if has_arrived:
            self.messages.append(digest)
        if self.error:
            raise self.error
        return self.trouble


class Beats(Heartbeat):
    """Keeps how it was called."""

    def __init__(self) -> None:
        self.calls: list[bool] = []
        self.error: Exception | None = None

    def beat(self, *, is_well: bool) -> None:
        if self.error:
            raise self.error
        self.calls.append(is_well)


class Service:
    """A service that looks at findings, and can be started anew.

    What it says of a message is `new: disk`.
    """

    def __init__(self, state: Path, *channels: Channel, heartbeat: Heartbeat | None = None) -> None:
        self.state = state
        self.channels = channels
        self.heartbeat = heartbeat
        self.start()

    def start(self) -> None:
        self.alerts = Alerts(self.state, self.channels, self.heartbeat)

    def look(self, hours: float, *findings: Finding, failed: Sequence[str] = ()) -> list[str]:
        """Look at that hour after midnight. Give the messages of the first channel."""
        before = len(self.channels[0].messages)
        self.alerts.tell(findings, failed, MIDNIGHT + timedelta(hours=hours))
        return [shown(one) for one in self.channels[0].messages[before:]]


def shown(digest: Digest) -> str:
    parts = {"new": digest.new, "over": digest.over, "still open": digest.still_open}
    shown = []
    for name, findings in parts.items():
        keys = ", ".join(one.key for one in findings)
        if keys:
            shown.append(f"{name}: {keys}")
    return "; ".join(shown)


@pytest.fixture
def channel() -> Channel:
    return Channel()


@pytest.fixture
def service(tmp_path: Path, channel: Channel) -> Service:
    return Service(tmp_path, channel)


# --- once, daily, and over ------------------------------------------------------------------------


def test_an_error_is_told_once_then_daily_and_once_when_it_is_over(service: Service) -> None:
    assert service.look(0, DISK) == ["new: disk"]
    assert service.look(23.9, DISK) == []
    assert service.look(24, DISK) == ["still open: disk"]
    assert service.look(47) == ["over: disk"]
    assert service.look(200) == []


def test_what_is_found_at_one_look_is_one_message_with_all_that_is_open(service: Service) -> None:
    assert service.look(0, DISK) == ["new: disk"]
    assert service.look(1, DISK, REFUSED, DRIFT) == [
        "new: windows-refused, drift/newField; still open: disk"
    ]
    assert service.look(2, REFUSED, DRIFT) == [
        "over: disk; still open: windows-refused, drift/newField"
    ]


def test_an_error_that_can_pass_by_itself_is_told_after_an_hour_and_its_end_only_then(
    service: Service,
) -> None:
    assert service.look(0, OUTAGE) == []
    assert service.look(0.9) == []
    assert service.look(1, OUTAGE) == []
    assert service.look(1.9, OUTAGE) == []
    assert service.look(2, OUTAGE) == ["new: windows-failing"]
    later = replace(OUTAGE, since=MIDNIGHT + timedelta(hours=2))
    assert service.look(2.1, later) == [], "it is still the same problem"
    assert service.look(2.2) == ["over: windows-failing"]


def test_a_new_warning_is_told_and_neither_its_end_nor_a_day_makes_a_message(
    service: Service,
) -> None:
    assert service.look(0, DRIFT) == ["new: drift/newField"]
    assert service.look(30, DRIFT) == []
    assert service.look(31) == []
    assert service.look(32, DRIFT) == ["new: drift/newField"]
    assert service.look(33, DISK) == ["new: disk; over: drift/newField"]
    assert service.look(34, DRIFT) == ["new: drift/newField; over: disk"]


def test_a_warning_that_comes_and_goes_makes_one_message_a_day(
    service: Service, channel: Channel
) -> None:
    for hour in range(0, 24, 2):
        service.look(hour, DRIFT)
        service.look(hour + 1, BACKUP)

    assert [shown(one) for one in channel.messages] == [
        "new: drift/newField",
        "new: backup; over: drift/newField",
    ]


def test_while_a_finder_fails_what_it_found_is_neither_over_nor_told_again(
    service: Service,
) -> None:
    broken = finding("finder-failed/windows-refused", may_pass=True)
    assert service.look(0, REFUSED) == ["new: windows-refused"]
    assert service.look(0.5, broken, failed=["windows-refused"]) == []
    assert service.look(1.5, broken, failed=["windows-refused"]) == [
        "new: finder-failed/windows-refused; still open: windows-refused"
    ]
    assert service.look(2, REFUSED) == [
        "over: finder-failed/windows-refused; still open: windows-refused"
    ]
    assert service.look(3) == ["over: windows-refused"]


# --- channels that don't work, and kills ----------------------------------------------------------


def test_a_channel_that_does_not_work_keeps_no_other_waiting_and_is_told_when_it_works(
    tmp_path: Path,
) -> None:
    mail = Channel("LEADS_SMTP_URL")
    slack = Channel("LEADS_ALERT_SLACK_WEBHOOK")
    service = Service(tmp_path, mail, slack)
    mail.error = UnreachableError("Down.")
    service.look(0, DISK)
    service.look(2, DISK)
    assert AlertMemory.read(tmp_path).failures["LEADS_SMTP_URL"].since == MIDNIGHT

    mail.error = None
    assert service.look(3, DISK) == ["new: disk"]
    assert AlertMemory.read(tmp_path).failures == {}
    assert [shown(one) for one in slack.messages] == ["new: disk"]


def test_a_message_that_may_have_arrived_is_sent_again_less_and_less_often(
    service: Service, channel: Channel
) -> None:
    """The server takes it, and its answer is lost."""
    channel.error = UnansweredError("No answer.")
    service.look(1000, DISK)  # the clock ran ahead

    for minutes in range(0, 24 * 60, 5):
        service.look(minutes / 60, DISK)

    assert len(channel.messages) < 30

    channel.error = None
    assert service.look(25, DISK) == ["new: disk"]


def test_an_odd_error_of_a_channel_is_noted_without_its_words(
    service: Service, channel: Channel
) -> None:
    channel.error = ImportError("socksio, by proxy user:pa55")

    service.look(0, DISK)

    failure = AlertMemory.read(service.state).failures[channel.name]
    assert "ImportError" in failure.message
    assert "pa55" not in failure.message


def test_a_message_that_not_everybody_got_is_sent_once(service: Service, channel: Channel) -> None:
    channel.trouble = "refuses it@agency.example"

    assert service.look(0, DISK) == ["new: disk"]
    assert service.look(1, DISK) == []
    assert (
        AlertMemory.read(service.state).failures[channel.name].message
        == "refuses it@agency.example"
    )


def test_after_a_kill_between_sending_and_noting_the_end_is_told(
    service: Service, channel: Channel
) -> None:
    channel.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        service.look(0, DISK)

    channel.error = None
    service.start()

    assert service.look(1) == ["over: disk"]


LOOKS = st.tuples(
    st.sets(st.sampled_from([DISK, REFUSED, OUTAGE, DRIFT])),
    st.floats(0.1, 30),
    st.booleans(),
    st.sampled_from(["no finder", "disk", "drift"]),
)


@settings(max_examples=50)
@given(st.lists(LOOKS, max_size=12))
def test_over_any_history_with_restarts_an_error_begins_once_and_ends_once(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[set[Finding], float, bool, str]]
) -> None:
    channel = Channel()
    service = Service(tmp_path_factory.mktemp("state"), channel)
    hours = 0.0
    told_open: set[str] = set()

    for found, later, is_down, failing in history:
        hours += later
        channel.error = UnreachableError("Down.") if is_down else None
        seen = [
            one
            for one in (DISK, REFUSED, OUTAGE, DRIFT)
            if one in found and not one.key.startswith(failing)
        ]
        errors = {one.key for one in seen if one.level is Level.ERROR}

        channel.messages.clear()
        service.start()
        service.look(hours, *seen, failed=[failing])
        if not is_down:  # a message that didn't get through is sent again within an hour
            hours += 1
            service.look(hours, *seen, failed=[failing])

        for message in channel.messages:
            new = {one.key for one in message.new}
            assert not new & told_open - {DRIFT.key}
            assert {one.key for one in message.still_open} <= told_open
            told_open |= new
            told_open -= {one.key for one in message.over}
        if not is_down:
            assert errors - {OUTAGE.key} <= told_open, "no error that counts stays untold"
            not_seen = {key for key in told_open - errors if not key.startswith(failing)}
            assert not_seen <= {DRIFT.key}, "no end is lost"


# --- the heartbeat --------------------------------------------------------------------------------


@pytest.mark.parametrize(("found", "is_well"), [(DISK, True), (REFUSED, False)])
def test_the_heartbeat_says_whether_leads_are_late(
    tmp_path: Path, channel: Channel, found: Finding, *, is_well: bool
) -> None:
    beats = Beats()
    service = Service(tmp_path, channel, heartbeat=beats)

    service.look(2, found)

    assert beats.calls == [is_well]


def test_an_error_that_was_noticed_while_the_clock_ran_ahead_is_told_after_an_hour(
    service: Service,
) -> None:
    """Fault 80: it waited until that time came, and the heartbeat said "well" meanwhile."""
    service.look(1000, OUTAGE)

    assert service.look(1, OUTAGE) == []
    assert service.look(2, OUTAGE) == ["new: windows-failing"]


def test_a_heartbeat_that_fails_is_noted_and_called_again_at_the_next_look(
    tmp_path: Path, channel: Channel
) -> None:
    beats = Beats()
    service = Service(tmp_path, channel, heartbeat=beats)

    beats.error = UnreachableError("Down.")
    service.look(0)
    assert AlertMemory.read(tmp_path).failures["LEADS_HEARTBEAT_URL"].message == "Down."

    beats.error = None
    service.look(0.2)
    assert beats.calls == [True]
    assert AlertMemory.read(tmp_path).failures == {}


# --- words ----------------------------------------------------------------------------------------


def test_a_message_says_what_happened_what_to_do_and_since_when(
    service: Service, channel: Channel
) -> None:
    service.look(0, DISK)
    service.look(3)

    [new, over] = channel.messages
    assert new.title == "[leads_pipeline] New problem: disk is broken."
    assert new.text == (
        "New:\n\n"
        "- Error: disk is broken. Leads wait.\n"
        "  What to do: Mend disk.\n"
        "  Since 2026-11-22 00:00 UTC. More: `leads-pipeline explain disk`"
    )
    assert "It lasted from 2026-11-22 00:00 UTC to 2026-11-22 03:00 UTC at most." in over.text


def test_a_title_names_an_error_before_a_warning(service: Service, channel: Channel) -> None:
    service.look(0, DRIFT, DISK)
    service.look(3)

    [new, over] = channel.messages
    assert new.title == "[leads_pipeline] New problem: disk is broken."
    assert over.title == "[leads_pipeline] Over: disk is broken. No problem is open."


def test_a_clock_that_came_back_makes_nothing_last_backwards(
    service: Service, channel: Channel
) -> None:
    """Fault 85: it lasted from 2027 to 2026."""
    service.look(24 * 365, DISK)
    service.look(3)
    assert "It was over by 2026-11-22 03:00 UTC." in channel.messages[-1].text
