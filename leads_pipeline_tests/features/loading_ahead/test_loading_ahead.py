"""What is loaded ahead: the publication after it has the same rows as a plain one, and nobody comes
back by it.
"""

import shutil
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import ANY
from zoneinfo import ZoneInfo

import duckdb
import pytest

from leads_pipeline.errors import BugError
from leads_pipeline.features.bucket.store import open_store
from leads_pipeline.features.loading_ahead.draft import LOCK
from leads_pipeline.features.loading_ahead.pull import WINDOWS_MIN, loading_ahead
from leads_pipeline.features.loading_ahead.step import AdoptDraft
from leads_pipeline.features.privacy.gatekeeper import list_of
from leads_pipeline.features.privacy.suppression import Action
from leads_pipeline.warehouse.editions import Editions
from leads_pipeline_tests.support.ahead import (
    all_tables,
    draft_of,
    helpers_of,
    published_plainly,
)
from leads_pipeline_tests.support.buckets import new_bucket
from leads_pipeline_tests.support.house import DAY, NEXT_DAY, House
from leads_pipeline_tests.support.newcomer import wait_for
from leads_pipeline_tests.support.people import EMAIL, everything_in, lead, listed

JANE = lead("jane", email=EMAIL, name="Jane Roe")
JOHN = lead("john", email="john@people.example", name="John Doe")


def land(
    house: House, lead_id: str, text: str = "first", scope: str = "branch-101", **more: Any
) -> None:
    house.land("applicant", [{"id": lead_id, "message": text, **more}], scope=scope)


# --- the same rows ------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_update_goes_on_from_what_was_loaded_ahead_as_if_it_had_loaded_it(house: House) -> None:
    land(house, "before")
    house.publish()
    house.load_ahead(partial(land, house, "a", scope="branch-102"))

    [loaded] = house.folder.glob("raw/applicant_leads/*/scope=branch-102/*.parquet")
    loaded.write_bytes(b"damaged, which is noticed when it is read")
    land(house, "before", "changed")
    house.publish()

    number = int(house.file.resolve().name.split("-")[1])
    assert house.query("select lead_id, message, published_in from applicant_leads order by 1") == [
        ("a", "first", number),
        ("before", "changed", number),
    ]
    assert loaded.exists()


@pytest.mark.slow
def test_a_window_that_lands_hours_after_the_helper_began_is_no_window_of_the_future(
    house: House, tmp_path: Path
) -> None:
    house.load_ahead(
        partial(land, house, "a"),
        partial(house.later, hours=3),
        partial(land, house, "b"),
        partial(land, house, "a", "second"),
    )
    plainly = published_plainly(house, tmp_path / "plain")
    house.publish()

    assert all_tables(house) == plainly
    states = "select state from mart_coverage where scope = 'branch-101' and day = ?"
    assert ("landed",) in house.query(states, DAY)


def test_contacts_that_the_portal_empties_are_known_whichever_round_read_them(house: House) -> None:
    def land_jane(email: str) -> None:
        house.land("applicant", [lead("jane", email=email), lead("john", email="")])

    house.load_ahead(
        partial(land_jane, EMAIL),
        partial(house.land, "applicant", [lead("a", email="a@people.example")], NEXT_DAY),
        partial(land_jane, ""),
        partial(house.land, "applicant", [lead("a", email="")], NEXT_DAY),
        partial(house.land, "applicant", [lead("a", email="a@people.example")], NEXT_DAY),
        partial(land, house, "b", scope="branch-102"),
    )
    house.publish()

    noted = "select kind, lead_id, window_day from pipeline.emptied_contacts"
    assert house.query(noted) == [("applicant", "jane", DAY)]


def test_a_draft_that_a_killed_pull_has_left_is_adopted_and_the_next_helper_goes_on_with_it(
    house: House,
) -> None:
    house.load_ahead(partial(land, house, "a"))
    shutil.rmtree(house.folder / "raw")
    house.load_ahead(partial(land, house, "b", scope="branch-102"))
    house.publish()

    assert house.leads("applicant").keys() == {"a", "b"}


@pytest.mark.slow
def test_a_bucket_is_loaded_ahead_too(house: House, tmp_path: Path, moto: str) -> None:
    house.bucket = open_store(new_bucket(moto), plain_http=True)
    house.load_ahead(partial(land, house, "a"), partial(land, house, "b", scope="branch-102"))
    plainly = published_plainly(house, tmp_path / "plain")
    house.publish()

    assert all_tables(house) == plainly
    assert house.leads("applicant").keys() == {"a", "b"}
    open_store.cache_clear()


# --- a draft that was begun from something else ---------------------------------------------------


def other_zone(house: House) -> None:
    house.zone = ZoneInfo("Asia/Tokyo")


def another_edition(house: House) -> None:
    """As if a publication hadn't taken the draft."""
    (house.folder / ".versions" / "leads-1-0123456789abcdef.duckdb").touch()


def another_rewriting(house: House) -> None:
    house.data.state.note_rewriting()


def damaged_draft(house: House) -> None:
    (draft_of(house) / "leads.duckdb").write_bytes(b"no database")


@pytest.mark.parametrize("change", [other_zone, another_edition, another_rewriting, damaged_draft])
def test_a_draft_that_was_begun_from_something_else_is_deleted(
    house: House, change: Callable[[House], None]
) -> None:
    house.load_ahead(partial(land, house, "a", scope="branch-102"))
    assert draft_of(house).exists()
    change(house)

    published = Editions(house.folder).current()
    assert AdoptDraft(house.data, house.zone).base(published, house.data.forgets_if(0)) is None
    assert not draft_of(house).exists()


def test_a_draft_that_lacks_a_lead_that_was_received_is_never_published(house: House) -> None:
    house.load_ahead(partial(land, house, "a"), partial(land, house, "b", scope="branch-102"))
    with duckdb.connect(draft_of(house) / "leads.duckdb") as db:
        db.execute("delete from applicant_leads where lead_id = 'a'")

    with pytest.raises(BugError, match="lose 1 applicant leads and double 0"):
        house.publish()

    house.publish()
    assert house.leads("applicant").keys() == {"a", "b"}


def test_a_draft_that_is_begun_during_a_publication_is_gone_after_it(house: House) -> None:
    step = AdoptDraft(house.data, house.zone)
    assert step.base(None, house.data.forgets_if(0)) is None
    house.load_ahead(partial(land, house, "a"))

    step.after(ANY)

    assert not draft_of(house).exists()
    assert list((house.folder / ".versions").glob("draft*")) == []


def test_nobody_but_the_account_can_read_a_draft(house: House) -> None:
    house.load_ahead(partial(land, house, "a"))

    assert stat.S_IMODE(draft_of(house).stat().st_mode) == 0o700


# --- people -------------------------------------------------------------------------------------


def erase(house: House) -> None:
    house.erase(email=EMAIL)


def restrict(house: House) -> None:
    house.restrict(email=EMAIL)


def only_list(house: House) -> None:
    """The list grows, and a later publication follows it."""
    listed(list_of(house.data), Action.ERASE)


@pytest.mark.slow
@pytest.mark.parametrize(("request_", "is_first"), [(erase, True), (only_list, False)])
def test_nobody_who_is_erased_meanwhile_is_in_any_file_afterwards(
    house: House, tmp_path: Path, request_: Callable[[House], None], is_first: bool
) -> None:
    if not is_first:
        house.land("applicant", [JANE, JOHN], NEXT_DAY)
        house.publish()
    house.load_ahead(
        partial(house.land, "applicant", [JANE, JOHN]),
        partial(house.land, "applicant", [{**JANE, "message": "again"}], NEXT_DAY, "branch-102"),
        partial(request_, house),
        partial(house.land, "applicant", [lead("a")], DAY, "branch-102"),
    )
    plainly = published_plainly(house, tmp_path / "plain")
    house.publish()

    assert EMAIL not in everything_in(house.folder)
    assert house.leads("applicant").keys() == {"john", "a"}
    assert all_tables(house) == plainly


@pytest.mark.parametrize("is_first", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_nobody_who_is_erased_after_the_pull_is_in_any_file_afterwards(
    house: House, is_first: bool
) -> None:
    if not is_first:
        house.land("applicant", [JOHN], NEXT_DAY)
        house.publish()
    house.load_ahead(partial(house.land, "applicant", [JANE, JOHN]))
    assert EMAIL in everything_in(house.folder)

    only_list(house)
    house.publish()

    assert EMAIL not in everything_in(house.folder)
    assert house.leads("applicant").keys() == {"john"}


@pytest.mark.slow
def test_right_after_an_erasure_no_file_holds_the_person_although_the_helper_still_runs(
    house: House,
) -> None:
    def erase_and_look() -> None:
        erase(house)
        assert EMAIL not in everything_in(house.folder)

    house.load_ahead(
        partial(house.land, "applicant", [JANE, JOHN]),
        lambda: None,
        erase_and_look,
        partial(land, house, "a"),
    )

    assert EMAIL not in everything_in(house.folder)


@pytest.mark.slow
def test_a_restricted_person_is_out_of_the_next_file(house: House, tmp_path: Path) -> None:
    house.load_ahead(
        partial(house.land, "applicant", [JANE, JOHN]),
        lambda: None,
        partial(restrict, house),
        partial(land, house, "a", scope="branch-102"),
    )
    plainly = published_plainly(house, tmp_path / "plain")
    house.publish()

    assert house.leads("applicant").keys() == {"john", "a"}
    assert all_tables(house) == plainly


# --- publications beside a helper ---------------------------------------------------------------


@pytest.mark.slow
def test_a_publication_beside_a_helper_waits_for_nothing_and_the_helper_begins_anew(
    house: House, tmp_path: Path
) -> None:
    drafts: list[bool] = []

    def publish() -> None:
        land(house, "between", scope="branch-102")
        house.publish()
        drafts.append(draft_of(house).exists())

    house.load_ahead(
        partial(land, house, "a"),
        lambda: None,
        publish,
        partial(land, house, "a", "second"),
        lambda: None,
        partial(land, house, "c"),
        lambda: drafts.append(draft_of(house).exists()),
    )
    plainly = published_plainly(house, tmp_path / "plain")
    house.publish()

    assert drafts == [False, True]
    assert all_tables(house) == plainly
    assert house.leads("applicant").keys() == {"c", "between", "a"}


# --- the helper's process -----------------------------------------------------------------------


def test_a_pull_whose_helper_can_do_nothing_goes_on(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    in_the_way = house.folder / ".state" / "locks" / f"{LOCK}.lock"
    in_the_way.mkdir(parents=True)

    with loading_ahead(house.settings(), WINDOWS_MIN):
        wait_for(lambda: len(helpers_of(house)) == 1)
        wait_for(lambda: helpers_of(house) == [])

    assert [record.message for record in caplog.records] == [
        "Leads could not be loaded during the pull. The publication loads them."
    ]
