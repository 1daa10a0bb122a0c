"""Marts as files that declare themselves: by day or as views, and what they read besides the leads."""

# ruff: noqa: S608 - the statements are the tests' own

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from leads_pipeline.domain.contract import ENUM_PREFIXES, member_in_words
from leads_pipeline.features.calendar.step import LoadCalendar
from leads_pipeline.features.inventory.searches import Inventory
from leads_pipeline.features.inventory.table import LoadInventory
from leads_pipeline.features.own_tables.lists import LoadLists
from leads_pipeline.raw.branches import Branches
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.warehouse.branch_names import MakeBranches
from leads_pipeline.warehouse.drift import FindDrift
from leads_pipeline.warehouse.marts import MakeMarts, Mart, marts, marts_in
from leads_pipeline.warehouse.shown import NoteObjections
from leads_pipeline.warehouse.step import Changes, Draft, Step
from leads_pipeline.warehouse.unpublished import RawWindows
from leads_pipeline.warehouse.window_states import Grid, NoteWindowStates
from leads_pipeline_tests.support.house import House
from leads_pipeline_tests.support.publications import Folder, folder
from leads_pipeline_tests.support.staging import (
    DAY,
    LONDON,
    NEXT_DAY,
    batch,
    empty_tables,
    flatten_batches,
)

__all__ = ["folder"]

Row = dict[str, Any]
VIEW = "-- One row\n-- leads: Leads\n\n"
VIEW_OF_DAYS = "-- One row per day\n-- lead_day: Day\n-- leads: Leads\n\n"
BY_DAY = "-- One row per day\n-- by lead_day\n-- lead_day: Day\n-- leads: Leads\n\n"
COUNT = "select count(*) as leads from applicant_leads"
COUNTS = "select lead_day, count(*) as leads from applicant_leads group by lead_day"
# They fail once a message is no number.
SUM = "select sum(message::integer)::bigint as leads from applicant_leads"
SUMS = (
    "select lead_day, sum(message::integer)::bigint as leads from applicant_leads group by lead_day"
)


@dataclass
class AllMarts(Step):
    """The steps that make marts and what they read besides leads.

    `of` are the marts, or all of sql/.
    """

    data: DataFolder
    of: Sequence[Mart] = ()

    def rebuilds_if(self) -> str:
        return repr(self.of)

    def fill(self, draft: Draft) -> None:
        windows = RawWindows(self.data.store, self.data.gate)
        grid, now = Grid([], NEXT_DAY, LONDON), datetime(2026, 11, 20, 12, tzinfo=UTC)
        steps = [
            NoteWindowStates(self.data.store, windows, grid, now, is_first_of_day=True),
            LoadInventory(Inventory.of(self.data)),
            LoadLists([self.data.folder], self.data.folder, LONDON),
            NoteObjections(self.data),
            MakeBranches(Branches()),
            LoadCalendar(None),
            FindDrift(NEXT_DAY),
            MakeMarts(LONDON, NEXT_DAY, self.of),
        ]
        for step in steps:
            step.fill(draft)


class Warehouse:
    """Tables of leads in memory, and marts that are made of them as a publication does it."""

    def __init__(self, db: duckdb.DuckDBPyConnection, data: DataFolder) -> None:
        self.db, self.data = db, data
        self.of: tuple[Mart, ...] = ()

    def load(self, *leads: Row, number: int = 1, day: date = DAY) -> None:
        """Load leads, and note in `touched` what they touch."""
        self.db.execute(
            "create or replace temp table touched (kind varchar, lead_id varchar, lead_day date)"
        )
        flatten_batches(self.db, batch(*leads, number=number, day=day))

    def make(
        self, *, forgets: bool = False, is_first_of_day: bool = True, **files: str
    ) -> list[str]:
        """Make marts of these files, or the same as before.

        Return the names of those that failed.
        """
        if files:
            self.of = marts_of(self.data.folder.parent, **files)
        changes = Changes(1, {}, forgets=forgets, is_first_of_day=is_first_of_day)
        AllMarts(self.data, self.of).fill(Draft(self.data.folder, self.db, changes))
        problems = self.rows("from pipeline.mart_problems order by all")
        assert "Jane" not in str(problems)
        return [mart for mart, _ in problems]

    def make_all_anew(self) -> None:
        """Have the next `make` make all marts, as in a new file."""
        self.db.execute("insert into pipeline.mart_problems values ('another', 'It failed.')")

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.db.execute(sql).fetchall()

    def has(self, mart: str) -> bool:
        """Whether there is a table or view of that name."""
        return bool(self.rows(f"select 1 from duckdb_columns() where table_name = '{mart}'"))


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    with empty_tables() as db:
        db.execute("create schema pipeline")
        yield Warehouse(db, DataFolder.at(tmp_path / "data"))


def marts_of(folder: Path, **files: str) -> tuple[Mart, ...]:
    """Marts of these files."""
    folder = folder / f"marts-{len(list(folder.iterdir()))}"
    folder.mkdir()
    for name, text in files.items():
        (folder / f"{name}.sql").write_text(text, encoding="utf-8")
    return marts_in(folder)


# --- how marts are made ---------------------------------------------------------------------------


def test_of_a_mart_by_day_the_touched_days_alone_are_made_anew(warehouse: Warehouse) -> None:
    warehouse.load({"id": "a"}, {"id": "b", "createdAt": "2026-11-18T10:00Z"})
    warehouse.make()
    warehouse.db.execute("update mart_leads_daily set leads = 100")

    warehouse.load({"id": "a", "createdAt": "2026-11-20T10:00Z"}, number=2)
    assert warehouse.make() == []

    leads = warehouse.rows("select lead_day, leads from mart_leads_daily order by all")
    assert leads == [(date(2026, 11, 18), 100), (NEXT_DAY, 1)]


def test_a_mart_that_fails_keeps_its_rows_is_reported_and_is_made_as_a_whole_the_next_time(
    warehouse: Warehouse,
) -> None:
    warehouse.load({"id": "a", "message": "1"})
    assert warehouse.make(a=BY_DAY + SUMS, b=BY_DAY + COUNTS) == []

    warehouse.load({"id": "b", "message": "Jane Roe"})
    assert warehouse.make() == ["a"]
    assert warehouse.rows("from a") == [(DAY, 1)]
    assert warehouse.rows("from b") == [(DAY, 2)]

    warehouse.load({"id": "b", "message": "2"}, number=2)
    warehouse.db.execute("delete from touched")  # as if a publication between had touched the day
    assert warehouse.make() == []
    assert warehouse.rows("from a") == [(DAY, 3)]


def test_when_somebody_has_to_go_marts_that_fail_are_removed_with_views_that_read_them(
    warehouse: Warehouse,
) -> None:
    """An analyst would meet a view that fails."""
    warehouse.load({"id": "a", "message": "1"})
    reading = VIEW + 'select sum(leads)::bigint as leads from "table"'
    assert warehouse.make(table=BY_DAY + SUMS, shown=VIEW_OF_DAYS + SUMS, reading=reading) == []

    warehouse.load({"id": "b", "message": "Jane Roe"})
    warehouse.make_all_anew()
    failed = warehouse.make(forgets=True, is_first_of_day=False)

    assert failed == ["reading", "shown", "table"]
    assert not any(map(warehouse.has, failed))


# --- in the published file ------------------------------------------------------------------------


def test_in_a_new_file_a_mart_that_fails_has_the_last_good_rows_or_definition(
    folder: Folder, tmp_path: Path
) -> None:
    data = DataFolder.at(tmp_path / "data")
    folder.raw.land({"id": "a", "message": "text"})
    good = marts_of(tmp_path, table=BY_DAY + COUNTS, shown=VIEW_OF_DAYS + COUNTS)
    replace(folder, others=AllMarts(data, good)).publish()
    folder.raw.land({"id": "b", "message": "text"})

    broken = marts_of(tmp_path, table=BY_DAY + SUMS, shown=VIEW_OF_DAYS + SUMS)
    assert replace(folder, others=AllMarts(data, broken)).publish().way == "new file"

    assert folder.query("select mart from pipeline.mart_problems order by mart") == [
        ("shown",),
        ("table",),
    ]
    assert folder.query('from "table"') == [(DAY, 1)]
    assert folder.query("from shown") == [(DAY, 2)]


# --- values of enumerated fields ------------------------------------------------------------------


def sent(*people: str, value: str = "NEW_SITE", day: date = DAY) -> list[Row]:
    return [
        {"id": f"{person} {day}", "contact": {"email": person}, "leadSource": value}
        for person in people
    ]


def test_a_value_shows_on_all_days_while_three_people_have_sent_it(warehouse: Warehouse) -> None:
    def sources() -> list[tuple[Any, ...]]:
        warehouse.make()
        return warehouse.rows("select lead_day, source from mart_leads_daily order by all")

    often = [
        {"id": str(number), "contact": {"email": "a"}, "leadSource": "x"} for number in range(9)
    ]
    warehouse.load(*sent("a", "b"), *often)
    assert sources() == [(DAY, "…")]

    warehouse.load(*sent("c", day=NEXT_DAY), day=NEXT_DAY)
    assert sources() == [(DAY, "new site"), (DAY, "…"), (NEXT_DAY, "new site")]

    warehouse.db.execute("delete from applicant_leads where lead_day = $day", {"day": NEXT_DAY})
    warehouse.db.execute("delete from touched")
    assert sources() == [(DAY, "…")]


def test_a_member_that_the_contract_does_not_know_shows_at_once(warehouse: Warehouse) -> None:
    """Fault 87: marts showed … for END_TERRACE until three people had sent it."""
    listing = {"id": "1", "propertyType": "PROPERTY_TYPE_IGLOO_2", "lifeCycleStatus": "…"}
    situation = "CONSUMER_SITUATION_UNSPECIFIED"
    source = "APPLICANT_SOURCE_NEW_SITE"
    warehouse.load(
        {"id": "a", "leadSource": source, "consumerSituation": situation, "listingDetails": listing}
    )

    warehouse.make()

    assert warehouse.rows("select source, situation from lead_facts") == [("new site", "unknown")]
    listings = warehouse.rows("select property_type, status from mart_listing_demand")
    assert listings == [("igloo 2", "…")]


def test_sql_and_python_read_the_values_of_each_enumerated_field_alike(
    warehouse: Warehouse,
) -> None:
    """Fault 87: what isn't a member in the portal's form may be a person's words, and shows as …"""
    warehouse.load()
    warehouse.make()

    names = ("", "UNSPECIFIED", "NEW_1", "A" * 60, "A" * 61, "Ann", "ANN SMITH", "ÄNN", "ANN\n")
    for prefix in ENUM_PREFIXES:
        for name in names:
            value = f"{prefix}{name}"
            shown = warehouse.db.execute("select readable($value)", {"value": value}).fetchone()
            assert shown == (member_in_words(value) or "…",), value


# --- what marts read besides the leads ------------------------------------------------------------


def test_coverage_says_of_each_window_how_it_stands(house: House) -> None:
    """Branches are those with a name, a setting or a window."""
    house.names = "id,name,region\n101,York,North\n103,Hull,\n"
    house.land("applicant", [{"id": "a"}, {"id": "b"}])
    house.fail("applicant", scope="branch-102")
    house.land("applicant", [], scope="company-7")
    house.publish()

    windows = house.rows(
        "from mart_coverage where kind = 'applicant' and day = ? order by scope", DAY
    )

    assert [(one["scope"], one["branch"], one["state"], one["rows"]) for one in windows] == [
        ("branch-101", "York", "landed", 2),
        ("branch-102", "branch-102", "failed", None),
        ("company-7", "company-7", "empty", 0),
    ]
    failed = windows[1]
    assert (failed["failed_attempts"], failed["is_refused"]) == (1, True)
    assert failed["last_error"] == "The portal refused it."
    assert failed["deleted_from_at"] == datetime(2026, 12, 19, tzinfo=UTC)
    assert [one["is_configured"] for one in windows] == [True, True, False]
    assert house.query("from branches order by scope") == [
        ("branch-101", "101", "York", "North"),
        ("branch-102", "102", "branch-102", None),
        ("branch-103", "103", "Hull", None),
        ("company-7", "7", "company-7", None),
    ]


def test_a_moment_of_an_answer_is_read_in_the_agencys_zone(house: House) -> None:
    moments = {
        "2026-11-19T10:40:00Z": datetime(2026, 11, 19, 10, 40, tzinfo=UTC),
        " 2026-07-19 10:40 ": datetime(2026, 7, 19, 9, 40, tzinfo=UTC),  # the agency's summer
        "2026-11-19": None,
        "9/7/2026 10:40:05": datetime(2026, 7, 9, 9, 40, 5, tzinfo=UTC),
        "11/19/2026 10:40": None,
    }
    house.land("applicant", [{"id": "a"}])
    house.answers([("a", moment) for moment in moments])

    house.publish()

    found = house.query("select answered_at from answers order by number")
    assert found == [(at,) for at in moments.values()]
    assert house.query("from mart_outcomes") == house.query("from outcomes") == []


def test_outcomes_and_prices_become_a_mart_from_lead_to_instruction(house: House) -> None:
    paid = {
        "portalSource": "APPRAISAL_PORTAL_SOURCE_PROSPECTPLUS",
        "createdAt": "2026-11-19T10:00:00Z",
    }
    house.land("appraisal", [{"id": id_} | paid for id_ in "abc"])
    (house.folder / "outcomes.csv").write_text(
        "Lead_ID,outcome,at\na,Appointment,2026-11-19\na,instruction,2026-11-20 09:00\nb,rejected,\n"
        "a,appointment,2026-11-18\nnobody,appointment,2026-11-20\nb,lost,2026-11-20\n,rejected,2026-11-20\n"
    )
    (house.folder / "lead_prices.csv").write_text(
        "portal_source,price\nProspectPlus,12.50\nother,x\n"
    )

    house.publish()

    problems = house.query("select problem from outcomes where problem is not null order by number")
    assert problems == [
        ("before the lead",),
        ("no such lead",),
        ("unknown outcome",),
        ("no lead id",),
    ]
    counted = "leads, rejected, appointments, instructions, price"
    assert house.query(f"select portal_source, {counted} from mart_outcomes") == [
        ("prospectplus", 3, 1, 1, 1, Decimal("37.50"))
    ]
    assert "outcomes: outcomes_count" in house.failing_checks()


def test_the_columns_of_each_mart_have_the_types_that_its_file_declares(
    warehouse: Warehouse,
) -> None:
    warehouse.load()
    assert warehouse.make() == []

    for mart in marts():
        declared = ", ".join(f"null::{column.type} as {column.name}" for column in mart.columns)
        expected = warehouse.rows(f"describe select {declared}")
        made = warehouse.rows(f"describe from {mart.name}")
        assert [column[:2] for column in made] == [column[:2] for column in expected], mart.name
