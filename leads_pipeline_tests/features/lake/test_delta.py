"""Delta tables follow each publication, read by their log alone, and an erasure leaves nothing in
them.
"""

from datetime import date
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pytest

pytest.importorskip("deltalake")
from deltalake import DeltaTable

from leads_pipeline.features.lake.delta import write_delta
from leads_pipeline.features.lake.parquet_tables import delete_tables, write_tables
from leads_pipeline.raw.store import FolderStore
from leads_pipeline_tests.features.lake.leads import LEADS
from leads_pipeline_tests.support.publications import SECRET, Folder


def write(folder: Folder) -> dict[str, int]:
    return write_delta(folder.path, FolderStore(folder.path))


def table(folder: Folder, name: str = "applicant_leads") -> DeltaTable:
    return DeltaTable(f"{folder.path}/tables/{name}")


def read(
    folder: Folder, select: str = "lead_id, lead_day", name: str = "applicant_leads"
) -> list[tuple[Any, ...]]:
    rows = table(folder, name).to_pyarrow_table()
    with duckdb.connect() as db:
        db.register("rows", rows)
        return db.execute(f"select {select} from rows order by all").fetchall()  # noqa: S608


def files(folder: Folder) -> set[Path]:
    return set((folder.path / "tables" / "applicant_leads").rglob("*.parquet"))


def test_the_tables_hold_the_published_rows_and_a_touched_day_is_written_alone(
    folder: Folder,
) -> None:
    folder.raw.land(*LEADS)
    folder.publish()
    write_tables(folder.path)  # the setting was another one
    assert write(folder)["applicant_leads"] == 2
    before = set(table(folder).file_uris())
    assert write(folder) == {}

    folder.raw.land({"id": "d", "createdAt": "2026-11-18T11:00Z"})
    folder.publish()
    assert write(folder)["applicant_leads"] == 1

    assert read(folder) == sorted(folder.query("select lead_id, lead_day from applicant_leads"))
    assert read(folder, "lead_id, position", "applicant_viewing_times") == [("a", 0), ("a", 1)]
    assert len(before & set(table(folder).file_uris())) == 1
    assert not table(folder).get_add_actions(flatten=True).schema.names.count("min.message")
    assert list((folder.path / ".versions").glob("tables-*")) == []


def test_what_a_kill_left_out_is_written_the_next_time(folder: Folder) -> None:
    folder.raw.land(*LEADS)
    folder.publish()
    write(folder)
    for lead_id in ("d", "e"):
        folder.raw.land({"id": lead_id, "createdAt": "2026-11-17T11:00Z"})
        folder.publish()

    write(folder)

    assert read(folder, "lead_id") == [("a",), ("b",), ("c",), ("d",), ("e",)]


def test_a_lead_that_changes_its_day_with_the_time_zone_is_there_once(folder: Folder) -> None:
    folder.raw.land(
        {"id": "a", "createdAt": "2026-11-18T23:30Z"}, {"id": "b", "createdAt": "2026-11-19T10:00Z"}
    )
    folder.publish()
    write(folder)
    folder.zone = ZoneInfo("Europe/Berlin")
    folder.publish()

    write(folder)

    assert read(folder) == [("a", date(2026, 11, 19)), ("b", date(2026, 11, 19))]


def test_after_an_erasure_no_file_holds_the_person(folder: Folder) -> None:
    folder.raw.land(
        {"id": "hers", "contact": {"email": SECRET}, "createdAt": "2026-11-18T10:00Z"}, {"id": "b"}
    )
    folder.publish()
    write(folder)
    former = files(folder)
    folder.raw.refused = {"hers"}
    folder.publish()

    write(folder)

    assert read(folder, "lead_id") == [("b",)]
    assert not former & files(folder)
    for path in (folder.path / "tables").rglob("*.*"):
        assert SECRET.encode() not in path.read_bytes()


def test_tables_that_nobody_wants_any_more_are_deleted(folder: Folder) -> None:
    folder.raw.land(*LEADS)
    folder.publish()
    write(folder)

    delete_tables(FolderStore(folder.path))
    assert files(folder) == set()

    write(folder)
    assert write_tables(folder.path) == 2
    assert (folder.path / "tables").is_symlink()
