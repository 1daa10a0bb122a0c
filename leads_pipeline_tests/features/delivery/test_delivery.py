"""Delivery: each new lead, and each new version of one, reaches the agency's own endpoint."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from leads_pipeline.errors import SettingsError, StorageError
from leads_pipeline.features.delivery.destinations import destinations_of
from leads_pipeline.features.delivery.ledger import LEDGER, VersionState
from leads_pipeline.features.delivery.people import DeliveredLeads
from leads_pipeline.features.delivery.webhook import signer
from leads_pipeline.features.privacy.gatekeeper import list_of
from leads_pipeline.features.privacy.suppression import Action, Entry
from leads_pipeline.portal.http_library import httpx
from leads_pipeline.raw.store import FolderStore
from leads_pipeline.settings import Settings
from leads_pipeline_tests.features.delivery.agency import Agency, lead
from leads_pipeline_tests.support.crm import SECRET, VARIABLES
from leads_pipeline_tests.support.house import DAY, NEXT_DAY, House
from leads_pipeline_tests.support.newcomer import PATIENCE_SECONDS
from leads_pipeline_tests.support.serving import free_port

EXAMPLES = Path(__file__).parents[3] / "examples"


# --- each version once, in order ------------------------------------------------------------------


def test_each_lead_is_delivered_once_with_its_columns_and_its_text(agency: Agency) -> None:
    text = json.dumps(lead(1) | {"intent": "APPLICANT_INTENT_BUY", "new": [1.5]}, indent=3)
    agency.land(text, lead(2))

    assert agency.deliver().delivered == 2
    assert agency.deliver().delivered == 0

    [message] = [one for one in agency.crm.applied.values() if one["data"]["lead_id"] == "lead-1"]
    data = message["data"]
    assert message["type"] == "lead.created"
    assert data["kind"] == "applicant"
    assert data["scope"] == "branch-101"
    assert data["lead_day"] == str(DAY)
    assert data["contact_email"] == data["payload"]["contact"]["email"] == "j1@example.org"
    assert data["intent"] == "APPLICANT_INTENT_BUY"
    assert data["_extra"] == {"new": [1.5]}
    assert any(text.encode() in request.content for request in agency.crm.requests)


def test_a_message_says_what_a_crm_would_have_to_look_up(agency: Agency) -> None:
    names = agency.house.folder.parent / "branches.csv"
    names.write_text("id,name\n101,Alder & Sons\n")
    agency.variables["LEADS_BRANCHES_FILE"] = str(names)
    agency.land(lead(1) | {"intent": "APPLICANT_INTENT_RENT"})
    agency.deliver()

    [message] = agency.crm.applied.values()
    data = message["data"]
    assert message["format"] == 2
    assert (data["branch"], data["market"]) == ("Alder & Sons", "lettings")
    assert (data["words"]["intent"], data["words"]["lead_source"]) == ("rent", "unknown")
    assert agency.crm.requests[0].headers["user-agent"].startswith("leads-pipeline/")


def test_a_message_has_the_person_and_the_market_that_analysts_see(agency: Agency) -> None:
    agency.land(
        lead(1, email=" Ida@Example.org ") | {"enquiryType": "ENQUIRY_TYPE_LETTINGS"},
        lead(2, email="İDA.ΣΑΣ@Example.org", phoneNumber="") | {"intent": "X_SELL"},
        lead(3, email="", phoneNumber="+44 (0)7700 900123") | {"intent": "odd"},
    )
    agency.house.publish_tables()
    agency.deliver()

    facts = agency.house.query(
        "select lead_id, person::varchar, market from lead_facts order by all"
    )
    told = [
        (one["data"]["lead_id"], one["data"]["person"], one["data"]["market"])
        for one in agency.crm.applied.values()
    ]
    assert sorted(told) == facts


def test_a_new_version_is_an_update_and_one_lead_s_versions_come_in_order(agency: Agency) -> None:
    for text in ("A", "B", "A"):
        agency.land(lead(1, text))
    agency.deliver()
    agency.land(lead(1, "A"))
    agency.deliver()

    assert agency.crm.events == [
        ("created", "lead-1", "A"),
        ("updated", "lead-1", "B"),
        ("updated", "lead-1", "A"),
    ]


def test_two_texts_of_a_lead_in_each_answer_are_delivered_once(agency: Agency) -> None:
    agency.land(lead(1, "A"), lead(1, "B"))
    agency.deliver()
    agency.land(lead(1, "A"), lead(1, "B"), lead(5))
    agency.deliver()

    assert agency.delivered == ["lead-1", "lead-1", "lead-5"]


def test_a_lead_of_two_windows_is_delivered_once(agency: Agency) -> None:
    agency.land(lead(1))
    agency.land(lead(1), day=NEXT_DAY)
    agency.house.push("applicant", lead(1))

    agency.deliver()

    assert agency.delivered == ["lead-1"]


def test_a_correction_is_delivered_as_a_later_update(agency: Agency) -> None:
    agency.land(lead(1))
    agency.deliver()
    agency.house.correct("applicant/lead-1", email="right@example.org")
    agency.deliver()

    before, after = agency.crm.applied.values()
    assert before["data"]["contact_email"] == "j1@example.org"
    assert after["type"] == "lead.updated"
    assert after["data"]["contact_email"] == "right@example.org"
    assert after["timestamp"] > before["timestamp"]


def test_only_one_process_delivers(agency: Agency) -> None:
    agency.land(lead(1))

    with (
        agency.house.data.state.lock("delivery"),
        pytest.raises(StorageError, match="Another process"),
    ):
        agency.deliver(patience_seconds=0)


# --- which days -----------------------------------------------------------------------------------


def test_without_a_first_day_old_leads_are_not_delivered(agency: Agency) -> None:
    del agency.variables["LEADS_DELIVERY_FROM"]
    agency.land(lead(1))
    agency.deliver()
    agency.house.later(days=1)
    agency.house.push("applicant", lead(2) | {"createdAt": f"{agency.house.today}T05:00:00Z"})
    agency.deliver()

    assert agency.delivered == ["lead-2"]


# --- failures -------------------------------------------------------------------------------------


def test_a_failed_lead_is_sent_again_later_with_the_same_id_and_a_new_signature(
    agency: Agency,
) -> None:
    agency.land(lead(1))
    agency.endpoint_answers(500)
    assert agency.deliver().failed == 1
    agency.house.later(hours=1)
    agency.endpoint_answers(200)
    assert agency.deliver().delivered == 1

    [(first_id, first_at, _), (second_id, second_at, _)] = agency.crm.attempts
    assert first_id == second_id
    assert int(second_at) - int(first_at) >= 3600


def test_a_lead_that_the_endpoint_refuses_delays_no_other_lead(agency: Agency) -> None:
    agency.crm.answer = lambda message: httpx.Response(
        422 if message["data"]["lead_id"] == "lead-1" else 200
    )
    agency.land(lead(1), lead(2), lead(3))
    agency.deliver()
    agency.land(lead(1, "second"), lead(4))
    agency.deliver()

    assert sorted(agency.delivered) == ["lead-2", "lead-3", "lead-4"]
    assert agency.counts == {VersionState.DELIVERED: 3, VersionState.WAITING: 2}


def test_an_endpoint_that_is_away_is_left_alone_and_gets_all_once_it_is_back(
    agency: Agency,
) -> None:
    agency.land(*[lead(number) for number in range(40)])
    agency.endpoint_answers(503)
    assert agency.deliver().failed < 10
    assert agency.deliver().failed == 0

    for _ in range(6):
        agency.house.later(minutes=20)
        agency.deliver()
    agency.endpoint_answers(200)
    agency.house.later(minutes=5)
    agency.deliver()
    agency.deliver()

    assert len(agency.crm.applied) == 40


def test_410_stops_the_endpoint_until_a_person_says_so(agency: Agency) -> None:
    agency.land(lead(1), lead(2))
    agency.endpoint_answers(410)
    agency.deliver()
    agency.endpoint_answers(200)
    agency.house.later(days=1)

    assert agency.deliver(is_all=True).delivered == 0
    agency.retry()
    assert agency.deliver().delivered == 2


def test_after_three_days_a_lead_is_given_up_and_can_be_retried(agency: Agency) -> None:
    agency.land(lead(1))
    agency.endpoint_answers(400)
    for _ in range(8):
        agency.deliver()
        agency.house.later(hours=12)
    assert agency.counts == {VersionState.DEAD: 1}

    agency.endpoint_answers(200)
    assert agency.deliver(is_all=True).left == 1
    assert agency.retry().again == 1
    assert agency.deliver().delivered == 1


# --- a contact that the portal emptied ------------------------------------------------------------


def test_a_contact_that_the_portal_emptied_waits_for_a_person(agency: Agency) -> None:
    agency.land(lead(1))
    agency.deliver()
    agency.land(lead(1, email=""))
    agency.deliver()
    assert agency.counts == {VersionState.DELIVERED: 1, VersionState.HELD: 1}

    agency.land(lead(1, "whole again"))
    agency.deliver()
    assert [text for _, _, text in agency.crm.events] == ["first", "whole again"]
    assert agency.counts == {VersionState.DELIVERED: 2}


# --- replays --------------------------------------------------------------------------------------


def test_a_replay_sends_the_newest_versions_again_with_the_same_ids(agency: Agency) -> None:
    agency.land(lead(1, "A"))
    agency.land(lead(1, "B"))
    agency.deliver()

    assert agency.replay() == 1
    agency.deliver()

    of_a, of_b, again = [webhook_id for webhook_id, _, _ in agency.crm.attempts]
    assert again == of_b != of_a


# --- people who are erased, restricted or anonymous -----------------------------------------------


def test_an_erased_person_is_never_sent_again(agency: Agency) -> None:
    agency.land(lead(1), lead(2))
    agency.endpoint_answers(500)
    agency.deliver()
    agency.house.erase(email="j1@example.org")
    agency.endpoint_answers(200)
    agency.land(lead(1, "again"), lead(2))
    agency.house.push("applicant", lead(1, "pushed"))

    agency.deliver(is_all=True)

    assert agency.delivered == ["lead-2"]
    assert agency.counts == {VersionState.DELIVERED: 1}


def test_an_erasure_that_nobody_has_swept_yet_holds(agency: Agency) -> None:
    agency.land(lead(1))
    agency.endpoint_answers(500)
    agency.deliver()
    agency.erase_without_sweeping(email="j1@example.org")
    agency.endpoint_answers(200)

    agency.deliver(is_all=True)

    assert agency.delivered == []


def test_a_person_who_is_erased_in_the_middle_of_a_pass_is_not_sent(agency: Agency) -> None:
    agency.land(*[lead(number) for number in range(12)])

    def erasing(_: object) -> httpx.Response:
        if len(agency.crm.attempts) == 1:
            agency.erase_without_sweeping(email="j9@example.org")
        return httpx.Response(200)

    agency.crm.answer = erasing
    agency.deliver()
    agency.deliver()

    assert len(agency.delivered) == 11
    assert "lead-9" not in agency.delivered


def test_a_person_who_was_erased_on_another_machine_is_not_sent(
    agency: Agency, tmp_path: Path
) -> None:
    """The list in the bucket is asked for before leads are sent."""
    house = agency.house
    other = House(tmp_path / "other")
    house.bucket = other.bucket = FolderStore(tmp_path / "bucket")
    agency.land(lead(1), lead(2))
    agency.deliver()
    other.erase(email="j1@example.org")
    house.later(minutes=2)
    agency.land(lead(1, "second"), lead(2, "second"), lead(3, email="j1@example.org"))
    house.later(minutes=2)

    agency.deliver()  # it ends early: the list has learned the id of a new lead
    agency.deliver()

    assert agency.crm.events[2:] == [("updated", "lead-2", "second")]


def test_a_restricted_lead_waits_and_is_sent_once_that_is_lifted(agency: Agency) -> None:
    house = agency.house
    agency.land(lead(1), lead(2))
    house.restrict(email="j1@example.org")
    agency.deliver()
    assert agency.delivered == ["lead-2"]

    list_of(house.data).append(
        lambda _, number: Entry(number=number, at=house.now, action=Action.LIFT, of=1)
    )
    agency.deliver()
    house.publish()
    agency.deliver()
    assert agency.delivered == ["lead-2", "lead-1"]


@pytest.mark.parametrize(
    "knows", [True, False], ids=["this machine", "another machine of the bucket"]
)
def test_leads_of_anonymous_days_are_never_delivered(agency: Agency, *, knows: bool) -> None:
    agency.land(lead(1))
    agency.deliver()
    agency.house.later(days=50)
    agency.house.retain(35)
    if not knows:
        (agency.house.folder / ".state" / "retained_before").unlink()

    agency.deliver()

    assert len(agency.crm.attempts) == 1


def test_a_lead_of_midnight_is_delivered_once_when_one_of_its_days_is_anonymous(
    agency: Agency,
) -> None:
    agency.land(lead(1))
    agency.deliver()
    agency.land(lead(1), lead(2), day=NEXT_DAY)
    agency.deliver()
    agency.house.later(days=34)
    agency.house.retain(35)
    assert agency.house.data.state.anonymous_before() == NEXT_DAY

    agency.house.erase(email="j2@example.org")
    agency.deliver()

    assert len(agency.crm.attempts) == 2


# --- what leaks nothing ---------------------------------------------------------------------------


def test_the_endpoint_s_words_and_its_address_are_in_no_message(
    agency: Agency, caplog: pytest.LogCaptureFixture
) -> None:
    agency.land(lead(1))
    agency.crm.answer = lambda message: httpx.Response(
        400, json=message, headers={"x": "j1@example.org"}
    )

    with caplog.at_level("DEBUG"):
        said = f"{agency.deliver()} {caplog.text}"

    for text in ("j1@example.org", "Quill", SECRET, "in-the-url"):
        assert text not in said


def test_a_wrong_secret_is_refused_and_not_repeated() -> None:
    with pytest.raises(SettingsError, match="openssl rand") as told:
        signer("whsec_c2hvcnQ=")

    assert "c2hvcnQ" not in str(told.value)


def test_an_authorization_that_is_no_header_is_told_by_its_name() -> None:
    with pytest.raises(SettingsError, match="LEADS_DELIVERY_AUTHORIZATION") as told:
        destinations_of(
            Settings.from_variables(
                {**VARIABLES, "LEADS_DELIVERY_AUTHORIZATION": "Bearer pässword"}
            )
        )

    assert "pässword" not in str(told.value)


def test_an_authorization_is_sent(agency: Agency) -> None:
    agency.variables["LEADS_DELIVERY_AUTHORIZATION"] = "Bearer token-of-the-crm"
    agency.land(lead(1))

    agency.deliver()

    assert agency.crm.requests[0].headers["authorization"] == "Bearer token-of-the-crm"


# --- damage ---------------------------------------------------------------------------------------


def test_a_damaged_ledger_is_set_aside_and_no_lead_is_lost(agency: Agency) -> None:
    agency.land(lead(1))
    agency.deliver()
    (agency.house.folder / LEDGER).write_bytes(b"no database" * 1000)
    with pytest.raises(StorageError, match="quarantine"):
        agency.deliver()

    agency.land(lead(1), lead(2))
    agency.deliver()

    assert len(agency.crm.attempts) == 3
    assert sorted(agency.delivered) == ["lead-1", "lead-2"]


def test_a_waiting_version_whose_file_is_damaged_is_left_until_it_is_found_again(
    agency: Agency,
) -> None:
    agency.house.push("applicant", lead(1))
    agency.endpoint_answers(503)
    agency.deliver()
    agency.endpoint_answers(200)
    [file] = (agency.house.folder / "raw").rglob("*.parquet")
    whole = file.read_bytes()
    file.write_bytes(whole[:-5] + b"xxxxx")
    assert agency.deliver(is_all=True).left == 1

    file.write_bytes(whole)
    agency.retry()

    assert agency.deliver(is_all=True).delivered == 1
    assert agency.deliver(is_all=True).delivered == 0


def test_a_window_that_cannot_be_read_delays_no_other_lead(agency: Agency) -> None:
    agency.land(lead(1))
    agency.endpoint_answers(503)
    agency.deliver()
    agency.endpoint_answers(200)
    agency.land(lead(2), scope="branch-102")
    [file] = (agency.house.folder / "raw").rglob("scope=branch-101/*.parquet")
    aside = file.rename(file.with_suffix(".aside"))
    file.symlink_to("/proc/self/mem")  # an error of reading, as from a broken disk

    with pytest.raises(StorageError, match="branch-101"):
        agency.deliver(is_all=True)
    assert agency.delivered == ["lead-2"]

    aside.replace(file)
    agency.deliver(is_all=True)
    assert agency.delivered == ["lead-2", "lead-1"]


# --- the examples ---------------------------------------------------------------------------------


def test_the_example_keeps_each_version_once_and_deletes_the_erased(
    agency: Agency, tmp_path: Path
) -> None:
    port = free_port()
    address = f"http://127.0.0.1:{port}/"
    environment = os.environ | {"LEADS_DELIVERY_SECRET": SECRET, "PORT": str(port)}
    agency.variables["LEADS_DELIVERY_URL"] = address
    agency.land(lead(1), lead(2))
    command = [sys.executable, str(EXAMPLES / "crm_receiver.py")]

    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL) as crm:
        try:
            while agency.send(is_all=True).left:  # it has not started yet
                assert crm.poll() is None
            unsigned = httpx.post(
                address, content=b"{}", headers={"webhook-id": "1"}, timeout=PATIENCE_SECONDS
            )
            assert unsigned.status_code == 401
            agency.replay()
            assert agency.send(is_all=True).delivered == 2
            with closing(sqlite3.connect(tmp_path / "crm.sqlite")) as db:
                assert db.execute("select lead_id from messages order by 1").fetchall() == [
                    ("lead-1",),
                    ("lead-2",),
                ]
            DeliveredLeads(agency.house.data).forget(("applicant", "lead-1").__eq__)
            assert agency.send(is_all=True).delivered == 1
        finally:
            crm.terminate()

    with closing(sqlite3.connect(tmp_path / "crm.sqlite")) as db:
        assert db.execute("select lead_id from messages").fetchall() == [("lead-2",)]
