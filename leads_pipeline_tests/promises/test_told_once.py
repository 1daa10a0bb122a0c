"""A person is told once of a problem and once of its end, by Dagster's own loops, a webhook and a mail server.

Nothing here depends on the words of a message, but for "refused" and "over". A channel may join several problems.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller

from leads_pipeline_tests.promises.ledger import KINDS, Lead, Portal, Version, served
from leads_pipeline_tests.promises.machine import KEY, Clock, Machine
from leads_pipeline_tests.promises.month import libfaketime
from leads_pipeline_tests.support.serving import QuietHandler, free_port, serving

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(libfaketime() is None, reason="libfaketime is not installed: apt install faketime"),
]

DAY = date(2025, 11, 18)
MORNING = datetime(2025, 11, 19, 7, tzinfo=UTC)
REFUSED = "branch-102"
TOKEN = "t0ken-of-the-webhook"
SECRET = "made-up-secret-of-the-client"


class Mails:
    """A mail server's handler: keeps each message."""

    def __init__(self) -> None:
        self.received: list[str] = []

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
        mail = message_from_bytes(envelope.content, policy=default)
        body = mail.get_body()
        assert body is not None
        self.received.append(f"{mail['Subject']}\n{body.get_content()}")
        return "250 OK"


@contextmanager
def web_sink() -> Iterator[tuple[str, list[str]]]:
    """A web server that takes every message. Give its address and the list of their texts."""
    received: list[str] = []

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            received.append(json.dumps(json.loads(self.rfile.read(int(self.headers["Content-Length"]))), indent=1))
            self.send_response(204)
            self.end_headers()

    with serving(Handler) as address:
        yield f"{address}/{TOKEN}", received


@contextmanager
def mail_sink() -> Iterator[tuple[str, list[str]]]:
    """A mail server. Give its address and the list of the messages."""
    mails = Mails()
    controller = Controller(mails, hostname="127.0.0.1", port=free_port())
    controller.start()
    try:
        yield f"smtp://127.0.0.1:{controller.port}", mails.received
    finally:
        controller.stop()


def _of_refusals(told: list[str]) -> list[str]:
    """The messages about it. A channel may tell of other problems of such a day as well."""
    return [text for text in told if "refus" in text.lower()]


def test_each_channel_tells_once_of_a_refused_branch_and_once_that_it_is_over(tmp_path: Path) -> None:
    clock = Clock(tmp_path / "clock", MORNING)
    noon = datetime(DAY.year, DAY.month, DAY.day, 12, tzinfo=UTC)
    portal = Portal(
        [
            Lead(f"{kind}-{branch}", kind, (Version(noon, branch, noon, "Call me, says Jane"),))
            for kind in KINDS
            for branch in ("101", "102")
        ],
        clock.now,
        secret=SECRET,
        refused={"102": 403},
    )
    machine = Machine(tmp_path, clock, {})
    with served(portal) as address, web_sink() as (hook, posted), mail_sink() as (smtp, mailed):
        machine.configure(
            address,
            SECRET,
            LEADS_BRANCH_IDS="101,102",
            LEADS_TIMEZONE="UTC",
            LEADS_START_DATE=str(DAY),
            LEADS_ALERT_WEBHOOK=hook,
            LEADS_ALERT_EMAIL="somebody@agency.example",
            LEADS_SMTP_URL=smtp,
        )
        try:
            machine.work_for(timedelta(hours=4))
            for told in (posted, mailed):
                [problem] = _of_refusals(told)
                assert REFUSED in problem

            portal.refused.clear()
            assert machine.command("backfill", "--from", str(DAY), "--to", str(DAY)) == 0
            machine.work_for(timedelta(hours=4))
            for told in (posted, mailed):
                [_, end] = _of_refusals(told)
                assert "over" in end.lower()
        finally:
            machine.stop()
    private = [SECRET, KEY, TOKEN, f"token-of-{SECRET}", "people.example", "Jane"]
    private += [one.id for one in portal.leads]
    assert [(text, word) for text in posted + mailed for word in private if word in text] == []
