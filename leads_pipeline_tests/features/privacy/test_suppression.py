"""The suppression list, and that nobody whom it keeps out is landed or published."""

import json
import os
import re
import shutil
from collections import defaultdict
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
from leads_pipeline.features.privacy.identity import (
    THEIRS,
    LeadKey,
    LeadRow,
    Person,
    Version,
    judge,
    owner_of,
    read_version,
)
from leads_pipeline.features.privacy.search import Found, FoundLead
from leads_pipeline.features.privacy.suppression import Action, Suppressed, SuppressionList
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline_tests.support.house import DAY, NEXT_DAY, House
from leads_pipeline_tests.support.people import (
    EMAIL,
    PHONE,
    UNTIL,
    everything_in,
    lead,
    left_by_list,
    listed,
    with_list,
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
    house = House(tmp_path_factory.mktemp("published") / "data")
    house.land("applicant", [JANE, JOHN])
    house.publish()
    return house


@pytest.fixture
def full(published: House, tmp_path: Path) -> House:
    """A copy to go on from."""
    return published.copied(tmp_path / "data")


@pytest.fixture
def list_(tmp_path: Path) -> SuppressionList:
    return SuppressionList(tmp_path / "list", tmp_path / "guard")


@pytest.fixture
def data(tmp_path: Path) -> DataFolder:
    return with_list(tmp_path / "data", tmp_path / "list")


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
    synced: list[bytes] = []
    fsync = os.fsync

    def noting(descriptor: int) -> None:
        fsync(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").resolve()
        if path.is_relative_to(list_.folder):
            synced.append(path.read_bytes() if path.is_file() else b"folder")

    monkeypatch.setattr(os, "fsync", noting)
    for _ in range(2):
        synced.clear()
        listed(list_)
        content = newest(list_).read_bytes()
        assert synced.index(content) < len(synced) - 1 - synced[::-1].index(b"folder")


def rewriting(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[SuppressionList], object]:
    """Write other lines into the newest document: its seal and two entries."""
    return lambda list_: newest(list_).write_bytes(
        b"".join(change(newest(list_).read_bytes().splitlines(keepends=True)))
    )


BREAKS: dict[str, Callable[[SuppressionList], object]] = {
    "the key is lost": lambda list_: (list_.folder / "key").unlink(),
    "all is lost": lambda list_: shutil.rmtree(list_.folder),
    "the newest document is lost": lambda list_: newest(list_).unlink(),
    "the first entry is lost": rewriting(lambda lines: [lines[0], lines[2]]),
    "an entry is changed": rewriting(
        lambda lines: [lines[0], lines[1].replace(b'"erase"', b'"lifts"'), lines[2]]
    ),
}


@pytest.mark.parametrize("spoil", BREAKS.values(), ids=BREAKS)
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
    keys = [path.read_bytes() for path in list_.folder.glob("key")]

    steps: list[Callable[[], object]] = [
        lambda: house.land("applicant", [JANE]),
        house.publish,
        lambda: listed(list_),
    ]
    for step in steps:
        with pytest.raises(StorageError, match="suppression list") as told:
            step()
        assert EMAIL not in str(told.value)

    assert house.raw("applicant") == before
    # None is made in its place.
    assert [path.read_bytes() for path in list_.folder.glob("key")] == keys


def test_a_restored_data_folder_does_not_take_the_list_back(
    data: DataFolder, tmp_path: Path
) -> None:
    listed(list_of(data))
    guard = (data.folder / ".state" / "privacy").read_bytes()
    listed(list_of(data), emails=["x@people.example"])
    (data.folder / ".state" / "privacy").write_bytes(guard)
    assert len(list_of(data).read().entries) == 2
    (data.folder / ".state" / "privacy").unlink()
    assert len(list_of(with_list(data.folder, tmp_path / "list")).read().entries) == 2


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
        lead("new enquiry", email=EMAIL, createdAt=AFTER),
        lead("known", email="john@people.example", createdAt=AFTER),
        lead("KNOWN", email="john@people.example", createdAt=AFTER),
        lead("known ", email="john@people.example", createdAt=AFTER),
        lead("kno\u200bwn", email="john@people.example", createdAt=AFTER),
        lead("other kind", email="john@people.example", createdAt=BEFORE),
        lead("neighbour", email="jane@people.example", createdAt=BEFORE),
        lead("tagged", email="jane.roe+x@people.example", createdAt=BEFORE),
        lead("mentioned", email="john@people.example", createdAt=BEFORE, message=EMAIL),
    ]
    assert meant(list_.read(), *leads) == {"mine", "known", "tagged"}


def test_a_lead_of_unknown_moment_counts_by_its_day(list_: SuppressionList) -> None:
    listed(list_)
    for moment in ("0001-01-01T00:00:00Z", "yesterday", ""):
        assert meant(list_.read(), lead("1", email=EMAIL, createdAt=moment)) == {"1"}
        # It may be an enquiry from after the erasure, which nobody could pull again.
        for day in (UNTIL.date(), date(2026, 11, 22)):
            assert meant(list_.read(), lead("1", email=EMAIL, createdAt=moment), day=day) == set()


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

    assert (
        meant(suppressed, *leads, lead("new enquiry", email=EMAIL, createdAt=AFTER))
        == erased.keys()
    )


HERS = {"email": EMAIL, "phone": PHONE, "name": "Jane Roe"}
SPOUSES = {"email": "john@people.example", "phone": PHONE, "name": "John Roe"}
CONTACTS = st.tuples(
    st.sampled_from([HERS, SPOUSES]), st.sets(st.sampled_from(sorted(HERS)), min_size=1)
).map(lambda one: {name: one[0][name] for name in one[1]})


@settings(max_examples=60, deadline=None)
@example(
    leads=[
        [{"email": EMAIL, "name": "Jane Roe"}, SPOUSES],
        [{"name": "Jane Roe"}, {"phone": PHONE}],
    ],
    given_=("emails", "phones"),
)
@given(
    leads=st.lists(st.lists(CONTACTS, min_size=1, max_size=3), min_size=1, max_size=4),
    given_=st.sampled_from(
        [("emails",), ("phones",), ("emails", "phones"), ("phones", "names"), ("emails", "names")]
    ),
)
def test_the_list_means_what_was_found_as_the_persons(
    tmp_path_factory: pytest.TempPathFactory,
    leads: list[list[dict[str, str]]],
    given_: tuple[str, ...],
) -> None:
    asked: dict[str, Any] = {what: [HERS[what.removesuffix("s")]] for what in given_}
    person = Person.of(**asked)
    rows = []
    versions_of = defaultdict[LeadKey, list[Version]](list)
    for number, contacts in enumerate(leads):
        for contact in contacts:
            text = json.dumps(lead("", **contact, createdAt=BEFORE))
            rows.append(LeadRow("applicant", str(number), DAY, text))
            versions_of["applicant", str(number)].append(read_version(text))
    found = [FoundLead(*key, why, []) for key, why in judge(person, versions_of).items()]
    theirs = {(one.kind, one.lead_id) for one in found if one.why & THEIRS}
    names = owner_of(person, versions_of).contact.names
    assume(theirs or person.contact.emails or (person.contact.phones and names))

    data = DataFolder.at(tmp_path_factory.mktemp("data"))
    request = requests.Request(Action.ERASE, person, Found(found, names), UNTIL.date())
    requests.add(data, request, UNTIL)

    assert list_of(data).read().erased.leads(rows).keys() == theirs


# --- who is kept out ------------------------------------------------------------------------------


def raw_ids(house: House) -> set[str]:
    return {lead_id for lead_id, _ in house.raw("applicant")}


def test_nobody_who_is_erased_lands_and_a_new_enquiry_does(house: House) -> None:
    listed(list_of(house.data))
    for _ in range(2):
        house.land("applicant", [JANE, JOHN])
    house.push(
        "applicant",
        JANE | {"id": "pushed"},
        lead("mary", email="mary@people.example", createdAt=BEFORE),
    )
    # Facts by their ids now, whatever contact and moment they show.
    house.land("applicant", [JANE | {"contact": JOHN["contact"], "createdAt": AFTER}])
    house.land("applicant", [lead("again", email=EMAIL, createdAt=AFTER)])
    house.publish()
    assert raw_ids(house) == house.leads("applicant").keys() == {"john", "mary", "again"}


def test_all_versions_of_a_lead_go_wherever_one_was_met_by_its_contact(house: House) -> None:
    listed(list_of(house.data))
    other = JANE | {"contact": JOHN["contact"]}
    house.land("applicant", [other, JOHN])
    house.publish()
    assert house.leads("applicant").keys() == {"jane", "john"}
    house.land("applicant", [JANE], NEXT_DAY)  # refused
    house.publish()
    assert raw_ids(house) == house.leads("applicant").keys() == {"john"}
    house.land("applicant", [other], scope="branch-102")
    assert raw_ids(house) == {"john"}


@pytest.mark.parametrize("tables", ["parquet", pytest.param("delta", marks=pytest.mark.slow)])
def test_whoever_publishes_first_finishes_an_erasure_and_nothing_of_the_person_is_left(
    house: House, tables: str
) -> None:
    """No version, no tree of files, no Delta file, no report. Other windows aren't touched."""
    if tables == "delta":
        pytest.importorskip("deltalake")
    house.tables_as = tables
    house.land("applicant", [JANE | {"id": "hers-0815"}, JOHN])
    house.land("applicant", [JOHN], NEXT_DAY)
    house.publish()
    house.land("applicant", [lead("mary", email="mary@people.example")], NEXT_DAY)
    house.publish()  # so there is a version before
    house.report()
    assert EMAIL in everything_in(house.folder)
    others = {path: path.stat().st_ino for path in house.folder.glob(f"raw/*/day={NEXT_DAY}/*/*")}

    listed(list_of(house.data), leads=[("applicant", "hers-0815")])
    house.publish()

    assert house.leads("applicant").keys() == {"john", "mary"}
    house.report()
    assert not re.search(f"{EMAIL}|hers-0815", everything_in(house.folder))
    assert {path: path.stat().st_ino for path in others} == others
    assert len([*house.folder.glob(".versions/leads-*")]) == 1
    published = house.file.resolve()
    house.publish()
    assert house.file.resolve() == published


def test_an_erasure_is_not_done_while_the_tables_beside_the_file_hold_the_person(
    full: House,
) -> None:
    listed(list_of(full.data))
    in_the_way = full.folder / ".versions" / "tables-draft"
    in_the_way.write_bytes(b"")
    with pytest.raises(AssertionError):  # the house takes no trouble
        full.publish()
    assert full.leads("applicant").keys() == {"john"}
    assert full.data.is_behind
    in_the_way.unlink()
    full.publish()
    assert not full.data.is_behind
    assert EMAIL not in everything_in(full.folder)


def test_leads_that_raw_has_lost_are_erased_and_cleared_in_the_published_file(house: House) -> None:
    house.land(
        "applicant",
        [JANE, JOHN, lead("mary", email="m@people.example", message=EMAIL, createdAt=BEFORE)],
    )
    house.publish()
    shutil.rmtree(house.folder / "raw")
    listed(list_of(house.data), leads=[("applicant", "jane")])
    listed(list_of(house.data), Action.CLEAR, emails=(), leads=[("applicant", "mary")])
    house.publish()
    assert {id_: row["message"] for id_, row in house.leads("applicant").items()} == {
        "john": None,
        "mary": "",
    }
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
    assert raw_ids(house) == house.leads("applicant").keys() == {"john"}
    aside = house.folder / "restricted"
    assert {path.stat().st_mode & 0o777 for path in aside.rglob("*")} == {0o700, 0o600}
    house.land("applicant", [JANE | {"id": "new"}], scope="branch-102")
    assert raw_ids(house) == {"john"}
    listed(list_of(house.data), Action.LIFT, emails=(), of=entry.number)
    house.publish()
    assert house.leads("applicant").keys() == {"jane", "john", "new", "pushed"}
    assert [row for row in house.raw("applicant") if row[0] != "new"] == before
    assert not [*aside.rglob("*.parquet")]


def test_a_published_file_that_was_put_back_alone_brings_nobody_back(
    full: House, tmp_path: Path
) -> None:
    """Raw has lost the lead, so the list knows the person by the address alone."""
    shutil.copytree(full.folder / ".versions", tmp_path / "versions")
    before = full.file.readlink()
    shutil.rmtree(full.folder / "raw")
    shutil.rmtree(full.folder / ".versions")
    full.file.unlink()
    full.publish()
    full.erase(email=EMAIL)

    shutil.rmtree(full.folder / ".versions")
    shutil.copytree(tmp_path / "versions", full.folder / ".versions")
    full.file.unlink()
    full.file.symlink_to(before)
    full.publish()

    assert full.leads("applicant").keys() == {"john"}
    assert EMAIL not in everything_in(full.folder)


def test_a_raw_file_that_claims_a_longer_list_is_asked_about_by_the_ids_of_its_leads(
    house: House, tmp_path: Path
) -> None:
    house.land("applicant", [JANE, JOHN])
    listed(list_of(house.data), leads=[("applicant", "jane")])
    house.publish()

    other = House(tmp_path / "other")
    other.now = house.now
    for number in range(9):
        listed(list_of(other.data), emails=(f"{number}@people.example",))
    other.land("applicant", [JANE | {"contact": {"email": "x@people.example"}}], NEXT_DAY)
    shutil.copytree(other.folder / "raw", house.folder / "raw", dirs_exist_ok=True)
    house.publish()

    assert house.leads("applicant").keys() == {"john"}


def test_who_is_erased_while_they_are_restricted_is_gone_from_there_too(full: House) -> None:
    listed(list_of(full.data), Action.RESTRICT, until=None)
    full.publish()
    assert EMAIL in everything_in(full.folder)
    listed(list_of(full.data))
    full.publish()
    assert EMAIL not in everything_in(full.folder)
    assert (raw_ids(full), left_by_list(full.data)) == ({"john"}, [])


def test_a_cleared_message_is_empty_in_every_version_and_all_else_is_as_received(
    house: House,
) -> None:
    def text(message: str) -> str:
        return f'{{"id": "mary",  "message" : {message}, "createdAt":"{BEFORE}", "x": 1.0, "n": "\\u0041"}}'

    house.land("applicant", [text('"Ask \\"Jane\\""'), JOHN])
    house.land("applicant", [text("null"), JOHN])
    house.publish()
    listed(list_of(house.data), Action.CLEAR, emails=(), leads=[("applicant", "mary")])
    house.publish()
    for _ in range(2):  # the portal still sends it
        assert {payload for _, payload in house.raw("applicant")} == {
            text('""'),
            text("null"),
            json.dumps(JOHN),
        }
        house.land("applicant", [text('"Ask Jane"'), JOHN])
