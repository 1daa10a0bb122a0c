"""Delta tables hold what leads.duckdb holds, whoever is killed over them or breaks them, and nobody who was erased.

What they hold is read by two engines that leads-pipeline doesn't write with: pyarrow, by deltalake's log, and Polars.
"""

import json
import os
import shutil
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dagster import materialize

from leads_pipeline import durable
from leads_pipeline.assets.delta import delta_tables_asset
from leads_pipeline.branches import Branches
from leads_pipeline.contract import APPLICANT, LEAD_KINDS
from leads_pipeline.delta import folder as folder_room
from leads_pipeline.delta import log as log_room
from leads_pipeline.delta import publishing
from leads_pipeline.delta.columns import shapes_of
from leads_pipeline.delta.folder import data_files, delta_folder, remove_tables
from leads_pipeline.delta.publishing import DeltaPublication, publish_tables
from leads_pipeline.errors import StorageError
from leads_pipeline.lake import Lake
from leads_pipeline.person.matching import Sought
from leads_pipeline.privacy.erase import left_by_list, sweep
from leads_pipeline.privacy.retain import cut_days
from leads_pipeline.privacy.search import search
from leads_pipeline.resources import DataFolder
from leads_pipeline.warehouse import Warehouse
from leads_pipeline_tests.command_line import run
from leads_pipeline_tests.following import assert_digests_are_right
from leads_pipeline_tests.people import EMAIL, lead, listed
from leads_pipeline_tests.staging import DAY, LONDON, NEXT_DAY, installed, land, stage
from leads_pipeline_tests.test_privacy_erase import GRID, HERS, NOW, everything_in, fill

ROOT = Path(__file__).parents[1]
# A table of each way to be replaced, of which the first two belong together.
SOME = ("applicant_leads", "applicant_viewing_times", "mart_people_daily")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that is published, and whose Delta tables are up to date beside it."""
    folder = tmp_path_factory.mktemp("filled")
    lake = Lake(folder / "data", folder / "list")
    fill(lake, HERS)
    publish_tables(lake)
    delta_folder(lake).rename(folder / "delta")
    return folder


@pytest.fixture
def lake(filled: Path, tmp_path: Path) -> Lake:
    shutil.copytree(filled / "data", tmp_path / "data")
    return Lake(tmp_path / "data", tmp_path / "list")


@pytest.fixture
def up_to_date(filled: Path, lake: Lake) -> Lake:
    """A lake whose Delta tables are up to date."""
    shutil.copytree(filled / "delta", delta_folder(lake))
    return lake


def flip_a_bit_of(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-1])


def land_more(lake: Lake) -> None:
    """A lead more on one of the two days, published."""
    land(lake, APPLICANT, [lead("new", email="new@people.example", viewingTimes=[{}, {}])], day=NEXT_DAY, sequence=9)
    stage(lake, APPLICANT, NEXT_DAY)
    Warehouse(lake).publish(GRID, NOW)


Rows = list[str]


def plain(value: object) -> object:
    """As a Delta table has it."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, list):
        return [plain(one) for one in value]
    return str(value) if isinstance(value, UUID) else value


def as_rows(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Rows:
    return sorted(repr([(name, plain(row[name])) for name in names]) for row in rows)


def published(lake: Lake) -> dict[str, Rows]:
    """Every table of leads.duckdb."""
    found = {}
    with duckdb.connect(Warehouse(lake).path, read_only=True) as db:
        for (table,) in db.execute("select table_name from duckdb_tables() where schema_name = 'main'").fetchall():
            cursor = db.execute(f"from {table}")
            names = [column[0] for column in cursor.description or ()]
            found[table] = as_rows(names, [dict(zip(names, row, strict=True)) for row in cursor.fetchall()])
    return found


def newest(lake: Lake) -> dict[str, int] | None:
    """As a reader takes it: the last of the files."""
    files = sorted((lake.folder / "delta" / "versions").glob("*.json"))
    return dict(json.loads(files[-1].read_text())["tables"]) if files else None


def by_pyarrow(lake: Lake) -> dict[str, Rows]:
    found = {}
    for table, version in (newest(lake) or {}).items():
        read = deltalake.DeltaTable(lake.folder / "delta" / table, version=version).to_pyarrow_table()
        found[table] = as_rows(read.column_names, read.to_pylist())
    return found


def by_polars(lake: Lake) -> dict[str, Rows]:
    found = {}
    for table, version in (newest(lake) or {}).items():
        read = pl.scan_delta(lake.folder / "delta" / table, version=version).collect()
        found[table] = as_rows(read.columns, read.to_dicts())
    return found


def files_below(lake: Lake) -> dict[str, tuple[int, int]]:
    """What changes where a file is written or removed."""
    paths = [path for path in delta_folder(lake).rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in paths}


def assert_nothing_else_is_left(lake: Lake) -> None:
    """Every file belongs to the newest version of its table; the list of versions is one file."""
    assert len(list((lake.folder / "delta" / "versions").iterdir())) == 1
    assert {path.name for path in delta_folder(lake).iterdir()} == {"versions", *published(lake)}
    for name, version in (newest(lake) or {}).items():
        table = deltalake.DeltaTable(lake.folder / "delta" / name)
        assert table.version() == version
        assert {str(path) for path in data_files(lake, name)} == set(table.file_uris())
        log = {path.name for path in (lake.folder / "delta" / name / "_delta_log").iterdir()}
        of_version = {f"{version:020d}.json", f"{version:020d}.checkpoint.parquet", "_last_checkpoint"}
        assert f"{version:020d}.json" in log
        assert log <= of_version


# --- what they hold ---------------------------------------------------------------------------------------------------


def test_other_engines_read_in_every_table_what_is_in_leads_duckdb(lake: Lake) -> None:
    done = publish_tables(lake)

    truth = published(lake)
    assert {"applicant_leads", "applicant_viewing_times", "landed_windows", "mart_people"} <= truth.keys()
    assert done.rows_written == sum(map(len, truth.values()))
    assert by_pyarrow(lake) == truth
    assert by_polars(lake) == truth
    assert_nothing_else_is_left(lake)


def test_types_and_descriptions_are_those_of_leads_duckdb_as_far_as_there_are_such(up_to_date: Lake) -> None:
    lake = up_to_date
    fields = {
        field.name: field for field in deltalake.DeltaTable(lake.folder / "delta" / "applicant_leads").schema().fields
    }
    types = {
        "lead_id": "string",
        "window_day": "date",
        "created_at": "timestamp",
        "listing_details_pricing_price": "decimal(18,2)",
        "organise_viewing": "boolean",
        "sequence": "long",
        "search_criteria_radius": "double",
        "person": "string",
        "_extra": "string",
    }
    assert {name: getattr(fields[name].type, "type", None) for name in types} == types
    text = deltalake.schema.PrimitiveType("string")
    assert fields["_problems"].type == deltalake.schema.ArrayType(text, contains_null=True)
    assert "Keyed hash" in str(fields["person"].metadata["comment"])


def test_where_nothing_is_new_nothing_is_written(up_to_date: Lake) -> None:
    lake = up_to_date
    before = files_below(lake)

    done = publish_tables(lake)

    assert (done.rows_written, files_below(lake)) == (0, before)


def test_a_changed_day_is_replaced_alone(up_to_date: Lake) -> None:
    lake = up_to_date
    before = {table: set(data_files(lake, table)) for table in published(lake)}
    land_more(lake)

    done = publish_tables(lake)

    changed = {table for table in before if set(data_files(lake, table)) != before[table]}
    assert {"applicant_leads", "applicant_viewing_times", "landed_windows", "mart_leads_daily"} <= changed
    assert not {"appraisal_leads", "branches", "inventory"} & changed
    assert changed == {table for table, files in done.parts_written.items() if files}
    for table in ("applicant_leads", "applicant_viewing_times"):
        [file] = set(data_files(lake, table)) - before[table]
        assert file.name.startswith(str(NEXT_DAY))
    assert by_pyarrow(lake) == by_polars(lake) == published(lake)
    assert_nothing_else_is_left(lake)


def test_a_day_that_goes_takes_its_file_along(up_to_date: Lake) -> None:
    lake = up_to_date
    for path in [*lake.folder.glob(f"raw/*/day={NEXT_DAY}"), *lake.folder.glob(f"staged/*/day={NEXT_DAY}")]:
        shutil.rmtree(path)
    Warehouse(lake).path.unlink()
    Warehouse(lake).publish(GRID, NOW)

    publish_tables(lake)

    assert {path.name[:10] for kind in LEAD_KINDS for path in data_files(lake, kind.table)} == {str(DAY)}
    assert by_pyarrow(lake) == published(lake)
    assert_nothing_else_is_left(lake)


def test_days_are_told_apart_by_what_a_publication_noted(up_to_date: Lake) -> None:
    lake = up_to_date
    land_more(lake)
    assert_digests_are_right(lake)
    publish_tables(lake)
    before = files_below(lake)
    land(lake, APPLICANT, [lead("newer", email="newer@people.example")], day=NEXT_DAY, sequence=10)
    stage(lake, APPLICANT, NEXT_DAY)
    Warehouse(lake).publish(GRID, NOW)
    assert_digests_are_right(lake)

    publish_tables(lake)

    assert by_pyarrow(lake) == published(lake)
    written = {Path(path) for path in files_below(lake).keys() - before.keys()}
    for table in ("applicant_leads", "mart_lead_properties", "mart_people", "mart_coverage"):
        files = [path for path in written if path.suffix == ".parquet" and path.parent.name == table]
        assert all(path.name.startswith(str(NEXT_DAY)) for path in files), files


def test_what_a_digest_says_is_made_anew_where_it_cannot_be_right(up_to_date: Lake) -> None:
    lake = up_to_date
    land_more(lake)
    publish_tables(lake)
    altered(lake, "delete from applicant_viewing_times where lead_id = 'new'")

    publish_tables(lake)

    assert by_pyarrow(lake) == published(lake)


@pytest.mark.parametrize("breaks", [flip_a_bit_of, truncate])
def test_damage_in_large_tables_is_found_before_all_files_were_gone_round_twice(
    up_to_date: Lake, monkeypatch: pytest.MonkeyPatch, breaks: Callable[[Path], object]
) -> None:
    lake = up_to_date
    files = [path for table in published(lake) for path in data_files(lake, table)]
    monkeypatch.setattr(publishing, "LOOKED_AT_BYTES", sum(path.stat().st_size for path in files) // 5)
    for _ in range(2):
        publish_tables(lake)
    breaks(data_files(lake, "mart_people_daily")[-1])

    looks = [publish_tables(lake).rows_written > 0 for _ in range(7)]

    assert looks.count(True) == 1
    assert looks[0] or breaks is not truncate  # its size tells at once
    assert by_pyarrow(lake) == published(lake)


def altered(lake: Lake, statement: str) -> None:
    """Have leads.duckdb be of another version of the contract."""
    path = Warehouse(lake).path
    path.chmod(0o600)
    with duckdb.connect(path) as db:
        db.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "alter table applicant_leads add column pets varchar default 'a cat'",
        "alter table applicant_leads drop column scope",
        "alter table applicant_leads alter column sequence type varchar",
        "comment on column applicant_leads.scope is 'otherwise'",
        "create table mart_of_tomorrow as select 1::bigint as leads",
        "drop table mart_hourly",
    ],
)
def test_another_shape_is_taken_over(up_to_date: Lake, statement: str) -> None:
    lake = up_to_date
    before = newest(lake) or {}
    altered(lake, statement)

    publish_tables(lake)

    assert by_pyarrow(lake) == by_polars(lake) == published(lake)
    changed = {table for table, version in (newest(lake) or {}).items() if before.get(table) != version}
    assert len(changed) <= 1
    assert_nothing_else_is_left(lake)


def test_names_that_an_agency_chooses_are_taken_as_they_are(lake: Lake) -> None:
    """LEADS_BRANCHES_FILE may call its columns anything."""
    names = ("row", "part", "area manager", "a,b", "e=mc2 (2)", "Straße")
    for manager in ("Ann", "Bob"):
        rows = {"branch-101": (*names[:2], manager, "x", "y", "z")}
        grid = replace(GRID, branches=Branches({"branch-101": "York"}, names, rows))
        Warehouse(lake).publish(grid, NOW)
        publish_tables(lake)
        assert by_pyarrow(lake) == by_polars(lake) == published(lake)


# --- who breaks them --------------------------------------------------------------------------------------------------


def delete_file(table: Path) -> None:
    next(table.glob("*.parquet")).unlink()


def flip_a_bit(table: Path) -> None:
    path = next(table.glob("*.parquet"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(content)


def truncate_the_log(table: Path) -> None:
    path = max((table / "_delta_log").glob("*.json"))
    path.chmod(0o600)
    path.write_bytes(b'{"add":{"path"')


def roll_back(table: Path) -> None:
    """To the version before the last, by deltalake's own means."""
    deltalake.DeltaTable(table).alter.set_table_properties({"delta.appendOnly": "false"})
    max((table / "_delta_log").glob("*.json")).unlink()


def damage_the_checkpoint(table: Path) -> None:
    for path in (table / "_delta_log").glob("*checkpoint*"):
        path.chmod(0o600)
        path.write_bytes(path.read_bytes()[:20])


def append(table: Path) -> None:
    rows = deltalake.DeltaTable(table).to_pyarrow_table()
    deltalake.write_deltalake(table, rows.slice(0, 2), mode="append")


def rewrite(table: Path) -> None:
    append(table)
    deltalake.DeltaTable(table).optimize.compact()


def delete_rows(table: Path) -> None:
    deltalake.DeltaTable(table).delete("lead_id <> 'mary'")


def add_a_column(table: Path) -> None:
    rows = deltalake.DeltaTable(table).to_pyarrow_table()
    deltalake.write_deltalake(
        table, rows.append_column("theirs", pa.array(["x"] * len(rows))), mode="append", schema_mode="merge"
    )


def partition(table: Path) -> None:
    rows = deltalake.DeltaTable(table).to_pyarrow_table()
    shutil.rmtree(table)
    deltalake.write_deltalake(table, rows, partition_by=["window_day"])


def folder_in_place_of_a_file(table: Path) -> None:
    file = next(table.glob("*.parquet"))
    file.unlink()
    file.mkdir()


BREAKAGES: list[Callable[[Path], object]] = [
    shutil.rmtree,
    lambda table: shutil.rmtree(table / "_delta_log"),
    delete_file,
    flip_a_bit,
    truncate_the_log,
    roll_back,
    damage_the_checkpoint,
    append,
    rewrite,
    delete_rows,
    add_a_column,
    partition,
    lambda table: (table / "theirs.parquet").write_bytes(b"theirs"),
    lambda table: shutil.rmtree(table.parent / "versions"),
    lambda table: next((table.parent / "versions").iterdir()).unlink(),
    lambda table: (table.parent / "versions" / ("9" * 20 + ".json")).write_text("{"),
    lambda table: (table.parent / "versions" / ("0" * 20 + ".json")).write_text("{"),
    lambda table: (table.parent / "versions" / ".1.json.tmp").write_text("{"),
    lambda table: shutil.copytree(table, table.parent / "theirs"),
    lambda table: (table.parent / "versions" / "theirs").mkdir(),
    lambda table: (table / "theirs").symlink_to(table.parent.parent / "staged", target_is_directory=True),
    folder_in_place_of_a_file,
]


@pytest.mark.parametrize("breaks", BREAKAGES)
def test_what_somebody_breaks_or_changes_is_whole_after_the_next_run(
    up_to_date: Lake, breaks: Callable[[Path], object]
) -> None:
    heals(up_to_date, breaks)


@pytest.mark.chaos
@pytest.mark.parametrize("breaks", BREAKAGES)
def test_a_table_with_a_past_is_whole_again_as_well(up_to_date: Lake, breaks: Callable[[Path], object]) -> None:
    land_more(up_to_date)
    publish_tables(up_to_date)
    heals(up_to_date, breaks)


def heals(lake: Lake, breaks: Callable[[Path], object]) -> None:
    breaks(lake.folder / "delta" / "applicant_leads")

    publish_tables(lake)

    assert by_pyarrow(lake) == by_polars(lake) == published(lake)
    assert_nothing_else_is_left(lake)
    assert publish_tables(lake).rows_written == 0


@pytest.mark.parametrize(
    "sets",
    [
        lambda alter: alter.set_table_properties({"delta.appendOnly": "true"}),
        lambda alter: alter.set_table_properties({"delta.dataSkippingNumIndexedCols": "32"}),
        lambda alter: alter.set_table_properties({"delta.enableChangeDataFeed": "true"}),
        lambda alter: alter.add_constraint({"has_scope": "scope is not null"}),
        lambda alter: alter.add_feature(deltalake.TableFeatures.DomainMetadata, allow_protocol_versions_increase=True),
    ],
)
def test_what_somebody_sets_of_a_table_refuses_nothing_and_does_not_stay(
    up_to_date: Lake, sets: Callable[[Any], None]
) -> None:
    folder = delta_folder(up_to_date) / "applicant_leads"
    before = deltalake.DeltaTable(folder)
    sets(deltalake.DeltaTable(folder).alter)

    land_more(up_to_date)
    publish_tables(up_to_date)

    assert by_pyarrow(up_to_date) == published(up_to_date)
    after = deltalake.DeltaTable(folder)
    assert after.metadata().configuration == before.metadata().configuration
    assert (after.protocol().min_reader_version, after.protocol().min_writer_version) == (1, 2)


def test_what_others_write_notes_nobody_in_the_log(up_to_date: Lake) -> None:
    lake = up_to_date
    table = lake.folder / "delta" / "applicant_leads"
    rewrite(table)
    delete_rows(table)
    deltalake.DeltaTable(table).create_checkpoint()
    assert b"people.example" not in everything_in(table / "_delta_log")


# --- who is killed ----------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """What nobody catches."""


@contextmanager
def killed_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Break off before the step of that number; the steps that were begun. A step is whatever changes a file."""
    steps = [0]

    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **more: Any) -> Any:
            if not any(".state" in str(one) for one in args):
                steps[0] += 1
                if steps[0] == step:
                    raise Killed
            return function(*args, **more)

        return counted

    with monkeypatch.context() as patched:
        for owner, names in (
            (Path, ("unlink", "replace", "mkdir", "chmod", "write_bytes")),
            (shutil, ("rmtree",)),
            (durable, ("sync",)),
            (log_room, ("create_table_with_add_actions", "sync")),
            (folder_room, ("sync",)),
            (deltalake.DeltaTable, ("create_write_transaction", "create_checkpoint")),
        ):
            for name in names:
                patched.setattr(owner, name, counting(getattr(owner, name)))
        yield steps


def with_some_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "shapes_of", lambda db: [shape for shape in shapes_of(db) if shape.name in SOME])


def some(tables: Mapping[str, Rows]) -> dict[str, Rows]:
    return {name: rows for name, rows in tables.items() if name in SOME}


@pytest.mark.chaos
def test_whoever_is_killed_at_any_step_leaves_readers_one_moment_and_the_next_run_finishes(
    tmp_path: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_some_tables(monkeypatch)
    publish_tables(lake)
    old = some(published(lake))
    land_more(lake)
    new = some(published(lake))
    assert all(old[table] != new[table] for table in SOME)
    shutil.copytree(delta_folder(lake), tmp_path / "before")
    seen = []
    for step in range(1, 1000):
        shutil.rmtree(delta_folder(lake))
        shutil.copytree(tmp_path / "before", delta_folder(lake))
        with killed_at(step, monkeypatch) as steps:
            try:
                publish_tables(lake)
            except Killed:
                is_over = False
            else:
                is_over = True
        seen.append(by_pyarrow(lake))
        assert seen[-1] in (old, new), step
        publish_tables(lake)
        assert by_polars(lake) == new
        assert len(data_files(lake, SOME[0])) == 2
        if is_over:
            break
    assert steps[0] > 30
    assert seen.count(old) > 10
    assert seen.count(new) > 10


@pytest.mark.chaos
def test_a_first_run_that_is_killed_at_any_step_shows_all_or_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_some_tables(monkeypatch)
    whole = some(published(lake))
    for step in range(1, 1000):
        remove_tables(lake)
        with killed_at(step, monkeypatch) as steps:
            try:
                publish_tables(lake)
            except Killed:
                is_over = False
            else:
                is_over = True
        assert by_pyarrow(lake) in ({}, whole), step
        publish_tables(lake)
        assert by_polars(lake) == whole
        if is_over:
            break
    assert steps[0] > 30


@pytest.mark.chaos
def test_a_table_is_begun_anew_under_no_list_that_names_another(
    tmp_path: Path, up_to_date: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = up_to_date
    with_some_tables(monkeypatch)
    publish_tables(lake)
    [before] = (lake.folder / "delta" / "versions").iterdir()
    land_more(lake)
    log = lake.folder / "delta" / SOME[0] / "_delta_log"
    shutil.rmtree(log)
    shutil.copytree(delta_folder(lake), tmp_path / "before")
    for step in range(1, 1000):
        shutil.rmtree(delta_folder(lake))
        shutil.copytree(tmp_path / "before", delta_folder(lake))
        with killed_at(step, monkeypatch):
            try:
                publish_tables(lake)
            except Killed:
                is_over = False
            else:
                is_over = True
        if before.exists():
            assert not log.exists()
        else:
            assert by_pyarrow(lake) in ({}, some(published(lake))), step
        if is_over:
            break
    assert is_over
    assert step > 30


@pytest.mark.chaos
def test_a_process_that_is_killed_leaves_readers_one_moment(tmp_path: Path, lake: Lake) -> None:
    publish_tables(lake)
    old = published(lake)
    land_more(lake)
    new = published(lake)
    shutil.copytree(delta_folder(lake), tmp_path / "before")
    program = """
        import os, sys
        from pathlib import Path
        from leads_pipeline import durable
        from leads_pipeline.lake import Lake
        from leads_pipeline.delta import folder, log
        from leads_pipeline.delta.publishing import publish_tables

        left, sync = int(sys.argv[3]), durable.sync

        def counted(path):
            global left
            sync(path)
            left -= 1
            if left == 0:
                os.kill(os.getpid(), 9)

        durable.sync = folder.sync = log.sync = counted
        publish_tables(Lake(Path(sys.argv[1]), Path(sys.argv[2])))
    """
    for step in range(1, 1000, 7):
        shutil.rmtree(delta_folder(lake))
        shutil.copytree(tmp_path / "before", delta_folder(lake))
        folders = [str(lake.folder), str(lake.suppression.folder)]
        child = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), *folders, str(step)], cwd=ROOT, check=False
        )
        assert by_pyarrow(lake) in (old, new), step
        publish_tables(lake)
        assert by_polars(lake) == new
        assert_nothing_else_is_left(lake)
        if child.returncode == 0:
            break
        assert child.returncode == -9
    assert step > 50


def test_two_at_once_take_turns(lake: Lake) -> None:
    def done(_: int) -> DeltaPublication:
        return publish_tables(Lake(lake.folder, lake.suppression.folder))

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(done, range(2))
    assert sorted([first.rows_written > 0, second.rows_written > 0]) == [False, True]
    assert by_pyarrow(lake) == published(lake)


def test_a_full_disk_is_told_and_the_next_run_goes_on(up_to_date: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = up_to_date
    old = by_pyarrow(lake)
    land_more(lake)

    def full(*_: object, **__: object) -> None:
        raise deltalake.exceptions.DeltaError(f"no room for {EMAIL}")

    with monkeypatch.context() as patched:
        patched.setattr(deltalake.DeltaTable, "create_write_transaction", full)
        with pytest.raises(StorageError, match="DeltaError; its message may quote a lead") as told:
            publish_tables(lake)
    assert EMAIL not in str(told.value)
    assert by_pyarrow(lake) == old
    publish_tables(lake)
    assert by_pyarrow(lake) == published(lake)


# --- whose they are ---------------------------------------------------------------------------------------------------


def test_folders_and_files_are_as_closed_as_leads_duckdb(lake: Lake) -> None:
    before = os.umask(0)
    try:
        publish_tables(lake)
        land_more(lake)
        publish_tables(lake)
    finally:
        os.umask(before)
    of_file = stat.S_IMODE(Warehouse(lake).path.stat().st_mode)
    for path in [delta_folder(lake), *delta_folder(lake).rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o750 if path.is_dir() else of_file), path


@pytest.mark.chaos
def test_whoever_is_erased_is_gone_from_every_file_when_the_erasure_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = installed(tmp_path, monkeypatch)
    monkeypatch.setenv("LEADS_TABLES", "delta")
    fill(lake, HERS)
    publish_tables(lake)
    assert EMAIL.encode() in everything_in(delta_folder(lake))
    files = {sight.file for found in search_for_her(lake).leads for sight in found.sights}
    assert {file.place for file in files if file.path.startswith("delta/")} == {"delta"}

    told = run("privacy", "erase", "--email", EMAIL, "--with", "C", "--yes")

    assert told.exit_code == 0, told.output + told.stderr
    for text in (EMAIL.encode(), b"old@people.example", b"jane"):
        assert text not in everything_in(delta_folder(lake))
    assert by_pyarrow(lake) == by_polars(lake) == published(lake)
    assert len(by_pyarrow(lake)["applicant_leads"]) > 0
    assert_nothing_else_is_left(lake)
    assert run("privacy", "verify").exit_code == 0


@pytest.mark.chaos
def test_an_erasure_says_that_tables_could_not_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = installed(tmp_path, monkeypatch)
    monkeypatch.setenv("LEADS_TABLES", "delta")
    fill(lake, HERS)
    publish_tables(lake)

    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "deltalake", None)
        told = run("privacy", "erase", "--email", EMAIL, "--yes")
    assert (told.exit_code, "leads-pipeline[delta]" in told.stderr) == (1, True)
    assert "delta/applicant_leads/" in told.stdout + told.stderr
    assert run("privacy", "verify").exit_code == 1
    assert run("privacy", "apply").exit_code == 0
    assert run("privacy", "verify", "--email", EMAIL).exit_code == 0


def search_for_her(lake: Lake) -> Any:
    return search(lake, lake.folder / ".dagster", Sought.of(emails=[EMAIL]))


def test_verify_names_tables_that_have_not_followed(up_to_date: Lake) -> None:
    lake = up_to_date
    listed(lake.suppression)
    sweep(lake, LONDON)
    Warehouse(lake).publish(GRID, NOW)
    tables = [f"{table} of delta/" for table in ("applicant_leads", "applicant_viewing_times", "appraisal_leads")]
    assert left_by_list(lake) == tables
    assert EMAIL.encode() in everything_in(delta_folder(lake))
    publish_tables(lake)
    assert left_by_list(lake) == []
    assert EMAIL.encode() not in everything_in(delta_folder(lake))


def test_what_retention_cuts_out_is_in_no_file_any_more(up_to_date: Lake) -> None:
    lake = up_to_date
    assert [day.error for day in cut_days(lake, DAY + timedelta(days=1), LONDON) if day.error] == []
    Warehouse(lake).publish(GRID, NOW)

    publish_tables(lake)

    day = [path for kind in LEAD_KINDS for path in data_files(lake, kind.table) if path.name.startswith(str(DAY))]
    texts = "".join(f"{pq.read_metadata(path).metadata} {pq.read_table(path).to_pylist()}" for path in day).lower()
    assert day
    assert not [one for one in ("people.example", "roe", "née") if one in texts]
    assert by_pyarrow(lake) == published(lake)
    assert_nothing_else_is_left(lake)


@pytest.mark.chaos
def test_personal_fields_are_in_no_file_any_more_when_retention_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, old = installed(tmp_path, monkeypatch), date(2026, 1, 5)
    for name, value in {
        "LEADS_TABLES": "delta",
        "LEADS_KEEP_PERSONAL_DAYS": "35",
        "LEADS_START_DATE": str(old),
    }.items():
        monkeypatch.setenv(name, value)
    land(lake, APPLICANT, [lead("old", email=EMAIL, message="Née?", createdAt=f"{old}T10:00:00Z")], day=old)
    stage(lake, APPLICANT, old)
    Warehouse(lake).publish(GRID, NOW)
    publish_tables(lake)
    assert EMAIL.encode() in everything_in(delta_folder(lake))

    def full(*_: object, **__: object) -> None:
        raise deltalake.exceptions.DeltaError

    with monkeypatch.context() as patched:
        patched.setattr(deltalake.DeltaTable, "create_write_transaction", full)
        assert run("privacy", "retain").exit_code == 1
    assert EMAIL.encode() in everything_in(delta_folder(lake))
    assert run("privacy", "retain").exit_code == 0

    assert EMAIL.encode() not in everything_in(delta_folder(lake))
    assert len(by_pyarrow(lake)["applicant_leads"]) == 1
    assert_nothing_else_is_left(lake)


def test_a_search_reads_the_checkpoint_of_a_log(up_to_date: Lake) -> None:
    lake = up_to_date
    log = lake.folder / "delta" / "applicant_leads" / "_delta_log"
    pq.write_table(pa.table({"add": [{"stats": f'{{"minValues": "{EMAIL}"}}'}]}), log / f"{7:020d}.checkpoint.parquet")
    traces = [(file.path, part) for file, part in search_for_her(lake).traces if "_delta_log" in file.path]
    assert (f"delta/applicant_leads/_delta_log/{7:020d}.checkpoint.parquet", "log") in traces


# --- who wants them ---------------------------------------------------------------------------------------------------


@pytest.mark.chaos
def test_tables_that_nobody_wants_any_more_go_with_the_next_publication(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = installed(tmp_path, monkeypatch)
    fill(lake, HERS)
    publish_tables(lake)

    assert run("privacy", "apply").exit_code == 0

    assert not delta_folder(lake).exists()
    assert Warehouse(lake).path.exists()


def test_tables_on_another_disk_are_emptied_and_keep_nothing_from_being_published(
    tmp_path: Path, up_to_date: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    delta_folder(up_to_date).rename(elsewhere)
    delta_folder(up_to_date).symlink_to(elsewhere, target_is_directory=True)
    assert remove_tables(up_to_date)
    assert not delta_folder(up_to_date).is_symlink()
    assert list(elsewhere.iterdir()) == []

    elsewhere.rename(delta_folder(up_to_date))
    (delta_folder(up_to_date) / "theirs").touch()
    monkeypatch.setattr(Path, "is_mount", lambda _: True)
    assert remove_tables(up_to_date)
    assert list(delta_folder(up_to_date).iterdir()) == []


def test_verify_names_a_table_that_somebody_else_wrote_to(up_to_date: Lake) -> None:
    listed(up_to_date.suppression)
    folder = delta_folder(up_to_date) / "appraisal_leads"
    pq.write_table(pa.table({"theirs": [1]}), folder / "theirs.parquet")
    assert "appraisal_leads of delta/" in left_by_list(up_to_date)
    pq.write_table(pa.table({"lead_id": [{"theirs": 1}]}), folder / "theirs.parquet")
    assert "appraisal_leads of delta/, which can't be read" in left_by_list(up_to_date)


def test_whoever_does_not_want_them_imports_nothing_for_them() -> None:
    program = "import sys, leads_pipeline.cli, leads_pipeline.privacy.erase; sys.exit('deltalake' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


def test_a_missing_extra_is_told_with_how_to_install_it(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    done = materialize(
        [delta_tables_asset()], resources={"data": DataFolder(path=str(lake.folder))}, raise_on_error=False
    )
    [event] = [event for event in done.all_events if event.is_step_failure]
    assert "leads-pipeline[delta]" in str(event.step_failure_data.user_failure_data)
    assert not delta_folder(lake).exists()


def test_the_asset_says_what_was_written(lake: Lake) -> None:
    for rows in (sum(map(len, published(lake).values())), 0):
        done = materialize([delta_tables_asset()], resources={"data": DataFolder(path=str(lake.folder))})
        (event,) = done.asset_materializations_for_node("delta_tables")
        assert event.metadata["rows_written"].value == rows
        assert event.metadata["tables"].value == len(published(lake))
