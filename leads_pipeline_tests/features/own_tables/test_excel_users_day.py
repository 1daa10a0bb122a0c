"""A day of somebody who keeps lists in Excel: each file is taken, or refused in a sentence while
the last rows stay.
"""

# ruff: noqa: DTZ001 - a moment in a list has no time zone

import errno
import os
from datetime import UTC, date, datetime
from io import BytesIO
from pathlib import Path

import pytest
from xlsxwriter import Workbook

from leads_pipeline.health.facts import Facts
from leads_pipeline.health.finding import all_finders, find
from leads_pipeline.settings import Settings
from leads_pipeline_tests.support.house import House

GOOD = "negotiator,price\nAnn,1\nBo,2\n"


@pytest.fixture
def house(tmp_path: Path) -> House:
    house = House(tmp_path / "data")
    house.marts = tmp_path / "marts"
    house.marts.mkdir()
    house.land("applicant", [{"id": "a", "createdAt": "2026-11-19T10:00:40Z"}])
    return house


def save(house: House, name: str, content: bytes) -> None:
    assert house.marts
    (house.marts / name).write_bytes(content)


def workbook(*rows: tuple[str, ...]) -> bytes:
    content = BytesIO()
    with Workbook(content) as book:
        sheet = book.add_worksheet()
        for number, row in enumerate(rows):
            sheet.write_row(number, 0, row)
    return content.getvalue()


def told(house: House) -> list[str]:
    """What the finding about the folder says."""
    variables = {"LEADS_DATA_DIR": str(house.folder), "LEADS_MARTS_DIR": str(house.marts)}
    found = find(
        Facts(Settings.from_variables(variables), house.data, house.now),
        [all_finders()["own-marts"]],
    )
    return [one.message for one in found]


# --- what is taken --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        "négociatrice,price\r\nAnnée,1\r\nBo,2\r\n".encode("utf-8-sig"),  # "CSV UTF-8"
        # On a machine whose lists have semicolons.
        "négociatrice;price\r\nAnnée;1\r\nBo;2\r\n".encode("utf-8-sig"),
        "négociatrice\tprice\r\nAnnée\t1\r\nBo\t2\r\n".encode(),
    ],
)
def test_a_csv_in_utf_8_is_taken_whatever_separates_its_columns(
    house: House, content: bytes
) -> None:
    save(house, "list.csv", content)

    house.publish()

    assert house.query("select négociatrice, price from list") == [("Année", 1), ("Bo", 2)]
    assert told(house) == []


def test_prices_days_and_moments_as_excel_writes_them_have_their_types(house: House) -> None:
    rows = (
        'agreed,at,price,phone,floors\n01/12/2026,01/12/2026 09:40,"1,300.50",07700900123,"1,2"\n'
    )
    save(house, "list.csv", f'{rows}9/1/2027,9/1/2027 9:05,"-950",07700900124,3\n,,,,\n'.encode())

    house.publish()

    assert house.query("from list order by price desc") == [
        (date(2026, 12, 1), datetime(2026, 12, 1, 9, 40), 1300.5, "07700900123", "1,2"),
        (date(2027, 1, 9), datetime(2027, 1, 9, 9, 5), -950, "07700900124", "3"),
        (None, None, None, None, None),
    ]


def test_a_list_of_ids_is_no_number(house: House) -> None:
    save(house, "teams.csv", b'team,branches\nNorth,"101,102"\nSouth,103\n')

    house.publish()

    assert house.query("select branches from teams order by team") == [("101,102",), ("103",)]


def test_a_workbook_beside_its_csv_is_nothing_to_tell(house: House) -> None:
    save(house, "list.csv", GOOD.encode())
    save(house, "list.xlsx", workbook(("negotiator",), ("Ann",)))

    house.publish()

    assert house.query("select count(*) from list") == [(2,)]
    assert told(house) == []


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            "négociatrice,price\nAnn,1\nBo,2\n".encode("cp1252"),
            "It isn't in UTF-8. In Excel, save it as CSV UTF-8.",
        ),
        (
            b"Our list\nnegotiator,price\nAnn,1\n",
            "Its first line doesn't name the columns of the lines below it.",
        ),
    ],
)
def test_a_csv_that_would_make_a_wrong_table_is_refused_and_the_last_rows_stay(
    house: House, content: bytes, problem: str
) -> None:
    save(house, "list.csv", GOOD.encode())
    house.publish()
    save(house, "list.csv", content)

    house.publish()

    assert house.query("from list") == [("Ann", 1), ("Bo", 2)]
    [message] = told(house)
    assert message.startswith(f"list.csv: {problem}")
    assert message.endswith("The table keeps its last good rows.")


@pytest.mark.parametrize("name", ["list.xlsx", "LIST.JSON"])
def test_a_workbook_in_the_place_of_a_csv_is_refused_and_the_last_rows_stay(
    house: House, name: str
) -> None:
    save(house, "list.csv", GOOD.encode())
    house.publish()
    assert house.marts
    (house.marts / "list.csv").unlink()
    save(house, name, workbook(("negotiator",), ("Cy",)))
    save(house, "applicant_leads.xlsx", workbook(("a",)))

    house.publish()
    house.publish()

    assert house.query("from list") == [("Ann", 1), ("Bo", 2)]
    not_read = (
        "Files of this kind aren't read. Save it as CSV, in Excel as CSV UTF-8, or as Parquet."
    )
    said = [
        f"{name}: {not_read} The table keeps its last good rows.",
        f"applicant_leads.xlsx: {not_read}",
    ]
    assert sorted(told(house)) == sorted(said)
    assert list(house.leads("applicant")) == ["a"]


# --- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("separator", [",", ";"])
def test_answers_of_a_british_spreadsheet_are_taken(house: House, separator: str) -> None:
    house.land("applicant", [{"id": "a", "createdAt": "2026-12-01T09:00:40Z"}])
    save(
        house,
        "answers.csv",
        f"lead_id{separator}answered_at\r\na{separator}01/12/2026 09:40\r\n".encode("utf-8-sig"),
    )

    house.publish()

    at = datetime(2026, 12, 1, 9, 40, tzinfo=UTC)
    assert house.query("select answered_at, minutes from mart_answers") == [(at, 39)]


@pytest.mark.parametrize(
    ("answered_at", "minutes", "problem"),
    [
        ("2026-11-19 10:00", 0, None),
        ("2026-11-19 10:02", 1, None),
        ("2026-11-19 09:59", None, "before the lead"),
    ],
)
def test_an_answer_in_the_leads_own_minute_took_no_minute(
    house: House, answered_at: str, minutes: int | None, problem: str | None
) -> None:
    save(house, "answers.csv", f"lead_id,answered_at\na,{answered_at}\n".encode())

    house.publish()

    assert house.query("select problem from answers") == [(problem,)]
    assert house.query("select minutes from mart_answers where minutes is not null") == (
        [] if minutes is None else [(minutes,)]
    )


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("answers.csv", "lead_id,answered_at,who\nb,x,Zoë\n".encode("cp1252"), "isn't in UTF-8."),
        ("answers.csv", b"id,when\na,b\n", "lacks the column lead_id or answered_at"),
        ("answers.xlsx", workbook(("lead_id", "answered_at")), "isn't read."),
    ],
)
def test_answers_that_cannot_be_read_are_refused_and_the_last_ones_stay(
    house: House, name: str, content: bytes, problem: str
) -> None:
    save(house, "answers.csv", b"lead_id,answered_at\na,2026-11-19 10:10\n")
    house.publish()
    assert house.marts
    (house.marts / "answers.csv").unlink()
    save(house, name, content)

    house.publish()
    house.names = "id,name\n101,York\n"  # the file is built anew
    house.publish()

    assert house.query("select minutes from mart_answers") == [(9,)]
    [(message,)] = house.query("select problem from answers where number is null")
    assert message.startswith(f"{name} {problem}")
    assert told(house) == []


def test_a_folder_in_the_place_of_a_list_is_told_and_the_last_answers_stay(house: House) -> None:
    save(house, "answers.csv", b"lead_id,answered_at\na,2026-11-19 10:10\n")
    house.publish()
    assert house.marts
    (house.marts / "answers.csv").unlink()
    (house.marts / "answers.csv").mkdir()

    house.publish()

    assert house.query("select lead_id, problem from answers order by number nulls last") == [
        ("a", None),
        (None, "answers.csv can't be read: Is a directory"),
    ]


@pytest.mark.parametrize("what", ["absent", "unreadable"])
def test_without_the_folder_of_lists_leads_are_published_and_the_last_answers_stay(
    house: House, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    save(house, "answers.csv", b"lead_id,answered_at\na,2026-11-19 10:10\n")
    house.publish()
    folder = house.marts
    assert folder
    stat = Path.stat

    def stat_as_others(path: Path, **options: bool) -> os.stat_result:
        if path.is_relative_to(folder):
            raise PermissionError(errno.EACCES, "Permission denied")
        return stat(path, **options)

    if what == "absent":
        folder.rename(folder.with_name("away"))
    else:  # root may read all folders
        monkeypatch.setattr(Path, "stat", stat_as_others)
    house.land("applicant", [{"id": "a"}, {"id": "b"}])
    house.publish()

    assert len(house.leads("applicant")) == 2
    assert house.query("select lead_id from answers order by all") == [("a",), (None,)]
    [(message,)] = house.query("select problem from answers where number is null")
    assert message.startswith(f"{folder} can't be read: ")


def test_after_an_erasure_answers_that_cannot_be_read_are_gone(house: House) -> None:
    house.land("applicant", [{"id": "a", "contact": {"email": "jane@example.org"}}, {"id": "b"}])
    save(house, "answers.csv", b"lead_id,answered_at\na,2026-11-19 10:10\n")
    house.publish()
    save(house, "answers.csv", b"id,when\n")

    house.erase(email="jane@example.org")

    assert house.query("select lead_id from answers") == [(None,)]
