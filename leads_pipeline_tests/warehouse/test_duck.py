"""Connections to DuckDB: folders of any name, limits, and errors that say what to do without a
lead.
"""

from pathlib import Path
from typing import Any

import duckdb
import pytest

from leads_pipeline.errors import BugError, StorageError
from leads_pipeline.warehouse.duck import connection, telling_errors
from leads_pipeline_tests.support.house import House


def test_a_folder_whose_name_reads_like_a_pattern_is_a_folder(tmp_path: Path) -> None:
    """Fault 84: files of other folders were read, and a folder called `team=a` became a column."""
    name = "da[t]a * team=a %20 'of' ü"
    other = "data x team=a %20 'of' ü"
    for folder in (name, other):
        marts = tmp_path / folder / "marts"
        marts.mkdir(parents=True)
        (marts / "targets.csv").write_text(f"target\n{folder}\n")
    house = House(tmp_path / name / "data")
    decoy = House(tmp_path / other / "data")
    house.marts = tmp_path / name / "marts"
    decoy.land_inventory({"Leeds": [{"id": "of another folder"}]})

    house.land("applicant", [{"id": "of this one"}])
    house.land_inventory({"Leeds": [{"id": "of this one"}]})
    house.answers([("of this one", "2026-11-20 10:00")])
    house.publish()

    assert house.query("select lead_id from applicant_leads") == [("of this one",)]
    assert house.query("select item_id from inventory") == [("of this one",)]
    assert house.query("select lead_id from answers") == [("of this one",)]
    assert house.query("from targets") == [(name,)]


def test_an_error_of_duckdb_does_not_quote_a_lead(tmp_path: Path) -> None:
    with pytest.raises(BugError, match="ConversionException") as caught, connection(tmp_path) as db:
        db.execute("select 'secret words'::integer")

    assert "secret words" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_lack_of_space_is_told_with_the_folder(tmp_path: Path) -> None:
    limits = "set memory_limit = '5MB'; set max_temp_directory_size = '1MB'"
    much = "create table big as select range, hash(range), repeat('x', 100) from range(3_000_000)"

    with pytest.raises(StorageError) as caught, connection(tmp_path) as db:
        db.execute(f"{limits}; {much}")

    advice = f"DuckDB has no space to spill to below {tmp_path}. Free some space, then run again."
    assert str(caught.value).startswith(advice)


def test_a_lack_of_memory_is_told_from_a_lack_of_space(tmp_path: Path) -> None:
    """Fault 85: the advice was to free some space."""
    with (
        pytest.raises(StorageError, match=r"^DuckDB ran out of memory\. It may take 350MB: see"),
        connection(tmp_path) as db,
    ):
        db.execute("set memory_limit = '10MB'; select list(range) from range(30_000_000)")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            duckdb.IOException("Cannot open file: Too many open files"),
            "Raise the limit of open files",
        ),
        (
            duckdb.FatalException("invalidated: … No space left on device"),
            r"The file system \S+ is full",
        ),
        (duckdb.FatalException("database has been invalidated"), "found damage in a file"),
    ],
    ids=["Fault 85: too few descriptors", "a full disk", "damage"],
)
def test_lacks_of_the_machine_are_told_from_a_damaged_file(
    tmp_path: Path, error: duckdb.Error, told: str
) -> None:
    with pytest.raises(StorageError, match=told), telling_errors(tmp_path):
        raise error


def test_a_file_that_a_failing_disk_does_not_show_is_not_taken_for_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = tmp_path / "draft"
    connect = duckdb.connect
    with connect(draft) as db:
        db.execute("create table leads as select 1 as one")

    def unseen(database: Path, **settings: Any) -> duckdb.DuckDBPyConnection:
        database.unlink()  # where its look for the file fails, DuckDB begins a new one
        return connect(database, **settings)

    monkeypatch.setattr(duckdb, "connect", unseen)
    with pytest.raises(StorageError, match="finds no table"), connection(tmp_path / "data", draft):
        pass
