"""data/tables as an analyst reads it: typed Parquet, each lead once, one publication at a time."""

import shutil
import stat
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.dataset as ds
import pytest

from leads_pipeline.features.lake.parquet_tables import remove_tables, write_tables
from leads_pipeline.warehouse.editions import number_of
from leads_pipeline_tests.features.lake.leads import LEADS
from leads_pipeline_tests.support.publications import SECRET, Folder


def write(folder: Folder) -> int | None:
    return write_tables(folder.path)


def read(folder: Folder, table: str, select: str = "*") -> list[tuple[Any, ...]]:
    """The rows as DuckDB reads the folder."""
    files = f"{folder.path}/tables/{table}/*/data.parquet"
    with duckdb.connect() as db:
        db.execute("set TimeZone = 'UTC'")
        return db.execute(f"select {select} from read_parquet('{files}') order by all").fetchall()  # noqa: S608


def file(folder: Folder, day: str) -> Path:
    return folder.path / "tables" / "applicant_leads" / f"lead_day={day}" / "data.parquet"


def test_the_files_hold_the_rows_and_types_of_the_published_tables(folder: Folder) -> None:
    folder.raw.land(*LEADS)
    folder.raw.land({"id": "a", "justCurious": True}, kind="appraisal")
    folder.publish()

    assert write(folder) == 2

    for table in ("applicant_leads", "appraisal_leads", "applicant_viewing_times"):
        described = folder.query(f"describe {table}")
        # UUIDs are text in the files.
        columns = [f"{name}::text" if type_ == "UUID" else name for name, type_, *_ in described]
        select = ", ".join(columns)
        published = folder.query(f"select {select} from {table} order by all")  # noqa: S608
        assert published
        assert read(folder, table, select) == published
    leads = folder.path / "tables" / "applicant_leads"
    assert ds.dataset(leads, format="parquet", partitioning="hive").count_rows() == 3
    assert stat.S_IMODE(file(folder, "2026-11-18").stat().st_mode) == 0o440


@pytest.mark.slow
def test_days_that_do_not_fit_into_memory_together_are_each_written_once(folder: Folder) -> None:
    full = [
        {"id": f"full-{number}", "createdAt": "2026-11-18T10:00Z", "viewingTimes": [{}]}
        for number in range(26_000)
    ]
    folder.raw.land(*full, *LEADS)
    folder.publish()

    assert write(folder) == 2

    counts = "count(*), count(distinct lead_id), count(distinct lead_day)"
    assert read(folder, "applicant_leads", counts) == [(26_003, 26_003, 2)]
    assert read(folder, "applicant_viewing_times", counts) == [(26_002, 26_001, 2)]


def test_touched_days_are_written_and_the_others_are_hard_links(folder: Folder) -> None:
    folder.raw.land(*LEADS)
    folder.publish()
    write(folder)
    untouched = file(folder, "2026-11-18").stat().st_ino
    tree = (folder.path / "tables").resolve()
    assert write(folder) is None

    folder.raw.land({"id": "a", "createdAt": "2026-11-20T10:00Z"})
    folder.publish()
    assert write(folder) == 2

    assert file(folder, "2026-11-18").stat().st_ino == untouched
    assert tree.exists()  # a reader may have resolved the link just before

    folder.raw.land({"id": "c", "createdAt": "2026-11-20T10:00Z"})
    folder.publish()
    write(folder)
    assert not tree.exists()
    assert not file(folder, "2026-11-19").exists()
    assert read(folder, "applicant_leads", "lead_id") == [("a",), ("b",), ("c",)]


def test_what_a_kill_left_out_is_written_the_next_time(folder: Folder) -> None:
    folder.raw.land(*LEADS)
    folder.publish()
    write(folder)
    folder.raw.land({"id": "d", "createdAt": "2026-11-18T11:00Z"})
    folder.publish()
    (folder.path / ".versions" / "tables-draft" / "applicant_leads").mkdir(parents=True)
    of_the_next = f"tables-{number_of(folder.file.resolve()) + 1}"
    (folder.path / ".versions" / of_the_next).mkdir()  # killed before the link was replaced
    folder.raw.land({"id": "e", "createdAt": "2026-11-17T11:00Z"})
    folder.publish()

    assert write(folder) == 2

    assert read(folder, "applicant_leads", "lead_id") == [("a",), ("b",), ("c",), ("d",), ("e",)]
    assert not (folder.path / ".versions" / "tables-draft").exists()


@pytest.mark.parametrize("is_killed", [False, True])
def test_after_an_erasure_no_file_holds_the_person(folder: Folder, is_killed: bool) -> None:
    folder.raw.land(
        {"id": "hers", "contact": {"email": SECRET}, "createdAt": "2026-11-18T10:00Z"}, {"id": "b"}
    )
    folder.publish()
    write(folder)
    folder.raw.refused = {"hers"}
    # The window was rewritten, as an erasure does.
    for leads in folder.raw.versions.values():
        del leads[0]
    folder.publish()
    if is_killed:
        folder.raw.land({"id": "c"}, scope="branch-102")
        folder.publish()

    write(folder)

    for path in folder.path.rglob("*.parquet"):
        assert b"hers" not in path.read_bytes()
    assert len(list((folder.path / ".versions").glob("tables-*"))) == 1


def test_a_link_of_a_killed_publication_takes_no_file_with_it(folder: Folder) -> None:
    folder.raw.land(*LEADS)
    folder.publish()
    write(folder)
    before = read(folder, "applicant_leads")
    link = folder.path / ".versions" / "draft-tables-link"
    link.symlink_to((folder.path / "tables").resolve())

    folder.raw.land({"id": "later"})
    folder.publish()

    assert not link.is_symlink()
    assert read(folder, "applicant_leads") == before


def test_files_that_nobody_wants_any_more_are_removed(folder: Folder) -> None:
    folder.raw.land(*LEADS)
    folder.publish()
    write(folder)

    remove_tables(folder.path)

    assert not (folder.path / "tables").is_symlink()
    assert list((folder.path / ".versions").glob("tables-*")) == []
    shutil.rmtree(folder.path / ".state")
    assert write(folder) == 2
