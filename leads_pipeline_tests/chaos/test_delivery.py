"""A day of delivery by commands alone: pushes and pulls of the simulator, an endpoint that is down
for two hours, ten killed senders, and an erasure in between.
"""

import json
import random
import signal
import sqlite3
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import duckdb
import pytest
from dotenv import dotenv_values

from leads_pipeline.simulator.leads import KINDS, LeadBook
from leads_pipeline.simulator.organisation import Organisation
from leads_pipeline_tests.promises.machine import KEY, PROGRAM, Clock, Machine
from leads_pipeline_tests.promises.month import libfaketime, remove_shared_clock
from leads_pipeline_tests.support.crm import SECRET
from leads_pipeline_tests.support.serving import free_port, listens

DAY = date(2025, 11, 18)
MIDNIGHT = datetime(2025, 11, 18, tzinfo=UTC)
BRANCHES, LEADS_PER_DAY, KILLS = 3, 200, 10
RECEIVER = Path(__file__).parents[2] / "examples" / "crm_receiver.py"


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@contextmanager
def program(machine: Machine, command: Sequence[str], port: int) -> Iterator[None]:
    """Run a server while the block runs."""
    process = machine.start(command)
    try:
        wait_for(lambda: listens(port))
        yield
    finally:
        process.kill()
        process.communicate()
        remove_shared_clock(process.pid)


def in_the_crm(folder: Path) -> list[dict[str, Any]]:
    """The messages that the example of a receiver has taken, each `webhook-id` once."""
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(folder / "crm.sqlite")) as db:
        return [
            json.loads(body) for (body,) in db.execute("select body from messages order by rowid")
        ]
    return []


def of_the_portal(until: datetime) -> dict[str, dict[str, Any]]:
    """Each lead that the portal got that day, by its id."""
    book, organisation = LeadBook(1, LEADS_PER_DAY), Organisation(1, BRANCHES)
    answers = [
        json.loads(book.answer(kind, organisation.branches, MIDNIGHT, until, until))
        for kind in KINDS
    ]
    return {lead["id"]: lead for answer in answers for leads in answer.values() for lead in leads}


@pytest.mark.skipif(
    libfaketime() is None, reason="libfaketime is not installed: apt install faketime"
)
def test_every_lead_arrives_and_none_of_the_erased(tmp_path: Path) -> None:  # noqa: PLR0915 - a story of days
    rng = random.Random(20261127)  # noqa: S311 - a test's
    machine = Machine(tmp_path, Clock(tmp_path / "clock", MIDNIGHT), {})
    portal_port, push_port, crm_port = free_port(), free_port(), free_port()
    pull = ("backfill", "--from", str(DAY), "--to", str(DAY))
    simulator = [
        PROGRAM,
        "simulate",
        "--port",
        str(portal_port),
        "--ready-file",
        str(tmp_path / "simulator.env"),
    ]
    simulator += ["--branches", str(BRANCHES), "--leads-per-day", str(LEADS_PER_DAY)]

    def push(hour: int) -> None:
        question = {
            "kind": "applicant",
            "from-time": f"{MIDNIGHT + timedelta(hours=hour - 1):%Y-%m-%dT%H:%M:%SZ}",
            "to-time": f"{MIDNIGHT + timedelta(hours=hour):%Y-%m-%dT%H:%M:%SZ}",
            "to": f"http://127.0.0.1:{push_port}/leads",
            "key": KEY,
        }
        address = f"http://127.0.0.1:{portal_port}/_simulator/push?{urlencode(question)}"
        with urllib.request.urlopen(urllib.request.Request(address, method="POST")) as answer:
            assert json.load(answer) == {"status": 200}

    def killed_deliver() -> bool:
        taken = len(in_the_crm(tmp_path)) + rng.randrange(1, 8)
        sender = machine.start([PROGRAM, "deliver"])
        wait_for(lambda: sender.poll() is not None or len(in_the_crm(tmp_path)) >= taken)
        sender.kill()
        sender.communicate()
        remove_shared_clock(sender.pid)
        return sender.returncode == -signal.SIGKILL

    def erase_somebody_who_waits() -> str:
        """Of the hour in which the endpoint was down."""
        with duckdb.connect(str(machine.data / "leads.duckdb"), read_only=True) as db:
            email = str(
                db.execute(
                    "select contact_email from applicant_leads where contact_email is not null and "
                    "created_at > ? order by created_at desc limit 1",
                    [MIDNIGHT + timedelta(hours=10)],
                ).fetchall()[0][0]
            )
        assert machine.command("privacy", "erase", "--email", email, "--yes") == 0
        return email

    with program(machine, simulator, portal_port), ExitStack() as crm:
        wait_for((tmp_path / "simulator.env").exists)
        machine.settings = {
            **{
                name: text or "" for name, text in dotenv_values(tmp_path / "simulator.env").items()
            },
            "LEADS_DATA_DIR": str(machine.data),
            "LEADS_TIMEZONE": "UTC",
            "LEADS_START_DATE": str(DAY),
            "LEADS_RECEIVE_KEY": KEY,
            "LEADS_DELIVERY_URL": f"http://127.0.0.1:{crm_port}",
            "LEADS_DELIVERY_SECRET": SECRET,
            "LEADS_DELIVERY_FROM": str(DAY),
            "PORT": str(crm_port),
        }
        receiver = program(machine, [sys.executable, str(RECEIVER)], crm_port)
        crm.enter_context(receiver)
        kills, erased, erased_at = 0, "", MIDNIGHT
        with program(machine, [PROGRAM, "receive", "--port", str(push_port)], push_port):
            for hour in range(1, 25):
                machine.clock.move_to(MIDNIGHT + timedelta(hours=hour))
                # Until each process reads the clock's file again: else the portal has no leads yet.
                time.sleep(1.05)
                push(hour)
                if hour in (4, 11, 13, 18):
                    assert machine.command(*pull) in (0, 1)  # the day is not over
                if hour == 10:
                    crm.close()
                if hour == 11:
                    erased, erased_at = erase_somebody_who_waits(), machine.clock.now()
                if hour == 12:
                    crm.enter_context(program(machine, [sys.executable, str(RECEIVER)], crm_port))
                if kills < KILLS and hour not in (10, 11):
                    kills += killed_deliver()
                else:
                    assert machine.command("deliver") == (1 if hour in (10, 11) else 0)
        machine.clock.move_to(MIDNIGHT + timedelta(days=1, hours=2))
        assert machine.command(*pull) == 0
        assert machine.command("deliver", "--now") == 0, machine.output()

    leads = [message["data"]["lead_id"] for message in in_the_crm(tmp_path)]
    portal = of_the_portal(MIDNIGHT + timedelta(days=1, hours=2))
    created = {id_: datetime.fromisoformat(lead["createdAt"]) for id_, lead in portal.items()}
    of_erased = {id_ for id_, lead in portal.items() if lead["contact"].get("email") == erased}
    gone = {id_ for id_ in of_erased if created[id_] < erased_at}
    waited = {id_ for id_ in gone if created[id_] > MIDNIGHT + timedelta(hours=10)}
    of_the_day = {id_ for id_ in portal if created[id_].date() == DAY}
    assert (kills, len(leads)) == (KILLS, len(set(leads)))
    assert waited
    assert of_the_day - set(leads) == gone
    # A sender that is killed within a message leaves half of it, whose signature is wrong.
    assert (tmp_path / "output.txt").read_text().count('" 401 ') <= kills
