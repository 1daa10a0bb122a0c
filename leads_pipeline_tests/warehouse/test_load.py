"""Raw leads become the tables of leads: each lead once, in its newest version."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import duckdb
import pytest

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


def test_of_two_versions_with_the_same_number_in_one_window_the_last_counts(
    db: duckdb.DuckDBPyConnection,
) -> None:
    flatten_batches(db, batch({"id": "a", "message": "first"}, {"id": "a", "message": "last"}))

    assert [row["message"] for row in rows(db)] == ["last"]


def test_thousands_of_leads_of_many_windows_are_each_there_once_with_their_lists(
    db: duckdb.DuckDBPyConnection,
) -> None:
    each = PART_LEADS // 4
    batches = []
    for number in range(6):
        leads = [{"id": f"{number} {n}", "viewingTimes": [{}, {"new": n}]} for n in range(each)]
        batches.append(batch(*leads, day=DAY + timedelta(days=number)))

    flatten_batches(db, *batches, batch(), batches[0])

    expected = (
        "select count(*), count(distinct lead_id), count(distinct window_day) from applicant_leads"
    )
    assert db.execute(expected).fetchall() == [(each * 6, each * 6, 6)]
    agree = """
        select position, count(*)
        from applicant_leads join applicant_viewing_times as times using (lead_id)
        where day = window_day and coalesce(times._extra->>'new' = split_part(lead_id, ' ', 2), true)
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


def test_a_row_says_when_and_how_its_version_was_received(db: duckdb.DuckDBPyConnection) -> None:
    at = datetime(2026, 11, 21, 6, 0, 0, 123456, tzinfo=UTC)
    number = int(at.timestamp()) * 1_000_000 + 123456
    pushed = {"id": "a", "contact": {"email": " A@b.example"}}
    pulled = {"id": "b", "contact": {"email": "a@B.example "}}

    flatten_batches(
        db, batch(pushed, number=number, scope="push", source="push"), batch(pulled, number=number)
    )

    one, other = rows(db)
    assert (one["fetched_at"], one["sequence"]) == (at, number)
    assert (one["scope"], one["source"], other["source"]) == ("push", "push", "pull")
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
        assert (one["contact_email"], one["contact_phone_number"]) == ("newest", "2")
        assert (one["intent"], one["message"], one["_problems"]) == (None, message, [])
        assert one["_extra"] == '{"contact":{"new":1.50}}'
        assert (other["contact_email"], other["sequence"]) == ("b", 1)


@pytest.mark.parametrize("text", ['{"id":"a","contact":"Ann"}', '{"id":"a"}'])
def test_a_correction_puts_an_object_in_the_place_of_anything_else(
    db: duckdb.DuckDBPyConnection, text: str
) -> None:
    correction = batch({"id": "a", "contact": {"email": "x"}}, number=2, source="correction")

    flatten_batches(db, together(batch(text), correction))

    [row] = rows(db)
    assert (row["contact_email"], row["_problems"]) == ("x", [])
