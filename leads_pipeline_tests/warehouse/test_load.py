"""Raw leads become the tables of leads: each lead once, in its newest version."""

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leads_pipeline.domain.contract import APPLICANT, APPRAISAL, LeadKind
from leads_pipeline.storage.rows import Row as RawRow
from leads_pipeline.storage.rows import landed_versions, merged
from leads_pipeline.warehouse.current_leads import WindowLeads
from leads_pipeline.warehouse.duck import set_person_key
from leads_pipeline.warehouse.flatten import PART_LEADS, flatten
from leads_pipeline.warehouse.tables import create_table, lead_tables
from leads_pipeline_tests.support.staging import DAY, LONDON, NEXT_DAY

KEY = b"the key of a data folder's people"
TABLES = [table.name for table in lead_tables()]
Row = dict[str, Any]


@pytest.fixture
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    """The tables of leads, empty."""
    with opened() as db:
        yield db


def opened(key: bytes = KEY) -> duckdb.DuckDBPyConnection:
    db = duckdb.connect()
    db.execute("set TimeZone = 'UTC'")
    set_person_key(db, key)
    for table in lead_tables():
        create_table(db, table)
    return db


class Batch(NamedTuple):
    """Rows of one window, corrections among them."""

    kind: LeadKind
    day: date
    scope: str
    rows: Sequence[RawRow]


def flatten_rows(db: duckdb.DuckDBPyConnection, batches: Iterable[Batch], zone: ZoneInfo = LONDON) -> None:
    windows = (WindowLeads(one.kind, one.day, one.scope, landed_versions(one.rows), "") for one in batches)
    flatten(db, windows, zone, publication=1)


def batch(
    *leads: tuple[int, Row | str],
    kind: LeadKind = APPLICANT,
    day: date = DAY,
    scope: str = "branch-101",
    source: str = "pull",
) -> Batch:
    """Versions of leads, each with its number."""
    texts = [lead if isinstance(lead, str) else json.dumps(lead) for _, lead in leads]
    numbers = [number for number, _ in leads]
    rows = [RawRow(json.loads(text)["id"], number, text, source) for number, text in zip(numbers, texts, strict=True)]
    return Batch(kind, day, scope, rows)


def together(one: Batch, other: Batch) -> Batch:
    return one._replace(rows=merged([*one.rows, *other.rows]))


def rows(db: duckdb.DuckDBPyConnection, table: str) -> list[Row]:
    """The rows in order."""
    cursor = db.execute(f"from {table}")
    names = [column[0] for column in cursor.description or ()]
    found = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return sorted(found, key=lambda row: (row["lead_id"], row.get("position", 0)))


def contents(db: duckdb.DuckDBPyConnection) -> dict[str, list[Row]]:
    return {table: rows(db, table) for table in TABLES}


# --- each lead once ---------------------------------------------------------------------------------------------------

VERSIONS = st.tuples(
    st.sampled_from("abc"),
    st.integers(1, 3),
    st.sampled_from([DAY, NEXT_DAY]),
    st.sampled_from(["branch-1", "branch-2"]),
)


@pytest.mark.slow
@settings(max_examples=20)
@given(st.lists(st.tuples(VERSIONS, st.booleans()), max_size=8, unique_by=lambda version: version[0]))
def test_the_newest_version_counts_in_whatever_order_and_parts_they_are_loaded(
    versions: list[tuple[tuple[str, int, date, str], bool]],
) -> None:
    """The higher number counts, then the later window day, then the later scope."""
    with opened() as db:
        waiting: list[Batch] = []
        for (lead_id, number, day, scope), is_loaded in versions:
            images = {"images": [{"filename": f"{number} {day} {scope}"}] * number}
            waiting.append(batch((number, {"id": lead_id, "listingDetails": images}), day=day, scope=scope))
            if is_loaded:
                flatten_rows(db, waiting)
                waiting = []
        flatten_rows(db, waiting)

        newest = {version[0]: version[1:] for version in sorted(version for version, _ in versions)}
        leads = rows(db, "applicant_leads")
        assert {row["lead_id"]: (row["sequence"], row["window_day"], row["scope"]) for row in leads} == newest
        assert len(leads) == len(newest)
        assert [(row["lead_id"], row["position"], row["filename"], row["day"]) for row in rows(db, IMAGES)] == [
            (lead_id, position, f"{number} {day} {scope}", day)
            for lead_id, (number, day, scope) in sorted(newest.items())
            for position in range(number)
        ]


IMAGES = "applicant_listing_images"


def test_of_two_versions_with_the_same_number_in_one_window_the_last_counts(db: duckdb.DuckDBPyConnection) -> None:
    flatten_rows(db, [batch((1, {"id": "a", "message": "first"}), (1, {"id": "a", "message": "last"}))])

    assert [row["message"] for row in rows(db, "applicant_leads")] == ["last"]


def test_what_changed_is_noted_with_the_day_before_and_after(db: duckdb.DuckDBPyConnection) -> None:
    def made(at: str) -> Row:
        return {"id": "a", "createdAt": at, "viewingTimes": [{}]}

    first, second = batch((1, made("2026-11-19T10:00Z"))), batch((2, made("2026-11-20T10:00Z")), day=NEXT_DAY)
    flatten_rows(db, [first, batch((1, {"id": "a"}), kind=APPRAISAL)])
    db.execute("delete from touched")
    flatten_rows(db, [first, second, first])
    assert set(db.execute("from touched").fetchall()) == {("applicant", "a", DAY), ("applicant", "a", NEXT_DAY)}
    assert [row["lead_day"] for row in rows(db, "applicant_leads")] == [NEXT_DAY]
    assert [row["day"] for row in rows(db, "applicant_viewing_times")] == [NEXT_DAY]
    db.execute("delete from touched")
    flatten_rows(db, [first, second])
    assert db.execute("from touched").fetchall() == []


def test_thousands_of_leads_of_many_windows_are_each_there_once_with_their_lists(db: duckdb.DuckDBPyConnection) -> None:
    each = PART_LEADS // 4
    days = [DAY + timedelta(days=number) for number in range(6)]
    text = (
        '{"id":"%d %d","viewingTimes":[{"earliest":"2026-11-20T10:00Z"},{"new":%d}],"listingDetails":{"propertyId":%d}}'
    )
    batches = [
        batch(*((1, text % (number, lead, lead, lead)) for lead in range(each)), day=day)
        for number, day in enumerate(days)
    ]

    flatten_rows(db, [*batches, batch(), batches[0]])

    expected = "select count(*), count(distinct lead_id), count(distinct window_day) from applicant_leads"
    assert db.execute(expected).fetchall() == [(each * 6, each * 6, 6)]
    agree = """
        select count(*)
        from applicant_leads join applicant_viewing_times as times using (lead_id)
        where split_part(lead_id, ' ', 2) = listing_details_property_id and day = window_day
            and if(position = 0, earliest is not null, times._extra->>'new' = listing_details_property_id)
        """
    assert db.execute(agree).fetchall() == [(each * 12,)]


def test_a_leads_day_is_the_local_one_on_which_it_was_submitted_or_else_its_windows(
    db: duckdb.DuckDBPyConnection,
) -> None:
    cases = {
        "2026-11-20T00:00:00Z": NEXT_DAY,
        "2026-11-19T23:59:59Z": DAY,
        "2026-07-01T23:30:00Z": date(2026, 7, 2),
        "2026-10-24T23:30:00Z": date(2026, 10, 25),
        "2026-10-25T23:30:00Z": date(2026, 10, 25),
        "0001-01-01T00:00Z": DAY,
        "yesterday": DAY,
    }
    flatten_rows(db, [batch(*((1, {"id": at, "createdAt": at}) for at in cases))])
    assert {row["lead_id"]: row["lead_day"] for row in rows(db, "applicant_leads")} == cases

    flatten_rows(
        db, [batch((2, {"id": "2026-07-01T23:30:00Z", "createdAt": "2026-07-01T23:30:00Z"}))], ZoneInfo("Asia/Tokyo")
    )
    assert set(db.execute("select lead_day from applicant_leads where sequence = 2").fetchall()) == {
        (date(2026, 7, 2),)
    }


def test_a_row_says_when_and_how_its_version_was_received(db: duckdb.DuckDBPyConnection) -> None:
    at = datetime(2026, 11, 21, 6, 0, 0, 123456, tzinfo=UTC)
    number = int(at.timestamp()) * 1_000_000 + 123456
    pushed = batch((number, {"id": "a", "contact": {"email": " A@b.example"}}), scope="push", source="push")
    flatten_rows(db, [pushed, batch((number, {"id": "b", "contact": {"email": "a@B.example "}}))])

    one, other = rows(db, "applicant_leads")
    assert (one["fetched_at"], one["sequence"], one["scope"], one["source"]) == (at, number, "push", "push")
    assert other["source"] == "pull"
    assert one["person"] == other["person"] is not None


def test_a_correction_holds_for_every_version_of_its_lead_in_the_window(db: duckdb.DuckDBPyConnection) -> None:
    text = '{"id":"a","contact":{"email":"%s","phoneNumber":"1","new":1.50},"message":"%s","intent":"i"}'
    versions = batch((1, text % ("old", "first")), (3, {"id": "b", "contact": {"email": "b"}}))
    corrections = batch(
        (5, {"id": "a", "contact": {"email": "newest"}, "intent": None}),
        (4, {"id": "a", "contact": {"email": "corrected", "phoneNumber": "2"}}),
        source="correction",
    )
    both = together(corrections, versions)
    later = batch((6, text % ("old", "second")))

    for batches, message in (
        ([both], "first"),
        ([together(both, later)], "second"),
    ):
        flatten_rows(db, batches)
        one, other = rows(db, "applicant_leads")
        assert (one["contact_email"], one["contact_phone_number"], one["intent"]) == ("newest", "2", None)
        assert (one["message"], one["_extra"], one["_problems"]) == (message, '{"contact":{"new":1.50}}', [])
        assert (other["contact_email"], other["sequence"]) == ("b", 3)


def test_a_correction_that_another_machine_landed_shows_after_the_next_update(db: duckdb.DuckDBPyConnection) -> None:
    versions = batch((2, {"id": "a", "message": "old"}), (2, {"id": "b", "message": "old"}))
    correction = batch((3, {"id": "a", "message": "new"}), source="correction")
    flatten_rows(db, [versions])
    flatten_rows(db, [together(versions, correction)])
    assert [row["message"] for row in rows(db, "applicant_leads")] == ["new", "old"]


@pytest.mark.parametrize("text", ['{"id":"a","contact":"Ann"}', '{"id":"a","contact":null}', '{"id":"a"}'])
def test_a_correction_puts_an_object_in_the_place_of_anything_else(db: duckdb.DuckDBPyConnection, text: str) -> None:
    versions, corrections = batch((1, text)), batch((2, {"id": "a", "contact": {"email": "x"}}), source="correction")
    flatten_rows(db, [together(versions, corrections)])

    [row] = rows(db, "applicant_leads")
    assert (row["contact_email"], row["_problems"]) == ("x", [])
