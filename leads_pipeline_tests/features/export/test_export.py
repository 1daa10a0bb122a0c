"""Tables as files for spreadsheets and BI: what other programs read in them, and what the command
says.
"""

import csv
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
PHONE_ABROAD = "+447700900123"

# What somebody may write, and what a spreadsheet reads.
FORMULAS = {
    "=1+1": "'=1+1",
    PHONE_ABROAD: f"'{PHONE_ABROAD}",
    "-2": "'-2",
    "@sum(a1)": "'@sum(a1)",
    "\t=1": "'\t'=1",
    "\r=1": "'\r'=1",
    "＝1": "'＝1",  # of full width
    "see;=1": "see;'=1",
    "see\n=1": "see\n'=1",
    "1+1=2, a-b": "1+1=2, a-b",
}
ODD = [
    '"quoted", and;\nmore',
    "Grüße aus Köln 😀",
    "a\0b",
    "cut\r\nin two",
    " spaces ",
    "https://people.example",
    "{=1+1}",
]


@pytest.fixture
def office(house: House, monkeypatch: pytest.MonkeyPatch) -> House:
    """A published folder with a lead for each text."""
    monkeypatch.setenv("LEADS_DATA_DIR", str(house.folder))
    monkeypatch.setenv("LEADS_PRIVACY_DIR", str(house.folder / "privacy"))
    monkeypatch.setenv("DAGSTER_HOME", str(house.folder.parent / "home"))
    monkeypatch.setenv("LEADS_BRANCH_IDS", "101,102")
    monkeypatch.setenv("LEADS_TIMEZONE", ZONE)
    of_all: dict[str, Any] = {
        "createdAt": "2026-11-19T10:00:00Z",
        "listingDetails": {
            "id": "007",
            "uprn": 447700900123,
            "bedrooms": 3,
            "pricing": {"price": 1250.5},
        },
    }
    leads = [
        lead(str(n), phone=PHONE, message=text, **of_all)
        for n, text in enumerate([*FORMULAS, *ODD])
    ]
    house.land("applicant", leads)
    house.publish()
    return house


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "exports"


def export(table: str, folder: Path, *options: str, exit_code: int = 0) -> Result:
    result = run("export", table, "--to", folder, "--format", *options)
    assert result.exit_code == exit_code, result.output
    return result


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
    with file.open(encoding="utf-8-sig", newline="") as text:
        by_python = {row["lead_id"]: row for row in csv.DictReader(text)}
    with duckdb.connect() as db:
        by_duckdb = dict(
            db.execute(
                "select lead_id, message from read_csv(?, all_varchar=true)", [str(file)]
            ).fetchall()
        )
    # A control character is nothing that anybody reads, and some programs refuse a file with one.
    expected = {
        id_: FORMULAS.get(text, text).replace("\0", "") for id_, text in messages(office).items()
    }
    assert {id_: row["message"] for id_, row in by_python.items()} == by_duckdb == expected


def test_headers_of_ones_own_tables_are_no_formulas_and_days_without_end_are_told(
    office: House, folder: Path
) -> None:
    office.marts = folder.with_name("marts")
    office.marts.mkdir()
    own = office.marts / "own.csv"
    own.write_text(
        '=HYPERLINK("https://x"),day,at\n1,infinity,2026-11-19 10:00:00\n2,2026-11-19,2026-11-19 10:00:00\n'
    )
    with duckdb.connect() as db:
        db.execute(
            "copy (select timestamp_ns '2026-11-19 10:00:00.1' as at) to "
            f"'{office.marts / 'seen.parquet'}'"
        )
    office.publish()
    export("seen", folder, "csv")
    assert (folder / "seen.csv").read_text("utf-8-sig") == '"at"\n"2026-11-19 10:00:00"\n'
    export("own", folder, "csv")
    with (folder / "own.csv").open(encoding="utf-8-sig", newline="") as text:
        header, *rows = csv.reader(text)
    assert header == ['\'=HYPERLINK("https://x")', "day", "at"]
    assert [day for _, day, _ in rows] == ["infinity", "2026-11-19"]


@pytest.mark.usefixtures("office")
def test_a_spreadsheets_csv_has_local_moments_and_the_zone(folder: Path) -> None:
    export("applicant_leads", folder, "csv")
    with (folder / "applicant_leads.csv").open(encoding="utf-8-sig", newline="") as text:
        row = next(iter(csv.DictReader(text)))
    assert row[f"created_at ({ZONE})"] == "2026-11-19 11:00:00"
    assert (row["lead_day"], row["listing_details_pricing_price"]) == ("2026-11-19", "1250.50")


def test_programs_get_all_names_and_values_as_they_are(office: House, folder: Path) -> None:
    export("applicant_leads", folder, "parquet")
    with duckdb.connect() as db:
        db.execute("set TimeZone = 'UTC'")
        found = db.execute(f"from '{folder / 'applicant_leads.parquet'}' order by lead_id")
        names = [name for name, *_ in found.description]
        assert found.fetchall() == office.query("from applicant_leads order by lead_id")
    export("applicant_leads", folder, "csv", "--raw")
    with (folder / "applicant_leads.csv").open(encoding="utf-8", newline="") as text:
        rows = {row["lead_id"]: row for row in csv.DictReader(text)}
    assert list(rows["0"]) == names
    assert rows["0"]["created_at"] == "2026-11-19 10:00:00+00"
    assert {id_: row["message"] for id_, row in rows.items()} == messages(office)


def test_a_workbook_has_typed_cells_and_no_formula(office: House, folder: Path) -> None:
    export("applicant_leads", folder, "xlsx")
    rows = list(rows_of(folder / "applicant_leads.xlsx"))
    assert len(rows) == len(FORMULAS) + len(ODD)
    assert rows[0]["lead_day"] == datetime(2026, 11, 19)  # noqa: DTZ001 - a day, as openpyxl reads it
    assert rows[0][f"created_at ({ZONE})"] == datetime(2026, 11, 19, 11)  # noqa: DTZ001 - local
    assert rows[0]["contact_phone_number"] == PHONE
    assert (rows[0]["listing_details_id"], rows[0]["listing_details_uprn"]) == (
        "007",
        "447700900123",
    )
    assert rows[0]["sequence"] == str(office.leads("applicant")[rows[0]["lead_id"]]["sequence"])
    assert (rows[0]["listing_details_bedrooms"], rows[0]["listing_details_pricing_price"]) == (
        3,
        1250.5,
    )
    # XML knows neither NUL nor a carriage return.
    expected = {
        id_: text.replace("\0", "").replace("\r\n", "\n") for id_, text in messages(office).items()
    }
    assert {
        row["lead_id"]: row["message"].replace("_x000D_", "\r").replace("\r\n", "\n")
        for row in rows
    } == expected


def test_a_workbook_says_what_excel_cannot_hold(office: House, folder: Path) -> None:
    """Texts are cut, with a mark and a count.

    Further rows go to further sheets. Old days and long numbers are text.
    """
    long = lead(
        "long",
        message="😀" * CELL_UNITS,
        createdAt="1850-06-01T10:00:00Z",
        listingDetails={"bedrooms": 10**16},
    )
    office.land("applicant", [long])
    office.publish()
    [written] = write_export(office.data, "applicant_leads", folder, "xlsx", ZONE, sheet_rows=2)
    found = sheets(written.file)
    assert list(found) == ["data", *(f"data {number}" for number in range(2, written.sheets + 1))]
    assert {len(rows) for rows in found.values()} <= {2, 3}
    rows = list(rows_of(written.file))
    assert (len(rows), written.rows) == (len(messages(office)), len(messages(office)))
    [row] = [row for row in rows if row["lead_id"] == "long"]
    assert (row["lead_day"], row["listing_details_bedrooms"]) == ("1850-06-01", str(10**16))
    message = row["message"]
    assert message.endswith("😀 … (cut)")
    assert len(message.encode("utf-16-le")) // 2 <= CELL_UNITS
    told = export("applicant_leads", folder, "xlsx")
    assert "1 text longer than 32,767 characters" in told.stderr
    assert f"{len(rows)} rows." in told.stdout


def test_all_writes_a_file_for_each_table_and_mart_also_for_empty_ones(
    office: House, folder: Path
) -> None:
    tables = {
        name
        for (name,) in office.query(
            "select table_name from information_schema.tables where table_schema = 'main'"
        )
    }
    for format_ in ("csv", "parquet", "xlsx"):
        told = export("all", folder, format_)
        assert {path.stem for path in folder.glob(f"*.{format_}")} == tables
        assert f"{folder / 'answers'}.{format_}: 0 rows." in told.stdout
    [header] = sheets(folder / "answers.xlsx")["data"]
    assert header[:3] == ("number", "lead_id", f"answered_at ({ZONE})")
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o640}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_second_export_replaces_the_files(office: House, folder: Path) -> None:
    export("applicant_leads", folder, "csv")
    office.land("applicant", [lead("new", createdAt="2026-11-20T10:00:00Z")], office.next_day)
    office.publish()
    export("applicant_leads", folder, "csv")
    assert [path.name for path in folder.iterdir()] == ["applicant_leads.csv"]
    assert '\n"new",' in (folder / "applicant_leads.csv").read_text(encoding="utf-8-sig")


@pytest.mark.usefixtures("office")
def test_a_full_disk_is_named_and_leaves_the_files_as_they_were(small_disk: Path) -> None:
    for format_ in ("csv", "parquet", "xlsx"):
        export("branches", small_disk, format_)
    before = {path: path.read_bytes() for path in small_disk.iterdir()}
    (small_disk / "fill").write_bytes(
        bytes(1_000_000 - sum(len(content) for content in before.values()))
    )
    for format_ in ("csv", "parquet", "xlsx"):
        told = export("all", small_disk, format_, exit_code=2).stderr
        assert f"The file system {small_disk} is full" in told, told
    (small_disk / "fill").unlink()
    assert {path: path.read_bytes() for path in small_disk.iterdir()} == before


@pytest.mark.usefixtures("office")
def test_a_sheet_has_bold_heads_a_filter_and_columns_that_fit(folder: Path) -> None:
    export("applicant_leads", folder, "xlsx")

    [sheet] = openpyxl.load_workbook(folder / "applicant_leads.xlsx")
    heads = {cell.value: cell for cell in sheet[1]}
    assert all(cell.font.bold for cell in heads.values())
    assert not any(cell.font.bold for cell in sheet[2])
    assert sheet.auto_filter.ref == sheet.dimensions
    widths = {
        name: sheet.column_dimensions[cell.column_letter].width for name, cell in heads.items()
    }
    longest = max(len(str(cell.value)) for cell in sheet[heads["contact_email"].column_letter])
    assert longest <= widths["contact_email"] < longest + 5
    assert len("lead_day") < widths["lead_day"] < 20
    assert widths["person"] < 40
    assert all(width <= 51 for width in widths.values())


def test_wrong_questions_are_answered_with_what_to_do(
    house: House, office: House, folder: Path
) -> None:
    assert (
        "all`: answers, applicant_leads" in export("applicants", folder, "csv", exit_code=2).stderr
    )
    assert "Name one outside of" in export("all", house.folder / "out", "csv", exit_code=2).stderr
    assert "--raw is for csv" in export("all", folder, "xlsx", "--raw", exit_code=2).stderr
    office.file.unlink()
    assert (
        "leads.duckdb is missing. Run `leads-pipeline backfill"
        in export("all", folder, "csv", exit_code=2).stderr
    )
    assert not folder.exists()


@pytest.mark.slow
def test_who_is_to_be_erased_is_swept_before_an_export(office: House, folder: Path) -> None:
    office.land("applicant", [lead("jane", email=EMAIL, createdAt="2026-11-19T10:00:00Z")])
    office.publish()
    listed(list_of(office.data), emails=[EMAIL], leads=[("applicant", "jane")])
    export("all", folder, "csv", "--raw")
    texts = {path.stem: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    assert [table for table, text in texts.items() if "jane" in text] == []


def test_a_killed_export_leaves_no_half_file_and_the_next_one_takes_its_draft_away(
    office: House, folder: Path
) -> None:
    draft = folder / ".leads-export.tmp" / "applicant_leads.csv"
    draft.parent.mkdir(parents=True)
    draft.write_text("half of Jane's", encoding="utf-8")
    write_export(office.data, "branches", folder, "csv", ZONE)
    assert [path.name for path in folder.iterdir()] == ["branches.csv"]
