"""The suppression list, and that nobody whom it keeps out is landed or published."""

import hmac
import json
import os
import re
import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import filelock
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from leads_pipeline.errors import StorageError
from leads_pipeline.features.privacy import requests
from leads_pipeline.features.privacy.gatekeeper import list_of
from leads_pipeline.features.privacy.identity import (
    THEIRS,
    LeadRow,
    Person,
    judge,
    owner_of,
    read_version,
)
from leads_pipeline.features.privacy.publishing import FollowList
from leads_pipeline.features.privacy.search import Found, FoundLead
from leads_pipeline.features.privacy.suppression import Action, Suppressed, SuppressionList
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.store import FolderStore
from leads_pipeline.warehouse.step import Publication
from leads_pipeline_tests.support.house import DAY, NEXT_DAY, House
from leads_pipeline_tests.support.people import (
    EMAIL,
    PHONE,
    UNTIL,
    entry_of,
    everything_in,
    lead,
    left_by_list,
    listed,
)
from leads_pipeline_tests.support.staging import with_list

BEFORE, AFTER = "2026-11-19T10:00:00Z", "2026-11-21T13:00:00Z"
JANE = lead("jane", email=EMAIL, createdAt=BEFORE)
JOHN = lead("john", email="john@people.example", createdAt=BEFORE)


# Written by the version before entries had an `identity`.
RECORDED = Path(__file__).parent / "list_of_identity_1"


@pytest.fixture
def list_(tmp_path: Path) -> SuppressionList:
    return SuppressionList(tmp_path / "list", tmp_path / "guard")


@pytest.fixture
def data(tmp_path: Path) -> DataFolder:
    return with_list(tmp_path / "data", tmp_path / "list")


def newest(list_: SuppressionList) -> Path:
    return max((list_.folder / "list").iterdir())


# --- the list -------------------------------------------------------------------------------------


def test_a_process_that_holds_the_list_and_hangs_is_told_and_holds_nobody_for_long(
    list_: SuppressionList,
) -> None:
    listed(list_, phones=[PHONE])
    waiting = SuppressionList(list_.folder, list_.guard, lock_seconds=0.1)
    with filelock.FileLock(list_.folder / ".lock"), pytest.raises(StorageError, match="`fuser "):
        listed(waiting, emails=[EMAIL])
    assert len(waiting.read().entries) == 1


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


def test_only_an_entry_by_which_leads_may_have_to_go_puts_the_folder_behind(
    data: DataFolder,
) -> None:
    listed(list_of(data), Action.OBJECT)
    data.state.note_swept(data.gate.newest_entry)
    listed(
        list_of(data),
        Action.LEARNED,
        emails=[],
        of=1,
        persons=("2261024c-6077-cc46-9b09-7e9d5c9784df",),
    )
    listed(list_of(data), Action.LEARNED, emails=[], of=1, leads=[("applicant", "1")])
    listed(list_of(data), Action.DONE, emails=[], of=1)
    assert not data.is_behind
    listed(list_of(data))
    data.state.note_swept(data.gate.newest_entry)
    listed(list_of(data), Action.LEARNED, emails=[], of=5, leads=[("applicant", "1")])
    assert data.is_behind


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
    "another key": lambda list_: (list_.folder / "key").write_text("ab" * 32),
    "no key": lambda list_: (list_.folder / "key").write_text("none"),
    "the list is lost": lambda list_: shutil.rmtree(list_.folder / "list"),
    "all is lost": lambda list_: shutil.rmtree(list_.folder),
    "the newest document is lost": lambda list_: newest(list_).unlink(),
    "the guard is broken": lambda list_: list_.guard.write_text("?"),
    "an empty document": rewriting(lambda _: []),
    "the seal alone": rewriting(lambda lines: lines[:1]),
    "the first entry is lost": rewriting(lambda lines: [lines[0], lines[2]]),
    "the last entry is lost": rewriting(lambda lines: lines[:-1]),
    "the last entry is cut off": rewriting(lambda lines: [*lines[:-1], lines[-1][:-9]]),
    "an entry is changed": rewriting(
        lambda lines: [lines[0], lines[1].replace(b'"erase"', b'"lifts"'), lines[2]]
    ),
}


@pytest.mark.parametrize("spoil", BREAKS.values(), ids=BREAKS)
def test_nothing_goes_on_with_a_list_that_is_not_what_it_was(
    house: House, spoil: Callable[[SuppressionList], object]
) -> None:
    house.land("applicant", [JOHN])
    list_, before = list_of(house.data), house.raw("applicant")
    listed(list_)
    listed(list_)
    list_.read()
    spoil(list_)
    keys = [path.read_bytes() for path in list_.folder.glob("key")]
    with pytest.raises(StorageError, match="suppression list") as told:
        house.land("applicant", [JANE])
    assert EMAIL not in str(told.value)
    with pytest.raises(StorageError, match="suppression list"):
        house.publish()
    with pytest.raises(StorageError, match="suppression list"):
        listed(list_)
    assert house.raw("applicant") == before
    assert [
        path.read_bytes() for path in list_.folder.glob("key")
    ] == keys  # none is made in its place


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


def former_list(key: bytes) -> list[bytes]:
    """Lines of the chained file of earlier versions: an erasure that learned an id, a redaction, a
    refusal.
    """
    nobody = Suppressed(key, [])
    at, jane = UNTIL.isoformat(), [nobody.hashed("mailbox", EMAIL)]
    entries: list[dict[str, Any]] = [
        {"action": "erase", "emails": ["0" * 32], "mailboxes": jane, "until": at, "leads": []},
        {"action": "more", "of": 1, "leads": [nobody.hashed_lead("applicant", "learned")]},
        {"action": "redact", "mailboxes": jane, "leads": [nobody.hashed_lead("applicant", "mary")]},
        {"action": "refuse", "mailboxes": jane, "since": at},
    ]
    lines, chain = list[bytes](), ""
    for number, entry in enumerate(entries, 1):
        text = json.dumps({"number": number, "at": at, **entry}).encode()
        chain = hmac.digest(key, chain.encode() + b"\n" + text, "sha256").hex()
        lines.append(chain.encode() + b" " + text + b"\n")
    return lines


def test_a_list_that_is_put_back_goes_on_with_what_the_bucket_has(tmp_path: Path) -> None:
    """Another machine has added entries since the copy was made."""
    bucket = FolderStore(tmp_path / "bucket")
    here, other = (
        SuppressionList(tmp_path / name, tmp_path / f"{name} guard", bucket)
        for name in ("here", "other")
    )
    listed(here)
    shutil.copytree(here.folder, tmp_path / "copy")
    listed(other, emails=["john@people.example"])
    here.refresh()
    newest(here).write_bytes(b"damaged")

    lost = here.put_back([*(tmp_path / "copy" / "list").iterdir()], UNTIL)

    assert (lost, here.read().newest_entry, other.read().newest_entry) == ([], 2, 2)
    other.refresh()


def test_the_list_of_an_earlier_version_is_taken_over_and_a_broken_one_is_not(
    list_: SuppressionList,
) -> None:
    lines = former_list(b"k" * 32)
    list_.folder.mkdir()
    (list_.folder / "key").write_text((b"k" * 32).hex())
    list_.guard.write_bytes(b"2 " + lines[1].partition(b" ")[0])
    former = list_.folder / "suppressed"
    for broken in (
        lines[:1],
        lines[1:],
        [*lines[:2], lines[2].replace(b"mary", b"m"), lines[2][:-9] + b"\n"],
    ):
        former.write_bytes(b"".join(broken))
        with pytest.raises(StorageError, match="suppression list"):
            list_.read()
    former.write_bytes(b"".join(lines) + b"what somebody was killed over")
    for _ in range(2):
        leads = [
            lead("hers", email="jane.roe+homes@people.example", createdAt=BEFORE),
            lead("learned", createdAt=BEFORE),
            lead("mary", email="mary@people.example", createdAt=BEFORE, message=EMAIL),
            lead("new", email=EMAIL, createdAt=AFTER),
        ]
        assert meant(list_.read(), *leads) == {"hers", "learned"}
        assert list_.read().cleared.is_known("applicant", "mary")
        assert not former.exists()
    assert listed(list_).number == 5


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


def test_whoever_shares_the_telephone_is_somebody_else(list_: SuppressionList) -> None:
    leads = [
        lead("own", phone=PHONE, name="Roe Jane", createdAt=BEFORE),
        lead("spouse", phone=PHONE, name="John Roe", createdAt=BEFORE),
        lead("nameless", phone=PHONE, createdAt=BEFORE),
        lead("nameless, own address", phone=PHONE, email=EMAIL, createdAt=BEFORE),
        lead("nameless, other address", phone=PHONE, email="john@people.example", createdAt=BEFORE),
    ]
    listed(list_, phones=[PHONE], names=["Jane Roe"])
    assert meant(list_.read(), *leads) == {"own", "nameless, own address"}


def test_an_entry_with_a_given_name_leaves_the_address_under_another_name(
    list_: SuppressionList,
) -> None:
    leads = [
        lead("own", email=EMAIL, name="Jane Roe", createdAt=BEFORE),
        lead("nameless", email=EMAIL, createdAt=BEFORE),
        lead("spouse", email=EMAIL, name="John Roe", createdAt=BEFORE),
    ]
    listed(list_, names=["Jane Roe"], is_named=True)
    assert meant(list_.read(), *leads) == {"own", "nameless"}


def test_an_entry_never_means_a_lead_of_somebody_else_that_it_excepts(
    list_: SuppressionList,
) -> None:
    key = list_.append(lambda suppressed, number: entry_of(suppressed, number, emails=[]))
    hashed = list_.read().hashed_lead("applicant", "his")
    listed(list_, not_leads=(hashed,))
    assert key.number == 1
    leads = [lead(lead_id, email=EMAIL, createdAt=BEFORE) for lead_id in ("hers", "his")]
    assert meant(list_.read(), *leads) == {"hers"}


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


@settings(max_examples=30, deadline=None)
@given(st.text(st.characters(), max_size=40), st.text(st.characters(), max_size=40))
def test_no_text_keeps_the_list_from_being_asked(
    tmp_path_factory: pytest.TempPathFactory, one: str, other: str
) -> None:
    list_ = SuppressionList(
        tmp_path_factory.mktemp("list"), tmp_path_factory.mktemp("guard") / "guard"
    )
    listed(list_, phones=[PHONE])
    text = json.dumps(
        {"id": one, "contact": {"email": other, "phoneNumber": one}, "createdAt": other}
    )
    for payload in (text, f"{text}x", other.encode("utf-8", "replace").decode()):
        row = LeadRow("applicant", one.encode("utf-8", "replace").decode(), DAY, payload)
        assert list_.read().erased.leads([row]) == {}


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
    given_={"emails", "phones"},
)
@given(
    leads=st.lists(st.lists(CONTACTS, min_size=1, max_size=3), min_size=1, max_size=4),
    given_=st.sampled_from(
        [{"emails"}, {"phones"}, {"emails", "phones"}, {"phones", "names"}, {"emails", "names"}]
    ),
)
def test_the_list_means_what_was_found_as_the_persons(
    tmp_path_factory: pytest.TempPathFactory, leads: list[list[dict[str, str]]], given_: set[str]
) -> None:
    asked: dict[str, Any] = {what: [HERS[what.removesuffix("s")]] for what in given_}
    person = Person.of(**asked)
    texts = {
        ("applicant", str(number)): [
            json.dumps(lead("", **one) | {"createdAt": BEFORE}) for one in versions
        ]
        for number, versions in enumerate(leads)
    }
    versions_of = {
        key: [read_version(text) for text in versions] for key, versions in texts.items()
    }
    found = [FoundLead(*key, why, []) for key, why in judge(person, versions_of).items()]
    theirs = [one for one in found if one.why & THEIRS]
    names = owner_of(person, versions_of).contact.names
    assume(theirs or person.contact.emails or (person.contact.phones and names))
    listing = Found(found, names)
    data = DataFolder.at(tmp_path_factory.mktemp("data"))
    requests.add(data, requests.Request(Action.ERASE, person, listing, UNTIL.date()), UNTIL)
    rows = [LeadRow(*key, DAY, text) for key, versions in texts.items() for text in versions]
    assert list_of(data).read().erased.leads(rows).keys() == {
        (one.kind, one.lead_id) for one in theirs
    }


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


def holders_of(lead_id: str, house: House) -> list[str]:
    """Return which tables of leads.duckdb, and which files beside it, hold the id."""
    word = re.compile(rf"\b{lead_id}\b")
    with duckdb.connect(house.file.resolve(), read_only=True) as db:
        tables = db.execute(
            "select table_schema || '.' || table_name from information_schema.tables"
        ).fetchall()
        found = [
            table for (table,) in tables if word.search(str(db.execute(f"from {table}").fetchall()))
        ]
    others = [path for path in house.folder.iterdir() if path.name != ".versions" and path.is_dir()]
    return [*found, *(path.name for path in others if word.search(everything_in(path)))]


@pytest.mark.parametrize("tables", ["parquet", pytest.param("delta", marks=pytest.mark.slow)])
def test_whoever_publishes_first_finishes_an_erasure_and_nothing_of_the_person_is_left(
    house: House, tables: str
) -> None:
    """No version, no tree of files, no Delta file, no report. Other windows aren't touched."""
    if tables == "delta":
        pytest.importorskip("deltalake")
    house.tables_as = tables
    house.land("applicant", [JANE, JOHN])
    house.land("applicant", [JOHN], NEXT_DAY)
    house.publish()
    house.land("applicant", [lead("mary", email="mary@people.example")], NEXT_DAY)
    house.publish()  # so there is a version before
    house.report()
    assert EMAIL in everything_in(house.folder)
    untouched = {
        path: path.stat().st_ino for path in house.folder.glob(f"raw/*/day={NEXT_DAY}/*/*")
    }

    listed(list_of(house.data), leads=[("applicant", "jane")])
    house.publish()

    assert house.leads("applicant").keys() == {"john", "mary"}
    house.report()
    assert EMAIL not in everything_in(house.folder)
    assert holders_of("jane", house) == []
    assert {path: path.stat().st_ino for path in untouched} == untouched
    assert len([*house.folder.glob(".versions/leads-*")]) == 1
    published = house.file.resolve()
    house.publish()
    assert house.file.resolve() == published


def test_a_publication_that_fails_after_raw_was_gone_through_is_made_up_for_by_the_next(
    house: House,
) -> None:
    house.land("applicant", [JANE, JOHN | {"message": "Ask Jane"}])
    house.publish()
    entry = listed(list_of(house.data), Action.RESTRICT, until=None)
    house.publish()
    listed(list_of(house.data), Action.LIFT, emails=(), of=entry.number)
    listed(list_of(house.data), Action.CLEAR, emails=(), leads=[("applicant", "john")])
    listed(list_of(house.data), emails=["mary@people.example"])
    in_the_way = house.folder / ".versions" / "draft-copy.duckdb"
    in_the_way.mkdir()
    with pytest.raises(StorageError):
        house.publish()
    assert house.leads("applicant")["john"]["message"] == "Ask Jane"
    in_the_way.rmdir()
    house.publish()
    assert {id_: row["message"] for id_, row in house.leads("applicant").items()} == {
        "jane": None,
        "john": "",
    }


def test_an_erasure_is_not_done_while_the_tables_beside_the_file_hold_the_person(
    house: House,
) -> None:
    house.land("applicant", [JANE, JOHN])
    house.publish()
    listed(list_of(house.data))
    in_the_way = house.folder / ".versions" / "tables-draft"
    in_the_way.write_bytes(b"")
    with pytest.raises(AssertionError):  # the house takes no trouble
        house.publish()
    assert house.leads("applicant").keys() == {"john"}
    assert house.data.is_behind
    in_the_way.unlink()
    house.publish()
    assert not house.data.is_behind
    assert EMAIL not in everything_in(house.folder)


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
def test_a_published_file_that_was_put_back_is_brought_in_line(house: House) -> None:
    house.land("applicant", [JANE, JOHN])
    house.publish()
    before = house.file.read_bytes()
    house.erase(email=EMAIL)
    house.file.resolve().chmod(0o600)
    house.file.resolve().write_bytes(before)
    house.publish()
    assert house.leads("applicant").keys() == {"john"}
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
    house: House, tmp_path: Path
) -> None:
    """Raw has lost the lead, so the list knows the person by the address alone."""
    house.land("applicant", [JANE, JOHN])
    house.publish()
    shutil.copytree(house.folder / ".versions", tmp_path / "versions")
    before = house.file.readlink()
    shutil.rmtree(house.folder / "raw")
    shutil.rmtree(house.folder / ".versions")
    house.file.unlink()
    house.publish()
    house.erase(email=EMAIL)

    shutil.rmtree(house.folder / ".versions")
    shutil.copytree(tmp_path / "versions", house.folder / ".versions")
    house.file.unlink()
    house.file.symlink_to(before)
    house.publish()

    assert house.leads("applicant").keys() == {"john"}
    assert EMAIL not in everything_in(house.folder)


def test_an_erasure_that_is_carried_out_while_another_publication_waits_stays_carried_out(
    house: House,
) -> None:
    house.land("applicant", [JANE, JOHN])
    house.publish()
    waiting = FollowList(house.data)
    waiting.before()

    house.erase(email=EMAIL)
    assert waiting.shown_by() == house.data.shown_by(house.data.gate.newest_entry)
    waiting.after(Publication())

    assert not house.data.is_behind


@pytest.mark.parametrize("action", [Action.RESTRICT, Action.ERASE, Action.CLEAR])
def test_a_raw_file_that_claims_a_longer_list_is_asked_about_by_the_ids_of_its_leads(
    house: House, tmp_path: Path, action: Action
) -> None:
    """It was landed in another data folder, which has a list of its own."""
    house.land("applicant", [JANE | {"message": "Ring me"}, JOHN])
    listed(list_of(house.data), action, until=None, leads=[("applicant", "jane")])
    house.publish()
    other = House(tmp_path / "other" / "data")
    for number in range(9):
        listed(list_of(other.data), emails=(f"{number}@people.example",))
    other.land(
        "applicant",
        [JANE | {"message": "Ring me", "contact": {"email": "new@people.example"}}],
        day=NEXT_DAY,
    )
    shutil.copytree(other.folder / "raw", house.folder / "raw", dirs_exist_ok=True)
    house.publish()
    shown = {"john": None, "jane": ""} if action is Action.CLEAR else {"john": None}
    assert {lead_id: row["message"] for lead_id, row in house.leads("applicant").items()} == shown


def test_a_correction_follows_its_lead_into_a_raw_file_that_claims_a_longer_list(
    house: House, tmp_path: Path
) -> None:
    house.land("applicant", [JANE, JOHN])
    house.correct("applicant/jane", email="right@people.example")
    other = House(tmp_path / "other" / "data")
    for number in range(9):
        listed(list_of(other.data), emails=(f"{number}@people.example",))
    other.now = house.now
    other.land("applicant", [JANE], day=NEXT_DAY)
    shutil.copytree(other.folder / "raw", house.folder / "raw", dirs_exist_ok=True)
    house.publish()
    assert house.leads("applicant")["jane"]["contact_email"] == "right@people.example"


def test_who_is_erased_while_they_are_restricted_is_gone_from_there_too(house: House) -> None:
    house.land("applicant", [JANE, JOHN])
    listed(list_of(house.data), Action.RESTRICT, until=None)
    house.publish()
    assert EMAIL in everything_in(house.folder)
    listed(list_of(house.data))
    house.publish()
    assert EMAIL not in everything_in(house.folder)
    assert (raw_ids(house), left_by_list(house.data)) == ({"john"}, [])


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


@pytest.mark.slow
def test_a_cleared_lead_that_is_anonymous_stays_as_retention_made_it(
    house: House, tmp_path: Path
) -> None:
    """It is the same person, however often the file is written anew."""
    leads = [
        lead(str(number), email=EMAIL, message="Ask Mary", createdAt=BEFORE) for number in range(2)
    ]
    house.land("applicant", leads)
    house.publish()
    listed(list_of(house.data), Action.CLEAR, emails=(), leads=[("applicant", "0")])
    house.later(days=40)
    house.retain(35)
    [(people,)] = house.query("select count(distinct person) from applicant_leads")
    assert people == 1
    assert house.tables() == house.built_anew(tmp_path / "anew").tables()


@pytest.mark.slow
def test_an_objection_means_who_the_file_built_anew_means(house: House, tmp_path: Path) -> None:
    """The portal corrects the contact twice: whoever has the address between isn't the person."""
    house.land("applicant", [JANE, JOHN])
    house.object_(email=EMAIL)
    for address in ("john@people.example", "jane@home.example"):
        house.land("applicant", [JANE | {"contact": {"email": address}}, JOHN])
        house.publish()
    sql = "select distinct person from pipeline.objected order by all"
    objected = house.query(sql)
    assert house.query("select person from applicant_leads where lead_id = 'jane'")[0] in objected
    assert objected == house.built_anew(tmp_path / "anew").query(sql)
