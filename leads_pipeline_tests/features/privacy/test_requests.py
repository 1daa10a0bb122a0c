"""A person's requests, by the commands: what they find, do and say, and what is in the files
afterwards.
"""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from click.testing import Result

from leads_pipeline.cli.windows import MAX_COVERAGE_DAYS
from leads_pipeline.errors import StorageError
from leads_pipeline.features.delivery.destinations import destinations_of
from leads_pipeline.features.delivery.ledger import reading_ledger
from leads_pipeline.features.delivery.questions import known_leads, sent
from leads_pipeline.features.delivery.sending import deliver
from leads_pipeline.features.privacy import requests
from leads_pipeline.features.privacy.access import written_by
from leads_pipeline.features.privacy.carrying_out import carry_out
from leads_pipeline.features.privacy.gatekeeper import list_of
from leads_pipeline.features.privacy.identity import Person
from leads_pipeline.features.privacy.nightly import work_of_night
from leads_pipeline.features.privacy.people import lines_of
from leads_pipeline.features.privacy.search import find, left_of
from leads_pipeline.features.privacy.suppression import Action, Entry, SuppressionList
from leads_pipeline.orchestration.night import Night
from leads_pipeline.portal.http_library import httpx
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.store import FolderStore
from leads_pipeline.settings import Settings
from leads_pipeline_tests.support import crm
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.house import DAY, NEXT_DAY, House
from leads_pipeline_tests.support.people import EMAIL, PHONE, everything_in, lead, listed
from leads_pipeline_tests.support.publications import OPENED

OWNER = {
    "consumerSituation": "CONSUMER_SITUATION_PROPERTY_TO_SELL",
    "createdAt": "2026-11-19T10:00:00Z",
}
BEFORE = {"createdAt": "2026-11-19T10:00:00Z"}
JANE = ("--email", EMAIL, "--phone", PHONE)


@pytest.fixture
def desk(house: House, monkeypatch: pytest.MonkeyPatch) -> House:
    """A published folder with Jane, her husband on the same telephone, and others.

    The commands work on it.
    """
    variables = {
        "LEADS_DATA_DIR": str(house.folder),
        "LEADS_PRIVACY_DIR": str(house.folder / "privacy"),
        "DAGSTER_HOME": str(house.folder.parent / "home"),
        "LEADS_BRANCH_IDS": "101,102",
        "LEADS_START_DATE": house.first_day.isoformat(),
        "LEADS_TIMEZONE": "Europe/London",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    house.land(
        "applicant",
        [
            lead("jane", email=EMAIL, phone=PHONE, name="Jane Roe", message="Call me", **OWNER),
            lead("jane's mobile", phone="07700 900123 (work)", name="Jane Roe", **BEFORE),
            lead("john", phone=PHONE, name="John Roe", message=f"My wife is {EMAIL}", **OWNER),
            lead("mary", email="mary@people.example", message="Née?", **OWNER),
        ],
    )
    house.land("appraisal", [lead("jane too", email=EMAIL.upper(), **BEFORE)])
    house.publish()
    return house


def privacy(*arguments: object, exit_code: int = 0) -> Result:
    result = run("privacy", *arguments)
    assert result.exit_code == exit_code, result.output
    return result


def ids(house: House) -> set[str]:
    """The ids of all published leads."""
    return {*house.leads("applicant"), *house.leads("appraisal")}


def put_in_quarantine(house: House, path: Path) -> Path:
    """A copy of a raw file, as if it had been damaged."""
    aside = (
        house.folder
        / "quarantine"
        / path.relative_to(house.folder).with_suffix(".parquet.20261119T000000.000000Z")
    )
    aside.parent.mkdir(parents=True, exist_ok=True)
    aside.write_bytes(path.read_bytes())
    return aside


def raw_text(house: House) -> str:
    return "".join(text for kind in ("applicant", "appraisal") for _, text in house.raw(kind))


# --- find and export ------------------------------------------------------------------------------


@pytest.mark.usefixtures("desk")
def test_find_shows_two_groups_and_every_reason() -> None:
    found = json.loads(privacy("find", *JANE, "--json").stdout)

    assert {one["lead_id"] for one in found["theirs"]} == {"jane", "jane's mobile", "jane too"}
    [john] = found["to_look_at"]
    assert john["lead_id"] == "john"
    assert john["why"] == [
        "mentioned in a message or another field",
        "the given telephone number, under another name",
    ]


@pytest.mark.usefixtures("desk")
def test_find_masks_names_addresses_and_numbers() -> None:
    for shown in (privacy("find", *JANE), privacy("find", *JANE, "--json")):
        assert {"Ja… R…", "Jo… R…"} <= {*re.findall("J.… R…", shown.output.replace("\\u2026", "…"))}
        assert not any(text in shown.output for text in (EMAIL, "900123", "Jane", "rk)"))
    assert privacy("find", *JANE, "--show", exit_code=2).stderr.startswith("Error: --show")


def test_whoever_looks_at_a_lead_sees_when_and_where_it_came_and_its_message(desk: House) -> None:
    """`--show` prints postcode and message, on a terminal alone."""
    desk.land(
        "applicant",
        [lead("ann", email=EMAIL, consumerPostcode="SW1A 1AA", message="In May?", **BEFORE)],
    )
    [ann] = find(desk.data, Person.of(lead_ids=[("applicant", "ann")])).leads
    assert written_by(ann) == ["SW1A 1AA", "In May?"]
    told = privacy("find", "--lead", "applicant/ann").stdout
    assert ("2026-11-19, branch-101" in told, "In May?" in told) == (True, False)


def test_files_that_cannot_be_read_are_named(desk: House, tmp_path: Path) -> None:
    [path] = (desk.folder / "raw" / "appraisal_leads").rglob("*.parquet")
    path.write_bytes(b"PAR1 and no more")
    (desk.folder / "quarantine").mkdir()
    (desk.folder / "quarantine" / "cut.parquet").write_bytes(b"PAR1 cut off")

    for arguments in (["find"], ["export", "--to", tmp_path / "answer", "--case", "DSR-7"]):
        said = privacy(*arguments, *JANE, exit_code=1).stderr
        assert path.relative_to(desk.folder).as_posix() in said
        assert "quarantine/cut.parquet" in said


def test_find_takes_a_list_and_a_postcode_and_names_a_wrong_line_without_repeating_it(
    desk: House, tmp_path: Path
) -> None:
    desk.land("applicant", [lead("ann", name="Ann Poe", consumerPostcode="SW1A 1AA", **BEFORE)])
    asked = tmp_path / "request.txt"
    asked.write_text(f"Email: {EMAIL}\n\nphone: {PHONE}\n", encoding="utf-8")

    found = json.loads(privacy("find", "--from", asked, "--json").stdout)
    assert {one["lead_id"] for one in found["theirs"]} == {"jane", "jane's mobile", "jane too"}
    found = json.loads(
        privacy("find", "--name", "poe, ann", "--postcode", "sw1a1aa", "--json").stdout
    )
    assert [one["lead_id"] for one in found["to_look_at"]] == ["ann"]
    asked.write_text(f"phone: {PHONE}\n{EMAIL}\n", encoding="utf-8")
    said = privacy("find", "--from", asked, exit_code=2).output
    assert "Line 2 of --from isn't valid" in said
    assert EMAIL not in said


@pytest.mark.slow
def test_a_lead_whose_newest_version_raw_has_lost_is_found_by_its_older_and_its_newest_contact(
    desk: House, tmp_path: Path
) -> None:
    desk.land("applicant", [lead("mary", email="mary@home.example", **OWNER)], scope="branch-102")
    desk.publish()
    for path in (desk.folder / "raw").glob("applicant_leads/*/scope=branch-102/*.parquet"):
        path.unlink()

    for email in ("mary@people.example", "mary@home.example"):
        assert desk.find(email=email) == [("theirs", "applicant", "mary")]
    privacy(
        "export", "--case", "DSR-7", "--email", "mary@people.example", "--to", tmp_path / "answer"
    )
    page = (tmp_path / "answer" / "person.html").read_text(encoding="utf-8")
    assert ("mary@people.example" in page, "mary@home.example" in page) == (True, True)
    desk.erase(email="mary@home.example")
    assert "mary" not in ids(desk)
    assert "mary@" not in raw_text(desk)


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
        *(("raw", "jane."), ("raw", "jane too."), ("raw", "john.")),
        *(("quarantine", "jane."), ("quarantine", "jane too."), ("quarantine", "john.")),
    }


def test_an_emptied_version_that_raw_has_lost_is_not_left_of_another_person_s_erasure(
    house: House,
) -> None:
    """The lead's other version says whose it is."""
    house.land("applicant", [lead("paul", email="paul@people.example", **BEFORE)])
    house.land("applicant", [lead("paul", phone=PHONE, **BEFORE)], scope="branch-102")
    house.publish()
    for path in (house.folder / "raw").glob("applicant_leads/*/scope=branch-102/*.parquet"):
        path.unlink()

    house.erase(email=EMAIL, phone=PHONE, name="Jane Roe")

    assert left_of(house.data, requests.open_entries(list_of(house.data).read())) == {}
    assert house.leads("applicant")["paul"]["contact_phone_number"] == PHONE


def test_a_lead_is_left_if_its_versions_together_show_the_person(
    house: House, tmp_path: Path
) -> None:
    """The number is her husband's too, and the name may be anybody's."""
    house.land("applicant", [lead("john", phone=PHONE, name="John Roe", **BEFORE)])
    for contact in ({"name": "Jane Roe"}, {"phone": PHONE}):
        house.land("applicant", [lead("jane", **contact, **BEFORE)], scope="branch-102")
    [path] = (house.folder / "raw").glob("applicant_leads/*/scope=branch-102/*.parquet")
    away = path.replace(tmp_path / path.name)
    house.erase(email=EMAIL, phone=PHONE, name="Jane Roe")
    put_in_quarantine(house, away.replace(path))
    path.unlink()

    [(of_jane,)] = left_of(house.data, requests.open_entries(list_of(house.data).read())).values()

    assert of_jane.endswith("holds the applicant lead jane.")


@pytest.mark.slow
def test_a_lead_that_raw_has_lost_is_neither_set_aside_nor_corrected_and_the_receipt_says_so(
    desk: House,
) -> None:
    """leads.duckdb has the only copy, which `lift` couldn't bring back."""
    without_raw(desk)

    told = privacy("restrict", "--email", EMAIL, exit_code=1)

    assert ("1 lead set aside" in told.stdout, "NOT complete" in told.stdout) == (True, True)
    assert told.stderr.count("appraisal lead jane too stays in leads.duckdb as it is") == 1
    assert ids(desk) == {"jane's mobile", "jane too", "john", "mary"}
    privacy("lift", 1, "--yes")
    assert (
        "jane too"
        in privacy(
            "correct", "--email", EMAIL, "--new-email", "jane@home.example", exit_code=1
        ).stderr
    )
    assert desk.leads("applicant")["jane"]["contact_email"] == "jane@home.example"
    assert desk.leads("appraisal")["jane too"]["contact_email"] == EMAIL.upper()


def land_again(desk: House) -> None:
    """The portal still has the lead's day."""
    desk.land("appraisal", [lead("jane too", email=EMAIL.upper(), **BEFORE)])
    desk.publish()


def without_raw(desk: House) -> None:
    for path in (desk.folder / "raw" / "appraisal_leads").rglob("*.parquet"):
        path.unlink()


@pytest.mark.slow
@pytest.mark.parametrize(
    "request_",
    [
        ("restrict", "--email", EMAIL),
        ("correct", "--email", EMAIL, "--new-email", "jane@home.example"),
    ],
    ids=["restrict", "correct"],
)
def test_a_request_stays_open_until_a_lead_that_raw_had_lost_is_pulled_and_asked_for_again(
    desk: House, request_: tuple[str, ...]
) -> None:
    without_raw(desk)
    privacy(*request_, exit_code=1)

    assert "appraisal lead jane too stays" in privacy("apply", exit_code=1).stderr
    assert "1: " in privacy("log", exit_code=1).stdout

    land_again(desk)
    privacy(*request_[:1], "--lead", "appraisal/jane too", *request_[3:])
    assert "not done yet" not in privacy("log").stdout


@pytest.mark.slow
def test_a_restriction_s_lead_that_raw_had_lost_is_set_aside_once_it_is_pulled_again(
    desk: House,
) -> None:
    """The address is on the list."""
    without_raw(desk)
    privacy("restrict", "--email", EMAIL, exit_code=1)

    land_again(desk)

    assert "jane too" not in ids(desk)
    privacy("apply")
    privacy("log")


@pytest.mark.slow
def test_a_request_ends_when_the_lead_that_raw_had_lost_is_erased(desk: House) -> None:
    without_raw(desk)
    privacy("restrict", "--email", EMAIL, exit_code=1)

    privacy("erase", "--lead", "appraisal/jane too", "--yes")

    assert "not done yet" not in privacy("log").stdout


@pytest.mark.slow
@pytest.mark.parametrize("is_done", [False, True])
def test_applying_the_list_erases_a_lead_that_raw_has_lost_and_whose_id_nobody_knew(
    desk: House, *, is_done: bool
) -> None:
    """As if another machine had erased the person, whose leads.duckdb never had the lead."""
    desk.land("applicant", [lead("ann", email="ann@people.example", **BEFORE)], scope="branch-102")
    desk.publish()
    shutil.rmtree(desk.folder / "raw" / "applicant_leads" / f"day={DAY}" / "scope=branch-102")
    entry = listed(list_of(desk.data), emails=["ann@people.example"])
    if is_done:
        list_of(desk.data).append(
            lambda _, number: Entry(number=number, at=desk.now, action=Action.DONE, of=entry.number)
        )

    privacy("apply")

    assert "ann" not in ids(desk)


def test_export_writes_all_versions_for_their_eyes_alone(desk: House, tmp_path: Path) -> None:
    desk.land(
        "applicant",
        [lead("jane", email=EMAIL, name="Jane Roe", message="Call me at noon <b>", **OWNER)],
    )
    privacy("export", "--case", "DSR-7", *JANE, "--to", tmp_path / "answer")

    page = (tmp_path / "answer" / "person.html").read_text(encoding="utf-8")
    document = json.loads((tmp_path / "answer" / "person.json").read_text(encoding="utf-8"))
    [jane] = [one for one in document["leads"] if one["lead_id"] == "jane"]
    assert [json.loads(version["content"])["message"] for version in jane["versions"]] == [
        "Call me",
        "Call me at noon <b>",
    ]
    assert "Call me at noon &lt;b&gt;" in page
    assert "property to sell" in page
    assert "John" not in page
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "answer").iterdir()} == {
        0o600
    }
    assert (
        privacy(
            "export", "--case", "DSR-7", *JANE, "--to", tmp_path / "answer", exit_code=2
        ).stderr.count("Name a new one")
        == 1
    )
    assert (
        "is in the data folder"
        in privacy(
            "export", "--case", "DSR-7", *JANE, "--to", desk.folder / "jane", exit_code=2
        ).stderr
    )


def test_an_answer_says_where_from_what_for_and_how_long_and_runs_nothing(
    desk: House, tmp_path: Path
) -> None:
    """In words and local time, with fields that nobody has declared, and without anybody else's
    lead.
    """
    script = "<script>alert(1)</script>"
    desk.land(
        "applicant",
        [lead("script", email=EMAIL, message=script, pets={"cats": 3, "areLoud": False}, **OWNER)],
    )
    desk.land("applicant", [lead("summer", email=EMAIL, createdAt="2026-07-01T10:00:00Z")])
    privacy("export", "--case", "DSR-7", *JANE, "--to", tmp_path / "answer")

    page = (tmp_path / "answer" / "person.html").read_text(encoding="utf-8")
    document = json.loads((tmp_path / "answer" / "person.json").read_text(encoding="utf-8"))
    for text in [*document["sources"], *document["purposes"], *document["retention"]]:
        assert text.replace("'", "&#39;") in page
    assert any("handed them over" in text for text in document["sources"])
    assert any("direct marketing" in text for text in document["purposes"])
    assert "The portal deletes an enquiry after 30 days." in document["retention"]
    assert re.search(r"pets: are loud.{0,60}no", page, re.DOTALL)
    assert "1 July 2026, 11:00" in page
    assert "&lt;script&gt;" in page
    assert not re.search(r"<script|\son\w+=|src=|url\(|@import", page)
    assert {one["lead_id"] for one in document["leads"]}.isdisjoint({"john", "mary"})
    assert stat.S_IMODE((tmp_path / "answer").stat().st_mode) == 0o700


@pytest.mark.slow
@pytest.mark.usefixtures("desk")
def test_nobody_found_is_said_so(tmp_path: Path) -> None:
    nobody = "No lead of this person was found"
    assert nobody in privacy("find", "--email", "x@y.example").stdout
    assert nobody in privacy("erase", "--email", "x@y.example", "--dry-run").stdout
    assert (
        nobody
        in privacy(
            "export", "--case", "DSR-7", "--email", "x@y.example", "--to", tmp_path / "a"
        ).stdout
    )
    assert (
        nobody
        in privacy("correct", "--email", "x@y.example", "--new-phone", PHONE, exit_code=2).stderr
    )
    assert not (tmp_path / "a").exists()


def test_an_id_and_a_contact_with_control_characters_make_one_harmless_line_each(
    desk: House,
) -> None:
    """`--show` prints the contact, on a terminal alone."""
    odd = lead("ann\x1b[31m\nnone of theirs\u202e", email=EMAIL, name="Ann\nRoe\r", **BEFORE)
    desk.land("applicant", [odd])
    told = privacy("find", "--lead", f"applicant/{odd['id']}").stdout
    assert r"  applicant/ann\x1b[31m\nnone of theirs\u202e" in told.splitlines()
    [found] = find(desk.data, Person.of(lead_ids=[("applicant", odd["id"])])).leads
    assert all(line.isprintable() for line in lines_of(found, show=True))


# --- erase ----------------------------------------------------------------------------------------


def test_erase_takes_theirs_everywhere_and_nobody_elses(desk: House) -> None:
    before = {id_: text for id_, text in desk.raw("applicant") if id_ in ("john", "mary")}

    told = privacy("erase", *JANE, "--yes", "--case", "DSR-17").stdout

    assert ids(desk) == {"john", "mary"}
    assert dict(desk.raw("applicant")) == before
    assert "3 leads erased" in told
    assert "Leads to look at, which stay: 1" in told
    assert not any(text in told for text in (EMAIL, "900123", "Jane"))
    assert (desk.folder / "privacy" / "receipts" / "1.txt").read_text(encoding="utf-8") in told
    [row] = json.loads(privacy("log", "--json").stdout)["entries"]
    assert (row["action"], row["case"], row["done"] is not None) == ("erasure", "DSR-17", True)
    assert "On the suppression list: erasure 1." in privacy("find", *JANE).stdout


@pytest.mark.slow
def test_a_text_with_a_line_break_that_no_json_has_is_erased_as_it_is_published(
    desk: House,
) -> None:
    odd = [
        json.dumps(lead(name, email=EMAIL, message="a|b", **BEFORE)).replace("|", "\n")
        for name in ("odd", "later")
    ]
    desk.land("applicant", [odd[0]], scope="branch-102")
    desk.publish()
    assert desk.leads("applicant")["odd"]["contact_email"] == EMAIL
    assert run("privacy", "erase", "--email", EMAIL, "--yes").exit_code == 0
    desk.land("applicant", odd, scope="branch-102")
    desk.publish()
    assert not {"odd", "later"} & desk.leads("applicant").keys()


def test_a_window_whose_only_lead_was_erased_is_empty_wherever_it_is_told(desk: House) -> None:
    privacy("erase", *JANE, "--yes")
    told = json.loads(run("coverage", "--json", "--days", MAX_COVERAGE_DAYS).stdout)["windows"]
    states = (
        "select state, count(*) from mart_coverage where kind = 'appraisal' group by all order by "
        "all"
    )
    in_mart = dict(desk.query(states))
    assert in_mart["empty"] == 1
    assert in_mart == {one["state"]: one["windows"] for one in told if one["kind"] == "appraisal"}


@pytest.mark.slow
@pytest.mark.parametrize("who", [("--email", "late@people.example"), ("--lead", "applicant/late")])
def test_whoever_has_no_lead_yet_can_be_erased_and_never_lands(
    desk: House, who: tuple[str, str]
) -> None:
    """An erasure by an id that was killed has taken the lead out, and is asked for again."""
    told = privacy("erase", *who, "--yes").stdout
    assert "No lead of this person was found. Check the spelling." in told
    late = lead("late", email="Late+home@people.example", **BEFORE)

    desk.land("applicant", [late], scope="branch-102")
    desk.push("applicant", late)
    desk.publish()

    assert "late" not in ids(desk)
    assert "late" not in raw_text(desk).casefold()


def test_the_receipt_names_who_may_still_hold_the_person(desk: House, tmp_path: Path) -> None:
    """Backups, exports, and programs that have the old file open: all do hold her."""
    desk.back_up(tmp_path / "backup")
    assert (
        run("export", "applicant_leads", "--to", tmp_path / "bi", "--format", "csv").exit_code == 0
    )
    with desk.file.open("rb") as opened:
        told = privacy("erase", *JANE, "--yes").stdout
        (tmp_path / "old.duckdb").write_bytes(opened.read())

    for place in (
        "The portal:",
        "Copies of leads.duckdb",
        "Notebooks, spreadsheets",
        "The CRM:",
        "The disk:",
        "LEADS_MARTS_DIR",
    ):
        assert place in told
    assert "Backups from before this moment: they hold the person until you delete them." in told
    assert "Programs that still have the old leads.duckdb open: close them." in told
    assert (
        f"Exports in {tmp_path / 'bi'}: delete them, then run `leads-pipeline export` again."
        in told
    )
    assert EMAIL in (tmp_path / "bi" / "applicant_leads.csv").read_text(encoding="utf-8-sig")
    with duckdb.connect(str(tmp_path / "old.duckdb"), read_only=True) as old:
        assert old.execute(
            "select count(*) from applicant_leads where lead_id = 'jane'"
        ).fetchall() == [(1,)]
    kept = [
        path
        for path in (tmp_path / "backup").rglob("*")
        if path.is_file() and path.read_bytes()[:4] == b"PAR1"
    ]
    assert any(EMAIL in str(pq.ParquetFile(path).read().to_pylist()) for path in kept)


@pytest.mark.slow
def test_a_message_that_mentions_them_is_emptied_if_asked_for_and_stays_so(desk: House) -> None:
    """John shares her telephone and writes of her.

    Whatever is given, the receipt says what is left.
    """
    told = privacy("erase", *JANE, "--yes", "--clear-message", "applicant/john").stdout

    assert "1 message of others emptied" in told
    assert EMAIL not in raw_text(desk)
    desk.land(
        "applicant",
        [lead("john", phone=PHONE, name="John Roe", message=f"She is {EMAIL}", **OWNER)],
    )
    desk.publish()
    assert desk.leads("applicant")["john"]["message"] == ""
    assert EMAIL not in raw_text(desk)


def test_a_lead_that_mentions_them_beside_its_message_is_not_called_done(desk: House) -> None:
    desk.land("applicant", [lead("paul", message=f"For {EMAIL}", notes=f"Of {EMAIL}", **BEFORE)])
    desk.publish()

    told = privacy("erase", *JANE, "--yes", "--clear-message", "applicant/paul", exit_code=2).stderr

    assert "paul mentions the person in another field" in " ".join(told.split())
    assert "jane" in ids(desk)


def test_a_lead_to_look_at_is_erased_by_its_id(desk: House) -> None:
    privacy("erase", *JANE, "--lead", "applicant/john", "--yes")
    assert ids(desk) == {"mary"}


def test_a_dry_run_and_a_refusal_change_nothing(desk: House) -> None:
    assert "Nothing was changed" in privacy("erase", *JANE, "--dry-run").stdout
    privacy("erase", "--email", "not an address", "--yes", exit_code=2)
    privacy("erase", *JANE, "--yes", "--case", "Jane Roe", exit_code=2)
    assert (
        "in the future"
        in privacy("erase", *JANE, "--yes", "--received", "2999-01-01", exit_code=2).stderr
    )
    privacy("erase", *JANE, "--yes", "--clear-message", "applicant/mary", exit_code=2)
    assert ids(desk) == {"jane", "jane's mobile", "jane too", "john", "mary"}
    assert privacy("log").stdout.strip() == "No requests yet."


@pytest.mark.slow
def test_a_quarantined_file_that_holds_them_is_named_and_deleted_if_asked_for(desk: House) -> None:
    [path] = (desk.folder / "raw" / "applicant_leads").rglob("*.parquet")
    aside = put_in_quarantine(desk, path)

    for _ in range(2):
        assert "quarantine" in privacy("erase", *JANE, "--yes", exit_code=1).stderr
    assert (
        "Deleted from quarantine/: 1 file"
        in privacy("erase", *JANE, "--yes", "--quarantine", "delete").stdout
    )
    assert not aside.exists()


@pytest.mark.slow
def test_an_erasure_is_open_while_a_file_may_hold_the_person(desk: House) -> None:
    """Neither publications nor other requests close it. Without the file, `apply` does."""
    file = "quarantine/cut.parquet"
    broken = desk.folder / file
    broken.parent.mkdir()
    broken.write_bytes(b"PAR1 cut off")

    told = privacy("erase", *JANE, "--yes", exit_code=1)
    assert ("NOT complete" in told.stdout, file in told.stderr) == (True, True)
    desk.publish()
    privacy("object", "--email", "mary@people.example")
    assert file in privacy("apply", exit_code=1).stderr
    rows = json.loads(privacy("log", "--json", exit_code=1).stdout)["entries"]
    assert [(row["action"], row["done"] is None) for row in rows] == [
        ("erasure", True),
        ("objection", False),
    ]

    broken.unlink()
    privacy("apply")
    privacy("log")


def test_raw_files_that_were_copied_into_a_bucket_keep_an_erasure_open_and_its_cache_goes_with_it(
    house: House, tmp_path: Path
) -> None:
    """Into a bucket, and back, as the guide says."""
    house.land(
        "applicant",
        [lead(name, email=f"{name}@people.example", **BEFORE) for name in ("ann", "mary")],
    )
    house.publish()
    shutil.copytree(house.folder / "raw", tmp_path / "bucket" / "raw")
    house.bucket = FolderStore(tmp_path / "bucket")
    house.data.share()
    assert find(house.data, Person.of(["mary@people.example"])).unread == []
    house.erase(email="ann@people.example")
    [[left]] = carry_out(house.data, lambda: None, house.now).values()
    assert left.startswith(f"{house.folder / 'raw'} can't be searched")
    assert "Once `leads-pipeline verify` is green, delete it" in left
    shutil.rmtree(house.folder / "raw")
    assert carry_out(house.data, lambda: None, house.now) == {}

    shutil.copytree(tmp_path / "bucket" / "raw", house.folder / "raw")
    house.bucket = None
    assert "mary@" in everything_in(house.folder / ".cache")
    house.erase(email="mary@people.example")

    assert "@people" not in everything_in(house.folder)
    assert carry_out(house.data, lambda: None, house.now) == {}


def test_an_interrupted_erasure_is_finished_by_the_next_publication(
    desk: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("leads_pipeline.cli.session.Session.publish", killed)
        assert (
            "may not be carried out yet" in privacy("erase", *JANE, "--yes", exit_code=130).stderr
        )
    privacy("log", exit_code=1)

    desk.publish()

    assert ids(desk) == {"john", "mary"}
    privacy("apply")
    privacy("log")


def test_a_request_that_could_not_be_published_is_not_called_done(desk: House) -> None:
    in_the_way = desk.folder / ".versions" / "draft-copy.duckdb"
    in_the_way.mkdir()

    told = privacy("erase", *JANE, "--yes", exit_code=1).stdout

    assert ("isn't carried out yet" in told, "NOT complete" in told, "leads erased" in told) == (
        True,
        True,
        False,
    )
    in_the_way.rmdir()
    privacy("apply")
    assert ids(desk) == {"john", "mary"}


def test_an_answer_is_due_one_month_after_the_request(desk: House) -> None:
    received = ["2026-11-19", "2026-12-31", "2024-01-31", "2025-01-29", "2026-08-31", "2026-02-28"]
    for day in received:
        listed(list_of(desk.data), received=date.fromisoformat(day))

    rows = json.loads(privacy("log", "--json", exit_code=1).stdout)["entries"]

    assert [row["received"] for row in rows] == received
    assert [row["due"] for row in rows] == [
        "2026-12-19",
        "2027-01-31",
        "2024-02-29",
        "2025-02-28",
        "2026-09-30",
        "2026-03-28",
    ]


# --- object, restrict, lift -----------------------------------------------------------------------


def marketed(house: House) -> set[str]:
    """The leads by which owners are called."""
    return {lead_id for (lead_id,) in house.query("select lead_id from mart_hidden_valuations")}


@pytest.mark.slow
def test_an_objection_holds_for_later_leads_in_any_spelling_until_it_is_lifted(desk: House) -> None:
    privacy(
        "object", "--email", "mary@people.example", "--phone", "0161 496 0000", "--name", "Mary Poe"
    )
    assert (
        "On the suppression list: objection 1"
        in privacy("find", "--email", "mary@people.example").stdout
    )
    later = [
        lead(
            "from work", email="mary@work.example", phone="0161 496 0000", name="Mary Poe", **OWNER
        ),
        lead("tagged", email="MARY+home@people.example", **OWNER),
        lead("by number", phone="Office: +44 (0)161 4960000, 9am-5pm", name="POE, Mary", **OWNER),
        lead("both", email="mary@people.example", phone="0161 496 0001", **OWNER),
    ]
    desk.land("applicant", later, scope="branch-102")
    desk.publish()

    theirs = {"from work", "tagged", "by number", "both", "mary"}
    assert theirs <= ids(desk)
    assert marketed(desk).isdisjoint(theirs)
    privacy("lift", 1, "--yes")
    assert not marketed(desk).isdisjoint(theirs)


@pytest.mark.slow
def test_an_objection_stays_with_a_lead_whose_contact_the_portal_corrects(
    desk: House, tmp_path: Path
) -> None:
    """The lead of before the objection, one that came later, and one of which both versions came at
    once.
    """
    privacy("object", "--email", "mary@people.example")
    desk.land("applicant", [lead("later", email="mary@people.example", **OWNER)])
    desk.publish()
    desk.land("applicant", [lead("at once", email="mary@people.example", **OWNER)])
    theirs = ["mary", "later", "at once"]

    desk.land("applicant", [lead(one, email=f"{one[:2]}@home.example", **OWNER) for one in theirs])
    desk.publish()

    assert {desk.leads("applicant")[one]["contact_email"] for one in theirs} == {
        "ma@home.example",
        "la@home.example",
        "at@home.example",
    }
    assert marketed(desk).isdisjoint(theirs)
    assert marketed(desk.built_anew(tmp_path / "anew")) == marketed(desk)


@pytest.mark.slow
def test_an_id_means_the_lead_with_that_very_id(house: House) -> None:
    """The portal says how ids look: a blank at the end, an accent as a letter of its own, an
    invisible character.
    """
    ids = {"1", "1 ", "Zoe\u0308", "a\u200bb"}
    for id_ in ids:
        house.land("applicant", [lead(one) for one in ids])
        house.publish()
        house.erase(lead=f"applicant/{id_}")
        assert {*house.leads("applicant")} == ids - {id_}
        ids = ids - {id_}


def test_whoever_ends_a_restriction_is_asked_first_and_told_what_still_holds(desk: House) -> None:
    privacy("restrict", "--lead", "applicant/jane", "--case", "DSR-9")
    privacy("restrict", *JANE)

    asked = privacy("lift", 1, exit_code=1)

    assert "End restriction 1, case DSR-9, of " in asked.stderr
    assert "Tell the person before the restriction ends" in asked.stdout
    assert {row["lifted"] for row in json.loads(privacy("log", "--json").stdout)["entries"]} == {
        None
    }
    assert (
        "Restriction 3 still holds for one of these leads or more."
        in privacy("lift", 1, "--yes").stdout
    )
    assert "still holds" not in privacy("lift", 3, "--yes").stdout
    assert "jane" in ids(desk)
    rows = json.loads(privacy("log", "--json").stdout)["entries"]
    assert [row["due"] is None for row in rows] == [False, False, True, True]
    assert "end of 3. Received" in privacy("log").stdout


@pytest.mark.usefixtures("desk")
def test_an_erasure_cannot_be_lifted() -> None:
    privacy("erase", *JANE, "--yes")
    assert "can't be ended" in privacy("lift", 1, exit_code=2).stderr
    assert "in force" in privacy("lift", 9, exit_code=2).stderr


@pytest.mark.slow
def test_a_correction_holds_over_later_pulls_and_by_every_way_of_reading(desk: House) -> None:
    privacy("correct", "--lead", "applicant/jane", "--new-email", "jane@home.example")
    privacy("correct", "--lead", "applicant/jane", "--new-phone", "0161 496 0000")
    desk.land(
        "applicant",
        [lead("jane", email=EMAIL, phone=PHONE, name="Jane Roe", message="Again", **OWNER)],
    )
    desk.publish()

    jane = desk.leads("applicant")["jane"]
    assert (jane["contact_email"], jane["contact_phone_number"]) == (
        "jane@home.example",
        "0161 496 0000",
    )
    assert (jane["message"], jane["contact_first_name"]) == ("Again", "Jane")
    assert ("theirs", "applicant", "jane") in desk.find(email="jane@home.example")
    assert len(desk.leads("applicant")) == 4
    privacy("erase", "--email", "jane@home.example", "--yes")
    assert "home.example" not in raw_text(desk)


@pytest.mark.slow
def test_a_correction_holds_for_a_lead_that_moves_to_another_branch_or_day(desk: House) -> None:
    """Also while it is restricted, and beside another lead of that branch."""
    privacy("correct", "--lead", "applicant/jane", "--new-email", "jane@home.example")
    moved = lead("jane", email=EMAIL, name="Jane Roe", message="Moved", **OWNER)
    desk.land("applicant", [moved, lead("ann", email="ann@people.example")], scope="branch-102")
    desk.publish()

    jane = desk.leads("applicant")["jane"]
    assert (jane["scope"], jane["message"], jane["contact_email"]) == (
        "branch-102",
        "Moved",
        "jane@home.example",
    )
    assert desk.leads("applicant")["ann"]["contact_email"] == "ann@people.example"
    privacy("restrict", "--lead", "applicant/jane")
    desk.land("applicant", [moved | {"message": "Back"}])
    privacy("lift", 3, "--yes")
    jane = desk.leads("applicant")["jane"]
    assert (jane["message"], jane["contact_email"]) == ("Back", "jane@home.example")

    later = NEXT_DAY + timedelta(days=5)
    desk.land("applicant", [moved | {"createdAt": f"{later}T10:00:00Z", "message": "Later"}], later)
    desk.publish()
    jane = desk.leads("applicant")["jane"]
    assert (jane["lead_day"], jane["message"], jane["contact_email"]) == (
        later,
        "Later",
        "jane@home.example",
    )


@pytest.mark.slow
def test_an_objection_holds_for_a_corrected_address_and_later_leads_with_it(desk: House) -> None:
    privacy("object", "--email", "mary@people.example")
    privacy("correct", "--lead", "applicant/mary", "--new-email", "mary@home.example")
    assert desk.leads("applicant")["mary"]["contact_email"] == "mary@home.example"
    desk.land(
        "applicant", [lead("later", email="Mary+flats@home.example", **OWNER)], scope="branch-102"
    )
    desk.publish()
    assert "later" in ids(desk)
    assert marketed(desk).isdisjoint({"mary", "later"})


@pytest.mark.slow
def test_a_correction_after_an_erasure_erases_no_lead_with_the_new_address(desk: House) -> None:
    privacy("erase", "--email", "mary@people.example", "--yes")
    desk.push(
        "applicant", lead("new", email="mary@people.example", createdAt="2099-01-01T10:00:00Z")
    )
    desk.publish()
    privacy("correct", "--email", "mary@people.example", "--new-email", "family@home.example")
    desk.land(
        "applicant", [lead("earlier", email="family@home.example", **OWNER)], scope="branch-102"
    )
    desk.publish()
    assert {"new", "earlier"} <= ids(desk)


@pytest.mark.slow
@pytest.mark.parametrize("comes", ["before", "after"])
def test_a_lead_that_is_corrected_to_a_shared_number_stays_its_own_person_s(
    desk: House, comes: str
) -> None:
    """As if the portal itself sent the number: the name and the address beside it count."""
    number = "0161 496 0000"
    ann = lead("ann", email="ann@people.example", phone=number, name="Ann Roe", **BEFORE)
    paul = lead(
        "paul", email="paul@people.example", phone="0161 496 0001", name="Paul Roe", **BEFORE
    )
    desk.land("applicant", [ann, paul])
    desk.publish()
    correction = "correct", "--lead", "applicant/paul", "--new-phone", number
    if comes == "before":
        privacy(*correction)
        found = json.loads(privacy("find", "--phone", number, "--name", "Ann Roe", "--json").stdout)
        assert [one["lead_id"] for one in found["to_look_at"]] == ["paul"]
    privacy(
        "erase", "--phone", number, "--email", "ann@people.example", "--name", "Ann Roe", "--yes"
    )
    if comes == "after":
        privacy(*correction)
    assert "ann" not in ids(desk)
    assert desk.leads("applicant")["paul"]["contact_phone_number"] == number


def test_a_lead_whose_name_and_address_the_portal_empties_stays_its_own_person_s(
    house: House,
) -> None:
    house.land(
        "applicant",
        [lead("ann", email="ann@people.example", phone=PHONE, name="Ann Roe", **BEFORE)],
    )
    house.publish()
    house.erase(email="ann@people.example", phone=PHONE, name="Ann Roe")
    for contact in ({"email": "paul@people.example", "name": "Paul Roe"}, {}):
        house.land(
            "applicant",
            [lead("paul", phone=PHONE, **contact, **BEFORE), lead("nobody", phone=PHONE, **BEFORE)],
        )
        house.publish()
        assert set(house.leads("applicant")) == {"paul", "nobody"}
    assert "Paul" in raw_text(house)


def test_a_lead_that_moves_and_loses_its_name_stays_its_own_person_s(house: House) -> None:
    """The sweep sees one window at a time, and there the number has no name."""
    house.land("applicant", [lead("paul", email="paul@people.example", name="Paul Roe", **BEFORE)])
    house.land("applicant", [lead("paul", phone=PHONE, **BEFORE)], scope="branch-102")
    house.publish()
    assert house.find(email=EMAIL, phone=PHONE, name="Jane Roe") == [("look", "applicant", "paul")]

    house.erase(email=EMAIL, phone=PHONE, name="Jane Roe")

    assert set(house.leads("applicant")) == {"paul"}


def test_a_correction_to_an_erased_person_s_address_is_refused(desk: House) -> None:
    privacy("erase", *JANE, "--yes")
    for more in ((), ("--dry-run",)):
        told = privacy(
            "correct", "--lead", "applicant/mary", "--new-email", EMAIL, *more, exit_code=2
        ).stderr
        assert "a person who was erased" in told
    assert desk.leads("applicant")["mary"]["contact_email"] == "mary@people.example"


@pytest.mark.slow
def test_a_correction_of_restricted_leads_comes_back_with_them(desk: House) -> None:
    privacy("restrict", *JANE)
    privacy("correct", *JANE, "--new-email", "jane@home.example")
    assert "jane" not in ids(desk)
    privacy("lift", 1, "--yes")
    assert desk.leads("applicant")["jane"]["contact_email"] == "jane@home.example"


@pytest.mark.slow
@pytest.mark.parametrize("text", ['"x" 1', '"x": ' + "[" * 3000 + "]" * 3000])
def test_a_lead_whose_text_cannot_be_read_is_not_called_corrected(desk: House, text: str) -> None:
    """What else isn't strict JSON is read, and corrected."""
    correction = "correct", "--lead", "applicant/odd", "--new-email", "jane@home.example"
    desk.land("applicant", [f'{{"id": "odd", {text}}}'], scope="branch-102")
    desk.publish()
    for more in ((), ("--dry-run",)):
        assert (
            "applicant lead odd can't be corrected"
            in privacy(*correction, *more, exit_code=2).stderr
        )
    assert "jane@home.example" not in raw_text(desk)
    desk.land("applicant", ['{"id": "odd", "x": NaN, "contact": []}'], scope="branch-102")
    desk.publish()
    privacy(*correction)
    assert desk.leads("applicant")["odd"]["contact_email"] == "jane@home.example"


def test_a_corrected_lead_that_comes_again_too_deeply_nested_stops_nobody(desk: House) -> None:
    privacy("correct", "--lead", "applicant/mary", "--new-email", "mary@home.example")
    nested = '{"id": "mary", "x": ' + "[" * 3000 + "]" * 3000 + "}"
    desk.land("applicant", [nested, lead("ann", email="ann@people.example")], scope="branch-102")
    desk.publish()
    assert "ann" in ids(desk)
    privacy("find", "--lead", "applicant/mary")


@pytest.mark.usefixtures("desk")
def test_a_correction_that_is_not_one_address_is_refused() -> None:
    """It is published and delivered as it was typed."""
    for given in (
        *(
            "notanaddress",
            "Jane Roe <jane@home.example>",
            "jane@home.example, old@home.example",
            "jane@home.example\n",
        ),
        *(
            "mailto:jane@home.example",
            "jane@home.example (work)",
            "a@b@home.example",
            "jane\u200b@home.example",
        ),
    ):
        assert (
            "address isn't valid"
            in privacy("correct", *JANE, "--new-email", given, exit_code=2).stderr
        ), given
    for given in ("Jane+x@Home.example", "o'brien@home.example", "søren@bücher.example"):
        assert (
            "would be corrected"
            in privacy("correct", *JANE, "--new-email", given, "--dry-run").stdout
        )
    assert "Nothing to correct" in privacy("correct", *JANE, exit_code=2).stderr


@pytest.mark.parametrize("how", ["--from", "prompt"])
def test_the_right_address_needs_not_stand_in_the_shell_s_history(
    desk: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    asked = tmp_path / "request.txt"
    asked.write_text(
        "lead: applicant/mary\nNew-Email: mary@home.example\nnew-phone: 0161 496 0000\n",
        encoding="utf-8",
    )
    privacy("find", "--from", asked)
    if how == "--from":
        privacy("correct", "--from", asked)
    else:
        typed = iter(["mary@home.example", "0161 496 0000"])
        monkeypatch.setattr(
            "click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False
        )
        monkeypatch.setattr("click.prompt", lambda *_, **__: next(typed))
        privacy("correct", "--lead", "applicant/mary")
    mary = desk.leads("applicant")["mary"]
    assert (mary["contact_email"], mary["contact_phone_number"]) == (
        "mary@home.example",
        "0161 496 0000",
    )
    assert (
        "Give one of each"
        in privacy("correct", "--from", asked, "--new-phone", PHONE, exit_code=2).stderr
    )


# --- who counts as the person ---------------------------------------------------------------------


def test_ordinary_writing_hides_nobody_from_an_erasure(desk: House) -> None:
    """A number beside its hours, an address in curly quotes, a contact in a name field."""
    quoted = lead("quoted", email=f"\u201c{EMAIL}\u201d", name="Jane Roe", **BEFORE)
    beside_hours = lead("beside hours", phone=f"{PHONE} 9am-5pm", name="Jane Roe", **BEFORE)
    in_name = lead("in name", name=f"Jane {EMAIL}", **BEFORE)
    mentioned = lead(
        "mentioned",
        email="ann@people.example",
        message=f"my wife\u2014{EMAIL}\u2019s the address",
        **BEFORE,
    )
    desk.land("applicant", [quoted, beside_hours, in_name, mentioned], scope="branch-102")
    desk.publish()

    told = privacy("erase", *JANE, "--name", "Jane Roe", "--name", "Jane", "--yes").stdout

    assert "6 leads erased" in told
    assert "Leads to look at, which stay: 2." in told
    assert ids(desk) == {"john", "mary", "mentioned"}


def test_the_erasure_of_a_negotiator_takes_no_customer_s_lead(desk: House) -> None:
    negotiator = {
        "firstName": "Nell",
        "email": "nell@office.example",
        "phoneNumber": "0161 496 0000",
    }
    desk.land(
        "applicant",
        [lead("customer", email="ann@people.example", negotiator=negotiator, **BEFORE)],
        scope="branch-102",
    )
    desk.publish()

    told = privacy(
        "erase", "--email", "nell@office.example", "--phone", "0161 496 0000", "--yes"
    ).stdout

    assert "Leads to look at, which stay: 1." in told
    assert "customer" in ids(desk)


@pytest.mark.parametrize("how", ["name", "not-lead"])
def test_a_couple_with_one_address_can_be_told_apart(desk: House, tmp_path: Path, how: str) -> None:
    """With her name his lead is to look at.

    Without it, --not-lead leaves it out, also when it comes again.
    """
    his = lead("his", email=EMAIL, name="John Roe", message="It is John", **BEFORE)
    desk.land("applicant", [his], scope="branch-102")
    desk.publish()
    more = ("--name", "Jane Roe") if how == "name" else ("--not-lead", "applicant/his")

    privacy("export", "--case", "DSR-7", "--email", EMAIL, *more, "--to", tmp_path / "answer")
    assert "It is John" not in (tmp_path / "answer" / "person.json").read_text(encoding="utf-8")
    privacy("erase", "--email", EMAIL, *more, "--yes")
    desk.land("applicant", [his | {"message": "It is John again"}], scope="branch-102")
    desk.publish()

    assert "jane" not in ids(desk)
    assert desk.leads("applicant")["his"]["message"] == "It is John again"


@pytest.mark.usefixtures("desk")
def test_a_mistyped_lead_is_named_before_anything_is_done(tmp_path: Path) -> None:
    """Ignored, it would erase somebody else's lead, or leave one of theirs in."""
    said = "No lead applicant/jonh was found: check the id."
    asked = tmp_path / "request.txt"
    asked.write_text(f"email: {EMAIL}\nnot-lead: applicant/jonh\n", encoding="utf-8")
    to = ("--to", tmp_path / "answer", "--case", "DSR-1")
    for mistyped in (("--from", asked), (*JANE, "--lead", "applicant/jonh")):
        assert said in privacy("erase", *mistyped, "--yes", exit_code=2).stderr
        assert said in privacy("export", "--case", "DSR-7", *mistyped, *to, exit_code=2).stderr
    assert said in privacy("find", *JANE, "--lead", "applicant/jonh").stderr
    assert privacy("log").stdout.strip() == "No requests yet."

    privacy("erase", *JANE, "--lead", "applicant/john", "--yes")
    again = privacy(
        "erase", *JANE, "--email", "mary@people.example", "--lead", "applicant/john", "--yes"
    ).stderr
    assert "No lead applicant/john was found: check the id." in again


def test_leads_under_two_names_are_nobody_s_until_a_name_is_given(
    desk: House, tmp_path: Path
) -> None:
    """A wife's request would take her husband's lead.

    Another spelling of one name is no second name.
    """
    desk.land(
        "applicant", [lead("spelled", email=EMAIL, name="ROE, Jané", **BEFORE)], scope="branch-102"
    )
    privacy("object", "--email", EMAIL, "--dry-run")
    desk.land(
        "applicant", [lead("his", email=EMAIL, name="John Roe", **BEFORE)], scope="branch-102"
    )
    to = ("--to", tmp_path / "answer", "--case", "DSR-1")
    for command in (
        *(
            ["export", *to],
            ["erase", "--yes"],
            ["object"],
            ["restrict"],
            ["correct", "--new-email", "j@home.example"],
        ),
    ):
        told = privacy(*command, "--email", EMAIL, exit_code=2)
        assert "These leads carry 2 names. Give the person's name" in told.stderr
        assert "applicant/his" in told.stdout
    for more in (["--shared"], ["--name", "Jane Roe"], ["--lead", "applicant/his"]):
        privacy("erase", "--email", EMAIL, *more, "--dry-run")
    assert privacy("log").stdout.strip() == "No requests yet."


@pytest.mark.usefixtures("desk")
def test_what_an_identifier_was_read_as_is_shown_and_one_that_cannot_be_read_is_refused() -> None:
    told = privacy(
        "find",
        "--phone",
        f"{PHONE} 9am-5pm",
        "--email",
        f"\u201c{EMAIL}\u201d",
        "--name",
        "Jane Roe",
    )
    assert "Looking for j…@p…, …123, ja… r…." in told.stdout
    found = json.loads(privacy("find", "--phone", PHONE, "--json").stdout)
    assert found["read_as"] == ["…123"]
    for wrong in (
        ("--phone", "0770 090"),
        ("--email", "jane at home"),
        ("--postcode", "here", "--email", EMAIL),
    ):
        assert "isn't valid" in privacy("find", *wrong, exit_code=2).stderr


def test_a_lead_is_named_by_its_kind_too(desk: House) -> None:
    """Both kinds may have the same id."""
    desk.land("applicant", [lead("17", name="Ann Poe", **BEFORE)], scope="branch-102")
    desk.land("appraisal", [lead("17", name="Bob Moe", **BEFORE)], scope="branch-102")
    desk.publish()
    assert "applicant/ID" in privacy("erase", "--lead", "17", "--yes", exit_code=2).stderr

    privacy("erase", "--lead", "applicant/17", "--yes")

    assert "17" not in desk.leads("applicant")
    assert "17" in desk.leads("appraisal")


def test_a_number_alone_erases_nobody_and_the_command_says_what_to_give(desk: House) -> None:
    before = ids(desk)
    assert "give the name too" in privacy("erase", "--phone", PHONE, "--yes", exit_code=2).stderr
    assert ids(desk) == before


# --- access requests and receipts -----------------------------------------------------------------


def test_an_access_request_stands_in_the_log_until_its_answer_is_noted(
    desk: House, tmp_path: Path
) -> None:
    for folder in ("answer", "again"):
        told = privacy(
            "export",
            *JANE,
            "--to",
            tmp_path / folder,
            "--case",
            "DSR-7",
            "--received",
            "2026-11-02",
        ).stdout
        assert "Answer the person by 2026-12-02." in told

    [row] = json.loads(privacy("log", "--json", exit_code=1).stdout)["entries"]
    assert (row["action"], row["case"], row["due"], row["done"]) == (
        "access",
        "DSR-7",
        "2026-12-02",
        None,
    )
    receipt = (desk.folder / "privacy" / "receipts" / "1.txt").read_text(encoding="utf-8")
    assert "3 leads of the person written" in receipt
    assert EMAIL not in receipt
    assert not desk.data.is_behind

    def answered(day: str, case: str = "DSR-7", exit_code: int = 0) -> str:
        return privacy("export", "--case", case, "--answered", day, exit_code=exit_code).output

    assert "No access request" in answered("2026-11-19", "DSR-8", exit_code=2)
    assert "before 2026-11-02, when the request was received" in answered("2026-11-01", exit_code=2)
    assert "in the future" in answered("2999-01-01", exit_code=2)
    assert "access 1, case DSR-7, was answered on 2026-11-19." in answered("2026-11-19")
    assert "was answered on 2026-11-20, not on 2026-11-19." in answered("2026-11-20", "1")
    [row] = json.loads(privacy("log", "--json").stdout)["entries"]
    assert row["done"] == "2026-11-20"


@pytest.mark.usefixtures("desk")
def test_an_access_request_of_somebody_without_a_lead_is_answered_too(tmp_path: Path) -> None:
    """That nothing is held is an answer. Leads to look at come first."""
    assert (
        "Missing option '--case'" in privacy("export", "--email", "x@y.example", exit_code=2).stderr
    )
    asked = ("--case", "DSR-7", "--to", tmp_path / "answer")
    told = privacy("export", "--email", "x@y.example", *asked).stdout
    assert "Tell the person that you hold none." in told
    assert "note the day: `leads-pipeline privacy export --answered DAY --case CASE`" in told
    assert "NOT complete" not in told
    assert "case DSR-7" in privacy("log", exit_code=1).stdout
    privacy("export", "--case", "DSR-7", "--answered", f"{datetime.now(UTC):%Y-%m-%d}")
    privacy("log")
    assert "Read the leads to look at." in privacy("export", "--phone", PHONE, *asked).stdout
    assert not (tmp_path / "answer").exists()


def test_an_answer_names_the_recipients_that_the_ledger_of_deliveries_knows(
    desk: House, tmp_path: Path
) -> None:
    privacy("export", "--case", "DSR-7", *JANE, "--to", tmp_path / "before")
    assert "No delivery to another system" in (tmp_path / "before" / "person.html").read_text(
        encoding="utf-8"
    )
    deliver_all(desk)

    privacy("export", "--case", "DSR-7", *JANE, "--to", tmp_path / "answer")

    document = json.loads((tmp_path / "answer" / "person.json").read_text(encoding="utf-8"))
    assert document["recipients"] == [{"host": "crm.example", "days": [f"{desk.now:%Y-%m-%d}"]}]
    assert document["notes"] == []
    assert "crm.example" in (tmp_path / "answer" / "person.html").read_text(encoding="utf-8")


def test_an_answer_has_no_control_characters(desk: House, tmp_path: Path) -> None:
    """They make a page that programs refuse. The document escapes them."""
    desk.land(
        "applicant",
        [lead("odd", email=EMAIL, message="ring\x07 \x00\x1b[31m me\ntoday\x85", **BEFORE)],
    )
    privacy("export", "--case", "DSR-7", "--email", EMAIL, "--to", tmp_path / "answer")

    for path in (tmp_path / "answer").iterdir():
        content = path.read_text(encoding="utf-8")
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", content), path.name
    assert "ring [31m me\ntoday" in (tmp_path / "answer" / "person.html").read_text(
        encoding="utf-8"
    )


def test_nothing_that_a_request_makes_is_open_to_other_users(desk: House, tmp_path: Path) -> None:
    """Whatever the shell says.

    Dagster sets no modes of its own, and SQLite takes those of the shell.
    """
    before = os.umask(0)
    try:
        deliver_all(desk)
        privacy("restrict", "--email", "mary@people.example")
        privacy("export", "--case", "DSR-7", "--email", EMAIL, "--to", tmp_path / "new" / "answer")
        privacy("erase", "--email", EMAIL, "--yes")
    finally:
        os.umask(before)

    paths = [
        path
        for path in tmp_path.rglob("*")
        if not path.is_symlink() and path.name != "branches.csv"
    ]
    open_paths = [path for path in paths if path.stat().st_mode & 0o007]
    assert [path for path in open_paths if desk.folder not in path.parents] == []
    assert stat.S_IMODE((desk.folder / ".state" / "deliveries.sqlite").stat().st_mode) == 0o600


@pytest.mark.parametrize("finisher", ["apply", "another request", "the night"])
def test_whoever_finishes_an_interrupted_request_writes_its_receipt(
    desk: House, finisher: str
) -> None:
    deliver_all(desk)
    desk.erase(email=EMAIL)  # as a command that was killed after it had published
    receipt = desk.folder / "privacy" / "receipts" / "1.txt"
    assert not receipt.exists()

    match finisher:
        case "apply":
            assert "Erasure 1" in privacy("apply").stdout
        case "another request":
            privacy("object", "--email", "mary@people.example")
        case _:
            work_of_night(desk.data, Settings.from_variables({}), desk.now, Night())

    text = receipt.read_text(encoding="utf-8")
    assert "Nothing that had to be erased is left." in text
    assert "crm.example: leads of the person were delivered there" in text
    privacy("log")
    assert_ledger_forgot_jane(desk)


# --- a list that was lost -------------------------------------------------------------------------


@pytest.mark.slow
def test_a_lost_list_is_put_back_from_a_copy_which_says_what_it_may_lack(
    desk: House, tmp_path: Path
) -> None:
    """Until then nothing lands.

    Afterwards who is on the copy stays out, and no number is given twice.
    """
    folder = desk.folder / "privacy"
    privacy("erase", *JANE, "--yes")
    assert "can be used as it is" in privacy("apply", "--list", folder, exit_code=2).stderr
    shutil.copytree(folder, tmp_path / "backup" / "2026-11-19" / "privacy")
    privacy("erase", "--email", "mary@people.example", "--yes", "--case", "DSR-18")
    shutil.rmtree(folder / "list")
    with pytest.raises(StorageError, match="privacy apply --list BACKUP"):
        desk.land("applicant", [lead("late", email=EMAIL, **BEFORE)])
    assert (
        "holds no suppression list"
        in privacy("apply", "--list", desk.folder / "raw", exit_code=2).stderr
    )

    said = privacy("apply", "--list", tmp_path / "backup").stdout

    assert "It lacks the entries 3 to 4." in said
    assert "Erasure 3, case DSR-18" in said
    desk.land(
        "applicant",
        [lead("late", email=EMAIL, **BEFORE), lead("mary", email="mary@people.example", **BEFORE)],
    )
    privacy("erase", "--email", "mary@people.example", "--yes", "--case", "DSR-18")
    assert ids(desk) == {"john"}
    first, second = json.loads(privacy("log", "--json").stdout)["entries"]
    assert (first["number"], second["case"], second["number"] > 4) == (1, "DSR-18", True)


@pytest.mark.slow
def test_a_copy_of_another_list_is_not_put_back(desk: House, tmp_path: Path) -> None:
    other = DataFolder.at(tmp_path / "other")
    for email in (EMAIL, "mary@people.example"):
        listed(list_of(other), emails=[email])
    listed(list_of(desk.data))
    key = desk.folder / "privacy" / "key"
    content = key.read_bytes()
    key.unlink()

    assert (
        "another list"
        in privacy("apply", "--list", tmp_path / "other" / "privacy", exit_code=2).stderr
    )

    key.write_bytes(content)
    assert len(list_of(desk.data).read().entries) == 1


# --- what was delivered ---------------------------------------------------------------------------


def deliver_all(desk: House, status: int = 200) -> None:
    settings = Settings.from_variables({**crm.VARIABLES, "LEADS_DELIVERY_FROM": str(DAY)})
    [destination] = destinations_of(settings)
    deliver(
        settings,
        desk.data,
        destination,
        clock=lambda: desk.now,
        transport=crm.Crm(lambda _: httpx.Response(status)),
    )


def assert_ledger_forgot_jane(desk: House) -> None:
    with reading_ledger(desk.folder) as ledger:
        assert ledger
        assert (sent(ledger, "applicant", "jane"), len(sent(ledger, "applicant", "mary"))) == (
            [],
            1,
        )


@pytest.mark.slow
def test_the_receipt_says_to_whom_leads_were_delivered_also_while_a_long_delivery_is_under_way(
    desk: House,
) -> None:
    deliver_all(desk)
    with desk.data.state.lock("delivery"):
        said = privacy("erase", "--email", EMAIL, "--yes").stdout
    assert "crm.example: leads of the person were delivered there on" in said
    assert "still has the ids of their leads. `privacy apply` forgets them." in said
    privacy("apply")
    assert_ledger_forgot_jane(desk)


@pytest.mark.slow
def test_the_receipt_says_when_leads_were_delivered_to_whom_and_the_ledger_forgets_the_erased(
    desk: House,
) -> None:
    deliver_all(desk)
    said = privacy("object", "--email", EMAIL).stdout
    assert f"crm.example: leads of the person were delivered there on {desk.now:%Y-%m-%d}" in said
    assert "crm.example: leads of the person" in privacy("erase", "--yes", "--email", EMAIL).stdout
    assert_ledger_forgot_jane(desk)


def test_the_ledger_forgets_an_erased_lead_that_was_never_delivered(desk: House) -> None:
    deliver_all(desk, status=400)
    privacy("erase", "--yes", "--email", EMAIL)
    with reading_ledger(desk.folder) as ledger:
        assert ledger
        assert ("applicant", "jane") not in known_leads(ledger)


@pytest.mark.slow
def test_applying_an_interrupted_erasure_says_when_leads_were_delivered_and_forgets_them(
    desk: House,
) -> None:
    deliver_all(desk)
    desk.erase(email=EMAIL)  # without a receipt
    assert "crm.example: leads of the person" in privacy("apply").stdout
    assert_ledger_forgot_jane(desk)


def test_the_first_run_of_a_restored_backup_knows_whom_it_has_in_leads_duckdb_alone(
    house: House, tmp_path: Path
) -> None:
    """Ann was erased, and Olga objected, on a machine that never had their leads."""
    for number, name in enumerate(("ann", "olga", "mary"), 101):
        house.land(
            "applicant",
            [lead(name, email=f"{name}@people.example", **OWNER)],
            scope=f"branch-{number}",
        )
    house.publish()
    for lost in ("scope=branch-101", "scope=branch-102"):
        shutil.rmtree(house.folder / "raw" / "applicant_leads" / f"day={DAY}" / lost)
    house.back_up(tmp_path / "backup")
    kept = SuppressionList(tmp_path / "new" / "privacy", tmp_path / "guard")
    listed(kept, emails=["ann@people.example"])
    listed(kept, Action.OBJECT, emails=["olga@people.example"], until=None)

    restored = house.restore(tmp_path / "backup", tmp_path / "new")

    assert ids(restored) == {"olga", "mary"}
    assert restored.query("select lead_id from mart_hidden_valuations") == [("mary",)]
    assert not restored.data.is_behind


def test_a_publication_follows_the_list_although_another_program_has_opened_the_file_for_writing(
    house: House,
) -> None:
    house.land(
        "applicant",
        [lead(name, email=f"{name}@people.example", **OWNER) for name in ("ann", "mary")],
    )
    house.publish()
    listed(list_of(house.data), emails=["ann@people.example"])
    file = (house.folder / "leads.duckdb").resolve()
    file.chmod(0o600)
    with subprocess.Popen(
        [sys.executable, "-c", OPENED, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        assert program.stdout
        assert program.stdout.readline() == b"opened\n"
        house.publish()
        program.communicate()

    assert ids(house) == {"mary"}
    assert not house.data.is_behind


@pytest.mark.slow
def test_the_first_run_of_a_restored_backup_forgets_the_deliveries_of_the_erased(
    desk: House, tmp_path: Path
) -> None:
    deliver_all(desk)
    desk.back_up(tmp_path / "backup")
    privacy("erase", "--yes", "--email", EMAIL)
    shutil.copytree(desk.folder / "privacy", tmp_path / "new" / "privacy")
    assert_ledger_forgot_jane(desk.restore(tmp_path / "backup", tmp_path / "new"))


def test_a_machine_that_delivered_an_erased_lead_says_to_whom_and_forgets_it(
    house: House, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The erasure is done on another machine with the same bucket, after this one has published."""
    house.bucket = FolderStore(tmp_path / "bucket")
    other = House(tmp_path / "other")
    other.bucket = house.bucket
    house.land("applicant", [lead("jane", email=EMAIL, **BEFORE), lead("mary", **BEFORE)])
    house.publish()
    deliver_all(house)
    other.data.share()
    other.erase(email=EMAIL)
    house.data.share()
    house.publish()
    carry_out(other.data, lambda: None, other.now)
    house.data.share()

    work_of_night(house.data, Settings.from_variables({}), house.now, Night())

    assert "crm.example: leads of the person were delivered there on" in caplog.text
    assert_ledger_forgot_jane(house)
