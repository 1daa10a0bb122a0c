"""What leads.duckdb holds after a publication: each lead once, windows, names, answers; and when it
is built anew.
"""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from leads_pipeline_tests.support.house import DAY, LONDON, NEXT_DAY, House, Row
from leads_pipeline_tests.support.publications import Folder


def test_an_empty_folder_gives_all_tables_each_with_comments(house: House) -> None:
    house.publish()

    rows = house.query("""
        select table_name, comment from duckdb_tables() where schema_name = 'main'
        union all
        select view_name, comment from duckdb_views() where not internal and schema_name = 'main'
        union all
        select table_name || '.' || column_name, comment from duckdb_columns()
        where not internal and schema_name = 'main'
    """)
    comments = dict(rows)
    assert comments.keys() >= {"applicant_leads", "inventory", "answers", "mart_coverage"}
    assert [name for name, comment in rows if not (comment or "").strip()] == []
    assert comments["applicant_leads.contact_email"] == "E-mail address as typed"


# --- what a publication has written ---------------------------------------------------------------


class Follower:
    """A program that asks after each publication for the rows that are new to it."""

    def __init__(self) -> None:
        self.last = 0

    def follow(self, published: House | Folder) -> set[str]:
        rows = published.query(
            "select lead_id, published_in from applicant_leads where published_in > ?", self.last
        )
        self.last = max([self.last, *(published_in for _, published_in in rows)])
        return {lead_id for lead_id, _ in rows}


def test_a_program_that_asks_for_later_publications_is_told_of_each_new_version_once(
    folder: Folder,
) -> None:
    program = Follower()
    folder.raw.land({"id": "a", "message": "first"}, {"id": "b"})
    folder.publish()
    assert program.follow(folder) == {"a", "b"}

    folder.raw.land({"id": "a", "message": "second"})
    folder.publish()
    assert program.follow(folder) == {"a"}

    folder.publish()
    assert program.follow(folder) == set()


def test_a_window_that_lands_late_is_new_though_its_leads_are_older_than_others(
    folder: Folder,
) -> None:
    program = Follower()
    folder.raw.number = 10
    folder.raw.land({"id": "later"}, day=NEXT_DAY)
    folder.publish()
    program.follow(folder)

    folder.raw.number = 1  # another machine asked before, and lands now
    folder.raw.land({"id": "late"})
    folder.publish()

    assert program.follow(folder) == {"late"}


@pytest.mark.slow
def test_what_is_published_after_a_restore_is_new_to_a_program_that_knows_the_lost_publications(
    house: House, tmp_path: Path
) -> None:
    program = Follower()
    house.land("applicant", [{"id": "a"}])
    house.publish()
    house.back_up(tmp_path / "backup")
    for day in (NEXT_DAY, DAY):
        house.land("applicant", [{"id": "lost"}], day)
        house.publish()
    program.follow(house)

    house = house.restore(tmp_path / "backup", tmp_path / "restored")
    house.land("applicant", [{"id": "new"}], NEXT_DAY)
    house.publish()

    assert "new" in program.follow(house)


# --- each lead once -------------------------------------------------------------------------------


def test_a_push_of_an_old_text_waits_for_a_whole_answer_to_count_again(house: House) -> None:
    """The portal may repeat a push long after the lead has gone elsewhere."""
    old, new = (
        {"id": "a", "createdAt": "2026-11-19T10:00:00Z", "portalBranchId": branch}
        for branch in ("101", "102")
    )
    house.land("applicant", [old], scope="branch-101")
    house.land("applicant", [], scope="branch-101")
    house.land("applicant", [new], scope="branch-102")
    house.push("applicant", old)
    house.publish()
    assert house.query("select scope from applicant_leads") == [("branch-102",)]

    house.land("applicant", [old], scope="branch-101")
    house.publish()
    assert house.query("select scope from applicant_leads") == [("branch-101",)]


# --- windows --------------------------------------------------------------------------------------


def test_an_answer_that_only_confirms_shows_with_the_next_publication_unless_it_closes_the_window(
    house: House,
) -> None:
    """By itself it isn't worth writing the whole file."""
    state = "select state from mart_coverage where (kind, scope) = ('applicant', 'branch-101')"
    house.now = datetime(2026, 11, 19, 18, tzinfo=UTC)
    house.land("applicant", [{"id": "a"}])
    house.publish()
    assert house.query(state) == [("open",)]

    house.now = datetime(2026, 11, 20, 6, tzinfo=UTC)
    house.land("applicant", [{"id": "a"}])
    house.publish()
    assert ("landed",) in house.query(state)

    file = house.file.resolve()
    house.later(hours=1)
    house.land("applicant", [{"id": "a"}])
    house.publish()
    assert house.file.resolve() == file


@pytest.mark.slow
def test_the_oldest_day_of_an_update_stays_landed_west_of_greenwich(house: House) -> None:
    """The day of UTC is ahead there in the evening, and folders are listed by it."""
    house.zone = ZoneInfo("America/New_York")
    house.first_day = DAY - timedelta(days=70)
    days = [DAY - timedelta(days=age) for age in range(55, 65)]
    house.now = datetime(2026, 11, 20, 1, 30, tzinfo=UTC)
    for day in days:
        house.land("applicant", [{"id": str(day)}], day)
    house.publish()
    landed = "select count(*) from mart_coverage where kind = 'applicant' and rows = 1"
    assert house.query(landed) == [(len(days),)]

    house.land("applicant", [{"id": "new"}], DAY - timedelta(days=1))
    house.publish()

    assert house.query(landed) == [(len(days) + 1,)]


# --- update, and build anew -----------------------------------------------------------------------


ADDRESSES = [("14", "St John's Road"), ("16", "High St"), ("24", "High Street")]
MOMENTS = ["2026-11-18T23:59:30Z", "2026-11-19T10:00Z", "2026-11-20T21:15:00Z", "0001-01-01T00:00Z"]


def any_lead(rng: random.Random, kind: str) -> Row:
    """A lead with few different values, so that changes meet in marts' rows."""
    number, street = rng.choice(ADDRESSES)
    postcode = rng.choice(["XA1 2BC", "xa12bg"])
    lead: Row = {
        "id": f"lead-{rng.randrange(12)}",
        "createdAt": rng.choice(MOMENTS),
        "contact": {"email": rng.choice(["ann@example.com", "bob@example.com", None])},
        "enquiryType": rng.choice(["ENQUIRY_TYPE_SALES", "ENQUIRY_TYPE_LETTINGS"]),
        "consumerSituation": rng.choice(["CONSUMER_SITUATION_PROPERTY_TO_SELL", "NEW"]),
        "estimate": rng.randrange(3),
        "portalBranchId": rng.choice(["101", "102", "103"]),
    }
    if kind == "appraisal":
        address = {"line1": f"{number} {street}", "postcode": postcode}
        return lead | {"propertyDetails": {"address": address}}
    where = {"propertyNumberOrName": number, "streetName": street, "postcode": postcode}
    listing = {
        "id": rng.choice(["1", "2", None]),
        "pricing": {"price": rng.randrange(4) * 60000},
        "address": where,
    }
    return lead | {"listingDetails": listing, "viewingTimes": [{}] * rng.randrange(3)}


def leads_come(rng: random.Random, house: House) -> None:
    """A few leads of each kind are pulled or pushed; a window fails."""
    for kind in ("applicant", "appraisal"):
        leads = [any_lead(rng, kind) for _ in range(rng.randrange(5))]
        if rng.random() < 0.3 and leads:
            house.push(kind, *leads)
        else:
            house.land(kind, leads, rng.choice([DAY, NEXT_DAY]), rng.choice(house.scopes))
    if rng.random() < 0.5:
        number, street = rng.choice(ADDRESSES)
        address = {"nameNo": number, "street": street, "postcode": "XA1 2BC"}
        house.land_inventory({"Town": [{"id": number, "address": address}]})
    if rng.random() < 0.5:
        house.fail("appraisal", DAY, rng.choice(house.scopes))


def one_moves(rng: random.Random, house: House) -> None:
    """A lead whose text stays the same is at one place now. Some windows are asked."""
    places = [(day, scope) for day in (DAY, NEXT_DAY) for scope in house.scopes]
    now_at = rng.choice(places)
    for window in rng.sample(places, 3):
        house.land("appraisal", [{"id": "moves"}] if window == now_at else [], *window)


def settings_change(rng: random.Random, house: House) -> None:
    house.answers([(f"lead-{n}", f"2026-11-20T1{n}:40:00Z") for n in range(rng.randrange(5))])
    house.names = rng.choice(["", "id,name\n101,York\n"])
    house.zone = rng.choice([LONDON, ZoneInfo("Asia/Tokyo")])


@pytest.mark.parametrize(
    ("seed", "steps"),
    [(0, 2), *(pytest.param(seed, 8, marks=pytest.mark.slow) for seed in range(2))],
)
def test_any_history_of_updates_gives_what_building_anew_gives(
    tmp_path: Path, seed: int, steps: int
) -> None:
    rng = random.Random(seed)  # noqa: S311 - the same each time
    house = House(tmp_path / "data")
    for kind in ("applicant", "appraisal"):
        # Leads that stay as they are. Without them, most leads change and all marts are made anew.
        house.land(kind, [any_lead(rng, kind) | {"id": f"stays-{n}"} for n in range(80)])

    for step in range(steps):
        leads_come(rng, house)
        one_moves(rng, house)
        if step < 2:
            settings_change(rng, house)
        house.publish()
        if step in (1, 4, 7):
            anew = house.built_anew(tmp_path / f"anew-{step}")
            assert anew.tables() == house.tables(), step
