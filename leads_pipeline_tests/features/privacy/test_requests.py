"""A person's requests, by the commands: what they find, do and say, and what is in the files
afterwards.
"""

import json
import os
import re
import shutil
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from leads_pipeline.errors import StorageError
from leads_pipeline.features.delivery.destinations import destinations_of
from leads_pipeline.features.delivery.ledger import reading_ledger
from leads_pipeline.features.delivery.questions import sent
from leads_pipeline.features.delivery.sending import deliver
from leads_pipeline.features.privacy import requests
from leads_pipeline.features.privacy.carrying_out import CarriedOut, carry_out
from leads_pipeline.features.privacy.gatekeeper import list_of
from leads_pipeline.features.privacy.identity import Person
from leads_pipeline.features.privacy.nightly import work_of_night
from leads_pipeline.features.privacy.people import lines_of
from leads_pipeline.features.privacy.search import find, left_of
from leads_pipeline.features.privacy.suppression import Action, SuppressionList
from leads_pipeline.orchestration.night import Night
from leads_pipeline.portal.http_library import httpx
from leads_pipeline.raw.store import FolderStore
from leads_pipeline.settings import Settings
from leads_pipeline_tests.support import crm
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.house import DAY, House
from leads_pipeline_tests.support.people import EMAIL, PHONE, everything_in, lead, listed

BEFORE = {"createdAt": "2026-11-19T10:00:00Z"}
OWNER = BEFORE | {"consumerSituation": "CONSUMER_SITUATION_PROPERTY_TO_SELL"}
JANE = ("--email", EMAIL, "--phone", PHONE)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> House:
    """A published folder with Jane, her husband on the same telephone, and others."""
    house = House(tmp_path_factory.mktemp("desk") / "data")
    jane = lead("jane", email=EMAIL, phone=PHONE, name="Jane Roe", message="Call me", **OWNER)
    mobile = lead("jane's mobile", phone="07700 900123 (work)", name="Jane Roe", **BEFORE)
    john = lead("john", phone=PHONE, name="John Roe", message=f"My wife is {EMAIL}", **OWNER)
    mary = lead("mary", email="mary@people.example", name="Mary Poe", message="Née?", **OWNER)
    house.land("applicant", [jane, mobile, john, mary])
    house.land("appraisal", [lead("jane too", email=EMAIL.upper(), **BEFORE)])
    house.publish()
    return house


@pytest.fixture
def desk(published: House, tmp_path: Path) -> House:
    """A copy of that folder. The commands work on it."""
    house = published.copied(tmp_path / "data")
    os.environ |= {
        "LEADS_DATA_DIR": str(house.folder),
        "LEADS_PRIVACY_DIR": str(house.folder / "privacy"),
        "DAGSTER_HOME": str(tmp_path / "home"),
        "LEADS_BRANCH_IDS": "101,102",
        "LEADS_START_DATE": house.first_day.isoformat(),
        "LEADS_TIMEZONE": "Europe/London",
    }
    return house


def privacy(*arguments: object, exit_code: int = 0) -> Result:
    result = run("privacy", *arguments)
    assert result.exit_code == exit_code, result.output
    return result


def logged(exit_code: int = 0) -> list[dict[str, Any]]:
    """The entries of the log."""
    entries: list[dict[str, Any]]
    entries = json.loads(privacy("log", "--json", exit_code=exit_code).stdout)["entries"]
    return entries


def finished(house: House) -> CarriedOut:
    """What a command does once it has published: search again, write receipts, say what is left."""
    return carry_out(house.data, lambda: None, house.now)


def receipt(house: House) -> str:
    """The receipt of the first request."""
    return (house.folder / "privacy" / "receipts" / "1.txt").read_text(encoding="utf-8")


def ids(house: House) -> set[str]:
    """The ids of all published leads."""
    return {*house.leads("applicant"), *house.leads("appraisal")}


def put_in_quarantine(house: House, path: Path) -> Path:
    """A copy of a raw file, as if it had been damaged."""
    name = path.relative_to(house.folder).with_suffix(".parquet.20261119T000000.000000Z")
    aside = house.folder / "quarantine" / name
    aside.parent.mkdir(parents=True, exist_ok=True)
    aside.write_bytes(path.read_bytes())
    return aside


def raw_text(house: House) -> str:
    return "".join(text for kind in ("applicant", "appraisal") for _, text in house.raw(kind))


# --- find and export ------------------------------------------------------------------------------


@pytest.mark.usefixtures("desk")
def test_find_shows_two_groups_with_every_reason_and_masks_who_they_are() -> None:
    as_json = privacy("find", *JANE, "--json").stdout
    found = json.loads(as_json)

    assert {one["lead_id"] for one in found["theirs"]} == {"jane", "jane's mobile", "jane too"}
    [john] = found["to_look_at"]
    assert john["lead_id"] == "john"
    assert john["why"] == [
        "mentioned in a message or another field",
        "the given telephone number, under another name",
    ]
    for shown in (privacy("find", *JANE).output, as_json):
        assert not any(text in shown for text in (EMAIL, "900123", "Jane", "rk)", "Call me"))
    assert privacy("find", *JANE, "--show", exit_code=2).stderr.startswith("Error: --show")


@pytest.mark.usefixtures("desk")
def test_find_takes_a_list_and_names_a_wrong_line_without_repeating_it(tmp_path: Path) -> None:
    list_ = tmp_path / "person.txt"

    list_.write_text("Email: mary@people.example\n\nname: poe, mary\n")
    found = json.loads(privacy("find", "--from", list_, "--json").stdout)
    assert [one["lead_id"] for one in found["theirs"]] == ["mary"]

    list_.write_text(f"phone: {PHONE}\n{EMAIL}\n")
    said = privacy("find", "--from", list_, exit_code=2).output
    assert "Line 2 of --from isn't valid" in said
    assert EMAIL not in said


@pytest.mark.slow
def test_a_lead_whose_newest_version_raw_has_lost_is_found_by_its_older_and_its_newest_contact(
    desk: House,
) -> None:
    desk.land("applicant", [lead("mary", email="mary@home.example", **OWNER)], scope="branch-102")
    desk.publish()
    shutil.rmtree(desk.folder / "raw" / "applicant_leads" / f"day={DAY}" / "scope=branch-102")

    for email in ("mary@people.example", "mary@home.example"):
        assert desk.find(email=email) == [("theirs", "applicant", "mary")]

    desk.erase(email="mary@home.example")
    assert "mary" not in ids(desk)
    assert "mary@" not in raw_text(desk)


@pytest.mark.slow
def test_a_restriction_stays_open_until_a_lead_that_raw_has_lost_is_pulled_again(
    desk: House,
) -> None:
    """leads.duckdb has the only copy, which `lift` couldn't bring back."""
    shutil.rmtree(desk.folder / "raw" / "appraisal_leads")

    told = privacy("restrict", "--email", EMAIL, exit_code=1).stderr

    assert "appraisal lead jane too stays in leads.duckdb as it is" in told
    assert "jane too" in ids(desk)
    privacy("log", exit_code=1)

    desk.land("appraisal", [lead("jane too", email=EMAIL, **BEFORE)])
    desk.publish()
    assert finished(desk) == CarriedOut({})
    assert "jane too" not in ids(desk)
    privacy("log")


def test_an_answer_has_all_versions_for_their_eyes_alone_and_runs_nothing(
    desk: House, tmp_path: Path
) -> None:
    """It says where from, what for and how long, with fields that nobody has declared."""
    script = "<script>alert(1)</script>"
    again = lead("jane", email=EMAIL, message=script, pets={"areLoud": False}, **OWNER)
    desk.land("applicant", [again])
    answer = tmp_path / "answer"

    privacy("export", "--case", "DSR-7", *JANE, "--to", answer)

    document = json.loads((answer / "person.json").read_text(encoding="utf-8"))
    leads = {one["lead_id"]: one["versions"] for one in document["leads"]}
    messages = [json.loads(version["content"])["message"] for version in leads["jane"]]
    assert messages == ["Call me", script]
    assert leads.keys().isdisjoint({"john", "mary"})
    page = (answer / "person.html").read_text(encoding="utf-8")
    for text in [*document["sources"], *document["purposes"], *document["retention"]]:
        assert text.replace("'", "&#39;") in page
    assert re.search(r"pets: are loud.{0,60}no", page, re.DOTALL)
    assert not re.search(r"John|<script|\son\w+=|src=|url\(|@import", page)
    assert {stat.S_IMODE(path.stat().st_mode) for path in answer.iterdir()} == {0o600}
    assert stat.S_IMODE(answer.stat().st_mode) == 0o700


def test_control_characters_of_a_lead_reach_neither_the_terminal_nor_an_answer(
    desk: House, tmp_path: Path
) -> None:
    """Fault 100. `--show` prints the contact, on a terminal alone."""
    odd = lead("ann\x1b[31m\nnone\u202e", name="Ann\nRoe\r", message="ring\x07 \x1b[31mme\x85")
    desk.land("applicant", [odd])
    asked = "--lead", f"applicant/{odd['id']}"

    told = privacy("find", *asked).stdout
    assert r"  applicant/ann\x1b[31m\nnone\u202e" in told.splitlines()
    [found] = find(desk.data, Person.of(lead_ids=[("applicant", odd["id"])])).leads
    assert all(line.isprintable() for line in lines_of(found, show=True))

    privacy("export", "--case", "DSR-7", *asked, "--to", tmp_path / "answer")
    for path in (tmp_path / "answer").iterdir():
        content = path.read_text(encoding="utf-8")
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", content), path.name


# --- erase ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_erase_takes_theirs_everywhere_and_nobody_elses(desk: House) -> None:
    before = {id_: text for id_, text in desk.raw("applicant") if id_ in ("john", "mary")}

    told = privacy("erase", *JANE, "--yes", "--case", "DSR-17").stdout

    assert ids(desk) == {"john", "mary"}
    assert dict(desk.raw("applicant")) == before
    assert "3 leads erased" in told
    assert "Leads to look at, which stay: 1" in told
    assert not any(text in told for text in (EMAIL, "900123", "Jane"))
    assert receipt(desk) in told
    [row] = logged()
    assert (row["action"], row["case"]) == ("erasure", "DSR-17")
    assert row["done"] is not None
    assert "On the suppression list: erasure 1." in privacy("find", *JANE).stdout
    assert "can't be ended" in privacy("lift", 1, exit_code=2).stderr


def test_a_window_whose_only_lead_is_erased_is_empty_and_not_missing(desk: House) -> None:
    desk.erase(lead="appraisal/jane too")

    states = "select state from mart_coverage where kind = 'appraisal' and rows is not null"
    assert desk.query(states) == [("empty",)]


@pytest.mark.slow
def test_whoever_has_no_lead_yet_can_be_erased_and_never_lands(desk: House) -> None:
    told = privacy("erase", "--email", "late@people.example", "--yes").stdout
    assert "No lead of this person was found. Check the spelling." in told

    desk.push("applicant", lead("late", email="Late+home@people.example", **BEFORE))

    assert "late+home" not in raw_text(desk).lower()


def test_the_receipt_names_who_may_still_hold_the_person(desk: House, tmp_path: Path) -> None:
    run("export", "applicant_leads", "--to", tmp_path / "bi", "--format", "csv")

    desk.erase(email=EMAIL)
    finished(desk)

    for holder in (
        "The portal:",
        "Copies of leads.duckdb",
        "The CRM:",
        "LEADS_MARTS_DIR",
        "Backups from before this moment",
        "Programs that still have the old leads.duckdb open",
        f"Exports in {tmp_path / 'bi'}: delete them",
    ):
        assert holder in receipt(desk)


@pytest.mark.slow
def test_a_message_that_mentions_them_is_emptied_if_asked_for_and_stays_so(desk: House) -> None:
    """John shares her telephone and writes of her."""
    told = privacy("erase", *JANE, "--yes", "--clear-message", "applicant/john").stdout

    assert "1 message of others emptied" in told
    assert EMAIL not in raw_text(desk)
    john = lead("john", phone=PHONE, name="John Roe", message=f"She is {EMAIL}", **OWNER)
    desk.land("applicant", [john])
    desk.publish()
    assert desk.leads("applicant")["john"]["message"] == ""
    assert EMAIL not in raw_text(desk)


def test_a_lead_that_mentions_them_beside_its_message_is_not_called_done(desk: House) -> None:
    desk.land("applicant", [lead("paul", message=f"For {EMAIL}", notes=f"Of {EMAIL}", **BEFORE)])

    told = privacy("erase", *JANE, "--yes", "--clear-message", "applicant/paul", exit_code=2).stderr

    assert "paul mentions the person in another field" in " ".join(told.split())
    assert "jane" in ids(desk)


def test_a_dry_run_and_a_refusal_change_nothing(desk: House) -> None:
    refusals = {
        ("--email", "not an address"): "isn't valid",
        ("--phone", PHONE): "give the name too",
        ("--lead", "17"): "applicant/ID",
        (*JANE, "--case", "Jane Roe"): "case",
        (*JANE, "--clear-message", "applicant/mary"): "--clear-message names 1 lead",
    }

    assert "Nothing was changed" in privacy("erase", *JANE, "--dry-run").stdout
    for asked, told in refusals.items():
        assert told in privacy("erase", *asked, "--yes", exit_code=2).stderr

    assert ids(desk) == {"jane", "jane's mobile", "jane too", "john", "mary"}
    assert privacy("log").stdout.strip() == "No requests yet."


@pytest.mark.slow
def test_an_erasure_is_open_while_a_file_may_hold_the_person(desk: House) -> None:
    """Neither publications nor other requests close it. Without the file, `apply` does."""
    [path] = (desk.folder / "raw" / "applicant_leads").rglob("*.parquet")
    aside = put_in_quarantine(desk, path)
    broken = desk.folder / "quarantine" / "cut.parquet"
    broken.write_bytes(b"PAR1 cut off")

    told = privacy("erase", *JANE, "--yes", exit_code=1)
    assert "NOT complete" in told.stdout
    for file in (broken, aside):
        assert file.name in told.stderr
    desk.publish()
    assert broken.name in privacy("apply", exit_code=1).stderr
    privacy("log", exit_code=1)

    broken.unlink()
    deleted = privacy("erase", *JANE, "--yes", "--quarantine", "delete").stdout
    assert "Deleted from quarantine/: 1 file" in deleted
    assert not aside.exists()
    privacy("log")


def test_raw_files_that_were_copied_into_a_bucket_keep_an_erasure_open_until_they_are_deleted(
    house: House, tmp_path: Path
) -> None:
    house.land("applicant", [lead("jane", email=EMAIL, **BEFORE)])
    move_to_bucket(house, tmp_path / "bucket")

    house.erase(email=EMAIL)
    [[left]] = finished(house).left.values()
    assert left.startswith(f"{house.folder / 'raw'} can't be searched")
    assert "Once `leads-pipeline verify` is green, delete it" in left

    shutil.rmtree(house.folder / "raw")
    assert finished(house) == CarriedOut({})


def test_the_copy_of_a_bucket_that_is_no_longer_used_goes_with_an_erasure(
    house: House, tmp_path: Path
) -> None:
    house.land("applicant", [lead("jane", email=EMAIL, **BEFORE)])
    move_to_bucket(house, tmp_path / "bucket")
    house.find(email=EMAIL)
    house.bucket = None
    assert EMAIL in everything_in(house.folder / ".cache")

    house.erase(email=EMAIL)

    assert EMAIL not in everything_in(house.folder)
    assert finished(house) == CarriedOut({})


def move_to_bucket(house: House, bucket: Path) -> None:
    """As the guide says. The raw files stay in the data folder, too."""
    shutil.copytree(house.folder / "raw", bucket / "raw")
    house.bucket = FolderStore(bucket)
    house.data.exchange_with_bucket()


@pytest.mark.slow
def test_a_request_that_could_not_be_published_is_not_called_done_until_apply_finishes_it(
    desk: House,
) -> None:
    in_the_way = desk.folder / ".versions" / "a folder.wal"
    in_the_way.mkdir()

    told = privacy("erase", *JANE, "--yes", exit_code=1).stdout
    assert "isn't carried out yet" in told
    assert "NOT complete" in told
    assert "leads erased" not in told

    in_the_way.rmdir()
    told = privacy("apply").stdout
    assert "Nothing that had to be erased is left." in told
    assert receipt(desk) in told
    assert ids(desk) == {"john", "mary"}
    privacy("log")


# --- object, restrict, lift -----------------------------------------------------------------------


def marketed(house: House) -> set[str]:
    """The leads by which owners are called."""
    return {lead_id for (lead_id,) in house.query("select lead_id from mart_hidden_valuations")}


@pytest.mark.slow
def test_an_objection_holds_for_later_leads_in_any_spelling_until_it_is_lifted(desk: House) -> None:
    mary = "--email", "mary@people.example"
    privacy("object", *mary, "--phone", "0161 496 0000", "--name", "Mary Poe")
    assert "On the suppression list: objection 1" in privacy("find", *mary).stdout
    number = {"phone": "Office: +44 (0)161 4960000, 9am-5pm", "name": "POE, Mary"}
    later = [
        lead("tagged", email="MARY+home@people.example", **OWNER),
        lead("by number", **number, **OWNER),
    ]
    desk.land("applicant", later, scope="branch-102")
    desk.publish()

    theirs = {"tagged", "by number", "mary"}
    assert theirs <= ids(desk)
    assert marketed(desk).isdisjoint(theirs)

    privacy("lift", 1, "--yes")
    assert not marketed(desk).isdisjoint(theirs)


@pytest.mark.slow
def test_an_objection_stays_with_a_lead_whose_contact_the_portal_corrects(
    desk: House, tmp_path: Path
) -> None:
    """The lead of before the objection, and one that came later."""
    desk.object_(email="mary@people.example")
    desk.land("applicant", [lead("later", email="mary@people.example", **OWNER)])
    desk.publish()
    theirs = ["mary", "later"]

    desk.land("applicant", [lead(one, email="mary@home.example", **OWNER) for one in theirs])
    desk.publish()

    assert ids(desk).issuperset(theirs)
    assert marketed(desk).isdisjoint(theirs)
    assert marketed(desk.built_anew(tmp_path / "anew")) == marketed(desk)


@pytest.mark.slow
def test_whoever_ends_a_restriction_is_asked_first_and_told_what_still_holds(desk: House) -> None:
    for _ in range(2):
        listed(list_of(desk.data), Action.RESTRICT, leads=[("applicant", "jane")], until=None)

    asked = privacy("lift", 1, exit_code=1).stdout
    assert "Tell the person before the restriction ends" in asked

    lifted = privacy("lift", 1, "--yes").stdout
    assert "Restriction 2 still holds for one of these leads or more." in lifted
    assert "jane" not in ids(desk)


@pytest.mark.slow
def test_a_correction_holds_over_later_pulls_moves_and_restrictions(
    desk: House, tmp_path: Path
) -> None:
    """By the new address, which needs not stand in the shell's history, it is found and erased."""

    def jane() -> tuple[object, ...]:
        row = desk.leads("applicant")["jane"]
        contact = row["contact_email"], row["contact_phone_number"], row["contact_first_name"]
        return row["scope"], row["message"], *contact

    right = ("jane@home.example", "0161 496 0000", "Jane")
    asked = tmp_path / "request.txt"
    asked.write_text(
        f"lead: applicant/jane\nNew-Email: {right[0]}\nnew-phone: {right[1]}", encoding="utf-8"
    )
    privacy("correct", "--from", asked)
    moved = lead("jane", email=EMAIL, phone=PHONE, name="Jane Roe", message="Moved", **OWNER)
    desk.land("applicant", [moved, lead("ann", email="ann@people.example")], scope="branch-102")
    desk.publish()
    assert jane() == ("branch-102", "Moved", *right)
    assert desk.leads("applicant")["ann"]["contact_email"] == "ann@people.example"

    desk.restrict(lead="applicant/jane")
    desk.land("applicant", [moved | {"message": "Back"}])
    privacy("lift", 3, "--yes")
    assert jane() == ("branch-101", "Back", *right)

    desk.erase(email=right[0])
    assert "home.example" not in raw_text(desk)


@pytest.mark.slow
def test_a_correction_after_an_erasure_erases_no_lead_with_the_new_address(desk: House) -> None:
    desk.erase(email="mary@people.example")
    new = lead("new", email="mary@people.example", createdAt="2099-01-01T10:00:00Z")
    desk.push("applicant", new)
    desk.publish()

    desk.correct("applicant/new", email="family@home.example")
    earlier = lead("earlier", email="family@home.example", **OWNER)
    desk.land("applicant", [earlier], scope="branch-102")
    desk.publish()

    assert {"new", "earlier"} <= ids(desk)


@pytest.mark.slow
@pytest.mark.parametrize("comes", ["before", "after"])
def test_a_lead_that_is_corrected_to_a_shared_number_stays_its_own_person_s(
    desk: House, comes: str
) -> None:
    """As if the portal itself sent the number: the name and the address beside it count."""
    if comes == "before":
        desk.correct("applicant/mary", phone=PHONE)
    desk.erase(phone=PHONE, email=EMAIL, name="Jane Roe")
    if comes == "after":
        desk.correct("applicant/mary", phone=PHONE)

    assert "jane" not in ids(desk)
    assert desk.leads("applicant")["mary"]["contact_phone_number"] == PHONE


def test_a_lead_whose_name_and_address_the_portal_empties_stays_its_own_person_s(
    house: House,
) -> None:
    listed(list_of(house.data), phones=[PHONE], names=["Jane Roe"])
    nobody = lead("nobody", phone=PHONE, **BEFORE)
    for contact in ({"email": "paul@people.example", "name": "Paul Roe"}, {}):
        house.land("applicant", [lead("paul", phone=PHONE, **contact, **BEFORE), nobody])

    house.publish()

    assert set(house.leads("applicant")) == {"paul", "nobody"}
    assert "Paul" in raw_text(house)


def test_a_lead_that_moves_and_loses_its_name_stays_its_own_person_s(house: House) -> None:
    """The sweep sees one window at a time, and there the number has no name."""
    house.land("applicant", [lead("paul", email="paul@people.example", name="Paul Roe", **BEFORE)])
    house.land("applicant", [lead("paul", phone=PHONE, **BEFORE)], scope="branch-102")

    house.erase(email=EMAIL, phone=PHONE, name="Jane Roe")

    assert house.leads("applicant").keys() == {"paul"}


def test_a_correction_to_no_address_or_to_that_of_an_erased_person_is_refused(desk: House) -> None:
    """It would be published and delivered as it was typed."""
    listed(list_of(desk.data))
    refusals = {
        "Jane Roe <jane@home.example>": "address isn't valid",
        "jane\u200b@home.example": "address isn't valid",
        EMAIL: "a person who was erased",
    }

    for address, said in refusals.items():
        correction = "correct", "--lead", "applicant/mary", "--new-email", address
        assert said in privacy(*correction, exit_code=2).stderr

    assert desk.leads("applicant")["mary"]["contact_email"] == "mary@people.example"


# --- who counts as the person ---------------------------------------------------------------------


def test_ordinary_writing_hides_nobody_from_an_erasure(desk: House) -> None:
    """A number beside its hours, an address in curly quotes, a contact in a name field.

    A negotiator's address in a lead is no reason to take it.
    """
    message = f"my wife\u2014{EMAIL}\u2019s the address"
    leads = [
        lead("quoted", email=f"\u201c{EMAIL}\u201d", name="Jane Roe", **BEFORE),
        lead("beside hours", phone=f"{PHONE} 9am-5pm", name="Jane Roe", **BEFORE),
        lead("in name", name=f"Jane {EMAIL}", **BEFORE),
        lead("mentioned", email="ann@people.example", message=message, **BEFORE),
        lead("customer", email="ann@people.example", negotiator={"email": EMAIL}, **BEFORE),
    ]
    desk.land("applicant", leads, scope="branch-102")

    desk.erase(email=EMAIL, phone=PHONE, name=["Jane Roe", "Jane"])

    assert ids(desk) == {"john", "mary", "mentioned", "customer"}


@pytest.mark.slow
@pytest.mark.parametrize("more", [{"name": "Jane Roe"}, {"not_lead": "applicant/his"}], ids=str)
def test_a_couple_with_one_address_can_be_told_apart(desk: House, more: dict[str, str]) -> None:
    """Fault 94. With her name his lead is to look at.

    Without it, --not-lead leaves it out, also when it comes again.
    """
    his = lead("his", email=EMAIL, name="John Roe", **BEFORE)
    desk.land("applicant", [his], scope="branch-102")
    assert ("theirs", "applicant", "his") not in desk.find(email=EMAIL, **more)

    desk.erase(email=EMAIL, **more)
    desk.land("applicant", [his | {"message": "It is John again"}], scope="branch-102")

    assert ids(desk) == {"his", "jane's mobile", "john", "mary"}
    assert "It is John again" in raw_text(desk)


@pytest.mark.usefixtures("desk")
def test_a_mistyped_lead_is_named_before_anything_is_done(tmp_path: Path) -> None:
    """Ignored, it would erase somebody else's lead, or leave one of theirs in."""
    said = "No lead applicant/jonh was found: check the id."
    to = "--to", tmp_path / "answer", "--case", "DSR-1"

    for mistyped in ("--lead", "--not-lead"):
        asked = *JANE, mistyped, "applicant/jonh"
        assert said in privacy("erase", *asked, "--yes", exit_code=2).stderr
        assert said in privacy("export", *asked, *to, exit_code=2).stderr

    assert privacy("log").stdout.strip() == "No requests yet."


def test_leads_under_two_names_are_nobody_s_until_a_name_is_given(
    desk: House, tmp_path: Path
) -> None:
    """A wife's request would take her husband's lead."""
    desk.land("applicant", [lead("his", email=EMAIL, name="John Roe", **BEFORE)])
    for command in (
        ["export", "--to", tmp_path / "answer", "--case", "DSR-1"],
        ["erase", "--yes"],
        ["correct", "--new-email", "j@home.example"],
    ):
        told = privacy(*command, "--email", EMAIL, exit_code=2)
        assert "These leads carry 2 names. Give the person's name" in told.stderr

    for more in (["--shared"], ["--name", "Jane Roe"], ["--lead", "applicant/his"]):
        privacy("erase", "--email", EMAIL, *more, "--dry-run")


@pytest.mark.usefixtures("desk")
def test_what_an_identifier_was_read_as_is_shown_and_one_that_cannot_be_read_is_refused() -> None:
    given = "--phone", f"{PHONE} 9am-5pm", "--email", f"\u201c{EMAIL}\u201d", "--name", "Jane Roe"
    assert "Looking for j…@p…, …123, ja… r…." in privacy("find", *given).stdout
    for wrong in (("--phone", "0770 090"), ("--postcode", "here", "--email", EMAIL)):
        assert "isn't valid" in privacy("find", *wrong, exit_code=2).stderr


# --- access requests and receipts -----------------------------------------------------------------


def test_an_access_request_stands_in_the_log_until_its_answer_is_noted(
    desk: House, tmp_path: Path
) -> None:
    """It is due one month after it was received, and no month is longer than it is."""
    asked = "export", *JANE, "--case", "DSR-7", "--received", "2026-08-31"
    for folder in ("answer", "again"):
        told = privacy(*asked, "--to", tmp_path / folder).stdout
        assert "Answer the person by 2026-09-30." in told

    [row] = logged(exit_code=1)
    assert (row["action"], row["case"], row["due"]) == ("access", "DSR-7", "2026-09-30")
    assert "3 leads of the person written" in receipt(desk)
    assert EMAIL not in receipt(desk)

    privacy("export", "--case", "DSR-7", "--answered", "2026-09-19")
    [row] = logged()
    assert row["done"] == "2026-09-19"


@pytest.mark.usefixtures("desk")
def test_an_access_request_of_somebody_without_a_lead_is_answered_too(tmp_path: Path) -> None:
    """That nothing is held is an answer. Leads to look at come first."""
    asked = "--case", "DSR-7", "--to", tmp_path / "answer"
    told = privacy("export", "--email", "x@y.example", *asked).stdout
    assert "Tell the person that you hold none." in told
    assert "case DSR-7" in privacy("log", exit_code=1).stdout
    assert "Read the leads to look at." in privacy("export", "--phone", PHONE, *asked).stdout
    assert not (tmp_path / "answer").exists()


def test_an_answer_names_the_recipients_that_the_ledger_of_deliveries_knows(
    desk: House, tmp_path: Path
) -> None:
    deliver_all(desk)

    privacy("export", "--case", "DSR-7", *JANE, "--to", tmp_path / "answer")

    document = json.loads((tmp_path / "answer" / "person.json").read_text(encoding="utf-8"))
    assert document["recipients"] == [{"host": "crm.example", "days": [f"{desk.now:%Y-%m-%d}"]}]


@pytest.mark.slow
def test_nothing_that_a_request_makes_is_open_to_other_users(desk: House, tmp_path: Path) -> None:
    """Whatever the shell's umask is."""
    before = os.umask(0)
    try:
        deliver_all(desk)
        privacy("export", "--case", "DSR-7", "--email", EMAIL, "--to", tmp_path / "answer")
        privacy("restrict", "--email", "mary@people.example")
    finally:
        os.umask(before)

    made = [
        tmp_path / "answer",
        tmp_path / "home",
        desk.folder / "privacy",
        desk.folder / "restricted",
        desk.folder / ".state" / "deliveries.sqlite",
    ]
    for folder in made:
        for path in (folder, *folder.rglob("*")):
            assert path.stat().st_mode & 0o007 == 0, path


# --- a list that was lost -------------------------------------------------------------------------


@pytest.mark.slow
def test_a_lost_list_is_put_back_from_a_copy_which_says_what_it_may_lack(
    desk: House, tmp_path: Path
) -> None:
    """Until then nothing lands.

    Afterwards who is on the copy stays out, and no number is given twice.
    """
    folder = desk.folder / "privacy"
    marys = "erase", "--email", "mary@people.example", "--yes", "--case", "DSR-18"
    privacy("erase", *JANE, "--yes")
    shutil.copytree(folder, tmp_path / "backup" / "2026-11-19" / "privacy")
    privacy(*marys)
    shutil.rmtree(folder / "list")
    late = lead("late", email=EMAIL, **BEFORE)
    with pytest.raises(StorageError, match="privacy apply --list BACKUP"):
        desk.land("applicant", [late])

    said = privacy("apply", "--list", tmp_path / "backup").stdout

    assert "It lacks the entries 3 to 4." in said
    assert "Erasure 3, case DSR-18" in said
    desk.land("applicant", [late])
    privacy(*marys)
    assert ids(desk) == {"john"}
    assert logged()[-1]["number"] > 4


# --- what was delivered ---------------------------------------------------------------------------


def deliver_all(desk: House) -> None:
    settings = Settings.from_variables({**crm.VARIABLES, "LEADS_DELIVERY_FROM": str(DAY)})
    [destination] = destinations_of(settings)
    deliver(
        settings,
        desk.data,
        destination,
        clock=lambda: desk.now,
        transport=crm.Crm(lambda _: httpx.Response(200)),
    )


def assert_ledger_forgot_jane(desk: House) -> None:
    with reading_ledger(desk.folder) as ledger:
        assert ledger
        assert sent(ledger, "applicant", "jane") == []
        assert len(sent(ledger, "applicant", "mary")) == 1


@pytest.mark.slow
def test_the_receipt_says_to_whom_leads_were_delivered_also_while_a_long_delivery_is_under_way(
    desk: House,
) -> None:
    deliver_all(desk)

    with desk.data.state.lock("delivery"):
        desk.erase(email=EMAIL)
        finished(desk)
    assert "crm.example: leads of the person were delivered there on" in receipt(desk)
    assert "still has the ids of their leads. `privacy apply` forgets them." in receipt(desk)

    privacy("apply")
    assert_ledger_forgot_jane(desk)


@pytest.mark.slow
def test_the_first_run_of_a_restored_backup_knows_whom_it_has_in_leads_duckdb_alone(
    house: House, tmp_path: Path
) -> None:
    """Ann was erased, and Olga objected, on a machine that never had their leads."""
    leads = [lead(one, email=f"{one}@people.example", **OWNER) for one in ("ann", "olga", "mary")]
    house.land("applicant", leads)
    house.publish()
    shutil.rmtree(house.folder / "raw")
    house.back_up(tmp_path / "backup")
    kept = SuppressionList(tmp_path / "new" / "privacy", tmp_path / "guard")
    listed(kept, emails=["ann@people.example"])
    listed(kept, Action.OBJECT, emails=["olga@people.example"], until=None)

    restored = house.restore(tmp_path / "backup", tmp_path / "new")

    assert ids(restored) == {"olga", "mary"}
    assert marketed(restored) == {"mary"}
    assert not restored.data.is_behind_list


@pytest.mark.slow
def test_the_first_run_of_a_restored_backup_forgets_the_deliveries_of_the_erased(
    desk: House, tmp_path: Path
) -> None:
    deliver_all(desk)
    desk.back_up(tmp_path / "backup")
    desk.erase(email=EMAIL)
    finished(desk)
    shutil.copytree(desk.folder / "privacy", tmp_path / "new" / "privacy")

    restored = desk.restore(tmp_path / "backup", tmp_path / "new")

    assert_ledger_forgot_jane(restored)


@pytest.mark.slow
def test_a_machine_that_delivered_an_erased_lead_says_to_whom_and_forgets_it(
    house: House, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The erasure is done on another machine with the same bucket, after this one has published."""
    house.bucket = FolderStore(tmp_path / "bucket")
    other = House(tmp_path / "other")
    other.bucket = house.bucket
    house.land("applicant", [lead("jane", email=EMAIL, **BEFORE), lead("mary", **BEFORE)])
    deliver_all(house)
    other.data.exchange_with_bucket()
    other.erase(email=EMAIL)
    house.data.exchange_with_bucket()
    house.publish()
    finished(other)
    house.data.exchange_with_bucket()

    work_of_night(house.data, Settings.from_variables({}), house.now, Night())

    assert "crm.example: leads of the person were delivered there on" in caplog.text
    assert_ledger_forgot_jane(house)


def test_what_is_left_is_what_was_created_before_the_erasure(desk: House) -> None:
    """Raw is searched by ids, because a sweep learns them, and quarantine by contact, too.

    A new enquiry isn't left.
    """
    desk.push("applicant", lead("new", email=EMAIL, createdAt="2099-01-01T10:00:00Z"))
    for path in (desk.folder / "raw").rglob("*.parquet"):
        put_in_quarantine(desk, path)
    found = find(desk.data, Person.of([EMAIL]))
    request = requests.Request(
        Action.ERASE, Person.of([EMAIL]), replace(found, leads=found.leads[:1]), DAY
    )
    entry = requests.add(desk.data, request, desk.now, found.to_look_at)

    left = [line.partition("/")[::2] for line in left_of(desk.data, [entry])[entry.number]]

    assert {(place, line.partition(" lead ")[2]) for place, line in left} == {
        ("raw", "jane."),
        ("raw", "jane too."),
        ("raw", "john."),
        ("quarantine", "jane."),
        ("quarantine", "jane too."),
        ("quarantine", "john."),
    }
