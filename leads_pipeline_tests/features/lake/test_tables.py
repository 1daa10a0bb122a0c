"""data/tables as an analyst reads it, as Parquet files and as Delta tables: each published lead once,
one publication at a time, and nobody who was erased.
"""

import shutil
import stat
from datetime import date
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from leads_pipeline.features.lake.step import WriteTables
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.warehouse.editions import number_of
from leads_pipeline.warehouse.step import Publication
from leads_pipeline_tests.support.publications import SECRET, Folder

# Two days and an unknown one, with lists and an unknown member.
LEADS: list[dict[str, Any]] = [
    {
        "id": "a",
        "createdAt": "2026-11-19T10:00Z",
        "contact": {"email": "x"},
        "viewingTimes": [{"earliest": "?"}, {}],
    },
    {
        "id": "b",
        "createdAt": "2026-11-18T10:00Z",
        "new": {"deep": [1]},
        "listingDetails": {"pricing": {"price": 1.5}},
    },
    {"id": "c", "message": "m", "searchCriteria": {"radius": 0.5}},
]
in_each_form = pytest.mark.parametrize("form", ["parquet", "delta"])


def write(folder: Folder, form: str) -> None:
    """What each publication does last."""
    WriteTables(DataFolder.at(folder.path), form).after(Publication())


def read(
    folder: Folder, form: str, select: str = "lead_id, lead_day", table: str = "applicant_leads"
) -> list[tuple[Any, ...]]:
    """The rows of a table."""
    path = f"{folder.path}/tables/{table}"
    with duckdb.connect() as db:
        db.execute("set TimeZone = 'UTC'")
        if form == "delta":
            db.register("found", DeltaTable(path).to_pyarrow_table())
        else:
            db.execute(f"create view found as from read_parquet('{path}/*/data.parquet')")
        return db.execute(f"select {select} from found order by all").fetchall()  # noqa: S608


def files(folder: Folder) -> dict[str, int]:
    """Each file of applicants with its number on the disk."""
    found = (folder.path / "tables" / "applicant_leads").rglob("*.parquet")
    return {str(path): path.stat().st_ino for path in found}


def of_day(folder: Folder, day: str) -> dict[str, int]:
    return {path: number for path, number in files(folder).items() if f"lead_day={day}" in path}


def trees(folder: Folder) -> list[Path]:
    """What lies there of Parquet files, published or begun."""
    return [*(folder.path / ".versions").glob("tables-*")]


@in_each_form
def test_the_rows_are_those_of_the_published_tables_with_their_types(
    folder: Folder, form: str
) -> None:
    folder.raw.land(*LEADS)
    folder.raw.land({"id": "a", "justCurious": True}, kind="appraisal")
    folder.publish()

    write(folder, form)

    for table in ("applicant_leads", "appraisal_leads", "applicant_viewing_times"):
        described = folder.query(f"describe {table}")
        # UUIDs and JSON are text in the files.
        columns = [f"{name}::text" if type_ == "UUID" else name for name, type_, *_ in described]
        select = ", ".join(columns)
        published = folder.query(f"select {select} from {table} order by all")  # noqa: S608
        assert published
        assert read(folder, form, select, table) == published


def test_other_programs_read_the_parquet_files_as_a_hive_and_nobody_changes_them(
    folder: Folder,
) -> None:
    folder.raw.land(*LEADS)
    folder.publish()

    write(folder, "parquet")

    leads = folder.path / "tables" / "applicant_leads"
    assert ds.dataset(leads, format="parquet", partitioning="hive").count_rows() == 3
    assert {stat.S_IMODE(Path(path).stat().st_mode) for path in files(folder)} == {0o440}


def test_the_log_of_a_delta_table_holds_no_words_of_a_lead(folder: Folder) -> None:
    folder.raw.land(*LEADS)
    folder.publish()

    write(folder, "delta")

    logged = DeltaTable(f"{folder.path}/tables/applicant_leads").get_add_actions(flatten=True)
    assert [name for name in logged.schema.names if name.startswith(("min.", "max."))] == []


@pytest.mark.slow
def test_days_that_do_not_fit_into_memory_together_are_each_written_once(folder: Folder) -> None:
    full = [
        {"id": f"full-{number}", "createdAt": "2026-11-18T10:00Z", "viewingTimes": [{}]}
        for number in range(26_000)
    ]
    folder.raw.land(*full, *LEADS)
    folder.publish()

    write(folder, "parquet")

    counts = "count(*), count(distinct lead_id), count(distinct lead_day)"
    assert read(folder, "parquet", counts) == [(26_003, 26_003, 2)]
    assert read(folder, "parquet", counts, "applicant_viewing_times") == [(26_002, 26_001, 2)]


# --- a day at a time ------------------------------------------------------------------------------


@in_each_form
def test_a_touched_day_is_written_alone(folder: Folder, form: str) -> None:
    folder.raw.land(*LEADS)
    folder.publish()
    write(folder, form)
    before = files(folder)
    untouched = of_day(folder, "2026-11-18")
    write(folder, form)
    assert files(folder) == before

    folder.raw.land({"id": "a", "createdAt": "2026-11-20T10:00Z"})
    folder.publish()
    write(folder, form)

    assert of_day(folder, "2026-11-18") == untouched
    published = folder.query("select lead_id, lead_day from applicant_leads order by all")
    assert read(folder, form) == published


def test_parquet_files_of_the_last_publication_stay_for_who_just_opened_them(
    folder: Folder,
) -> None:
    folder.raw.land(*LEADS)
    folder.publish()
    write(folder, "parquet")
    first = (folder.path / "tables").resolve()

    for day, is_there in (("2026-11-20", True), ("2026-11-21", False)):
        folder.raw.land({"id": "a", "createdAt": f"{day}T10:00Z"})
        folder.publish()
        write(folder, "parquet")
        assert first.exists() == is_there


@in_each_form
def test_a_lead_that_changes_its_day_with_the_time_zone_is_there_once(
    folder: Folder, form: str
) -> None:
    folder.raw.land(
        {"id": "a", "createdAt": "2026-11-18T23:30Z"}, {"id": "b", "createdAt": "2026-11-19T10:00Z"}
    )
    folder.publish()
    write(folder, form)
    folder.zone = ZoneInfo("Europe/Berlin")
    folder.publish()

    write(folder, form)

    assert read(folder, form) == [("a", date(2026, 11, 19)), ("b", date(2026, 11, 19))]


# --- kills, erasures, and another form ------------------------------------------------------------


@in_each_form
def test_what_a_kill_left_out_is_written_the_next_time(folder: Folder, form: str) -> None:
    folder.raw.land(*LEADS)
    folder.publish()
    write(folder, form)
    folder.raw.land({"id": "d", "createdAt": "2026-11-18T11:00Z"})
    folder.publish()
    # Killed in the middle, and before the link was replaced.
    of_the_next = f"tables-{number_of(folder.file.resolve()) + 1}"
    for tree in ("tables-draft/applicant_leads", of_the_next):
        (folder.path / ".versions" / tree).mkdir(parents=True)
    folder.raw.land({"id": "e", "createdAt": "2026-11-17T11:00Z"})
    folder.publish()

    write(folder, form)

    assert read(folder, form, "lead_id") == [("a",), ("b",), ("c",), ("d",), ("e",)]
    assert folder.path / ".versions" / "tables-draft" not in trees(folder)


@in_each_form
@pytest.mark.parametrize("is_killed", [False, True])
def test_after_an_erasure_no_file_holds_the_person(
    folder: Folder, form: str, *, is_killed: bool
) -> None:
    folder.raw.land(
        {"id": "hers", "contact": {"email": SECRET}, "createdAt": "2026-11-18T10:00Z"}, {"id": "b"}
    )
    folder.publish()
    write(folder, form)
    folder.raw.refused = {"hers"}
    # The window was rewritten, as an erasure does.
    for leads in folder.raw.versions.values():
        del leads[0]
    folder.publish()
    if is_killed:
        folder.raw.land({"id": "c"}, scope="branch-102")
        folder.publish()

    write(folder, form)

    assert ("b",) in read(folder, form, "lead_id")
    for path in filter(Path.is_file, (folder.path / "tables").resolve().rglob("*")):
        content = path.read_bytes()
        assert b"hers" not in content
        assert SECRET.encode() not in content
    assert len(trees(folder)) == (form == "parquet")


def test_a_link_of_a_killed_publication_takes_no_file_with_it(folder: Folder) -> None:
    folder.raw.land(*LEADS)
    folder.publish()
    write(folder, "parquet")
    before = read(folder, "parquet")
    link = folder.path / ".versions" / "draft-tables-link"
    link.symlink_to((folder.path / "tables").resolve())

    folder.raw.land({"id": "later"})
    folder.publish()

    assert not link.is_symlink()
    assert read(folder, "parquet") == before


@in_each_form
def test_tables_that_nobody_wants_any_more_are_deleted_and_made_anew_if_somebody_does(
    folder: Folder, form: str
) -> None:
    folder.raw.land(*LEADS)
    folder.publish()
    write(folder, form)

    write(folder, "none")

    assert files(folder) == {}
    assert trees(folder) == []
    shutil.rmtree(folder.path / ".state", ignore_errors=True)
    write(folder, form)
    assert len(read(folder, form)) == 3


def test_one_form_takes_the_place_of_the_other(folder: Folder) -> None:
    folder.raw.land(*LEADS)
    folder.publish()

    for form in ("parquet", "delta", "parquet"):
        write(folder, form)
        assert len(read(folder, form)) == 3
        assert (folder.path / "tables").is_symlink() == (form == "parquet")
        assert len(trees(folder)) == (form == "parquet")
