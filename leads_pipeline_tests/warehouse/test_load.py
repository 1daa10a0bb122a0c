"""Raw leads become the tables of leads: each lead once, in its newest version."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leads_pipeline.domain.contract import APPRAISAL
from leads_pipeline.raw.rows import merged
from leads_pipeline.warehouse.flatten import PART_LEADS
from leads_pipeline_tests.support.staging import (
    DAY,
    NEXT_DAY,
    Batch,
    batch,
    empty_tables,
    flatten_batches,
)

Row = dict[str, Any]


@pytest.fixture
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    with empty_tables() as db:
        yield db


def together(one: Batch, other: Batch) -> Batch:
    """A window that holds both."""
    return one._replace(rows=merged([*one.rows, *other.rows]))


def rows(db: duckdb.DuckDBPyConnection, table: str = "applicant_leads") -> list[Row]:
    """The rows in order."""
    cursor = db.execute(f"from {table}")
    names = [column[0] for column in cursor.description or ()]
    found = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return sorted(found, key=lambda row: (row["lead_id"], row.get("position", 0)))


# --- each lead once -------------------------------------------------------------------------------

VERSIONS = st.tuples(
    st.sampled_from("abc"),
    st.integers(1, 3),
    st.sampled_from([DAY, NEXT_DAY]),
    st.sampled_from(["branch-1", "branch-2"]),
)


@pytest.mark.slow
@settings(max_examples=20)
@given(
    st.lists(st.tuples(VERSIONS, st.booleans()), max_size=8, unique_by=lambda version: version[0])
)
def test_the_newest_version_counts_in_whatever_order_and_parts_they_are_loaded(
    versions: list[tuple[tuple[str, int, date, str], bool]],
) -> None:
    """The higher number counts, then the later window day, then the later scope."""
    with empty_tables() as db:
        waiting: list[Batch] = []
        for (lead_id, number, day, scope), is_loaded in versions:
            images = {"images": [{"filename": f"{number} {day} {scope}"}] * number}
            waiting.append(
                batch(
                    {"id": lead_id, "listingDetails": images}, number=number, day=day, scope=scope
                )
            )
            if is_loaded:
                flatten_batches(db, *waiting)
                waiting = []
        flatten_batches(db, *waiting)

        leads = rows(db)
        images_of_leads = rows(db, "applicant_listing_images")

    newest = {version[0]: version[1:] for version in sorted(version for version, _ in versions)}
    assert [row["lead_id"] for row in leads] == sorted(newest)
    assert {
        row["lead_id"]: (row["sequence"], row["window_day"], row["scope"]) for row in leads
    } == newest
    expected = []
    for lead_id, (number, day, scope) in sorted(newest.items()):
        expected += [
            (lead_id, position, f"{number} {day} {scope}", day) for position in range(number)
        ]
    found = [
        (row["lead_id"], row["position"], row["filename"], row["day"]) for row in images_of_leads
    ]
    assert found == expected


def test_of_two_versions_with_the_same_number_in_one_window_the_last_counts(
    db: duckdb.DuckDBPyConnection,
) -> None:
    flatten_batches(db, batch({"id": "a", "message": "first"}, {"id": "a", "message": "last"}))

    assert [row["message"] for row in rows(db)] == ["last"]


def test_what_changed_is_noted_with_the_day_before_and_after(db: duckdb.DuckDBPyConnection) -> None:
    first = batch({"id": "a", "createdAt": "2026-11-19T10:00Z", "viewingTimes": [{}]})
    second = batch(
        {"id": "a", "createdAt": "2026-11-20T10:00Z", "viewingTimes": [{}]}, number=2, day=NEXT_DAY
    )
    flatten_batches(db, first, batch({"id": "a"}, kind=APPRAISAL))
    db.execute("delete from touched")

    flatten_batches(db, first, second, first)

    assert set(db.execute("from touched").fetchall()) == {
        ("applicant", "a", DAY),
        ("applicant", "a", NEXT_DAY),
    }
    assert [row["lead_day"] for row in rows(db)] == [NEXT_DAY]
    assert [row["day"] for row in rows(db, "applicant_viewing_times")] == [NEXT_DAY]

    db.execute("delete from touched")
    flatten_batches(db, first, second)
    assert db.execute("from touched").fetchall() == []


def test_thousands_of_leads_of_many_windows_are_each_there_once_with_their_lists(
    db: duckdb.DuckDBPyConnection,
) -> None:
    each = PART_LEADS // 4
    batches = []
    for number in range(6):
        leads = [
            {
                "id": f"{number} {lead}",
                "viewingTimes": [{}, {"new": lead}],
                "listingDetails": {"propertyId": lead},
            }
            for lead in range(each)
        ]
        batches.append(batch(*leads, day=DAY + timedelta(days=number)))

    flatten_batches(db, *batches, batch(), batches[0])

    expected = (
        "select count(*), count(distinct lead_id), count(distinct window_day) from applicant_leads"
    )
    assert db.execute(expected).fetchall() == [(each * 6, each * 6, 6)]
    agree = """
        select position, count(*)
        from applicant_leads join applicant_viewing_times as times using (lead_id)
        where day = window_day and coalesce(times._extra->>'new', listing_details_property_id)
            = listing_details_property_id
        group by position order by position
        """
    assert db.execute(agree).fetchall() == [(0, each * 6), (1, each * 6)]


def test_a_leads_day_is_the_local_one_on_which_it_was_submitted_or_else_its_windows(
    db: duckdb.DuckDBPyConnection,
) -> None:
    cases = {
        "2026-11-20T00:00:00Z": NEXT_DAY,
        "2026-11-19T23:59:59Z": DAY,
        "2026-07-01T23:30:00Z": date(2026, 7, 2),
        "2026-10-25T23:30:00Z": date(2026, 10, 25),
        "0001-01-01T00:00Z": DAY,
        "yesterday": DAY,
    }

    flatten_batches(db, batch(*({"id": at, "createdAt": at} for at in cases)))

    assert {row["lead_id"]: row["lead_day"] for row in rows(db)} == cases


def test_a_leads_day_is_that_of_the_agencys_zone(db: duckdb.DuckDBPyConnection) -> None:
    lead = {"id": "a", "createdAt": "2026-07-01T22:30:00Z"}

    flatten_batches(db, batch(lead), zone=ZoneInfo("Asia/Tokyo"))

    assert [row["lead_day"] for row in rows(db)] == [date(2026, 7, 2)]


def test_a_row_says_when_and_how_its_version_was_received(db: duckdb.DuckDBPyConnection) -> None:
    at = datetime(2026, 11, 21, 6, 0, 0, 123456, tzinfo=UTC)
    number = int(at.timestamp()) * 1_000_000 + 123456
    pushed = batch(
        {"id": "a", "contact": {"email": " A@b.example"}},
        number=number,
        scope="push",
        source="push",
    )
    pulled = batch({"id": "b", "contact": {"email": "a@B.example "}}, number=number)

    flatten_batches(db, pushed, pulled)

    one, other = rows(db)
    assert (one["fetched_at"], one["sequence"], one["scope"], one["source"]) == (
        at,
        number,
        "push",
        "push",
    )
    assert other["source"] == "pull"
    assert one["person"] == other["person"] is not None


# --- corrections ----------------------------------------------------------------------------------


def test_a_correction_holds_for_every_version_of_its_lead_in_the_window(
    db: duckdb.DuckDBPyConnection,
) -> None:
    text = '{"id":"a","contact":{"email":"old","phoneNumber":"1","new":1.50},"message":"%s","intent":"i"}'
    versions = batch(text % "first", {"id": "b", "contact": {"email": "b"}})
    former = {"id": "a", "contact": {"email": "corrected", "phoneNumber": "2"}}
    newest = {"id": "a", "contact": {"email": "newest"}, "intent": None}
    corrections = together(
        batch(former, number=4, source="correction"), batch(newest, number=5, source="correction")
    )
    corrected = together(versions, corrections)
    later = together(corrected, batch(text % "second", number=6))

    for window, message in ((corrected, "first"), (later, "second")):
        flatten_batches(db, window)
        one, other = rows(db)
        assert (one["contact_email"], one["contact_phone_number"], one["intent"]) == (
            "newest",
            "2",
            None,
        )
        assert (one["message"], one["_extra"], one["_problems"]) == (
            message,
            '{"contact":{"new":1.50}}',
            [],
        )
        assert (other["contact_email"], other["sequence"]) == ("b", 1)


def test_a_correction_that_another_machine_landed_shows_after_the_next_update(
    db: duckdb.DuckDBPyConnection,
) -> None:
    versions = batch({"id": "a", "message": "old"}, {"id": "b", "message": "old"}, number=2)
    correction = batch({"id": "a", "message": "new"}, number=3, source="correction")
    flatten_batches(db, versions)

    flatten_batches(db, together(versions, correction))

    assert [row["message"] for row in rows(db)] == ["new", "old"]


@pytest.mark.parametrize("text", ['{"id":"a","contact":"Ann"}', '{"id":"a"}'])
def test_a_correction_puts_an_object_in_the_place_of_anything_else(
    db: duckdb.DuckDBPyConnection, text: str
) -> None:
    correction = batch({"id": "a", "contact": {"email": "x"}}, number=2, source="correction")

    flatten_batches(db, together(batch(text), correction))

    [row] = rows(db)
    assert (row["contact_email"], row["_problems"]) == ("x", [])
