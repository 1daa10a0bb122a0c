"""Erasures travel: each destination that had the lead is told, and the receipt names who confirmed
it.
"""

from datetime import timedelta

from leads_pipeline.features.delivery.ledger import (
    ledger_path,
    reading_ledger,
    writing_ledger,
)
from leads_pipeline.features.delivery.questions import known_leads
from leads_pipeline.features.privacy.carrying_out import carry_out
from leads_pipeline.features.privacy.nightly import work_of_night
from leads_pipeline.features.privacy.receipt import forget_deliveries_of_erased
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.findings import find
from leads_pipeline.orchestration.night import Night
from leads_pipeline.portal.http_library import httpx
from leads_pipeline.settings import Settings
from leads_pipeline_tests.features.delivery.agency import (
    CREATED,
    HEAD,
    Agency,
    Api,
    Destinations,
    lead,
    webhook,
)


def erase(agency: Agency, **person: str) -> str:
    """Erase a person by the command's steps. Return the receipt."""
    agency.house.erase(**person)
    carry_out(agency.house.data, lambda: None, agency.house.now)
    return receipt(agency)


def receipt(agency: Agency) -> str:
    return (agency.house.folder / "privacy" / "receipts" / "1.txt").read_text()


def night(agency: Agency) -> Night:
    done = Night()
    work_of_night(agency.house.data, Settings.from_variables({}), agency.house.now, done)
    return done


def test_each_destination_that_had_the_lead_is_told_its_id_alone(agency: Agency) -> None:
    here = Destinations(agency, webhook("crm"), webhook("north", 'branches = ["102"]'))
    agency.land(lead(1), lead(2))
    here.deliver()

    erase(agency, email="j1@example.org")
    here.deliver()
    here.deliver()

    [_, _, (_, _, last)] = here.crms["crm"].attempts
    assert last["type"] == "lead.erased"
    assert last["data"] == {"kind": "applicant", "lead_id": "lead-1"}
    assert here.crms["north"].attempts == []


def test_the_receipt_names_who_is_told_who_confirmed_and_who_can_not_be_told(
    agency: Agency,
) -> None:
    here = Destinations(agency, webhook("crm"), webhook("slow"))
    agency.land(lead(1))
    here.deliver()
    with writing_ledger(agency.house.folder, "slow") as ledger:
        ledger.set_fact("tells_erasures", "no")

    today = f"{agency.house.now:%Y-%m-%d}"
    delivered = f"leads of the person were delivered there on {today}."

    said = erase(agency, email="j1@example.org")
    assert f"crm (crm.example): {delivered} It is told of the erasure." in said
    assert f"slow (slow.example): {delivered} Tell those who run it." in said

    here.deliver()
    night(agency)
    assert f"- crm (crm.example) confirmed on {today} that it erased the leads." in receipt(agency)


def test_an_erasure_that_fails_is_told_again_and_the_receipt_waits(agency: Agency) -> None:
    here = Destinations(agency, webhook("crm"))
    agency.land(lead(1), lead(2, email="j1@example.org"))
    here.deliver()
    erase(agency, email="j1@example.org")
    here.crms["crm"].answer = lambda message: httpx.Response(
        503 if message["data"]["lead_id"] == "lead-2" else 204
    )
    here.deliver()
    night(agency)
    assert "confirmed" not in receipt(agency).replace("has confirmed it.", "")

    here.crms["crm"].answer = lambda _: httpx.Response(204)
    here.deliver(is_all=True)
    night(agency)

    assert "confirmed on" in receipt(agency)


def test_a_night_finishes_an_interrupted_request_and_writes_its_receipt(agency: Agency) -> None:
    here = Destinations(agency, webhook("crm"))
    agency.land(lead(1), lead(2))
    here.deliver()
    agency.house.erase(email="j1@example.org")  # by a command that was killed then

    night(agency)

    assert "Nothing that had to be erased is left." in receipt(agency)
    assert "crm.example): leads of the person were delivered there" in receipt(agency)
    with reading_ledger(agency.house.folder, "crm") as ledger:
        assert ledger
        assert known_leads(ledger) == [("applicant", "lead-2")]


def test_a_lead_that_nobody_had_is_told_to_nobody_and_forgotten(agency: Agency) -> None:
    here = Destinations(agency, webhook("crm"))
    here.deliver()
    here.crms["crm"].answer = lambda _: httpx.Response(400)
    agency.land(lead(1))
    here.deliver()

    erase(agency, email="j1@example.org")

    with reading_ledger(agency.house.folder, "crm") as ledger:
        assert ledger
        assert known_leads(ledger) == []
    here.crms["crm"].answer = lambda _: httpx.Response(204)
    here.deliver(is_all=True)
    assert len(here.crms["crm"].attempts) == 1


def test_an_api_whose_file_does_not_say_how_is_told_by_a_person(agency: Agency) -> None:
    here = Destinations(agency, HEAD + CREATED)
    here.api = Api()
    agency.land(lead(1))
    here.deliver()

    said = erase(agency, email="j1@example.org")
    here.deliver()

    assert [method for method, _, _ in here.api.said] == ["POST"]
    assert "Tell those who run it." in said


def test_an_erasure_that_waits_for_a_destination_that_is_gone_is_told(agency: Agency) -> None:
    here = Destinations(agency, webhook("crm"), webhook("old"))
    agency.land(lead(1))
    here.deliver()
    here.write(webhook("crm"))

    erase(agency, email="j1@example.org")
    here.deliver()

    facts = Facts(here.settings, agency.house.data, agency.house.now)
    found = [one.message for one in find(facts)]
    assert "old is no longer a destination, and isn't told of 1 erased lead." in found


def test_a_ledger_that_can_not_be_read_keeps_no_night_from_applying_the_list(
    agency: Agency,
) -> None:
    agency.land(lead(1))
    agency.deliver()
    erase(agency, email="j1@example.org")
    ledger_path(agency.house.folder).write_bytes(b"no database" * 1000)

    done = night(agency)

    assert done.troubles == []
    assert "windows_rewritten" in done.counts


def test_a_destination_whose_answer_was_lost_is_told(agency: Agency) -> None:
    agency.endpoint_answers(504)
    agency.land(lead(1))
    agency.deliver()

    said = erase(agency, email="j1@example.org")
    agency.crm.answer = lambda _: httpx.Response(204)
    agency.deliver(is_all=True)

    assert "leads of the person were delivered there" in said
    assert [message["type"] for _, _, message in agency.crm.attempts][-1] == "lead.erased"


def test_an_erasure_that_waits_is_told_however_old_it_is(agency: Agency) -> None:
    agency.land(lead(1))
    agency.deliver()
    agency.crm.answer = lambda _: httpx.Response(503)
    erase(agency, email="j1@example.org")
    with writing_ledger(agency.house.folder) as ledger:
        ledger.forget_before(agency.house.today + timedelta(days=365))

    agency.crm.answer = lambda _: httpx.Response(204)
    agency.deliver(is_all=True)

    assert [message["type"] for _, _, message in agency.crm.attempts][-1] == "lead.erased"


def test_a_former_host_counts_as_told_by_nobody(agency: Agency) -> None:
    agency.land(lead(1))
    agency.deliver()
    agency.variables["LEADS_DELIVERY_URL"] = "https://other.example/leads"
    agency.deliver()

    said = erase(agency, email="j1@example.org")

    today = f"{agency.house.now:%Y-%m-%d}"
    delivered = f"leads of the person were delivered there on {today}."
    assert f"crm.example: {delivered} Tell those who run it." in said


def test_nothing_is_forgotten_while_a_ledger_can_not_say_whom_it_sent_to(agency: Agency) -> None:
    here = Destinations(agency, webhook("crm"))
    agency.land(lead(1))
    here.deliver()
    old = ledger_path(agency.house.folder, "old")
    old.write_bytes(b"no database" * 1000)

    erase(agency, email="j1@example.org")
    with reading_ledger(agency.house.folder, "crm") as ledger:
        assert ledger
        assert known_leads(ledger) == [("applicant", "lead-1")]
    old.unlink()
    assert "crm (crm.example)" in "".join(forget_deliveries_of_erased(agency.house.data))
