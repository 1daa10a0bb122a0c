"""The suppression list, and that nobody whom it keeps out is landed or published."""

import json
import os
import re
import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from leads_pipeline.errors import StorageError
from leads_pipeline.features.privacy import requests
from leads_pipeline.features.privacy.gatekeeper import list_of
from leads_pipeline.features.privacy.identity import LeadRow, Person
from leads_pipeline.features.privacy.search import find
from leads_pipeline.features.privacy.suppression import Action, Suppressed, SuppressionList
from leads_pipeline.features.privacy.sweeping import sweep
from leads_pipeline_tests.support.house import DAY, NEXT_DAY, House
from leads_pipeline_tests.support.people import (
    EMAIL,
    PHONE,
    UNTIL,
    everything_in,
    lead,
    listed,
)

BEFORE = "2026-11-19T10:00:00Z"
AFTER = "2026-11-21T13:00:00Z"
JANE = lead("jane", email=EMAIL, createdAt=BEFORE)
JOHN = lead("john", email="john@people.example", createdAt=BEFORE)


# Written by the version before entries had an `identity`.
RECORDED = Path(__file__).parent / "list_of_identity_1"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> House:
    """Jane and John, published."""
    house = House(tmp_path_factory.mktemp("suppression") / "data")
    house.land("applicant", [JANE, JOHN])
    house.publish()
    return house


@pytest.fixture
def full(published: House, tmp_path: Path) -> House:
    """A copy of that folder."""
    return published.copied(tmp_path / "data")


@pytest.fixture
def list_(tmp_path: Path) -> SuppressionList:
    return SuppressionList(tmp_path / "list", tmp_path / "guard")


def newest(list_: SuppressionList) -> Path:
    return max((list_.folder / "list").iterdir())


# --- the list -------------------------------------------------------------------------------------


def test_an_entry_is_read_as_it_was_added_and_says_nothing_of_the_person(
    list_: SuppressionList,
) -> None:
    added = [
        listed(list_, phones=[PHONE], names=["Jane Roe"], case="DSR-7"),
        listed(list_, emails=["x@people.example"]),
    ]
    assert [entry.number for entry in added] == [1, 2]
    assert list(list_.read().entries) == added
    assert (list_.folder.stat().st_mode & 0o777, newest(list_).stat().st_mode & 0o777) == (
        0o700,
        0o600,
    )
    written = b"".join(path.read_bytes() for path in list_.folder.glob("list/*")).lower()
    for text in (EMAIL, "jane", "roe", "people", "7700900"):  # four digits may well stand in a hash
        assert text.encode() not in written


def test_an_entry_is_on_the_disk_when_it_was_added(
    list_: SuppressionList, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed(list_)
    synced: list[bytes] = []
    fsync = os.fsync

    def noting(descriptor: int) -> None:
        fsync(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").resolve()
        if path.is_relative_to(list_.folder):
            synced.append(path.read_bytes() if path.is_file() else b"its folder")

    monkeypatch.setattr(os, "fsync", noting)
    listed(list_)

    assert synced == [newest(list_).read_bytes(), b"its folder"]


def lose_the_key(list_: SuppressionList) -> None:
    (list_.folder / "key").unlink()


def lose_all(list_: SuppressionList) -> None:
    shutil.rmtree(list_.folder)


def lose_the_newest_document(list_: SuppressionList) -> None:
    newest(list_).unlink()


def lose_the_first_entry(list_: SuppressionList) -> None:
    seal, _, second = newest(list_).read_bytes().splitlines(keepends=True)
    newest(list_).write_bytes(seal + second)


def change_an_entry(list_: SuppressionList) -> None:
    content = newest(list_).read_bytes()
    newest(list_).write_bytes(content.replace(b'"erase"', b'"lifts"', 1))


@pytest.mark.parametrize(
    "spoil",
    [lose_the_key, lose_all, lose_the_newest_document, lose_the_first_entry, change_an_entry],
)
def test_nothing_goes_on_with_a_list_that_is_not_what_it_was(
    house: House, spoil: Callable[[SuppressionList], object]
) -> None:
    house.land("applicant", [JOHN])
    list_ = list_of(house.data)
    before = house.raw("applicant")
    listed(list_)
    listed(list_)
    list_.read()
    spoil(list_)

    steps: list[Callable[[], object]] = [
        lambda: house.land("applicant", [JANE]),
        house.publish,
        lambda: listed(list_),
    ]
    for step in steps:
        with pytest.raises(StorageError, match="suppression list"):
            step()

    assert house.raw("applicant") == before


def test_a_restored_data_folder_does_not_take_the_list_back(list_: SuppressionList) -> None:
    listed(list_)
    guard = list_.guard.read_bytes()
    listed(list_)

    list_.guard.write_bytes(guard)
    assert len(list_.read().entries) == 2

    list_.guard.unlink()
    assert len(list_.read().entries) == 2


# --- whom an entry means --------------------------------------------------------------------------


def meant(suppressed: Suppressed, *leads: dict[str, Any], day: date = DAY) -> set[str]:
    rows = [LeadRow("applicant", one["id"], day, json.dumps(one)) for one in leads]
    return {lead_id for _, lead_id in suppressed.erased.leads(rows)}


def test_an_erasure_means_the_persons_leads_of_before_and_the_known_ids(
    list_: SuppressionList,
) -> None:
    listed(list_, leads=[("applicant", "known"), ("appraisal", "other kind")])
    leads = [
        lead("mine", email=EMAIL.upper(), createdAt=BEFORE),
        lead("tagged", email="jane.roe+x@people.example", createdAt=BEFORE),
        lead("known", email="john@people.example", createdAt=AFTER),
        lead("new enquiry", email=EMAIL, createdAt=AFTER),
        lead("KNOWN", email="john@people.example", createdAt=AFTER),
        lead("kno\u200bwn", email="john@people.example", createdAt=AFTER),
        lead("other kind", email="john@people.example", createdAt=BEFORE),
        lead("neighbour", email="jane@people.example", createdAt=BEFORE),
        lead("mentioned", email="john@people.example", createdAt=BEFORE, message=EMAIL),
    ]
    assert meant(list_.read(), *leads) == {"mine", "known", "tagged"}


def test_a_lead_of_unknown_moment_counts_by_its_day(list_: SuppressionList) -> None:
    """From the day of the erasure on it may be a new enquiry, which nobody could pull again."""
    listed(list_)
    for moment in ("0001-01-01T00:00:00Z", "yesterday", ""):
        hers = lead("hers", email=EMAIL, createdAt=moment)
        assert meant(list_.read(), hers, day=DAY) == {"hers"}
        assert meant(list_.read(), hers, day=UNTIL.date()) == set()


def test_nobody_on_a_list_from_before_comes_back_because_keys_changed(tmp_path: Path) -> None:
    """The list was recorded before keys of names and addresses changed, and a number alone stopped
    to decide.
    """
    shutil.copytree(RECORDED, tmp_path / "list")
    suppressed = SuppressionList(tmp_path / "list", tmp_path / "guard").read()
    erased = {
        "address": {"email": "JANE.ROE+x@people.example", "name": "John Roe"},
        "number and name": {"phone": "+44 7700 900123", "name": "Jane Roe"},
        "number alone": {"phone": "07700900123"},
        "Łukasz": {"phone": "07700 900124", "name": "Łukasz Wójcik"},
        "O'Brien": {"phone": "07700 900125", "name": "Shaun O'Brien"},
        "सीमा": {"phone": "07700 900126", "name": "सीमा शर्मा"},
        "O'Hara": {"email": "pat.o'hara@people.example"},
        "learned": {"email": "nobody@people.example"},
        "gmail": {"email": "jdoe@googlemail.com"},
    }
    others = {
        "her husband": {"phone": "07700 900123", "name": "John Roe"},
        "shared number alone": {"phone": "07700 900126"},
        "another name": {"phone": "07700 900124", "name": "Ann Poe"},
    }

    leads = [
        lead(lead_id, **contact, createdAt=BEFORE) for lead_id, contact in (erased | others).items()
    ]

    assert meant(suppressed, *leads) == erased.keys()


HERS = {"email": EMAIL, "phone": PHONE, "name": "Jane Roe"}
SPOUSES = {"email": "john@people.example", "phone": PHONE, "name": "John Roe"}
CONTACTS = st.tuples(
    st.sampled_from([HERS, SPOUSES]), st.sets(st.sampled_from(sorted(HERS)), min_size=1)
).map(lambda one: {name: one[0][name] for name in one[1]})


@pytest.mark.slow
@settings(max_examples=30)
@example(
    leads=[
        [{"email": EMAIL, "name": "Jane Roe"}, SPOUSES],
        [{"name": "Jane Roe"}, {"phone": PHONE}],
    ],
    given_=("email", "phone"),
)
@given(
    leads=st.lists(st.lists(CONTACTS, min_size=1, max_size=3), min_size=1, max_size=4),
    given_=st.sampled_from(
        [("email",), ("phone",), ("email", "phone"), ("phone", "name"), ("email", "name")]
    ),
)
def test_the_list_means_what_was_found_as_the_persons(
    tmp_path_factory: pytest.TempPathFactory,
    leads: list[list[dict[str, str]]],
    given_: tuple[str, ...],
) -> None:
    """`leads` are the contacts of each lead, in its versions."""
    house = House(tmp_path_factory.mktemp("data"))
    for number, contacts in enumerate(leads):
        for contact in contacts:
            house.land("applicant", [lead(str(number), **contact, createdAt=BEFORE)])
    asked: dict[str, Any] = {f"{what}s": [HERS[what]] for what in given_}
    person = Person.of(**asked)
    found = find(house.data, person)
    assume(found.theirs or person.contact.emails or (person.contact.phones and found.names))

    requests.add(house.data, requests.Request(Action.ERASE, person, found, DAY), UNTIL)

    rows = [LeadRow("applicant", id_, DAY, text) for id_, text in house.raw("applicant")]
    erased = list_of(house.data).read().erased.leads(rows)
    assert erased.keys() == {one.key for one in found.theirs}


# --- who is kept out ------------------------------------------------------------------------------


def raw_ids(house: House) -> set[str]:
    return {lead_id for lead_id, _ in house.raw("applicant")}


def test_nobody_who_is_erased_lands_and_a_new_enquiry_does(house: House) -> None:
    listed(list_of(house.data))

    house.land("applicant", [JANE, JOHN])
    house.push("applicant", JANE | {"id": "pushed"})
    # From now on the list knows her lead by its id, whatever contact and moment it shows.
    house.land("applicant", [JANE | {"contact": JOHN["contact"], "createdAt": AFTER}])
    house.land("applicant", [lead("again", email=EMAIL, createdAt=AFTER)])
    house.publish()

    assert raw_ids(house) == house.leads("applicant").keys() == {"john", "again"}


def test_all_versions_of_a_lead_go_wherever_one_was_met_by_its_contact(house: House) -> None:
    listed(list_of(house.data))
    other = JANE | {"contact": JOHN["contact"]}
    house.land("applicant", [other, JOHN])
    assert raw_ids(house) == {"jane", "john"}

    house.land("applicant", [JANE], NEXT_DAY)  # refused
    house.publish()
    assert raw_ids(house) == house.leads("applicant").keys() == {"john"}

    house.land("applicant", [other], scope="branch-102")
    assert raw_ids(house) == {"john"}


@pytest.mark.slow
@pytest.mark.parametrize("tables", ["parquet", "delta"])
def test_whoever_publishes_first_finishes_an_erasure_and_nothing_of_the_person_is_left(
    house: House, tables: str
) -> None:
    """No version, no tree of files, no Delta file, no report. Other windows aren't touched."""
    house.tables_as = tables
    house.land("applicant", [JANE | {"id": "hers-0815"}, JOHN])
    house.land("applicant", [lead("mary", email="mary@people.example")], NEXT_DAY)
    house.publish()
    house.report()
    assert EMAIL in everything_in(house.folder)
    others = {path: path.stat().st_ino for path in house.folder.glob(f"raw/*/day={NEXT_DAY}/*/*")}

    listed(list_of(house.data), leads=[("applicant", "hers-0815")])
    house.publish()

    assert house.leads("applicant").keys() == {"john", "mary"}
    house.report()
    assert not re.search(f"{EMAIL}|hers-0815", everything_in(house.folder))
    assert {path: path.stat().st_ino for path in others} == others


@pytest.mark.slow
def test_an_erasure_is_not_done_while_the_tables_beside_the_file_hold_the_person(
    full: House,
) -> None:
    listed(list_of(full.data))
    in_the_way = full.folder / ".versions" / "tables-draft"
    in_the_way.touch()

    with pytest.raises(AssertionError):  # the house takes no trouble
        full.publish()
    assert full.data.is_behind_list

    in_the_way.unlink()
    full.publish()
    assert not full.data.is_behind_list
    assert EMAIL not in everything_in(full.folder)


@pytest.mark.slow
def test_leads_that_raw_has_lost_are_erased_and_cleared_in_the_published_file(house: House) -> None:
    house.land("applicant", [JANE, JOHN | {"message": f"I know {EMAIL}"}])
    house.publish()
    shutil.rmtree(house.folder / "raw")

    listed(list_of(house.data), leads=[("applicant", "jane")])
    listed(list_of(house.data), Action.CLEAR, emails=(), leads=[("applicant", "john")])
    house.publish()

    assert house.query("select lead_id, message from applicant_leads") == [("john", "")]
    assert EMAIL not in everything_in(house.folder)


@pytest.mark.slow
def test_restricted_rows_are_set_aside_until_that_is_lifted_and_none_is_lost(house: House) -> None:
    house.land("applicant", [JANE, JOHN])
    house.land("applicant", [JANE | {"message": "again"}, JOHN])
    house.push("applicant", JANE | {"id": "pushed"})
    house.publish()
    before = house.raw("applicant")

    entry = listed(list_of(house.data), Action.RESTRICT, until=None)
    house.publish()
    house.land("applicant", [JANE | {"id": "new"}], scope="branch-102")
    assert raw_ids(house) == house.leads("applicant").keys() == {"john"}

    listed(list_of(house.data), Action.LIFT, emails=(), of=entry.number)
    house.publish()
    assert house.leads("applicant").keys() == {"jane", "john", "new", "pushed"}
    assert [row for row in house.raw("applicant") if row[0] != "new"] == before
    assert not [*house.folder.glob("restricted/**/*.parquet")]


@pytest.mark.slow
def test_a_published_file_that_was_put_back_alone_brings_nobody_back(
    house: House, full: House
) -> None:
    """Raw has lost the lead, so the list knows the person by the address alone."""
    house.land("applicant", [JOHN])
    house.erase(email=EMAIL)

    shutil.copy(full.file, house.file)
    house.publish()

    assert house.leads("applicant").keys() == {"john"}
    assert EMAIL not in everything_in(house.folder)


def test_a_raw_file_that_claims_a_longer_list_is_asked_about_by_the_ids_of_its_leads(
    house: House, tmp_path: Path
) -> None:
    house.land("applicant", [JANE, JOHN])
    listed(list_of(house.data), leads=[("applicant", "jane")])
    house.publish()
    other = House(tmp_path / "other")
    for _ in range(9):
        listed(list_of(other.data))
    other.land("applicant", [JANE | {"contact": {"email": "x@people.example"}}], NEXT_DAY)

    shutil.copytree(other.folder / "raw", house.folder / "raw", dirs_exist_ok=True)
    house.publish()

    assert house.leads("applicant").keys() == {"john"}


def test_who_is_erased_while_they_are_restricted_is_gone_from_there_too(house: House) -> None:
    house.land("applicant", [JANE, JOHN])
    listed(list_of(house.data), Action.RESTRICT, until=None)
    sweep(house.data)
    assert EMAIL in everything_in(house.folder / "restricted")

    listed(list_of(house.data))
    sweep(house.data)

    assert EMAIL not in everything_in(house.folder)
    assert raw_ids(house) == {"john"}


def test_a_cleared_message_is_empty_in_every_version_and_all_else_is_as_received(
    house: House,
) -> None:
    def text(message: str) -> str:
        return f'{{"id": "mary",  "message" : {message}, "x": 1.0, "n": "\\u0041"}}'

    house.land("applicant", [text('"Ask \\"Jane\\""')])
    house.land("applicant", [text("null")])
    empty = [("mary", text('""')), ("mary", text("null"))]

    listed(list_of(house.data), Action.CLEAR, emails=(), leads=[("applicant", "mary")])
    sweep(house.data)
    assert house.raw("applicant") == empty

    # The portal still sends it.
    house.land("applicant", [text('"Ask Jane"')])
    assert {*house.raw("applicant")} == {*empty}
