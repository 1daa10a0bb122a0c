"""A person is told once of each problem and once of its end, and nothing of what passes by itself,
by Dagster's own loops, a webhook and a mail server.

A week passes, in which the portal is down for a night, refuses a branch for most of a day, and the
machine is off for two days. Nothing here depends on the words of a message.
"""

import json
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from typing import Any, Final

import pytest

from leads_pipeline_tests.promises.ledger import KINDS, Lead, Portal, Version, served
from leads_pipeline_tests.promises.machine import Clock, Machine, needs_faketime
from leads_pipeline_tests.support.sinks import mail_server, web_sink

pytestmark = [pytest.mark.slow, needs_faketime]

DAYS: Final = 7


def at(day: int, hour: float = 0) -> datetime:
    """A moment. The first partition is day 0."""
    return datetime(2025, 11, 18, tzinfo=UTC) + timedelta(days=day, hours=hour)


# The windows of a day are due at 01:15 of the next.
DOWN: Final = at(1, 22), at(2, 7)
REFUSED: Final = at(2, 18), at(3, 12)
OFF: Final = at(4, 14), at(6, 9)
LOOKS: Final = sorted(
    {at(day, hour) for day in range(1, DAYS) for hour in (1.5, 13)}
    | {at(2, hour) for hour in (3, 5, 8, 10, 15)}
    | {at(3, 3), at(4, 13.5)}
)


def is_in(moment: datetime, times: tuple[datetime, datetime]) -> bool:
    return times[0] <= moment < times[1]


def errors(messages: list[Any], part: str) -> list[tuple[str, datetime]]:
    """The errors that messages say are `new` or `over`: the finding, and the moment."""
    return [
        (one["key"].partition("/")[0], datetime.fromisoformat(message["at"]))
        for message in messages
        for one in message[part]
        if one["level"] == "error"
    ]


def test_a_night_without_the_portal_and_a_refused_branch_are_told_once_and_over_and_a_start_is_not(
    tmp_path: Path,
) -> None:
    clock = Clock(tmp_path / "clock", at(1, 1))
    leads = [
        Lead(
            f"{kind}-{branch}-{day}", kind, (Version(at(day, 12), branch, at(day, 12), "Call me"),)
        )
        for kind in KINDS
        for branch in ("101", "102")
        for day in range(DAYS - 1)
    ]
    portal = Portal(leads, clock.now)
    machine = Machine(tmp_path, clock)
    with served(portal) as address, web_sink() as web, mail_server() as mail:
        machine.configure(
            address,
            portal.secret,
            LEADS_BRANCH_IDS="101,102",
            LEADS_TIMEZONE="UTC",
            LEADS_START_DATE=str(at(0).date()),
            LEADS_ALERT_WEBHOOK=web.url,
            LEADS_ALERT_EMAIL="somebody@agency.example",
            LEADS_SMTP_URL=f"smtp://{mail.host}",
        )
        try:
            for moment in LOOKS:
                clock.move_to(moment)
                portal.mood = "down" if is_in(moment, DOWN) else None
                portal.refused = {"102": 403} if is_in(moment, REFUSED) else {}
                if is_in(moment, OFF):
                    machine.stop()
                else:
                    machine.tick()
        finally:
            machine.stop()

    # Nothing is new but these two: a machine that was off pulls first, before anybody is told.
    messages = [json.loads(body) for _, _, body in web.requests]
    [(failing, failed_at), (refused, refused_at)] = errors(messages, "new")
    [(works_again, worked_at), (corrected, corrected_at)] = errors(messages, "over")
    assert failing == works_again == "windows-failing"
    assert is_in(failed_at, DOWN)
    assert is_in(worked_at, (DOWN[1], DOWN[1] + timedelta(hours=9)))
    assert refused == corrected == "windows-refused"
    assert is_in(refused_at, REFUSED)
    assert is_in(corrected_at, (REFUSED[1], REFUSED[1] + timedelta(days=1, hours=2)))

    # Two begin, two end, one is told once more after a day, and a field of these leads is in no
    # contract.
    assert len(messages) <= 6
    mails = [message_from_bytes(envelope.content, policy=default) for envelope in mail.mails]
    assert [one["Subject"] for one in mails] == [one["title"] for one in messages]
