"""Delivery: each new lead, and each new version of one, reaches the agency's own endpoint."""

import json
import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from leads_pipeline.errors import SettingsError, StorageError
from leads_pipeline.features.delivery.ledger import LEDGER, VersionState, reading_ledger, writing_ledger
from leads_pipeline.features.delivery.message import signer
from leads_pipeline.features.delivery.sending import Endpoint, Sent, deliver
from leads_pipeline.features.privacy.gatekeeper import list_of
from leads_pipeline.features.privacy.suppression import Action, Entry, SuppressionList
from leads_pipeline.portal.http_library import httpx
from leads_pipeline.settings import Settings
from leads_pipeline.storage.store import FolderStore
from leads_pipeline_tests.support.crm import SECRET, VARIABLES, Crm
from leads_pipeline_tests.support.house import DAY, NEXT_DAY, House
from leads_pipeline_tests.support.newcomer import PATIENCE_SECONDS
from leads_pipeline_tests.support.serving import QuietHandler, free_port, serving


def lead(number: int, message: str = "first", **contact: str) -> dict[str, Any]:
    known = {"firstName": "Jane", "lastName": "Quill", "email": f"j{number}@example.org", "phoneNumber": "07700 900123"}
    return {"id": f"lead-{number}", "createdAt": f"{DAY}T10:00:00Z", "message": message, "contact": known | contact}


class Agency:
    """A house with its endpoint."""

    def __init__(self, folder: Path) -> None:
        self.house = House(folder)
        self.crm = Crm()
        self.variables = {**VARIABLES, "LEADS_TIMEZONE": "Europe/London", "LEADS_DELIVERY_FROM": str(DAY)}

    def deliver(self, **options: Any) -> Sent:
        """Deliver to the made-up CRM, at the house's moment."""
        return self.send(clock=lambda: self.house.now, transport=self.crm, **options)

    def send(self, **options: Any) -> Sent:
        """Deliver to the address of the variables."""
        settings = Settings.from_variables(self.variables)
        endpoint = Endpoint.of(settings)
        assert endpoint
        return deliver(settings, self.house.data, endpoint, **options)

    def counts(self) -> dict[VersionState, int]:
        with reading_ledger(self.house.folder) as ledger:
            assert ledger
            return {state: count for state, count in ledger.counts().items() if count}


@pytest.fixture
def agency(tmp_path: Path) -> Agency:
    return Agency(tmp_path / "data")


def answering(status: int, **headers: str) -> Any:
    return lambda _message: httpx.Response(status, headers=headers)


def test_each_lead_is_delivered_once_with_its_columns_and_its_text(agency: Agency) -> None:
    text = json.dumps(lead(1) | {"intent": "APPLICANT_INTENT_BUY", "new": [15]}).replace("15]", "1.50]")
    agency.house.land("applicant", [text, lead(2)])
    assert (agency.deliver().delivered, agency.deliver().delivered) == (2, 0)
    [first] = [message for message in agency.crm.applied.values() if message["data"]["lead_id"] == "lead-1"]
    data = first["data"]
    assert first["type"] == "lead.created"
    assert (data["kind"], data["lead_id"], data["scope"], data["lead_day"]) == (
        "applicant",
        "lead-1",
        "branch-101",
        str(DAY),
    )
    assert (data["contact_email"], data["intent"]) == ("j1@example.org", "APPLICANT_INTENT_BUY")
    assert (data["payload"]["contact"]["email"], data["_extra"]) == ("j1@example.org", {"new": [1.5]})
    assert any(text.encode() in request.content for request in agency.crm.requests)


def test_a_new_version_is_an_update_and_one_lead_s_versions_come_in_order(agency: Agency) -> None:
    for text in ("A", "B", "A"):
        agency.house.land("applicant", [lead(1, text)])
    agency.deliver()
    agency.house.land("applicant", [lead(1, "A")])
    agency.deliver()
    assert agency.crm.events == [("created", "lead-1", "A"), ("updated", "lead-1", "B"), ("updated", "lead-1", "A")]


def test_two_texts_of_a_lead_in_each_answer_are_delivered_once(agency: Agency) -> None:
    for number in range(3):  # the bodies differ
        agency.house.land("applicant", [lead(1, "A"), lead(1, "B"), *map(lead, range(5, 5 + number))])
        agency.deliver()
    assert [event for event in agency.crm.events if event[1] == "lead-1"] == [
        ("created", "lead-1", "A"),
        ("updated", "lead-1", "B"),
    ]


def test_a_lead_of_two_windows_is_delivered_once(agency: Agency) -> None:
    agency.house.land("applicant", [lead(1)])
    agency.house.land("applicant", [lead(1)], day=NEXT_DAY)
    agency.house.push("applicant", lead(1))
    agency.deliver()
    assert agency.crm.events == [("created", "lead-1", "first")]


def test_without_a_first_day_old_leads_are_not_delivered(agency: Agency) -> None:
    del agency.variables["LEADS_DELIVERY_FROM"]
    agency.house.land("applicant", [lead(1)])
    agency.deliver()
    agency.house.later(days=1)
    agency.house.push("applicant", lead(2) | {"createdAt": f"{agency.house.today}T05:00:00Z"})
    agency.deliver()
    assert [event[1] for event in agency.crm.events] == ["lead-2"]


def test_a_first_day_that_is_set_to_an_earlier_one_counts_at_once(agency: Agency) -> None:
    created = agency.house.now - timedelta(days=58)
    agency.house.push("applicant", lead(1) | {"createdAt": created.isoformat()})
    agency.house.later(days=10)
    del agency.variables["LEADS_DELIVERY_FROM"]
    agency.deliver()
    agency.variables["LEADS_DELIVERY_FROM"] = f"{created.date()}"
    assert [agency.deliver().delivered for _ in range(2)] == [1, 0]


def test_a_failed_lead_is_sent_again_later_with_the_same_id_and_a_new_signature(agency: Agency) -> None:
    agency.house.land("applicant", [lead(1)])
    agency.crm.answer = answering(500)
    assert agency.deliver().failed == 1
    agency.house.later(hours=1)
    agency.crm.answer = answering(200)
    assert agency.deliver().delivered == 1
    [(first_id, first_at, _), (second_id, second_at, _)] = agency.crm.attempts
    assert first_id == second_id
    assert int(second_at) - int(first_at) >= 3600


def test_a_lead_that_the_endpoint_refuses_delays_no_other_lead(agency: Agency) -> None:
    agency.house.land("applicant", [lead(1), lead(2), lead(3)])
    agency.crm.answer = lambda message: httpx.Response(422 if message["data"]["lead_id"] == "lead-1" else 200)
    agency.deliver()
    agency.house.land("applicant", [lead(1, "second"), lead(4)])
    agency.deliver()
    assert sorted(event[1] for event in agency.crm.events) == ["lead-2", "lead-3", "lead-4"]
    assert agency.counts() == {VersionState.DELIVERED: 3, VersionState.WAITING: 2}


def test_an_endpoint_that_is_away_is_left_alone_and_gets_all_once_it_is_back(agency: Agency) -> None:
    agency.house.land("applicant", [lead(number) for number in range(40)])
    agency.crm.answer = answering(503)
    assert agency.deliver().failed < 10
    assert agency.deliver().failed == 0
    for _ in range(24):  # two hours
        agency.house.later(minutes=5)
        agency.deliver()
    agency.crm.answer = answering(200)
    agency.house.later(minutes=5)
    agency.deliver()
    agency.deliver()
    assert len(agency.crm.applied) == 40


@pytest.mark.parametrize(("seconds", "minutes"), [("1800", 30), ("999999999", 60)])
def test_a_retry_after_is_kept_up_to_an_hour(agency: Agency, seconds: str, minutes: int) -> None:
    agency.house.land("applicant", [lead(1)])
    agency.crm.answer = answering(429, **{"Retry-After": seconds})
    agency.deliver()
    agency.crm.answer = answering(200)
    agency.house.later(minutes=minutes - 1)
    assert agency.deliver().delivered == 0
    agency.house.later(minutes=1)
    assert agency.deliver().delivered == 1


@pytest.mark.parametrize(
    ("location", "named"), [("https://new.example/hook?token=secret", "new.example"), ("http://[::1", "?")]
)
def test_a_redirect_is_a_failure_that_names_the_new_host(agency: Agency, location: str, named: str) -> None:
    agency.house.land("applicant", [lead(1)])
    agency.crm.answer = answering(301, location=location)
    sent = agency.deliver()
    assert (sent.delivered, sent.failed) == (0, 1)
    assert f"to {named}, and none is followed" in (sent.trouble or "")
    assert "secret" not in (sent.trouble or "")


def test_410_stops_the_endpoint_until_a_person_says_so(agency: Agency) -> None:
    agency.house.land("applicant", [lead(1), lead(2)])
    agency.crm.answer = answering(410)
    agency.deliver()
    agency.crm.answer = answering(200)
    agency.house.later(days=1)
    assert (agency.deliver().delivered, agency.deliver(is_all=True).delivered) == (0, 0)
    with writing_ledger(agency.house.folder) as ledger:
        ledger.retry(agency.house.now.timestamp())
    assert agency.deliver().delivered == 2


def test_after_three_days_a_lead_is_a_dead_letter_that_can_be_retried(agency: Agency) -> None:
    agency.house.land("applicant", [lead(1)])
    agency.crm.answer = answering(400)
    for _ in range(8):
        agency.deliver()
        agency.house.later(hours=12)
    assert agency.counts() == {VersionState.DEAD: 1}
    agency.crm.answer = answering(200)
    assert agency.deliver(is_all=True).left == 1
    with writing_ledger(agency.house.folder) as ledger:
        assert ledger.retry(agency.house.now.timestamp()) == 1
    assert agency.deliver().delivered == 1


def test_days_on_which_the_machine_is_off_do_not_count(agency: Agency) -> None:
    agency.house.land("applicant", [lead(1)])
    agency.crm.answer = answering(503)
    agency.deliver()
    agency.house.later(days=4)
    agency.deliver()
    assert agency.counts() == {VersionState.WAITING: 1}


def test_a_clock_that_ran_ahead_once_keeps_no_lead_waiting_for_years(agency: Agency) -> None:
    agency.house.land("applicant", [lead(1)])
    agency.crm.answer = answering(400)
    right = agency.house.now
    for days in (0, 3650, 1, 2, 3, 4, 5):
        agency.house.now = right + timedelta(days=days)
        agency.deliver()
    assert agency.counts() == {VersionState.DEAD: 1}


def test_a_contact_that_the_portal_emptied_waits_for_a_person(agency: Agency) -> None:
    agency.house.land("applicant", [lead(1)])
    agency.deliver()
    agency.house.land("applicant", [lead(1, email="")])
    agency.deliver()
    assert agency.counts() == {VersionState.DELIVERED: 1, VersionState.HELD: 1}
    agency.house.land("applicant", [lead(1, "whole again")])
    agency.deliver()
    assert [event[2] for event in agency.crm.events] == ["first", "whole again"]
    assert agency.counts() == {VersionState.DELIVERED: 2}


def test_an_odd_text_that_lost_a_contact_waits_and_one_that_has_it_is_sent(agency: Agency) -> None:
    agency.house.land("applicant", [lead(1), lead(2)])
    agency.deliver()
    whole, emptied = (json.dumps(one | {"odd": "x"}).replace('"x"', "NaN") for one in (lead(1), lead(2, email="")))
    agency.house.land("applicant", [whole, emptied])
    agency.deliver()
    assert agency.counts() == {VersionState.DELIVERED: 3, VersionState.HELD: 1}


def test_an_erased_person_is_never_sent_again(agency: Agency) -> None:
    agency.house.land("applicant", [lead(1), lead(2)])
    agency.crm.answer = answering(500)
    agency.deliver()
    agency.house.erase(email="j1@example.org")
    agency.crm.answer = answering(200)
    agency.house.land("applicant", [lead(1, "again"), lead(2)])
    agency.house.push("applicant", lead(1, "pushed"))
    agency.deliver(is_all=True)
    assert [event[1] for event in agency.crm.events] == ["lead-2"]
    assert agency.counts() == {VersionState.DELIVERED: 1}


def test_an_erasure_that_nobody_has_swept_yet_holds(agency: Agency) -> None:
    agency.house.land("applicant", [lead(1)])
    agency.crm.answer = answering(500)
    agency.deliver()
    house = agency.house
    house.publish = lambda: None  # type: ignore[method-assign]
    house.erase(email="j1@example.org")
    agency.crm.answer = answering(200)
    agency.deliver(is_all=True)
    assert agency.crm.events == []


@pytest.mark.parametrize("is_published", [True, False], ids=["after a publication", "before any"])
def test_a_restricted_lead_waits_and_is_sent_once_that_is_lifted(agency: Agency, is_published: bool) -> None:
    house = agency.house
    house.land("applicant", [lead(1), lead(2)])
    publish = house.publish
    if not is_published:
        house.publish = lambda: None  # type: ignore[method-assign]
    house.restrict(email="j1@example.org")
    agency.deliver()
    assert [event[1] for event in agency.crm.events] == ["lead-2"]

    list_of(house.data).append(lambda _, number: Entry(number=number, at=house.now, action=Action.LIFT, of=1))
    agency.deliver()
    publish()
    agency.deliver()
    assert [event[1] for event in agency.crm.events] == ["lead-2", "lead-1"]


def test_a_person_who_was_erased_on_another_machine_is_not_sent(agency: Agency, tmp_path: Path) -> None:
    """The list in the bucket is asked for before leads are sent, and not if none is due."""
    house, other = agency.house, House(tmp_path / "other")
    house.bucket = other.bucket = FolderStore(tmp_path / "bucket")
    house.land("applicant", [lead(1), lead(2)])
    agency.deliver()
    other.erase(email="j1@example.org")
    house.later(minutes=2)
    house.land("applicant", [lead(1, "second"), lead(2, "second"), lead(3, email="j1@example.org")])

    house.later(minutes=2)
    for _ in range(2):  # the first pass ends early: the list has learned the id of a new lead
        agency.deliver()
    assert [event[1:] for event in agency.crm.events[2:]] == [("lead-2", "second")]

    with patch.object(SuppressionList, "refresh") as refresh:
        agency.deliver()
    assert not refresh.called


def test_a_correction_is_delivered_as_a_later_update(agency: Agency) -> None:
    agency.house.land("applicant", [lead(1)])
    agency.deliver()
    agency.house.correct("applicant/lead-1", email="right@example.org")
    agency.deliver()
    before, after = agency.crm.applied.values()
    assert (before["type"], before["data"]["contact_email"]) == ("lead.created", "j1@example.org")
    assert (after["type"], after["data"]["contact_email"]) == ("lead.updated", "right@example.org")
    assert after["timestamp"] > before["timestamp"]


@pytest.mark.parametrize("knows", [True, False], ids=["this machine", "another machine of the bucket"])
def test_leads_of_anonymous_days_are_never_delivered(agency: Agency, knows: bool) -> None:
    agency.house.land("applicant", [lead(1)])
    agency.deliver()
    agency.house.later(days=50)
    agency.house.retain(35)
    if not knows:
        (agency.house.folder / ".state" / "retained_before").unlink()
    agency.deliver()
    assert len(agency.crm.attempts) == 1


def test_a_lead_of_midnight_is_delivered_once_when_one_of_its_days_is_anonymous(agency: Agency) -> None:
    agency.house.land("applicant", [lead(1)])
    agency.deliver()
    agency.house.land("applicant", [lead(1), lead(2)], day=NEXT_DAY)
    agency.deliver()
    agency.house.later(days=34)
    agency.house.retain(35)
    assert agency.house.data.state.retained_before() == NEXT_DAY
    agency.house.erase(email="j2@example.org")
    agency.deliver()
    assert [message["data"]["lead_id"] for _, _, message in agency.crm.attempts] == ["lead-1", "lead-2"]


def test_a_replay_sends_the_newest_versions_again_with_the_same_ids(agency: Agency) -> None:
    for text in ("A", "B"):
        agency.house.land("applicant", [lead(1, text)])
    agency.deliver()
    with writing_ledger(agency.house.folder) as ledger:
        assert ledger.replay(DAY, DAY, agency.house.now.timestamp()) == 1
    agency.deliver()
    ids = [id_ for id_, _, _ in agency.crm.attempts]
    assert (len(ids), len(set(ids)), ids[1]) == (3, 2, ids[2])


def test_a_replay_sends_the_newest_delivered_version_of_a_lead_that_is_held(agency: Agency) -> None:
    agency.house.land("applicant", [lead(1)])
    agency.deliver()
    agency.house.land("applicant", [lead(1, email="")])
    agency.deliver()
    with writing_ledger(agency.house.folder) as ledger:
        assert ledger.replay(DAY, DAY, agency.house.now.timestamp()) == 1
    agency.deliver()
    assert (len(agency.crm.attempts), len(agency.crm.applied)) == (2, 1)
    assert agency.counts() == {VersionState.DELIVERED: 1, VersionState.HELD: 1}


def test_a_lead_that_an_answer_lacked_by_mistake_is_replayed(agency: Agency) -> None:
    for leads in ([lead(1)], [], [lead(1)]):
        agency.house.land("applicant", leads)
        agency.deliver()
    with writing_ledger(agency.house.folder) as ledger:
        ledger.replay(DAY, DAY, agency.house.now.timestamp())
    agency.deliver()
    assert (len(agency.crm.attempts), len(agency.crm.applied)) == (2, 1)


def test_a_held_version_that_an_answer_lacked_by_mistake_is_sent_when_a_person_says_so(agency: Agency) -> None:
    for leads in ([lead(1)], [lead(1, email="")], [], [lead(1, email="")]):
        agency.house.land("applicant", leads)
        agency.deliver()
    with writing_ledger(agency.house.folder) as ledger:
        assert ledger.retry(agency.house.now.timestamp()) == 1
    agency.deliver()
    assert agency.counts() == {VersionState.DELIVERED: 2}


def test_a_damaged_ledger_is_set_aside_and_no_lead_is_lost(agency: Agency) -> None:
    agency.house.land("applicant", [lead(1)])
    agency.deliver()
    (agency.house.folder / LEDGER).write_bytes(b"no database" * 1000)
    with pytest.raises(StorageError, match="quarantine"):
        agency.deliver()
    agency.house.land("applicant", [lead(1), lead(2)])
    agency.deliver()
    assert len(agency.crm.attempts) == 3
    assert sorted(event[1] for event in agency.crm.events) == ["lead-1", "lead-2"]


def test_the_ledger_holds_nothing_that_a_lead_says_and_is_in_the_backup(agency: Agency, tmp_path: Path) -> None:
    agency.house.land("applicant", [lead(1, "a private word")])
    agency.deliver()
    content = (agency.house.folder / LEDGER).read_bytes()
    for text in (b"a private word", b"j1@example.org", b"Quill", b"900123"):
        assert text not in content
    agency.house.back_up(tmp_path / "backup")
    [copy] = (tmp_path / "backup").glob(f"*/{LEDGER}")
    with sqlite3.connect(copy) as db:
        assert db.execute("select count(*) from versions").fetchone() == (1,)


def test_only_one_process_delivers(agency: Agency) -> None:
    agency.house.land("applicant", [lead(1)])
    with agency.house.data.state.lock("delivery"), pytest.raises(StorageError, match="Another process"):
        agency.send(patience_seconds=0, transport=agency.crm)


def test_what_the_endpoint_says_of_a_lead_is_in_no_message(agency: Agency, caplog: pytest.LogCaptureFixture) -> None:
    agency.house.land("applicant", [lead(1)])
    agency.crm.answer = lambda message: httpx.Response(400, json=message, headers={"x": "j1@example.org"})
    with caplog.at_level("DEBUG"):
        said = f"{agency.deliver()} {caplog.text}"
    for text in ("j1@example.org", "Quill", SECRET, "in-the-url"):
        assert text not in said


def test_no_address_is_logged_while_another_thread_sends_too(
    agency: Agency, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other, has_begun, may_end = Agency(tmp_path / "other"), threading.Event(), threading.Event()

    def slow(_: object) -> httpx.Response:
        has_begun.set()
        may_end.wait(10)
        return httpx.Response(200)

    def at_the_other_s_end(_: object) -> httpx.Response:
        may_end.set()
        thread.join()
        return httpx.Response(200)

    other.crm.answer, agency.crm.answer = slow, at_the_other_s_end
    other.house.land("applicant", [lead(1)])
    agency.house.land("applicant", [lead(1)])
    with caplog.at_level("INFO"):
        thread = threading.Thread(target=other.deliver)
        thread.start()
        has_begun.wait(10)
        assert agency.deliver().delivered == 1
    assert "in-the-url" not in caplog.text


@pytest.mark.parametrize(
    "secret", ["whsec_!!!", "whsec_c2hvcnQ=", "", "abc", "whsec_" + "A" * 200, "v2,whsec_" + SECRET[6:]]
)
def test_a_secret_that_is_none_is_refused_and_not_repeated(secret: str) -> None:
    with pytest.raises(SettingsError, match="openssl rand") as told:
        signer(secret)
    assert not secret or secret not in str(told.value)


@pytest.mark.parametrize("secret", [SECRET, SECRET.rstrip("="), SECRET.removeprefix("whsec_"), f"v1,{SECRET}"])
def test_a_secret_is_taken_as_people_paste_it(secret: str) -> None:
    signer(secret)


def test_the_two_variables_go_together() -> None:
    with pytest.raises(SettingsError, match="go together"):
        Endpoint.of(Settings.from_variables({"LEADS_DELIVERY_URL": "https://crm.example"}))


def test_an_authorization_that_is_no_header_is_told_by_its_name() -> None:
    with pytest.raises(SettingsError, match="LEADS_DELIVERY_AUTHORIZATION") as told:
        Endpoint.of(Settings.from_variables({**VARIABLES, "LEADS_DELIVERY_AUTHORIZATION": "Bearer pässword"}))
    assert "pässword" not in str(told.value)


def test_an_authorization_is_sent(agency: Agency) -> None:
    agency.variables["LEADS_DELIVERY_AUTHORIZATION"] = "Bearer token-of-the-crm"
    agency.house.land("applicant", [lead(1)])
    agency.deliver()
    assert agency.crm.requests[0].headers["authorization"] == "Bearer token-of-the-crm"


def test_the_example_of_an_endpoint_keeps_each_version_once(agency: Agency, tmp_path: Path) -> None:
    port = free_port()
    address = f"http://127.0.0.1:{port}/"
    script = Path(__file__).parents[3] / "examples" / "crm_receiver.py"
    environment = os.environ | {"LEADS_DELIVERY_SECRET": SECRET, "PORT": str(port)}
    agency.variables["LEADS_DELIVERY_URL"] = address
    agency.house.land("applicant", [lead(1), lead(2)])
    with subprocess.Popen(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL
    ) as crm:
        try:
            while agency.send(is_all=True).left:  # it has not started yet
                assert crm.poll() is None
            headers = {"webhook-id": "msg_1"}
            assert httpx.post(address, content=b"{}", headers=headers, timeout=PATIENCE_SECONDS).status_code == 401
            with writing_ledger(agency.house.folder) as ledger:
                ledger.replay(DAY, DAY, 0)
            assert agency.send().delivered == 2
        finally:
            crm.terminate()
    with closing(sqlite3.connect(tmp_path / "crm.sqlite")) as db:
        assert db.execute("select lead_id from messages order by 1").fetchall() == [("lead-1",), ("lead-2",)]


def test_the_example_between_delivery_and_an_api_acknowledges_what_the_crm_took(agency: Agency) -> None:
    statuses, taken = iter((500, 201)), dict[str, Any]()

    class Api(QuietHandler):
        def do_PUT(self) -> None:
            enquiry = json.loads(self.rfile.read(int(self.headers["content-length"])))
            status = next(statuses)
            if status == 201:
                taken[self.path] = (self.headers["authorization"], enquiry["email"])
            self.send_response(status)
            self.end_headers()

    port = free_port()
    agency.variables["LEADS_DELIVERY_URL"] = f"http://127.0.0.1:{port}/"
    agency.house.land("applicant", [lead(1)])
    script = Path(__file__).parents[3] / "examples" / "crm_forwarder.py"
    with serving(Api) as api:
        environment = os.environ | {
            "LEADS_DELIVERY_SECRET": SECRET,
            "PORT": str(port),
            "CRM_API": api,
            "CRM_TOKEN": "t",
        }
        with subprocess.Popen([sys.executable, str(script)], env=environment, stderr=subprocess.DEVNULL) as forwarder:
            troubles = []
            while (sent := agency.send(is_all=True)).left:
                assert forwarder.poll() is None
                troubles.append(sent.trouble)
            forwarder.terminate()
    assert "502" in str(troubles[-1])
    assert taken == {"/lead-1": ("Bearer t", "j1@example.org")}


@pytest.mark.parametrize("comes", ["put back", "first", "second"])
def test_a_waiting_version_whose_file_is_damaged_is_left_until_it_is_found_again(agency: Agency, comes: str) -> None:
    agency.house.push("applicant", lead(1))
    agency.crm.answer = answering(503)
    agency.deliver()
    [file] = (agency.house.folder / "raw").rglob("*.parquet")
    whole = file.read_bytes()
    file.write_bytes(whole[:-5] + b"xxxxx")
    agency.crm.answer = answering(200)
    for _ in range(2):
        assert agency.deliver(is_all=True).left == 1
        assert agency.counts() == {VersionState.DEAD: 1}
        with writing_ledger(agency.house.folder) as ledger:
            ledger.retry(agency.house.now.timestamp())
    if comes == "put back":
        file.write_bytes(whole)
    else:
        agency.house.push("applicant", lead(1, comes))
    assert [agency.deliver(is_all=True).delivered for _ in range(2)] == [1, 0]
    assert agency.counts() == {VersionState.DELIVERED: 1}


def test_texts_that_come_back_after_they_were_given_up_are_delivered_in_order(agency: Agency) -> None:
    agency.crm.answer = answering(400)
    for text in ("A", "B"):
        agency.house.land("applicant", [lead(1, text)])
        for _ in range(9):
            agency.deliver(is_all=True)
            agency.house.later(hours=12)
    assert agency.counts() == {VersionState.DEAD: 2}
    agency.crm.answer = answering(200)
    for text in ("A", "B", "A"):
        agency.house.land("applicant", [lead(1, text)])
        agency.deliver(is_all=True)
    assert [event[2] for event in agency.crm.events] == ["A", "B", "A"]


def test_a_lead_of_the_oldest_day_that_is_taken_is_delivered(agency: Agency) -> None:
    agency.variables["LEADS_DELIVERY_FROM"] = "2026-01-01"
    created = agency.house.now - timedelta(days=59)
    agency.house.push("applicant", lead(1) | {"createdAt": created.isoformat()})
    agency.deliver()
    assert len(agency.crm.applied) == 1


def test_a_person_who_is_erased_in_the_middle_of_a_pass_is_not_sent(agency: Agency) -> None:
    agency.house.land("applicant", [lead(number) for number in range(12)])

    def erasing(_: object) -> httpx.Response:
        if len(agency.crm.attempts) == 1:
            agency.house.publish = lambda: None  # type: ignore[method-assign]
            agency.house.erase(email="j9@example.org")
        return httpx.Response(200)

    agency.crm.answer = erasing
    agency.deliver()
    agency.deliver()
    assert len(agency.crm.applied) == 11


def test_a_contact_that_is_emptied_in_another_window_waits_too(agency: Agency) -> None:
    agency.house.land("applicant", [lead(1)])
    agency.deliver()
    agency.house.land("applicant", [lead(1, phoneNumber="")], day=NEXT_DAY)
    agency.deliver()
    assert agency.counts() == {VersionState.DELIVERED: 1, VersionState.HELD: 1}


def test_a_new_address_is_asked_at_once_after_the_old_one_was_gone(agency: Agency) -> None:
    agency.house.land("applicant", [lead(1)])
    agency.crm.answer = answering(410)
    agency.deliver()
    agency.variables["LEADS_DELIVERY_URL"] = "https://new.example/hook"
    agency.crm.answer = answering(200)
    agency.deliver(is_all=True)
    assert len(agency.crm.applied) == 1


@pytest.mark.parametrize("is_noted", [False, True], ids=["new", "waiting"])
def test_a_window_that_cannot_be_read_delays_no_other_lead(agency: Agency, is_noted: bool) -> None:
    agency.house.land("applicant", [lead(1)])
    if is_noted:
        agency.crm.answer = answering(503)
        agency.deliver()
        agency.crm.answer = answering(200)
    agency.house.land("applicant", [lead(2)], scope="branch-102")
    [folder] = (agency.house.folder / "raw").rglob("scope=branch-101")
    [file] = folder.glob("*.parquet")
    aside = file.rename(file.with_suffix(".aside"))
    file.symlink_to("/proc/self/mem")  # an error of reading, as from a broken disk
    with pytest.raises(StorageError, match="branch-101"):
        agency.deliver(is_all=True)
    assert [event[1] for event in agency.crm.events] == ["lead-2"]
    aside.replace(file)
    agency.deliver(is_all=True)
    assert [event[1] for event in agency.crm.events] == ["lead-2", "lead-1"]


def test_an_endpoint_that_drips_its_answer_holds_a_pass_no_longer_than_one_that_is_silent(agency: Agency) -> None:
    is_over = threading.Event()

    class Dripping(QuietHandler):
        def do_POST(self) -> None:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nx: ")
            with suppress(OSError):
                while not is_over.wait(0.1):
                    self.wfile.write(b"x")

    with serving(Dripping) as address:
        agency.variables["LEADS_DELIVERY_URL"] = address
        agency.house.land("applicant", [lead(1)])
        timer = threading.Timer(60, is_over.set)
        timer.start()
        sent = agency.send(timeout_seconds=0.5)
        timer.cancel()
        assert (sent.failed, is_over.is_set()) == (1, False)
        is_over.set()


def test_an_endpoint_where_nobody_listens_is_told_by_the_system_s_words(agency: Agency) -> None:
    agency.variables["LEADS_DELIVERY_URL"] = f"http://localhost:{free_port()}/"
    agency.house.land("applicant", [lead(1)])
    assert "Connection refused." in str(agency.send().trouble)


def test_a_first_look_goes_on_with_the_next_pass_and_begins_with_new_leads(agency: Agency) -> None:
    for number in range(3):
        agency.house.land("applicant", [lead(number)], day=DAY + timedelta(days=number))
    for passes in range(1, 4):
        assert agency.deliver(seconds=0).left == passes
        with reading_ledger(agency.house.folder) as ledger:
            assert ledger
            assert {lead_id for _, lead_id in ledger.leads()} == {f"lead-{2 - one}" for one in range(passes)}
    agency.deliver()
    assert len(agency.crm.applied) == 3


def test_a_version_that_raw_has_no_longer_costs_no_look_at_all_windows(agency: Agency) -> None:
    agency.house.land("applicant", [lead(1), lead(2)])
    agency.house.land("applicant", [lead(3)], day=NEXT_DAY + timedelta(days=1))
    agency.crm.answer = answering(503)
    agency.deliver()
    agency.house.erase(email="j1@example.org")
    agency.deliver(is_all=True)
    with writing_ledger(agency.house.folder) as ledger:
        assert [day for _, day, _ in ledger.windows()] == [NEXT_DAY + timedelta(days=1)]


def test_a_damaged_ledger_keeps_no_backup_from_being_made(agency: Agency, tmp_path: Path) -> None:
    agency.house.land("applicant", [lead(1)])
    agency.house.publish()
    agency.deliver()
    (agency.house.folder / LEDGER).write_bytes(b"no database" * 1000)
    agency.house.back_up(tmp_path / "backup")
    assert [*(tmp_path / "backup").glob("*/.versions/*.duckdb")]
