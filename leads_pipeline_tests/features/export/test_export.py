"""Tables as files for spreadsheets and BI: what other programs read in them, and what the command
says.
"""

import csv
import os
import stat
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import openpyxl
import pytest
from click.testing import Result

from leads_pipeline.features.export.files import CELL_UNITS, write_export
from leads_pipeline.features.privacy.gatekeeper import list_of
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.house import House
from leads_pipeline_tests.support.people import EMAIL, PHONE, lead, listed

ZONE = "Europe/Berlin"

FORMULAS = {
    "=1+1": "'=1+1",
    "+447700900123": "'+447700900123",
    "-2": "'-2",
    "@sum(a1)": "'@sum(a1)",
    "\t=1": "'\t'=1",
    "\r=1": "'\r'=1",
    "＝1": "'＝1",  # of full width
    "see;=1": "see;'=1",
    "see\n=1": "see\n'=1",
}
ODD = [
    '"quoted", and;\nmore',
    "Grüße aus Köln 😀",
    "a\0b",
    "cut\r\nin two",
    " spaces ",
    "https://people.example",
    "{=1+1}",
    "1+1=2, a-b",
]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> House:
    """A folder with a lead for each text."""
    house = House(tmp_path_factory.mktemp("office") / "data")
    listing = {"id": "007", "uprn": 447700900123, "bedrooms": 3, "pricing": {"price": 1250.5}}
    of_all: dict[str, Any] = {"createdAt": "2026-11-19T10:00:00Z", "listingDetails": listing}
    texts = [*FORMULAS, *ODD]
    leads = [lead(str(n), phone=PHONE, message=text, **of_all) for n, text in enumerate(texts)]
    house.land("applicant", leads)
    house.publish()
    return house


@pytest.fixture
def office(published: House, tmp_path: Path) -> House:
    """A copy of it. The commands work on it."""
    house = published.copied(tmp_path / "data")
    os.environ.update(
        LEADS_DATA_DIR=str(house.folder), LEADS_BRANCH_IDS="101,102", LEADS_TIMEZONE=ZONE
    )
    return house


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "exports"


def export(table: str, folder: Path, *options: str, exit_code: int = 0) -> Result:
    result = run("export", table, "--to", folder, "--format", *options)
    assert result.exit_code == exit_code, result.output
    return result


def read_csv(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8-sig", newline="") as text:
        return list(csv.DictReader(text))


def messages(house: House) -> dict[str, str]:
    return {id_: row["message"] for id_, row in house.leads("applicant").items()}


def sheets(file: Path) -> dict[str, list[tuple[Any, ...]]]:
    """The cells of each sheet, as a second program reads them.

    A cell is a formula, a link or its value.
    """
    book = openpyxl.load_workbook(file)
    for sheet in book:
        for cell in sheet._cells.values():  # noqa: SLF001 - openpyxl has no other way to all cells
            assert (cell.data_type == "f", cell.hyperlink) == (False, None)
    return {sheet.title: list(sheet.values) for sheet in book}


def rows_of(file: Path) -> Iterator[dict[str, Any]]:
    for header, *rows in sheets(file).values():
        yield from (dict(zip(header, row, strict=True)) for row in rows)


def test_no_text_of_a_csv_is_a_formula_and_all_texts_survive(office: House, folder: Path) -> None:
    export("applicant_leads", folder, "csv")

    file = folder / "applicant_leads.csv"
    assert file.read_bytes().startswith(b"\xef\xbb\xbf")  # or Excel shows GrÃ¼ÃŸe
    rows = read_csv(file)
    select = "select lead_id, message from read_csv(?, all_varchar=true)"
    with duckdb.connect() as db:
        by_duckdb = dict(db.execute(select, [str(file)]).fetchall())
    expected = {id_: FORMULAS.get(text, text) for id_, text in messages(office).items()}
    # A control character is nothing that anybody reads, and some programs refuse a file with one.
    expected = {id_: text.replace("\0", "") for id_, text in expected.items()}
    assert {row["lead_id"]: row["message"] for row in rows} == by_duckdb == expected
    assert rows[0][f"created_at ({ZONE})"] == "2026-11-19 11:00:00"
    assert rows[0]["listing_details_pricing_price"] == "1250.50"


def test_programs_get_all_names_and_values_as_they_are(office: House, folder: Path) -> None:
    export("applicant_leads", folder, "parquet")
    with duckdb.connect() as db:
        db.execute("set TimeZone = 'UTC'")
        found = db.execute(f"from '{folder / 'applicant_leads.parquet'}' order by lead_id")
        names = [name for name, *_ in found.description]
        assert found.fetchall() == office.query("from applicant_leads order by lead_id")

    export("applicant_leads", folder, "csv", "--raw")
    rows = read_csv(folder / "applicant_leads.csv")
    assert [*rows[0]] == names
    assert rows[0]["created_at"] == "2026-11-19 10:00:00+00"
    assert {row["lead_id"]: row["message"] for row in rows} == messages(office)


def test_a_workbook_has_typed_cells_and_no_formula(office: House, folder: Path) -> None:
    export("applicant_leads", folder, "xlsx")

    rows = list(rows_of(folder / "applicant_leads.xlsx"))
    assert {row["lead_id"] for row in rows} == messages(office).keys()
    first = rows[0]
    assert first["lead_day"] == datetime(2026, 11, 19)  # noqa: DTZ001 - a day, as openpyxl reads it
    assert first[f"created_at ({ZONE})"] == datetime(2026, 11, 19, 11)  # noqa: DTZ001 - local
    assert (first["listing_details_id"], first["listing_details_uprn"]) == ("007", "447700900123")
    assert first["listing_details_pricing_price"] == 1250.5


def test_a_workbook_says_what_excel_cannot_hold(office: House, folder: Path) -> None:
    """Texts are cut, with a mark and a count.

    Further rows go to further sheets. Old days and long numbers are text.
    """
    long = lead("long", message="😀" * CELL_UNITS, createdAt="1850-06-01T10:00:00Z")
    office.land("applicant", [long | {"listingDetails": {"bedrooms": 10**16}}])
    office.publish()

    [written] = write_export(office.data, "applicant_leads", folder, "xlsx", ZONE, sheet_rows=2)

    rows = {row["lead_id"]: row for row in rows_of(written.file)}
    assert len(rows) == written.rows == len(messages(office))
    assert rows["long"]["lead_day"] == "1850-06-01"
    assert rows["long"]["listing_details_bedrooms"] == str(10**16)
    assert rows["long"]["message"].endswith("😀 … (cut)")
    told = export("applicant_leads", folder, "xlsx")
    assert "1 text longer than 32,767 characters" in told.stderr


def test_all_writes_a_file_for_each_table_and_mart_also_for_empty_ones(
    office: House, folder: Path
) -> None:
    export("all", folder, "csv")

    assert {path.stem for path in folder.iterdir()} == office.tables().keys()
    for format_ in ("csv", "parquet", "xlsx"):
        told = export("answers", folder, format_)
        assert f"{folder / 'answers'}.{format_}: 0 rows." in told.stdout
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o640}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.usefixtures("office")
def test_an_export_replaces_the_files_of_the_last_and_what_a_killed_one_left(folder: Path) -> None:
    draft = folder / ".leads-export.tmp" / "applicant_leads.csv"
    draft.parent.mkdir(parents=True)
    for file in (draft, folder / "branches.csv"):
        file.write_text("half of Jane's", encoding="utf-8")

    export("branches", folder, "csv")

    assert [path.name for path in folder.iterdir()] == ["branches.csv"]
    assert "half of Jane's" not in (folder / "branches.csv").read_text(encoding="utf-8")


@pytest.mark.usefixtures("office")
def test_a_full_disk_is_named_and_leaves_the_files_as_they_were(small_disk: Path) -> None:
    export("branches", small_disk, "csv")
    [file] = small_disk.iterdir()
    before = file.read_bytes()
    (small_disk / "fill").write_bytes(bytes(1_000_000 - len(before)))

    told = export("all", small_disk, "csv", exit_code=2).stderr

    assert f"The file system {small_disk} is full" in told
    (small_disk / "fill").unlink()
    assert {path: path.read_bytes() for path in small_disk.iterdir()} == {file: before}


def test_wrong_questions_are_answered_with_what_to_do(office: House, folder: Path) -> None:
    def told(table: str, to: Path, *options: str) -> str:
        return export(table, to, *options, exit_code=2).stderr

    assert "all`: answers, applicant_leads" in told("applicants", folder, "csv")
    assert "Name one outside of" in told("all", office.folder / "out", "csv")
    assert "--raw is for csv" in told("all", folder, "xlsx", "--raw")
    office.file.unlink()
    missing = "leads.duckdb is missing. Run `leads-pipeline backfill"
    assert missing in told("all", folder, "csv")
    assert not folder.exists()


@pytest.mark.slow
def test_who_is_to_be_erased_is_swept_before_an_export(office: House, folder: Path) -> None:
    office.land("applicant", [lead("jane", email=EMAIL, createdAt="2026-11-19T10:00:00Z")])
    office.publish()
    listed(list_of(office.data), emails=[EMAIL], leads=[("applicant", "jane")])

    export("all", folder, "csv", "--raw")

    for file in folder.iterdir():
        assert "jane" not in file.read_text(encoding="utf-8"), file
