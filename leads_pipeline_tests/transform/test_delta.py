"""Delta tables hold what leads.duckdb holds, in the folder and in a bucket, and nobody who was erased.

They are read by engines that leads-pipeline doesn't write with: pyarrow, by deltalake's log, and Polars.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import deltalake
import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest
from dagster import materialize

from leads_pipeline.assets.delta import delta_tables_asset
from leads_pipeline.branches import Branches
from leads_pipeline.contract import APPLICANT, APPRAISAL
from leads_pipeline.delta import publishing
from leads_pipeline.delta.folder import DELTA, delta_folder, remove_tables, store_of_tables
from leads_pipeline.delta.publishing import publish_tables
from leads_pipeline.errors import StorageError
from leads_pipeline.lake import Lake
from leads_pipeline.objects import open_store
from leads_pipeline.privacy.retain import cut_days
from leads_pipeline.privacy.sweeping import sweep
from leads_pipeline.resources import DataFolder
from leads_pipeline.warehouse import Grid, Warehouse
from leads_pipeline.window import Scope
from leads_pipeline_tests.privacy.test_suppression import push, take_in
from leads_pipeline_tests.storage.test_objects import moto, new_bucket
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.people import EMAIL, PHONE, lead, left_by_list, listed
from leads_pipeline_tests.support.staging import DAY, FETCHED_AT, LONDON, NEXT_DAY, installed, land, publish, stage

__all__ = ["moto"]  # a fixture

ROOT = Path(__file__).parents[2]


BEFORE = "2026-11-19T10:00:00Z"
GRID = Grid(scopes=(Scope.parse("branch-101"), Scope.parse("branch-102")), first_day=DAY, zone=LONDON)
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)

OTHERS = [
    lead(
        "john",
        email="john@people.example",
        phone=PHONE,
        name="John Roe",
        createdAt=BEFORE,
        viewingTimes=[{"earliest": BEFORE}],
    ),
    lead("mary", email="mary@people.example", createdAt=BEFORE, message="Née?"),
]
HERS = [
    lead("jane", email=EMAIL, phone=PHONE, name="Jane Roe", createdAt=BEFORE, viewingTimes=[{"earliest": BEFORE}]),
    lead("mail", email=EMAIL.upper(), createdAt=BEFORE),
]


def fill(lake: Lake, hers: list[dict[str, Any]]) -> None:
    """A history: two branches, versions, a window of hers alone, both kinds, a push; staged and published."""
    for kind in (APPLICANT, APPRAISAL):
        land(lake, kind, [*OTHERS, *hers], sequence=1)
        land(
            lake,
            kind,
            [*OTHERS, *(one | {"contact": {"email": "old@people.example"}} for one in hers)],
            sequence=2,
            fetched_at=FETCHED_AT + timedelta(hours=1),
            scope="branch-102",
        )
        land(lake, kind, hers, day=NEXT_DAY, sequence=3)
    push(lake, OTHERS[1], *hers)
    take_in(lake)
    for kind in (APPLICANT, APPRAISAL):
        for day in (DAY, NEXT_DAY):
            stage(lake, kind, day)
    publish(lake, GRID, NOW)


def everything_in(folder: Path) -> bytes:
    """What a reader of bytes finds, payloads decoded."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file():
            found.append(path.read_bytes())
            if path.suffix == ".parquet":
                found.append(repr(pq.ParquetFile(path).read().to_pylist()).encode())
    return b"\n".join(found).lower()


class Interrupted(BaseException):
    """The process ends here."""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder that is published."""
    folder = tmp_path_factory.mktemp("filled") / "data"
    fill(Lake(folder, folder.parent / "list"), HERS)
    return folder


@pytest.fixture
def lake(filled: Path, tmp_path: Path) -> Lake:
    """The tables of such a folder, which lie in it."""
    shutil.copytree(filled, tmp_path / "data")
    return Lake(tmp_path / "data", tmp_path / "list")


@pytest.fixture
def machine(filled: Path, tmp_path: Path, moto: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Lake]:
    """Makes machines that work on one bucket."""
    store = open_store(f"{new_bucket(moto, monkeypatch)}/us", plain_http=True)

    def begun(name: str) -> Lake:
        shutil.copytree(filled, tmp_path / name)
        lake = Lake(tmp_path / name, tmp_path / f"list of {name}", store)
        lake.refresh()
        return lake

    return begun


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest) -> Lake:
    if request.param == "folder":
        lake: Lake = request.getfixturevalue("lake")
        return lake
    machine: Callable[[str], Lake] = request.getfixturevalue("machine")
    return machine("one")


def plain(value: object) -> object:
    """As a Delta table has it."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, list):
        return [plain(one) for one in value]
    return str(value) if isinstance(value, UUID) else value


def as_rows(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted(repr([(name, plain(row[name])) for name in names]) for row in rows)


def published(lake: Lake) -> dict[str, list[str]]:
    """Every table of leads.duckdb."""
    found = {}
    with duckdb.connect(Warehouse(lake).path, read_only=True) as db:
        for (table,) in db.execute("select table_name from duckdb_tables() where schema_name = 'main'").fetchall():
            cursor = db.execute(f"from {table}")
            names = [column[0] for column in cursor.description or ()]
            found[table] = as_rows(names, [dict(zip(names, row, strict=True)) for row in cursor.fetchall()])
    return found


def table_of(lake: Lake, name: str, version: int | None = None) -> deltalake.DeltaTable:
    store = store_of_tables(lake)
    return deltalake.DeltaTable(f"{store.address}/{DELTA}/{name}", version, storage_options=store.options)


def by_pyarrow(lake: Lake) -> dict[str, list[str]]:
    found = {}
    for name in published(lake):
        read = table_of(lake, name).to_pyarrow_table()
        found[name] = as_rows([field.name for field in table_of(lake, name).schema().fields], read.to_pylist())
    return found


def by_polars(lake: Lake) -> dict[str, list[str]]:
    found = {}
    for name in published(lake):
        read = pl.scan_delta(table_of(lake, name)).collect()
        found[name] = as_rows([field.name for field in table_of(lake, name).schema().fields], read.to_dicts())
    return found


def keys_of(lake: Lake, table: str = "") -> set[str]:
    return {*store_of_tables(lake).list(f"{DELTA}/{table}/" if table else f"{DELTA}/")}


def everything_below(lake: Lake, folder: Path) -> bytes:
    """Parquet decoded, all else as it is, in lower case."""
    for key in keys_of(lake):
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store_of_tables(lake).get(key) or b"")
    return everything_in(folder)


def land_more(lake: Lake, name: str = "new", sequence: int = 9, day: date = NEXT_DAY) -> None:
    """A lead more, published."""
    leads = [lead(name, email=f"{name}@people.example", viewingTimes=[{}, {}])]
    land(lake, APPLICANT, leads, day=day, sequence=sequence)
    stage(lake, APPLICANT, day)
    Warehouse(lake).publish(GRID, NOW)


def test_other_engines_read_in_every_table_what_is_in_leads_duckdb(place: Lake) -> None:
    done = publish_tables(place)

    truth = published(place)
    assert {"applicant_leads", "applicant_viewing_times", "landed_windows", "mart_people"} <= truth.keys()
    assert done.rows_written == {name: len(rows) for name, rows in truth.items()}
    assert by_pyarrow(place) == by_polars(place) == truth
    before = keys_of(place)
    assert publish_tables(place).rows_written == {}, "nothing is new"
    assert keys_of(place) == before


def test_types_and_descriptions_are_those_of_leads_duckdb(lake: Lake) -> None:
    publish_tables(lake)
    fields = {field.name: field for field in table_of(lake, "applicant_leads").schema().fields}
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


def test_a_changed_day_alone_is_written_and_a_reader_of_the_version_before_reads_on(place: Lake) -> None:
    Warehouse(place).publish(GRID, NOW)  # the folder is a copy, so its files count as new
    publish_tables(place)
    before = {table: keys_of(place, table) for table in published(place)}
    reader, rows = table_of(place, "applicant_leads"), by_pyarrow(place)["applicant_leads"]
    third = NEXT_DAY + timedelta(days=1)
    land_more(place, day=third)

    done = publish_tables(place)

    for table, day in (("applicant_leads", "window_day"), ("applicant_viewing_times", "day")):
        new = [key for key in keys_of(place, table) - before[table] if "_delta_log" not in key]
        assert len(new) == 1
        assert f"/{day}={third}/" in new[0]
    assert done.rows_written["applicant_leads"] == 1
    assert by_pyarrow(place) == by_polars(place) == published(place)
    assert before["applicant_leads"] <= keys_of(place, "applicant_leads")
    names = [field.name for field in reader.schema().fields]
    assert as_rows(names, reader.to_pyarrow_table().to_pylist()) == rows


def test_old_files_go_with_the_next_change_after_their_hour(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_tables(lake)
    before = keys_of(lake, "mart_people")
    monkeypatch.setattr(publishing, "_READERS_HOURS", 0)
    land_more(lake)

    publish_tables(lake)

    assert not [key for key in before & keys_of(lake, "mart_people") if key.endswith(".parquet")]


def test_a_day_that_goes_takes_its_file_along(lake: Lake) -> None:
    publish_tables(lake)
    for path in [*lake.folder.glob(f"raw/*/day={NEXT_DAY}"), *lake.folder.glob(f"staged/*/day={NEXT_DAY}")]:
        shutil.rmtree(path)
    Warehouse(lake).path.unlink()
    Warehouse(lake).publish(GRID, NOW)

    publish_tables(lake)

    assert by_pyarrow(lake) == published(lake)
    assert str(NEXT_DAY) not in " ".join(keys_of(lake, "applicant_leads"))


@pytest.mark.parametrize("is_after_the_commit", [False, True])
@pytest.mark.slow
def test_what_a_killed_run_left_out_is_written_by_the_next(
    place: Lake, monkeypatch: pytest.MonkeyPatch, is_after_the_commit: bool
) -> None:
    """Killed at each table of one publication, and of another one that is a rewriting."""
    publish_tables(place)
    write = deltalake.write_deltalake
    for is_rewriting in (False, True):
        if is_rewriting:
            listed(place.suppression)
            sweep(place, LONDON)
            Warehouse(place).publish(GRID, NOW)
        else:
            land_more(place)
        for killed_at in (0, 5):
            calls = iter(range(99))

            def ended(*given: Any, calls: Iterator[int] = calls, killed_at: int = killed_at, **more: Any) -> None:
                if next(calls) == killed_at:
                    if is_after_the_commit:
                        write(*given, **more)
                    raise Interrupted
                write(*given, **more)

            with monkeypatch.context() as patched:
                patched.setattr(publishing, "write_deltalake", ended)
                with pytest.raises(Interrupted):
                    publish_tables(place)
        publish_tables(place)
        assert by_pyarrow(place) == by_polars(place) == published(place)


@pytest.mark.slow
def test_names_that_an_agency_chooses_are_taken_as_they_are(lake: Lake) -> None:
    """LEADS_BRANCHES_FILE may call its columns anything."""
    names = ("row", "part", "area manager", "a,b", "e=mc2 (2)", "Straße")
    for chosen in (names, names[1:]):
        rows = {"branch-101": tuple("x" for _ in chosen)}
        Warehouse(lake).publish(replace(GRID, branches=Branches({"branch-101": "York"}, chosen, rows)), NOW)
        publish_tables(lake)
        assert by_pyarrow(lake) == by_polars(lake) == published(lake)


# --- others who write -------------------------------------------------------------------------------------------------


def append(lake: Lake) -> None:
    rows = table_of(lake, "applicant_leads").to_pyarrow_table()
    deltalake.write_deltalake(table_of(lake, "applicant_leads"), rows.slice(0, 2), mode="append")


def set_a_property(lake: Lake) -> None:
    table_of(lake, "applicant_leads").alter.set_table_properties({"delta.appendOnly": "true"})


def of_another_shape(lake: Lake) -> None:
    """As an earlier version wrote them: not by days in folders."""
    rows = table_of(lake, "applicant_leads").to_pyarrow_table()
    shutil.rmtree(delta_folder(lake) / "applicant_leads")
    deltalake.write_deltalake(delta_folder(lake) / "applicant_leads", rows)


def truncate_a_file(lake: Lake) -> None:
    path = next((delta_folder(lake) / "applicant_leads").rglob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-1])


def truncate_the_log(lake: Lake) -> None:
    path = max((delta_folder(lake) / "applicant_leads" / "_delta_log").glob("*.json"))
    path.write_bytes(b'{"add":{"path"')


def add_files(lake: Lake) -> None:
    (delta_folder(lake) / "versions").mkdir()
    (delta_folder(lake) / "versions" / "1.json").touch()


@pytest.mark.parametrize(
    "breaks", [append, set_a_property, of_another_shape, truncate_a_file, truncate_the_log, add_files]
)
def test_what_somebody_changes_or_breaks_is_whole_after_the_next_run(
    lake: Lake, breaks: Callable[[Lake], None]
) -> None:
    publish_tables(lake)
    breaks(lake)

    publish_tables(lake)

    assert by_pyarrow(lake) == by_polars(lake) == published(lake)
    assert {path.name for path in delta_folder(lake).iterdir()} == {*published(lake)}


@pytest.mark.slow
@pytest.mark.parametrize("is_begun", [False, True])
def test_of_two_machines_that_write_at_once_one_is_told_and_no_lead_is_lost_or_doubled(
    machine: Callable[[str], Lake], monkeypatch: pytest.MonkeyPatch, is_begun: bool
) -> None:
    one, other = machine("one"), machine("other")
    if is_begun:
        publish_tables(one)
    land_more(one)
    other.refresh()
    stage(other, APPLICANT, NEXT_DAY)
    land_more(other, "newer", sequence=10)
    write = deltalake.write_deltalake
    is_first = iter([True])

    def overtaken(*given: Any, **more: Any) -> None:
        if next(is_first, False):
            publish_tables(other)
        write(*given, **more)

    with monkeypatch.context() as patched:
        patched.setattr(publishing, "write_deltalake", overtaken)
        with pytest.raises(StorageError, match=r"Another machine is writing|can't be written"):
            publish_tables(one)
    assert by_pyarrow(one) == published(other)
    publish_tables(one)
    assert by_pyarrow(one) == by_polars(one) == published(one)


@pytest.mark.slow
def test_a_machine_with_an_older_list_brings_nobody_back(machine: Callable[[str], Lake]) -> None:
    one, other = machine("one"), machine("other")
    publish_tables(one)
    land_more(other)
    listed(one.suppression)
    sweep(one, LONDON)
    Warehouse(one).publish(GRID, NOW)
    publish_tables(one)

    with pytest.raises(StorageError, match="The suppression list has changed"):
        publish_tables(other)
    assert by_pyarrow(one) == published(one)


# --- who is erased ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_erasure_leaves_nothing_in_any_file_or_log(
    place: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_tables(place)
    land_more(place)
    write = deltalake.write_deltalake

    def ended(*given: Any, **more: Any) -> None:
        write(*given, **more | {"name": "theirs", "commit_properties": None})
        raise Interrupted

    with monkeypatch.context() as patched:
        patched.setattr(publishing, "write_deltalake", ended)
        with pytest.raises(Interrupted):
            publish_tables(place)
    assert EMAIL.encode() in everything_below(place, tmp_path / "before")
    log = "".join((store_of_tables(place).get(key) or b"").decode() for key in keys_of(place) if key.endswith(".json"))
    assert "people.example" not in log, "no statistics"
    listed(place.suppression)
    sweep(place, LONDON)
    Warehouse(place).publish(GRID, NOW)
    version = table_of(place, "applicant_leads").version()

    publish_tables(place)

    assert left_by_list(place) == []
    found = everything_below(place, tmp_path / "after")
    for text in (EMAIL.encode(), b"old@people.example", b"jane"):
        assert text not in found
    assert by_pyarrow(place) == by_polars(place) == published(place)
    assert len(by_pyarrow(place)["applicant_leads"]) > 0
    # A slower machine can't commit an old version into the new table.
    assert table_of(place, "applicant_leads").version() > version


@pytest.mark.slow
def test_what_retention_cuts_out_is_in_no_file_any_more(lake: Lake, tmp_path: Path) -> None:
    publish_tables(lake)
    assert [day.error for day in cut_days(lake, DAY + timedelta(days=9), LONDON) if day.error] == []
    Warehouse(lake).publish(GRID, NOW)

    publish_tables(lake)

    found = everything_below(lake, tmp_path / "after")
    assert not [one for one in (b"@people.example", b"roe", "née".encode()) if one in found]
    assert by_pyarrow(lake) == published(lake)


@pytest.mark.slow
def test_the_command_erases_from_the_tables_and_says_if_they_could_not_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = installed(tmp_path, monkeypatch)
    monkeypatch.setenv("LEADS_TABLES", "delta")
    fill(lake, HERS)
    publish_tables(lake)

    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "deltalake", None)
        told = run("privacy", "erase", "--email", EMAIL, "--yes")
    assert (told.exit_code, "leads-pipeline[delta]" in told.stderr) == (1, True)
    assert "The Delta tables could not be brought up to date" in told.stderr
    assert run("privacy", "apply").exit_code == 0
    assert EMAIL.encode() not in everything_in(delta_folder(lake))


# --- who wants them ---------------------------------------------------------------------------------------------------


def test_tables_that_nobody_wants_any_more_are_removed(place: Lake) -> None:
    publish_tables(place)
    assert remove_tables(place)
    assert keys_of(place) == set()
    assert not delta_folder(place).exists()
    assert not remove_tables(place)


@pytest.mark.slow
def test_they_go_with_the_next_publication(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = installed(tmp_path, monkeypatch)
    fill(lake, HERS)
    publish_tables(lake)
    assert run("privacy", "apply").exit_code == 0
    assert not delta_folder(lake).exists()


def test_tables_on_another_disk_are_removed(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    delta_folder(lake).symlink_to(tmp_path / "disk", target_is_directory=True)
    publish_tables(lake)
    assert by_pyarrow(lake) == published(lake)
    assert remove_tables(lake)
    assert not delta_folder(lake).is_symlink()
    assert list((tmp_path / "disk").iterdir()) == []


def test_the_owners_group_may_be_let_in_and_nobody_else(lake: Lake) -> None:
    publish_tables(lake)
    paths = [*delta_folder(lake).rglob("*")]
    assert {path.stat().st_mode & 0o777 for path in paths} == {0o640, 0o750}


def test_whoever_does_not_want_them_imports_nothing_for_them() -> None:
    program = "import sys, leads_pipeline.cli, leads_pipeline.privacy.requests; sys.exit('deltalake' in sys.modules)"
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
