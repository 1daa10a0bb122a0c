"""Days with their weeks and bank holidays, and leads that come while a branch is closed."""

from datetime import date, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from leads_pipeline.features.calendar.opening_hours import OpenHours, read_opening_hours
from leads_pipeline_tests.support.house import House

HOLIDAYS = "day,name\n2026-12-25,Christmas Day\n28/12/2026,Boxing Day (substitute)\n"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> House:
    folder = tmp_path_factory.mktemp("calendar")
    house = House(folder / "data")
    house.bank_holidays = folder / "bank_holidays.csv"
    house.bank_holidays.write_text(HOLIDAYS)
    house.publish()
    return house


# --- dates ----------------------------------------------------------------------------------------


def test_each_day_has_its_week_and_month_as_python_says(published: House) -> None:
    rows = published.rows("from dates order by day")
    assert len(rows) == 3 * 365
    for row in rows:
        day = row["day"]
        year, week, weekday = day.isocalendar()
        assert (row["weekday"], row["weekday_name"]) == (weekday, f"{day:%a}")
        assert row["week"] == date.fromisocalendar(year, week, 1)
        assert row["iso_week"] == f"{year}-W{week:02}"
        assert (row["month"], row["year"]) == (day.replace(day=1), day.year)
        assert row["quarter"] == f"{day.year}-Q{(day.month + 2) // 3}"
        assert day - row["day_last_year"] == timedelta(weeks=52)


def test_bank_holidays_are_no_working_days(published: House) -> None:
    days = "select day, bank_holiday from dates where weekday < 6 and not is_working_day"
    assert published.query(f"{days} order by day") == [
        (date(2026, 12, 25), "Christmas Day"),
        (date(2026, 12, 28), "Boxing Day (substitute)"),
    ]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"day,name\n\n25 December,x\n", "has '25 December' for a day in row 3."),
        ("day,name\n2026-12-25,Noël\n".encode("cp1252"), "isn't in UTF-8."),
    ],
)
def test_a_wrong_file_of_bank_holidays_is_told_and_the_last_ones_stay(
    published: House, tmp_path: Path, content: bytes, told: str
) -> None:
    house = published.copied(tmp_path / "data")
    house.bank_holidays = tmp_path / "bank_holidays.csv"
    house.bank_holidays.write_bytes(content)

    house.zone = ZoneInfo("Europe/Paris")  # the file is built anew
    house.publish()

    assert house.query("select count(bank_holiday) from dates") == [(2,)]
    [finding] = house.findings("calendar")
    assert finding.message.startswith(f"LEADS_BANK_HOLIDAYS_FILE: {house.bank_holidays} {told}")


# --- opening hours --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("Mon-Tue 09:00-17:30", [OpenHours(1, 540, 1050), OpenHours(2, 540, 1050)]),
        ("Saturday 10-16; sun 11.30 – 12", [OpenHours(6, 600, 960), OpenHours(7, 690, 720)]),
        ("Sun-Mon 0-24", [OpenHours(7, 0, 1440), OpenHours(1, 0, 1440)]),
    ],
)
def test_opening_hours_are_read_as_people_write_them(text: str, hours: list[OpenHours]) -> None:
    assert read_opening_hours(text) == hours


@pytest.mark.parametrize("text", ["9-5", "Mon 17:00-09:00", "Mon 9-25", "Montag 9-17 Uhr"])
def test_other_hours_are_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - its text is a part of the hours
        read_opening_hours(text)


def at(*moments: str) -> list[dict[str, str]]:
    return [{"id": moment, "createdAt": moment} for moment in moments]


def test_leads_outside_of_the_opening_hours_and_on_bank_holidays_came_while_the_branch_was_closed(
    published: House, tmp_path: Path
) -> None:
    house = published.copied(tmp_path / "data")
    house.scopes = ("branch-101", "branch-102", "branch-103")
    house.names = (
        "id,name,opening_hours\n"
        "101,York,Mon-Fri 09:00-17:30; Sun 09:00-10:00\n102,Leeds,\n103,Hull,nine to five\n"
    )
    summer = date(2026, 7, 20)  # a Monday: 09:00 in London is 08:00 UTC
    moments = at("2026-07-20T07:59:59Z", "2026-07-20T08:00:00Z", "2026-07-20T16:29:59Z")
    house.land("applicant", moments, summer)
    house.land("appraisal", at("2026-07-20T16:30:00Z", "0001-01-01T00:00Z"), summer)
    for scope in ("branch-102", "branch-103"):
        house.land("applicant", at(f"2026-07-20T03:00:0{scope[-1]}Z"), summer, scope)
    christmas = date(2026, 12, 25)
    house.land("applicant", at("2026-12-25T12:00:00Z"), christmas)
    # The clocks go back in that night, and 09:30 in London is 09:30 UTC.
    clocks_back = date(2026, 10, 25)
    house.land("applicant", at("2026-10-25T09:30:00Z"), clocks_back)

    house.publish()

    hours = "select columns(* exclude (scope, market)) from mart_opening_hours order by all"
    assert house.query(hours) == [
        (summer, "York", "applicant", 3, 1),
        (summer, "York", "appraisal", 1, 1),
        (clocks_back, "York", "applicant", 1, 0),
        (christmas, "York", "applicant", 1, 1),
    ]
    [finding] = house.findings("calendar")
    assert finding.message.startswith(
        "The opening_hours of branch-103 in LEADS_BRANCHES_FILE can't"
    )
