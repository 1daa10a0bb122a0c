"""The suppression list, and that nobody whom it keeps out is landed, staged or published."""

import hmac
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leads_pipeline.contract import APPLICANT, PushedLead
from leads_pipeline.domain.answer import read_leads
from leads_pipeline.domain.person import THEIRS, LeadRow, Person, others_have_the_number, own_names, reasons, shown_by
from leads_pipeline.errors import StorageError
from leads_pipeline.flatten.columns import staged_columns
from leads_pipeline.lake import Lake
from leads_pipeline.privacy import requests
from leads_pipeline.privacy.finding import Found, FoundLead
from leads_pipeline.spool import Placement, Spool
from leads_pipeline.suppression import Action, Suppressed, SuppressionList
from leads_pipeline.warehouse import Grid, Warehouse
from leads_pipeline.window import Scope
from leads_pipeline_tests.support.people import EMAIL, PHONE, UNTIL, lead, listed
from leads_pipeline_tests.support.staging import DAY, FETCHED_AT, LONDON, NEXT_DAY, land, publish, stage, staged_leads

BEFORE, AFTER = "2026-11-19T10:00:00Z", "2026-11-21T13:00:00Z"
GRID = Grid(scopes=tuple(map(Scope.parse, ("branch-101", "branch-102"))), first_day=DAY, zone=LONDON)


@pytest.fixture
def list_(tmp_path: Path) -> SuppressionList:
    return SuppressionList(tmp_path / "list", tmp_path / "guard")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "data", tmp_path / "list")


# --- the list ---------------------------------------------------------------------------------------------------------


def test_an_entry_is_read_as_it_was_added_and_says_nothing_of_the_person(list_: SuppressionList) -> None:
    added = [
        listed(list_, phones=[PHONE], names=["Jane Roe"], case="DSR-7"),
        listed(list_, emails=["x@people.example"]),
    ]
    assert [entry.number for entry in added] == [1, 2]
    assert list(list_.read().entries) == added
    assert (list_.folder.stat().st_mode & 0o777, list_.path.stat().st_mode & 0o777) == (0o700, 0o600)
    written = b"".join(path.read_bytes() for path in list_.folder.glob("list/*")).lower()
    for text in (EMAIL, "jane", "roe", "people", "7700900"):  # four digits may well stand in a hash
        assert text.encode() not in written


def test_only_an_entry_by_which_leads_may_have_to_go_puts_the_folder_behind(lake: Lake) -> None:
    listed(lake.suppression, Action.OBJECT)
    lake.note_swept(lake.suppression.read().mark)
    listed(lake.suppression, Action.LEARNED, emails=[], of=1, persons=("2261024c-6077-cc46-9b09-7e9d5c9784df",))
    listed(lake.suppression, Action.LEARNED, emails=[], of=1, leads=[("applicant", "1")])
    listed(lake.suppression, Action.DONE, emails=[], of=1)
    assert not lake.is_behind
    listed(lake.suppression)
    lake.note_swept(lake.suppression.read().mark)
    listed(lake.suppression, Action.LEARNED, emails=[], of=5, leads=[("applicant", "1")])
    assert lake.is_behind


def test_an_entry_is_on_the_disk_when_it_was_added(list_: SuppressionList, monkeypatch: pytest.MonkeyPatch) -> None:
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
        content = list_.path.read_bytes()
        assert synced.index(content) < len(synced) - 1 - synced[::-1].index(b"folder")


def lose_the_key(list_: SuppressionList) -> None:
    (list_.folder / "key").unlink()


def another_key(list_: SuppressionList) -> None:
    (list_.folder / "key").write_text("ab" * 32)


def no_key(list_: SuppressionList) -> None:
    (list_.folder / "key").write_text("none")


def lose_the_list(list_: SuppressionList) -> None:
    shutil.rmtree(list_.path.parent)


def lose_the_newest(list_: SuppressionList) -> None:
    list_.path.unlink()


def lose_all(list_: SuppressionList) -> None:
    for path in [*list_.folder.rglob("*")]:
        if path.is_file():
            path.unlink()


def rewrite(list_: SuppressionList, content: bytes) -> None:
    list_.path.write_bytes(content)


def lose_an_entry(list_: SuppressionList) -> None:
    rewrite(list_, b"".join(list_.path.read_bytes().splitlines(keepends=True)[:-1]))


def cut_off(list_: SuppressionList) -> None:
    rewrite(list_, list_.path.read_bytes()[:-9])


def empty(list_: SuppressionList) -> None:
    rewrite(list_, b"")


def leave_the_seal(list_: SuppressionList) -> None:
    rewrite(list_, list_.path.read_bytes().splitlines(keepends=True)[0])


def lose_the_first(list_: SuppressionList) -> None:
    seal, _, second = list_.path.read_bytes().splitlines(keepends=True)
    rewrite(list_, seal + second)


def change_an_entry(list_: SuppressionList) -> None:
    list_.path.write_bytes(list_.path.read_bytes().replace(b'"erase"', b'"lifts"', 1))


def break_theguard(list_: SuppressionList) -> None:
    list_.guard.write_text("?")


BREAKS = [
    lose_the_key,
    another_key,
    no_key,
    lose_the_list,
    lose_the_newest,
    lose_all,
    lose_an_entry,
    cut_off,
    empty,
    leave_the_seal,
    lose_the_first,
    change_an_entry,
    break_theguard,
]


@pytest.mark.parametrize("spoil", BREAKS)
def test_nothing_goes_on_with_a_list_that_is_not_what_it_was(
    lake: Lake, spoil: Callable[[SuppressionList], None]
) -> None:
    land(lake, APPLICANT, [lead("1", email="john@people.example", createdAt=BEFORE)])
    before = {path: path.read_bytes() for path in (lake.folder / "raw").rglob("*.parquet")}
    listed(lake.suppression)
    listed(lake.suppression)
    lake.suppression.read()
    spoil(lake.suppression)
    keys = [path.read_bytes() for path in lake.suppression.folder.glob("key")]
    with pytest.raises(StorageError, match="suppression list") as told:
        land(lake, APPLICANT, [lead("2", email=EMAIL, createdAt=BEFORE)])
    assert EMAIL not in str(told.value)
    with pytest.raises(StorageError, match="suppression list"):
        publish(lake, GRID, UNTIL)
    with pytest.raises(StorageError, match="suppression list"):
        listed(lake.suppression)
    assert {path: path.read_bytes() for path in (lake.folder / "raw").rglob("*.parquet")} == before
    assert [path.read_bytes() for path in lake.suppression.folder.glob("key")] == keys  # none is made in its place


def test_a_restored_data_folder_does_not_take_the_list_back(lake: Lake, tmp_path: Path) -> None:
    listed(lake.suppression)
    guard = (lake.folder / ".state" / "privacy").read_bytes()
    listed(lake.suppression, emails=["x@people.example"])
    (lake.folder / ".state" / "privacy").write_bytes(guard)
    assert len(lake.suppression.read().entries) == 2
    (lake.folder / ".state" / "privacy").unlink()
    assert len(Lake(lake.folder, tmp_path / "list").suppression.read().entries) == 2


def former_list(key: bytes) -> list[bytes]:
    """Lines of the chained file of earlier versions: an erasure that learned an id, a redaction, a refusal."""
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


def test_the_list_of_an_earlier_version_is_taken_over_and_a_broken_one_is_not(list_: SuppressionList) -> None:
    lines = former_list(b"k" * 32)
    list_.folder.mkdir()
    (list_.folder / "key").write_text((b"k" * 32).hex())
    list_.guard.write_bytes(b"2 " + lines[1].partition(b" ")[0])
    former = list_.folder / "suppressed"
    for broken in (lines[:1], lines[1:], [*lines[:2], lines[2].replace(b"mary", b"m"), lines[2][:-9] + b"\n"]):
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


# --- whom an entry means ----------------------------------------------------------------------------------------------


def meant(suppressed: Suppressed, *leads: dict[str, Any], day: date = DAY) -> set[str]:
    rows = [LeadRow("applicant", one["id"], day, json.dumps(one)) for one in leads]
    return {lead_id for _, lead_id in suppressed.erased.leads(rows)}


def test_an_erasure_means_the_persons_leads_of_before_and_the_known_ids(list_: SuppressionList) -> None:
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
        lead("nameless, other address", phone=PHONE, email="john@people.example", createdAt=BEFORE),
    ]
    listed(list_, phones=[PHONE], names=["Jane Roe"])
    assert meant(list_.read(), *leads) == {"own", "nameless"}
    listed(list_, phones=[PHONE], any_name=True)
    assert meant(list_.read(), *leads) == {one["id"] for one in leads}


def test_what_bears_a_shared_telephone_without_a_name_is_nobodys(list_: SuppressionList) -> None:
    leads = [
        lead("own", phone=PHONE, name="Roe Jane", createdAt=BEFORE),
        lead("nameless", phone=PHONE, createdAt=BEFORE),
        lead("nameless, own address", phone=PHONE, email=EMAIL, createdAt=BEFORE),
    ]
    listed(list_, phones=[PHONE], names=["Jane Roe"], is_shared=True)
    assert meant(list_.read(), *leads) == {"own", "nameless, own address"}


@settings(max_examples=30, deadline=None)
@given(st.text(st.characters(), max_size=40), st.text(st.characters(), max_size=40))
def test_no_text_keeps_the_list_from_being_asked(
    tmp_path_factory: pytest.TempPathFactory, one: str, other: str
) -> None:
    list_ = SuppressionList(tmp_path_factory.mktemp("list"), tmp_path_factory.mktemp("guard") / "guard")
    listed(list_, phones=[PHONE])
    text = json.dumps({"id": one, "contact": {"email": other, "phoneNumber": one}, "createdAt": other})
    for payload in (text, f"{text}x", other.encode("utf-8", "replace").decode()):
        row = LeadRow("applicant", one.encode("utf-8", "replace").decode(), DAY, payload)
        assert list_.read().erased.leads([row]) == {}


HERS = {"email": EMAIL, "phone": PHONE, "name": "Jane Roe"}
SPOUSES = {"email": "john@people.example", "phone": PHONE, "name": "John Roe"}
CONTACTS = st.tuples(st.sampled_from([HERS, SPOUSES]), st.sets(st.sampled_from(sorted(HERS)), min_size=1)).map(
    lambda one: {name: one[0][name] for name in one[1]}
)


@settings(max_examples=60, deadline=None)
@given(
    leads=st.lists(st.lists(CONTACTS, min_size=1, max_size=3), min_size=1, max_size=4),
    given_=st.sets(st.sampled_from(["emails", "phones", "names"]), min_size=1),
)
def test_the_list_means_what_was_found_as_the_persons(
    tmp_path_factory: pytest.TempPathFactory, leads: list[list[dict[str, str]]], given_: set[str]
) -> None:
    person = Person.of(**{what: [HERS[what.removesuffix("s")]] for what in given_})
    texts = {
        ("applicant", str(number)): [json.dumps(lead("", **one) | {"createdAt": BEFORE}) for one in versions]
        for number, versions in enumerate(leads)
    }
    shown = {key: [shown_by(text) for text in versions] for key, versions in texts.items()}
    found = [FoundLead(*key, why, []) for key, why in reasons(person, shown).items()]
    theirs = [one for one in found if one.why & THEIRS]
    seen = [one for versions in shown.values() for one in versions]
    listing = Found(found, own_names(person, seen), others_have_the_number(person, seen))
    lake = Lake(tmp_path_factory.mktemp("data"))
    requests.add(lake, Action.ERASE, person, listing, theirs, case="", received=UNTIL.date(), now=UNTIL)
    rows = [LeadRow(*key, DAY, text) for key, versions in texts.items() for text in versions]
    assert lake.suppression.read().erased.leads(rows).keys() == {(one.kind, one.lead_id) for one in theirs}


# --- refusal ----------------------------------------------------------------------------------------------------------

JANE = lead("jane", email=EMAIL, createdAt=BEFORE)
JOHN = lead("john", email="john@people.example", createdAt=BEFORE)


def ids(path: Path) -> list[str]:
    return [row["lead_id"] for row in pq.ParquetFile(path).read().to_pylist()]


def landed(lake: Lake, day: date = DAY) -> dict[str, list[str]]:
    return {window.scope: ids(window.path) for window in lake.landed_windows(APPLICANT, day)}


def counts(lake: Lake) -> list[tuple[Any, ...]]:
    """scope, rows, removed, received, state of the landed windows as published."""
    _, rows = Warehouse(lake).query(
        "select scope, rows, removed, received, state from mart_coverage where rows is not null order by all"
    )
    return rows


def test_a_pull_lands_nobody_who_is_refused_and_counts_them_once(lake: Lake) -> None:
    listed(lake.suppression)
    for _ in range(2):
        land(lake, APPLICANT, [JANE, JOHN])
    [window] = lake.landed_windows(APPLICANT, DAY)
    assert landed(lake) == {"branch-101": ["john"]}
    assert (window.leads, window.removed, window.body_sha256) == (1, 1, "")
    land(lake, APPLICANT, [lead("jane", email=EMAIL, createdAt=AFTER)])
    assert landed(lake) == {"branch-101": ["john"]}
    land(lake, APPLICANT, [lead("again", email=EMAIL, createdAt=AFTER)])
    assert landed(lake) == {"branch-101": ["again", "john"]}


def test_a_lead_that_was_refused_by_its_contact_is_refused_under_another(lake: Lake) -> None:
    listed(lake.suppression)
    land(lake, APPLICANT, [JANE])
    land(lake, APPLICANT, [JANE | {"contact": JOHN["contact"]}])
    assert landed(lake) == {"branch-101": []}


def test_all_versions_of_a_refused_lead_go_with_a_landing(lake: Lake) -> None:
    land(lake, APPLICANT, [JANE | {"contact": JOHN["contact"]}, JOHN])
    listed(lake.suppression)
    land(lake, APPLICANT, [JANE, JOHN])
    assert landed(lake) == {"branch-101": ["john"]}


def push(lake: Lake, *leads: dict[str, Any], spool: Spool | None = None) -> None:
    received = read_leads(APPLICANT, json.dumps({APPLICANT.list_key: leads}).encode()).leads
    (spool or Spool(lake)).add([PushedLead(APPLICANT, one, FETCHED_AT) for one in received])


def take_in(lake: Lake) -> None:
    for _ in Spool(lake).take_in(Placement(GRID.scopes, LONDON, DAY), "run"):
        """All of it."""


def test_a_push_that_waits_is_refused_when_it_is_taken_in(lake: Lake) -> None:
    push(lake, JANE, JOHN)
    listed(lake.suppression)
    take_in(lake)
    assert [ids(path) for path in lake.pushed_files(APPLICANT, DAY)] == [["john"]]


def test_a_push_is_kept_where_the_list_cannot_be_read_and_taken_in_once_it_can(lake: Lake) -> None:
    listed(lake.suppression)
    key = lake.suppression.folder / "key"
    content = key.read_bytes()
    key.unlink()
    push(lake, JOHN)
    with pytest.raises(StorageError, match="suppression list"):
        take_in(lake)
    key.write_bytes(content)
    take_in(lake)
    assert [ids(path) for path in lake.pushed_files(APPLICANT, DAY)] == [["john"]]


def test_what_waits_is_swept(lake: Lake) -> None:
    push(lake, JANE)
    push(lake, JANE, JOHN)
    listed(lake.suppression)
    assert Spool(lake).drop_erased() == 2
    [waiting] = Spool(lake).waiting()
    assert EMAIL.encode() not in waiting.read_bytes()
    take_in(lake)
    assert [ids(path) for path in lake.pushed_files(APPLICANT, DAY)] == [["john"]]


def published(lake: Lake) -> list[str]:
    return [lead_id for (lead_id,) in Warehouse(lake).query("select lead_id from applicant_leads order by 1")[1]]


def test_publication_refuses_who_is_in_a_staged_file_that_was_put_back(lake: Lake) -> None:
    land(lake, APPLICANT, [JANE, JOHN])
    stage(lake, APPLICANT)
    paths = [file.path for table in staged_columns(APPLICANT) for file in lake.staged_files(table)]
    backup = {path: path.read_bytes() for path in paths}
    listed(lake.suppression)
    publish(lake, GRID, UNTIL)
    for path, content in backup.items():
        path.write_bytes(content)
    assert publish(lake, GRID, UNTIL).is_changed
    assert published(lake) == ["john"]


def other_files(lake: Lake) -> dict[Path, int]:
    """Inodes of raw files, which change when one is written."""
    return {path: path.stat().st_ino for path in lake.raw_lead_files()}


def test_whoever_publishes_first_finishes_an_erasure_and_the_next_changes_nothing(lake: Lake) -> None:
    land(lake, APPLICANT, [JANE, JOHN])
    land(lake, APPLICANT, [JOHN], day=NEXT_DAY)
    for day in (DAY, NEXT_DAY):
        stage(lake, APPLICANT, day)
    publish(lake, GRID, UNTIL)
    listed(lake.suppression)
    assert lake.is_behind
    untouched = other_files(lake)
    assert publish(lake, GRID, UNTIL).is_rebuilt
    assert (lake.is_behind, published(lake), [*staged_leads(lake, APPLICANT)]) == (False, ["john"], ["john"])
    changed = {path.parts[-3] for path, inode in other_files(lake).items() if untouched[path] != inode}
    assert changed == {f"day={DAY}"}
    assert EMAIL.encode() not in Warehouse(lake).path.read_bytes()
    assert not publish(lake, GRID, UNTIL).is_changed


def test_the_number_is_noted_once_what_is_published_has_nobody_any_more(lake: Lake) -> None:
    land(lake, APPLICANT, [JANE, JOHN])
    stage(lake, APPLICANT)
    publish(lake, GRID, UNTIL)
    listed(lake.suppression)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Warehouse, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            publish(lake, GRID, UNTIL)
    assert landed(lake) == {"branch-101": ["john"]}
    assert (lake.is_behind, published(lake)) == (True, ["jane", "john"])
    publish(lake, GRID, UNTIL)
    assert (lake.is_behind, published(lake)) == (False, ["john"])


def test_a_sweep_that_was_killed_after_raw_changed_has_the_day_staged_by_the_next(lake: Lake) -> None:
    land(lake, APPLICANT, [JANE, JOHN | {"message": "Ask Jane"}])
    stage(lake, APPLICANT)
    publish(lake, GRID, UNTIL)
    entry = listed(lake.suppression, Action.RESTRICT, until=None)
    publish(lake, GRID, UNTIL)
    listed(lake.suppression, Action.LIFT, emails=(), of=entry.number)
    listed(lake.suppression, Action.CLEAR, emails=(), leads=[("applicant", "john")])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("leads_pipeline.privacy.sweeping.flatten_days", killed)
        with pytest.raises(KeyboardInterrupt):
            publish(lake, GRID, UNTIL)
    assert staged_leads(lake, APPLICANT).keys() == {"john"}
    publish(lake, GRID, UNTIL)
    assert staged_leads(lake, APPLICANT).keys() == {"jane", "john"}
    assert [row["message"] for row in staged_leads(lake, APPLICANT).values()] == [None, ""]


def killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_all_versions_of_a_lead_go_wherever_one_was_met_by_its_contact(lake: Lake) -> None:
    listed(lake.suppression)
    other = JANE | {"contact": JOHN["contact"]}
    land(lake, APPLICANT, [other, JOHN])
    stage(lake, APPLICANT)
    publish(lake, GRID, UNTIL)
    assert published(lake) == ["jane", "john"]
    land(lake, APPLICANT, [JANE], day=NEXT_DAY)  # refused
    assert lake.is_behind
    publish(lake, GRID, UNTIL)
    assert (published(lake), landed(lake)) == (["john"], {"branch-101": ["john"]})
    land(lake, APPLICANT, [other], scope="branch-102")
    assert landed(lake)["branch-102"] == []


def test_who_is_added_while_a_file_is_landed_is_not_in_it(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    write_raw = Lake.write_raw

    def meanwhile(self: Lake, *args: Any, **kwargs: Any) -> None:
        monkeypatch.setattr(Lake, "write_raw", write_raw)
        listed(self.suppression)
        write_raw(self, *args, **kwargs)

    for scope, deliver in (("branch-101", land), ("push", None)):
        monkeypatch.setattr(Lake, "write_raw", meanwhile)
        if deliver:
            deliver(lake, APPLICANT, [JANE, JOHN])
        else:
            push(lake, JANE | {"id": "other"}, JOHN)
            take_in(lake)
        assert {row for path in lake.raw_lead_files() for row in ids(path)} == {"john"}, scope


def test_a_day_that_raw_has_lost_is_swept_where_it_is_staged_and_published(lake: Lake) -> None:
    land(lake, APPLICANT, [JANE, JOHN, lead("mary", email="m@people.example", message=EMAIL, createdAt=BEFORE)])
    stage(lake, APPLICANT)
    publish(lake, GRID, UNTIL)
    for path in lake.raw_lead_files():
        path.write_bytes(b"PAR1 cut off")
    listed(lake.suppression)
    listed(lake.suppression, Action.CLEAR, emails=(), leads=[("applicant", "mary")])
    publish(lake, GRID, UNTIL)
    assert published(lake) == ["john", "mary"]
    assert staged_leads(lake, APPLICANT).keys() == {"john", "mary"}
    for folder in ("staged", ""):
        assert EMAIL.encode() not in everything_in(lake.folder / folder)
    assert not publish(lake, GRID, UNTIL).is_changed


def everything_in(folder: Path) -> bytes:
    """What a reader of bytes finds, payloads decoded."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file():
            found.append(path.read_bytes())
            if path.suffix == ".parquet":
                found.append(repr(pq.ParquetFile(path).read().to_pylist()).encode())
    return b"\n".join(found).lower()


@pytest.mark.slow
def test_restricted_rows_are_set_aside_until_that_is_lifted_and_none_is_lost(lake: Lake) -> None:
    land(lake, APPLICANT, [JANE, JOHN])
    land(lake, APPLICANT, [JANE | {"message": "again"}, JOHN], fetched_at=FETCHED_AT + timedelta(hours=1))
    push(lake, JANE | {"id": "pushed"})
    take_in(lake)
    before = {path: pq.ParquetFile(path).read().to_pylist() for path in lake.raw_lead_files()}
    stage(lake, APPLICANT)
    publish(lake, GRID, UNTIL)
    entry = listed(lake.suppression, Action.RESTRICT, until=None)
    publish(lake, GRID, UNTIL)
    assert published(lake) == ["john"]
    assert {row for path in lake.raw_lead_files() for row in ids(path)} == {"john"}
    assert {row for path in lake.restricted_files() for row in ids(path)} == {"jane", "pushed"}
    assert {path.stat().st_mode & 0o777 for path in (lake.folder / "restricted").rglob("*")} == {0o700, 0o600}
    land(lake, APPLICANT, [JANE | {"id": "new"}], scope="branch-102")
    assert landed(lake)["branch-102"] == []
    listed(lake.suppression, Action.LIFT, emails=(), of=entry.number)
    publish(lake, GRID, UNTIL)
    assert published(lake) == ["jane", "john", "new", "pushed"]
    assert list(lake.restricted_files()) == []
    assert {path: pq.ParquetFile(path).read().to_pylist() for path in before} == before
    assert counts(lake) == [("branch-101", 2, 0, 2, "landed"), ("branch-102", 1, 0, 1, "landed")]


def test_who_is_erased_while_they_are_restricted_is_gone_from_there_too(lake: Lake) -> None:
    land(lake, APPLICANT, [JANE, JOHN])
    listed(lake.suppression, Action.RESTRICT, until=None)
    publish(lake, GRID, UNTIL)
    listed(lake.suppression)
    publish(lake, GRID, UNTIL)
    assert list(lake.restricted_files()) == []
    assert {row for path in lake.raw_lead_files() for row in ids(path)} == {"john"}


def test_a_cleared_message_is_empty_in_every_version_and_all_else_is_as_received(lake: Lake) -> None:
    def text(message: str) -> str:
        return f'{{"id": "mary",  "message" : {message}, "createdAt":"{BEFORE}", "x": 1.0, "n": "\\u0041"}}'

    land(lake, APPLICANT, [text('"Ask \\"Jane\\""'), JOHN], sequence=1)
    land(lake, APPLICANT, [text("null"), JOHN], sequence=2)
    stage(lake, APPLICANT)
    publish(lake, GRID, UNTIL)
    listed(lake.suppression, Action.CLEAR, emails=(), leads=[("applicant", "mary")])
    assert publish(lake, GRID, UNTIL).is_rebuilt
    for number in range(2):  # the portal still sends it
        [path] = lake.raw_lead_files()
        rows = pq.ParquetFile(path).read().to_pylist()
        assert {row["payload"] for row in rows} == {text('""'), text("null"), json.dumps(JOHN)}
        land(lake, APPLICANT, [text('"Ask Jane"'), JOHN], sequence=3 + number)


def described(lake: Lake) -> list[list[tuple[Any, ...]]]:
    """Tables, columns and macros with what analysts read about them, and the rows of each table."""
    with Warehouse(lake).reading() as db:
        tables = db.query(
            # Each file numbers its own publications.
            "select schema_name, table_name, comment from duckdb_tables() where not internal "
            "and table_name not in ('publications', 'touched_days') order by all"
        )
        columns = "select table_name, column_name, data_type, comment from duckdb_columns() where not internal"
        macros = (
            "select function_name, macro_definition from duckdb_functions() where not internal and schema_name = 'main'"
        )
        named = [f"{schema}.{name}" for schema, name, _ in tables[1] if name != "facts"]
        rows = [
            sorted(db.query(f"from {name}")[1], key=repr) for name in named
        ]  # a busy machine makes marts in any order
        return [tables[1], db.query(f"{columns} order by all")[1], db.query(f"{macros} order by all")[1], *rows]


@pytest.mark.slow
def test_a_file_that_is_written_anew_is_the_one_that_would_be_built_anew(lake: Lake) -> None:
    for day in (DAY, NEXT_DAY):
        land(lake, APPLICANT, [JANE | {"id": f"jane {day}"}, JOHN | {"id": f"john {day}"}], day=day)
        stage(lake, APPLICANT, day)
    publish(lake, GRID, UNTIL)
    listed(lake.suppression)
    assert publish(lake, GRID, UNTIL).is_rebuilt
    anew = described(lake)
    assert EMAIL.encode() not in Warehouse(lake).path.read_bytes()
    Warehouse(lake).path.unlink()
    publish(lake, GRID, UNTIL)
    assert described(lake) == anew


def test_counts_stay_honest(lake: Lake) -> None:
    listed(lake.suppression)
    land(lake, APPLICANT, [JANE, JOHN])
    land(lake, APPLICANT, [JANE], scope="branch-102")
    stage(lake, APPLICANT)
    publish(lake, GRID, UNTIL)
    assert counts(lake) == [("branch-101", 1, 1, 2, "landed"), ("branch-102", 0, 1, 1, "landed")]


# --- taking rows out of a raw file ------------------------------------------------------------------------------------


def test_a_raw_file_is_rewritten_whole_with_its_time_and_counts_what_is_gone(lake: Lake) -> None:
    land(lake, APPLICANT, [JANE, JOHN])
    land(lake, APPLICANT, [JANE | {"message": "again"}], fetched_at=FETCHED_AT + timedelta(hours=1))
    [path] = lake.raw_lead_files()
    before, modified = lake.landed_windows(APPLICANT, DAY)[0], path.stat().st_mtime_ns
    johns = [row for row in pq.ParquetFile(path).read().to_pylist() if row["lead_id"] == "john"]
    (path.parent / f".{path.name}.0123456789abcdef.tmp").write_bytes(path.read_bytes())

    assert lake.pass_again(path) is None
    listed(lake.suppression)
    assert lake.pass_again(path) == {"jane"}
    assert lake.pass_again(path) is None

    [after] = lake.landed_windows(APPLICANT, DAY)
    assert after == replace(before, leads=1, rows=1, removed=1, body_sha256="")
    assert path.stat().st_mtime_ns == modified
    assert pq.ParquetFile(path).read().to_pylist() == johns
    assert list(path.parent.iterdir()) == [path]
    assert EMAIL.encode() not in path.read_bytes()
    assert lake.pass_again(path.with_name("pushed.parquet")) is None


def test_an_empty_list_costs_a_landing_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("leads_pipeline.lake.gate.LeadRow", never)
    land(lake, APPLICANT, [JANE, JOHN])
    assert landed(lake) == {"branch-101": ["jane", "john"]}
    assert not lake.suppression.folder.exists()
