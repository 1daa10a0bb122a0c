"""A month of a service, as its people are told of it: what happened is told once, and once that it is over."""

import hashlib
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.observe import channels
from leads_pipeline.observe.alerts import Alerts
from leads_pipeline.observe.digest import Digest
from leads_pipeline.observe.findings import look
from leads_pipeline.observe.known import Known
from leads_pipeline.orchestration.pulling import due_windows
from leads_pipeline.settings import Settings
from leads_pipeline.storage.publications import Publications
from leads_pipeline.storage.raw import place_of
from leads_pipeline.storage.windows import known_windows
from leads_pipeline_tests.support.house import DAY, Quick

STEP = timedelta(minutes=30)
MIDNIGHT = datetime(DAY.year, DAY.month, DAY.day, tzinfo=UTC)


def at(day: int, hour: float = 0) -> datetime:
    """A moment of the month, which begins on day 0."""
    return MIDNIGHT + timedelta(days=day, hours=hour)


OUTAGE = (at(3, 22), at(4, 7))
SHORT_OUTAGE = (at(20, 1), at(20, 1.9))
REFUSED = (at(8), at(11))
OFF = (at(15, 12), at(17, 12))


def is_in(moment: datetime, times: tuple[datetime, datetime]) -> bool:
    return times[0] <= moment < times[1]


class Mailbox(channels.Channel):
    """Keeps what a person is told."""

    name = "LEADS_ALERT_WEBHOOK"

    def __init__(self) -> None:
        self.messages: list[Digest] = []

    def send(self, digest: Digest) -> None:
        self.messages.append(digest)


@pytest.fixture
def told(tmp_path: Path) -> list[Digest]:
    """A month of ticks, each of which tells people first, and then pulls what is due, and publishes."""
    house, mailbox = Quick(tmp_path / "data"), Mailbox()
    variables = {
        "LEADS_DATA_DIR": str(house.folder),
        "LEADS_BASE_URL": "http://127.0.0.1:8000",
        "LEADS_BRANCH_IDS": "101,102,103",
        "LEADS_TIMEZONE": "Europe/London",
        "LEADS_START_DATE": str(DAY),
    }
    settings, state = Settings.from_variables(variables), house.data.state.path
    alerts, started_at = Alerts(state, [mailbox], None), at(0)
    house.now = at(0)
    while house.now < at(31):
        if is_in(house.now, OFF):
            house.now = OFF[1]
            alerts, started_at = Alerts(state, [mailbox], None), house.now
        house.data.state.note_service(house.now, [])
        alerts.tell(*look(Known(settings, house.data, house.now)), house.now)
        pull(house, settings, started_at)
        Publications(began_at=house.now, published_at=house.now).write(state)
        if (state / "landed").exists():
            os.utime(state / "landed", (house.now.timestamp(),) * 2)
        house.now += STEP
    return mailbox.messages


def pull(house: Quick, settings: Settings, started_at: datetime) -> None:
    """Pull what is due at this moment."""
    data, now = house.data, house.now
    for kind in LEAD_KINDS:
        rows = known_windows(data.store, kind, settings.scopes, settings.zone, DAY, now)
        for window in due_windows(rows, started_at, now):
            if is_in(now, OUTAGE) or is_in(now, SHORT_OUTAGE):
                data.raw.fail(place_of(kind, window), "server error (503)", "It was down.", is_permanent=False)
            elif is_in(now, REFUSED) and window.scope.key == "branch-102":
                data.raw.fail(place_of(kind, window), "refused (403)", "No such branch.", is_permanent=True)
            else:
                data.raw.land(kind, window, [], now, hashlib.sha256(b"").hexdigest(), "run")


def keys(part: str) -> Callable[[Digest], list[str]]:
    return lambda digest: [one.key for one in getattr(digest, part)]


def test_a_month_is_told_once_and_over(told: list[Digest]) -> None:
    new = [(key.partition("/")[0], digest.at) for digest in told for key in keys("new")(digest)]
    over = [(key.partition("/")[0], digest.at) for digest in told for key in keys("over")(digest)]
    assert [name for name, _ in new] == [name for name, _ in over] == ["windows-failing", "windows-refused"]
    failing, refused = (moment for _, moment in new)
    assert OUTAGE[0] < failing <= at(4, 3)  # the windows of the day before are due at 01:15
    assert REFUSED[0] < refused <= at(8, 2)
    works_again, corrected = (moment for _, moment in over)
    assert works_again < OUTAGE[1] + timedelta(hours=6)  # by then, the service waits for hours
    assert corrected < REFUSED[1] + timedelta(days=1, hours=2)  # without a restart, it asks once a day
    daily = [digest.at for digest in told if not digest.new and not digest.over]
    assert len(daily) <= 4  # while the branch is refused
