"""Marts as files that declare themselves, and what they read besides the leads."""

# ruff: noqa: S608 - the statements are the tests' own

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from leads_pipeline.warehouse.drift import FindDrift
from leads_pipeline.warehouse.marts import MakeMarts, Mart, marts_in
from leads_pipeline.warehouse.step import Draft, Step
from leads_pipeline_tests.support.house import DAY, LONDON, NEXT_DAY, House
from leads_pipeline_tests.support.publications import Folder

VIEW = "-- One row\n-- leads: Leads\n\n"
BY_DAY = "-- One row per day\n-- by lead_day\n-- lead_day: Day\n-- leads: Leads\n\n"
COUNTS = "select lead_day, count(*) as leads from applicant_leads group by lead_day"
# It fails once a message is no number.
SUMS = (
    "select lead_day, sum(message::integer)::bigint as leads from applicant_leads group by lead_day"
)


# --- a mart that fails ----------------------------------------------------------------------------


@dataclass
class OnlyMarts(Step):
    """Makes these marts, and nothing else that follows from leads."""

    of: Sequence[Mart]

    def rebuilds_if(self) -> str:
        return repr(self.of)

    def fill(self, draft: Draft) -> None:
        with draft.transaction():
            draft.db.execute("create table if not exists branches (scope varchar, name varchar)")
        for step in (FindDrift(NEXT_DAY), MakeMarts(LONDON, NEXT_DAY, self.of)):
            step.fill(draft)


def with_marts(folder: Folder, tmp_path: Path, **files: str) -> Folder:
    """The folder, published with the marts of these files."""
    tmp_path.mkdir(exist_ok=True)
    for name, text in files.items():
        (tmp_path / f"{name}.sql").write_text(text, encoding="utf-8")
    return replace(folder, others=OnlyMarts(marts_in(tmp_path)))


def failed(folder: Folder) -> list[str]:
    problems = folder.query("from pipeline.mart_problems order by all")
    assert "Jane" not in str(problems)
    return [mart for mart, _ in problems]


def test_a_mart_that_fails_keeps_its_rows_is_reported_and_is_made_as_a_whole_the_next_time(
    folder: Folder, tmp_path: Path
) -> None:
    view = VIEW + "select 1 as leads"
    folder = with_marts(folder, tmp_path, a=BY_DAY + SUMS, b=BY_DAY + COUNTS, c=view)
    folder.raw.land({"id": "a", "message": "1"})
    folder.publish()

    folder.raw.land({"id": "b", "message": "Jane Roe"})
    folder.publish()
    assert failed(folder) == ["a"]
    assert folder.query("from a") == [(DAY, 1)]
    assert folder.query("from b") == [(DAY, 2)]

    folder.raw.land({"id": "b", "message": "2"})
    folder.publish()
    assert failed(folder) == []
    assert folder.query("from a") == [(DAY, 3)]


def test_in_a_new_file_a_mart_that_fails_has_the_last_good_rows_or_definition(
    folder: Folder, tmp_path: Path
) -> None:
    shown = BY_DAY.replace("-- by lead_day\n", "")
    folder.raw.land({"id": "a", "message": "text"})
    with_marts(folder, tmp_path / "good", table=BY_DAY + COUNTS, shown=shown + COUNTS).publish()
    folder.raw.land({"id": "b", "message": "text"})

    broken = with_marts(folder, tmp_path, table=BY_DAY + SUMS, shown=shown + SUMS)
    assert broken.publish().way == "new file"

    assert failed(folder) == ["shown", "table"]
    assert folder.query('from "table"') == [(DAY, 1)]
    assert folder.query("from shown") == [(DAY, 2)]


def test_when_somebody_has_to_go_marts_that_fail_are_removed_with_views_that_read_them(
    folder: Folder, tmp_path: Path
) -> None:
    """An analyst would meet a view that fails."""
    reading = VIEW + 'select sum(leads)::bigint as leads from "table"'
    folder = with_marts(folder, tmp_path, table=BY_DAY + SUMS, reading=reading)
    folder.raw.land({"id": "a", "message": "1"}, {"id": "jane", "message": "2"})
    folder.publish()
    assert folder.query("from reading") == [(3,)]

    folder.raw.land({"id": "b", "message": "Jane Roe"})
    folder.raw.refused = {"jane"}
    folder.publish()

    assert failed(folder) == ["reading", "table"]
    assert folder.query("from duckdb_columns() where table_name in ('reading', 'table')") == []


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
    assert windows[1]["last_error"] == "The portal refused it."
    assert windows[1]["deleted_from_at"] == datetime(2026, 12, 19, tzinfo=UTC)
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


def test_outcomes_and_prices_become_a_mart_from_lead_to_instruction(house: House) -> None:
    paid = {
        "portalSource": "APPRAISAL_PORTAL_SOURCE_PROSPECTPLUS",
        "createdAt": "2026-11-19T10:00:00Z",
    }
    house.land("appraisal", [{"id": id_} | paid for id_ in "abc"])
    (house.folder / "outcomes.csv").write_text(
        "Lead_ID,outcome,at\na,Appointment,2026-11-19\na,instruction,2026-11-20 09:00\nb,rejected,\n"
        "a,appointment,2026-11-18\nnobody,appointment,2026-11-20\nb,lost,2026-11-20\n"
    )
    (house.folder / "lead_prices.csv").write_text("portal_source,price\nProspectPlus,12.50\n")

    house.publish()

    problems = house.query("select problem from outcomes where problem is not null order by number")
    assert problems == [("before the lead",), ("no such lead",), ("unknown outcome",)]
    counted = "leads, rejected, appointments, instructions, price"
    assert house.query(f"select portal_source, {counted} from mart_outcomes") == [
        ("prospectplus", 3, 1, 1, 1, Decimal("37.50"))
    ]
    assert "outcomes: outcomes_count" in house.failing_checks()
