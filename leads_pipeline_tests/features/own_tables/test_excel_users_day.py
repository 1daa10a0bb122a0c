"""A day of somebody who keeps lists in Excel: each file is taken, or refused in a sentence while
the last rows stay.
"""

# ruff: noqa: DTZ001 - a moment in a list has no time zone

import shutil
from datetime import date, datetime
from io import BytesIO
from pathlib import Path

import pytest
from xlsxwriter import Workbook

from leads_pipeline.features.own_tables.lists import LoadLists
from leads_pipeline_tests.support.house import LONDON, House

EMAIL = "jane@example.org"
LISTS = ("list", "named", "typed")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> House:
    """A lead that was answered, published."""
    folder = tmp_path_factory.mktemp("office")
    house = House(folder / "data")
    house.marts = folder / "marts"
    house.marts.mkdir()
    lead = {"id": "a", "createdAt": "2026-11-19T10:00:40Z", "contact": {"email": EMAIL}}
    house.land("applicant", [lead])
    save(house, "answers.csv", b"lead_id,answered_at\na,2026-11-19 10:10\n")
    house.publish()
    return house


@pytest.fixture
def house(published: House, tmp_path: Path) -> House:
    """A copy to go on from."""
    house = published.copied(tmp_path / "data")
    assert published.marts
    house.marts = tmp_path / "marts"
    shutil.copytree(published.marts, house.marts)
    return house


def save(house: House, name: str, content: bytes) -> None:
    assert house.marts
    (house.marts / name).write_bytes(content)


def remove(house: House, name: str) -> None:
    assert house.marts
    (house.marts / name).unlink()


def workbook(*rows: tuple[str, ...]) -> bytes:
    content = BytesIO()
    with Workbook(content) as book:
        sheet = book.add_worksheet()
        for number, row in enumerate(rows):
            sheet.write_row(number, 0, row)
    return content.getvalue()


# --- what is taken --------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_csv_of_excel_is_taken_with_its_types_whatever_separates_its_columns(
    house: House,
) -> None:
    """A workbook beside its CSV is nothing to tell."""
    save(house, "utf8.csv", "négociatrice,price\r\nAnnée,1\r\n".encode("utf-8-sig"))
    # On a machine whose lists have semicolons.
    save(house, "semicolons.csv", "négociatrice;price\r\nAnnée;1\r\n".encode("utf-8-sig"))
    save(house, "tabs.csv", "négociatrice\tprice\r\nAnnée\t1\r\n".encode())
    columns = b"agreed,at,price,phone,floors\n"
    row = b'01/12/2026,9/1/2027 9:05,"1,300.50",07700900123,"1,2"\n'
    save(house, "sales.csv", columns + row + b",,,,\n")
    save(house, "sales.xlsx", workbook(("negotiator",), ("Ann",)))

    house.publish()

    for name in ("utf8", "semicolons", "tabs"):
        assert house.query(f"select négociatrice, price from {name}") == [("Année", 1)]  # noqa: S608
    assert house.query("from sales order by price desc") == [
        (date(2026, 12, 1), datetime(2027, 1, 9, 9, 5), 1300.5, "07700900123", "1,2"),
        (None, None, None, None, None),
    ]
    assert house.findings("own-marts") == []


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_list_that_would_make_a_wrong_table_is_refused_and_the_last_rows_stay(
    house: House,
) -> None:
    """Faults 111 and 115."""
    for name in LISTS:
        save(house, f"{name}.csv", b"negotiator,price\nAnn,1\nBo,2\n")
    house.publish()

    save(house, "list.csv", "négociatrice,price\nAnn,1\nBo,2\n".encode("cp1252"))
    save(house, "named.csv", b"Our list\nnegotiator,price\nAnn,1\n")
    remove(house, "typed.csv")
    save(house, "typed.xlsx", workbook(("negotiator",), ("Cy",)))
    save(house, "applicant_leads.xlsx", workbook(("a",)))

    house.publish()
    house.publish()

    for name in LISTS:
        assert house.query(f"from {name}") == [("Ann", 1), ("Bo", 2)]
    expected = [
        "applicant_leads.xlsx: Files of this kind aren't read.",
        "list.csv: It isn't in UTF-8. In Excel, save it as CSV UTF-8.",
        "named.csv: Its first line doesn't name the columns of the lines below it.",
        "typed.xlsx: Files of this kind aren't read. Save it as CSV, in Excel as CSV UTF-8",
    ]
    told = sorted(finding.message for finding in house.findings("own-marts"))
    for message, begins in zip(told, expected, strict=True):
        assert message.startswith(begins)


# --- answers --------------------------------------------------------------------------------------


def test_answers_of_a_british_spreadsheet_are_taken(house: House) -> None:
    """Fault 112: an answer in the lead's own minute took no minute, and counted as before it."""
    answered = {"late": "09:40", "same minute": "09:00", "next": "09:02", "before": "08:59"}
    leads = [{"id": one, "createdAt": "2026-12-01T09:00:40Z"} for one in answered]
    house.land("applicant", leads)
    lines = [f"{one};01/12/2026 {at}" for one, at in answered.items()]
    save(house, "answers.csv", "\r\n".join(["lead_id;answered_at", *lines]).encode("utf-8-sig"))

    house.publish()

    minutes = "select lead_id, minutes from mart_answers where minutes is not null"
    assert dict(house.query(minutes)) == {"late": 39, "same minute": 0, "next": 1}
    problems = "select lead_id, problem from answers where problem is not null"
    assert house.query(problems) == [("before", "before the lead")]


def test_a_list_that_gets_its_right_name_is_loaded_by_the_next_publication(tmp_path: Path) -> None:
    lists = LoadLists([tmp_path], tmp_path / "data", LONDON)
    misnamed = tmp_path / "outcomes.csv"
    misnamed.write_bytes(b"lead_id,answered_at\na,2026-11-19 10:10\n")
    before = lists.updates_if()

    misnamed.rename(tmp_path / "answers.csv")

    assert lists.updates_if() != before


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("answers.csv", b"id,when\na,b\n", "lacks the column lead_id or answered_at"),
        ("answers.xlsx", workbook(("lead_id", "answered_at")), "isn't read."),
    ],
)
def test_answers_that_cannot_be_read_are_refused_and_the_last_ones_stay(
    house: House, name: str, content: bytes, problem: str
) -> None:
    remove(house, "answers.csv")
    save(house, name, content)

    house.names = "id,name\n101,York\n"  # the file is built anew
    house.publish()

    assert house.query("select minutes from mart_answers") == [(9,)]
    [(message,)] = house.query("select problem from answers where number is null")
    assert message.startswith(f"{name} {problem}")


def test_after_an_erasure_answers_that_cannot_be_read_are_gone(house: House) -> None:
    save(house, "answers.csv", b"id,when\n")

    house.erase(email=EMAIL)

    assert house.query("select lead_id from answers") == [(None,)]
