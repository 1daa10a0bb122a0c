"""What is loaded ahead: the publication after it has the same rows as a plain one, and nobody comes
back by it.
"""

import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pytest

from leads_pipeline.errors import BugError
from leads_pipeline.features.privacy.gatekeeper import list_of
from leads_pipeline.features.privacy.suppression import Action
from leads_pipeline.raw.store import open_store
from leads_pipeline.warehouse.editions import Editions
from leads_pipeline.warehouse.loading_ahead import (
    LOCK,
    WINDOWS_MIN,
    Base,
    LoadedAhead,
    loading_ahead,
)
from leads_pipeline_tests.support.ahead import (
    all_tables,
    draft_of,
    published_plainly,
    settings_of,
)
from leads_pipeline_tests.support.buckets import new_bucket
from leads_pipeline_tests.support.house import DAY, NEXT_DAY, House
from leads_pipeline_tests.support.people import EMAIL, everything_in, lead, listed

JANE = lead("jane", email=EMAIL, name="Jane Roe")
JOHN = lead("john", email="john@people.example", name="John Doe")


def land(
    house: House, lead_id: str, text: str = "first", scope: str = "branch-101", **more: Any
) -> None:
    house.land("applicant", [{"id": lead_id, "message": text, **more}], scope=scope)


# --- the same rows ------------------------------------------------------------------------------


def test_a_first_publication_goes_on_from_what_was_loaded_ahead(house: House) -> None:
    house.load_ahead(partial(land, house, "a"), partial(land, house, "b", scope="branch-102"))

    shutil.rmtree(house.folder / "raw")  # so it can't have read them
    house.publish()

    assert house.leads("applicant").keys() == {"a", "b"}


def test_an_update_goes_on_from_what_was_loaded_ahead(house: House) -> None:
    land(house, "before")
    house.publish()
    house.load_ahead(partial(land, house, "a", scope="branch-102"))

    [loaded] = house.folder.glob("raw/applicant_leads/*/scope=branch-102/*.parquet")
    loaded.write_bytes(b"damaged, which is noticed when it is read")
    land(house, "before", "changed")
    house.publish()

    assert {id_: row["message"] for id_, row in house.leads("applicant").items()} == {
        "before": "changed",
        "a": "first",
    }
    assert loaded.exists()


def test_leads_that_were_loaded_ahead_bear_the_number_of_the_publication(house: House) -> None:
    land(house, "before")
    house.publish()
    [(before,)] = house.query("select published_in from applicant_leads")
    house.load_ahead(partial(land, house, "a", scope="branch-102"))
    house.later(minutes=5)
    house.publish()

    numbers = dict(house.query("select lead_id, published_in from applicant_leads"))
    assert numbers == {"before": before, "a": int(house.file.resolve().name.split("-")[1])}
    assert house.query("select distinct publication from pipeline.touched_days") == [
        (numbers["a"],)
    ]
    assert house.query("select count(*) from duckdb_tables() where schema_name = 'ahead'") == [(0,)]


@pytest.mark.slow
def test_a_bucket_is_loaded_ahead_too(
    house: House, tmp_path: Path, moto: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.bucket = open_store(new_bucket(moto, monkeypatch), plain_http=True)
    house.load_ahead(partial(land, house, "a"), partial(land, house, "b", scope="branch-102"))
    plainly = published_plainly(house, tmp_path / "plain")
    house.publish()

    assert all_tables(house) == plainly
    assert house.leads("applicant").keys() == {"a", "b"}
    open_store.cache_clear()


# --- a draft that was begun from something else ---------------------------------------------------


def adopted(house: House) -> Base | None:
    """What a publication goes on from."""
    editions = Editions(house.folder)
    return LoadedAhead(house.data.state, house.zone).adopt(
        editions, editions.current(), house.data.shown_by(0)
    )


def other_zone(house: House) -> None:
    house.zone = ZoneInfo("Asia/Tokyo")


def another_edition(house: House) -> None:
    """A publication took the draft, and somebody put it back by hand."""
    land(house, "between", scope="branch-102")
    draft_of(house).rename(house.folder / "aside")
    house.publish()
    (house.folder / "aside").rename(draft_of(house))


def another_rewriting(house: House) -> None:
    house.data.state.note_rewriting()


def damaged_draft(house: House) -> None:
    (draft_of(house) / "leads.duckdb").write_bytes(b"no database")


def killed_before_its_note(house: House) -> None:
    with duckdb.connect(draft_of(house) / "leads.duckdb") as db:
        db.execute("delete from ahead.origin")


def killed_copy(house: House) -> None:
    shutil.copyfile(house.file, draft_of(house) / "leads.duckdb")


@pytest.mark.parametrize(
    "change",
    [
        other_zone,
        another_edition,
        another_rewriting,
        damaged_draft,
        killed_before_its_note,
        killed_copy,
    ],
)
def test_a_draft_that_was_begun_from_something_else_is_deleted(
    house: House, change: Callable[[House], None]
) -> None:
    if change is killed_copy:
        house.publish()
    house.load_ahead(partial(land, house, "a", scope="branch-102"))
    assert draft_of(house).exists()
    change(house)

    assert adopted(house) is None
    assert not draft_of(house).exists()


def test_a_draft_whose_helper_still_runs_is_deleted(house: House) -> None:
    house.load_ahead(partial(land, house, "a"))
    with house.data.state.lock(LOCK):
        assert adopted(house) is None

    assert not draft_of(house).exists()


def test_a_draft_that_lacks_a_lead_that_was_received_is_never_published(house: House) -> None:
    house.load_ahead(partial(land, house, "a"), partial(land, house, "b", scope="branch-102"))
    with duckdb.connect(draft_of(house) / "leads.duckdb") as db:
        db.execute("delete from applicant_leads where lead_id = 'a'")

    with pytest.raises(BugError, match="lose 1 applicant leads and double 0"):
        house.publish()

    house.publish()
    assert house.leads("applicant").keys() == {"a", "b"}


def test_a_draft_that_a_helper_begins_during_a_publication_is_gone_after_it(house: House) -> None:
    house.folder.mkdir(parents=True)
    versions = Editions(house.folder)
    with versions.drafting():
        versions.make_ahead()
        (versions.ahead / "leads.duckdb").write_bytes(b"begun from the edition before")

    assert [*versions.ahead.parent.iterdir()] == []


# --- people -------------------------------------------------------------------------------------


def erase(house: House) -> None:
    house.erase(email=EMAIL)


def only_list(house: House) -> None:
    """The list grows, and a later publication follows it."""
    listed(list_of(house.data), Action.ERASE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("request_", "is_first", "moment"), [(erase, False, 3), (only_list, True, 0)]
)
def test_nobody_who_is_erased_meanwhile_is_in_any_file_afterwards(
    house: House, tmp_path: Path, request_: Callable[[House], None], is_first: bool, moment: int
) -> None:
    if not is_first:
        house.land("applicant", [JANE, JOHN], NEXT_DAY)
        house.publish()
    landings: list[Callable[[], object]] = [
        partial(house.land, "applicant", [JANE, JOHN]),
        partial(house.land, "applicant", [{**JANE, "message": "again"}], NEXT_DAY, "branch-102"),
        partial(house.land, "applicant", [lead("a")], DAY, "branch-102"),
    ]
    landings.insert(moment, partial(request_, house))
    house.load_ahead(*landings)
    plainly = published_plainly(house, tmp_path / "plain")
    house.publish()

    assert EMAIL not in everything_in(house.folder)
    assert house.leads("applicant").keys() == {"john", "a"}
    assert all_tables(house) == plainly


def test_nobody_who_is_erased_after_the_pull_is_in_any_file_afterwards(house: House) -> None:
    house.load_ahead(partial(house.land, "applicant", [JANE, JOHN]))
    assert EMAIL in everything_in(house.folder)

    only_list(house)
    house.publish()

    assert EMAIL not in everything_in(house.folder)
    assert house.leads("applicant").keys() == {"john"}


# --- publications beside a helper ---------------------------------------------------------------


# --- the helper's process -----------------------------------------------------------------------


def test_a_pull_goes_on_if_no_process_can_be_started(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")

    with loading_ahead(settings_of(house), WINDOWS_MIN):
        land(house, "a")

    assert house.raw("applicant")
    assert "The publication loads them." in caplog.text
