"""Delta tables in an object store hold what leads.duckdb holds, whichever machine is ended over them or overtaken.

Read by engines that leads-pipeline doesn't write with: pyarrow and DataFusion, by deltalake's log, and Polars.
"""

import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

import deltalake
import polars as pl
import pyarrow as pa
import pytest

from leads_pipeline.contract import APPLICANT
from leads_pipeline.delta import mirror
from leads_pipeline.delta.folder import delta_folder, make_shared_folder, remove_tables
from leads_pipeline.delta.publishing import publish_tables
from leads_pipeline.errors import StorageError
from leads_pipeline.lake import Lake
from leads_pipeline.objects import ObjectStore, open_store
from leads_pipeline.privacy.erase import left_by_list, sweep
from leads_pipeline.warehouse import Warehouse
from leads_pipeline_tests.buckets import KEYS
from leads_pipeline_tests.people import EMAIL, PHONE, lead, listed
from leads_pipeline_tests.staging import LONDON, NEXT_DAY, land, stage
from leads_pipeline_tests.test_delta import SOME, as_rows, land_more, published, some, with_some_tables
from leads_pipeline_tests.test_delta import by_polars as by_polars_here
from leads_pipeline_tests.test_lake_refreshing import Breaking, Interrupted
from leads_pipeline_tests.test_objects import moto, new_bucket
from leads_pipeline_tests.test_privacy_erase import GRID, HERS, NOW, everything_in, fill
from leads_pipeline_tests.test_suppression import push

__all__ = ["moto"]  # a fixture


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of a machine that has published."""
    folder = tmp_path_factory.mktemp("filled") / "data"
    fill(Lake(folder, folder.parent / "list"), HERS)
    return folder


@pytest.fixture(params=["folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    if request.param == "folder":
        return open_store((tmp_path / "store").as_uri())
    return open_store(f"{new_bucket(request.getfixturevalue(request.param), monkeypatch)}/of=us", plain_http=True)


in_a_bucket_as_well = pytest.mark.parametrize("store", ["folder", "moto"], indirect=True)


@pytest.fixture
def machine(filled: Path, tmp_path: Path, store: ObjectStore) -> Callable[[str], Lake]:
    """A machine of that name, as it was when it had published."""

    def begun(name: str) -> Lake:
        shutil.copytree(filled, tmp_path / name)
        lake = Lake(tmp_path / name, tmp_path / f"list of {name}", store)
        lake.refresh()
        return lake

    return begun


Rows = list[str]
Engine = Callable[[str, int | None, dict[str, str]], Rows]


def by_pyarrow(place: str, version: int | None, options: dict[str, str]) -> Rows:
    found = deltalake.DeltaTable(place, version=version, storage_options=options).to_pyarrow_table()
    return as_rows(found.column_names, found.to_pylist())


def by_polars(place: str, version: int | None, options: dict[str, str]) -> Rows:
    found = pl.scan_delta(place, version=version, storage_options=options).collect()
    return as_rows(found.columns, found.to_dicts())


def by_datafusion(place: str, version: int | None, options: dict[str, str]) -> Rows:
    table = deltalake.DeltaTable(place, version=version, storage_options=options)
    found = pa.table(deltalake.QueryBuilder().register("it", table).execute("select * from it").read_all())
    return as_rows(found.column_names, found.to_pylist())


ENGINES: tuple[Engine, ...] = (by_pyarrow, by_polars, by_datafusion)


def versions_in(store: ObjectStore) -> dict[str, int]:
    """As a reader takes it: the last of the lists. Raises FileNotFoundError where that has gone meanwhile."""
    content = store.get(store.list("delta/versions/")[-1])
    if content is None:
        raise FileNotFoundError
    return dict(json.loads(content)["tables"])


def read_by(engine: Engine, store: ObjectStore) -> dict[str, Rows]:
    """Every table at the versions that belong together."""
    parts = urlsplit(store.address)
    root, options = unquote(parts.path), {}
    if parts.scheme == "s3":
        root = store.address
        options = {name: os.environ[name] for name in (*KEYS, "AWS_ENDPOINT_URL")} | {"AWS_ALLOW_HTTP": "true"}
    return {table: engine(f"{root}/delta/{table}", version, options) for table, version in versions_in(store).items()}


def read(store: ObjectStore) -> dict[str, Rows]:
    """The same by all of them, which agree."""
    found, *others = (read_by(engine, store) for engine in ENGINES)
    assert others == [found] * len(others)
    return found


def assert_the_same(lake: Lake, store: ObjectStore) -> None:
    """The store has the tables of this folder, byte for byte, and nothing else there."""
    folder = delta_folder(lake)
    here = {path.relative_to(lake.folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert here == {key: store.get(key) for key in store.list("delta/") if key != "delta/README.md"}


@in_a_bucket_as_well
def test_other_engines_read_in_the_store_what_is_in_leads_duckdb(
    machine: Callable[[str], Lake], store: ObjectStore
) -> None:
    lake = machine("one")
    publish_tables(lake)
    assert read(store) == published(lake)
    assert_the_same(lake, store)
    land_more(lake)
    publish_tables(lake)
    assert read(store) == published(lake)
    assert_the_same(lake, store)
    assert set(versions_in(store).values()) == {0, 1}


def test_where_nothing_is_new_nothing_is_written(machine: Callable[[str], Lake], store: ObjectStore) -> None:
    lake = machine("one")
    publish_tables(lake)
    lake.store = Breaking(store)
    lake.store.left = 0
    publish_tables(lake)


def test_another_machine_goes_on_where_the_store_is(
    machine: Callable[[str], Lake], store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_some_tables(monkeypatch)
    one = machine("one")
    publish_tables(one)
    two = machine("two")
    land_more(two)
    publish_tables(two)
    assert read(store) == some(published(two)) != some(published(one))
    assert versions_in(store) == dict.fromkeys(SOME, 1)

    publish_tables(one)  # behind, and whole
    assert read(store) == some(published(one))
    assert versions_in(store) == dict.fromkeys(SOME, 2)
    assert_the_same(one, store)
    assert by_polars_here(one) == some(published(one))


def test_a_machine_whose_clock_is_behind_names_its_versions_after_those_of_one_whose_clock_is_ahead(
    machine: Callable[[str], Lake], store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_some_tables(monkeypatch)
    ahead, behind = machine("ahead"), machine("behind")
    now = time.time_ns
    with monkeypatch.context() as clock:
        clock.setattr(time, "time_ns", lambda: now() + 3600 * 10**9)
        publish_tables(ahead)
    land_more(behind)
    publish_tables(behind)
    assert read(store) == some(published(behind)) != some(published(ahead))


def test_tables_that_were_here_before_there_was_a_store_keep_their_versions(
    machine: Callable[[str], Lake], store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_some_tables(monkeypatch)
    lake = machine("one")
    lake.store = None
    publish_tables(lake)
    land_more(lake)
    publish_tables(lake)
    lake.store = store
    publish_tables(lake)
    assert versions_in(store) == dict.fromkeys(SOME, 1)
    assert read(store) == some(published(lake))


TABLE = f"delta/{SOME[0]}/"


def lose_the_files(store: ObjectStore) -> None:
    store.delete([key for key in store.list(TABLE) if "_delta_log" not in key])


def lose_the_log(store: ObjectStore) -> None:
    store.delete(store.list(f"{TABLE}_delta_log/"))


def lose_the_lists(store: ObjectStore) -> None:
    store.delete(store.list("delta/versions/"))


def lose_everything(store: ObjectStore) -> None:
    store.delete(store.list("delta/"))


def write_into_the_log(store: ObjectStore) -> None:
    assert store.create(f"{TABLE}_delta_log/{1:020d}.json", b"no commit\n")


def leave_others(store: ObjectStore) -> None:
    assert store.create(f"delta/a_former_table/_delta_log/{7:020d}.json", b"{}\n")
    assert store.create(f"{TABLE}2026-11-19-of-an-ended-writer.parquet", b"")


BREAKAGES = [lose_the_files, lose_the_log, lose_the_lists, lose_everything, write_into_the_log, leave_others]


@pytest.mark.parametrize("breaks", BREAKAGES)
def test_what_somebody_breaks_in_the_store_is_whole_after_the_next_run(
    machine: Callable[[str], Lake],
    store: ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
    breaks: Callable[[ObjectStore], None],
) -> None:
    with_some_tables(monkeypatch)
    lake = machine("one")
    publish_tables(lake)
    breaks(store)
    publish_tables(lake)
    assert read(store) == some(published(lake))
    assert_the_same(lake, store)


def test_tables_of_somebody_else_stay(machine: Callable[[str], Lake], store: ObjectStore, tmp_path: Path) -> None:
    lake = machine("one")
    theirs = pa.table({"it": [1]})
    deltalake.write_deltalake(tmp_path / "store" / "delta" / "orders", theirs)
    keys = store.list("delta/")
    with pytest.raises(StorageError, match="hasn't written"):
        publish_tables(lake)
    make_shared_folder(delta_folder(lake))
    assert remove_tables(lake)
    assert store.list("delta/") == keys


# --- who is ended, and who is overtaken -------------------------------------------------------------------------------


class EndedAnywhere(Breaking):
    """A store whose user may be ended at what it reads as well."""

    def get(self, key: str) -> bytes | None:
        self._count()
        return super().get(key)


@pytest.mark.chaos
@pytest.mark.parametrize(("ended", "goes_on"), [("one", "one"), ("one", "two"), ("two", "two")])
def test_whoever_is_ended_at_any_step_leaves_readers_one_moment_and_the_next_run_finishes(
    machine: Callable[[str], Lake],
    tmp_path: Path,
    store: ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
    ended: str,
    goes_on: str,
) -> None:
    with_some_tables(monkeypatch)
    machines = {name: machine(name) for name in ("one", "two")}
    publish_tables(machines["one"])
    for lake in machines.values():
        land_more(lake)
    publish_tables(machines["one"])
    old = some(published(machines["one"]))
    for lake in machines.values():
        land(lake, APPLICANT, [lead("newer", viewingTimes=[{}])], day=NEXT_DAY, sequence=10)
        stage(lake, APPLICANT, NEXT_DAY)
        Warehouse(lake).publish(GRID, NOW)
    new = some(published(machines["one"]))
    folders = [tmp_path / "store", *map(delta_folder, machines.values())]
    keep(tmp_path, folders)
    seen = []
    for step in range(1000):
        put_back(tmp_path, folders)
        breaking = machines[ended].store = EndedAnywhere(store)
        breaking.left = step
        try:
            publish_tables(machines[ended])
        except Interrupted:
            is_over = False
        else:
            is_over = True
        seen.append(read(store))
        assert seen[-1] in (old, new), step
        for table in SOME:  # who knows of no list takes the newest, which has to be whole as well
            newest = by_datafusion(str(tmp_path / "store" / "delta" / table), None, {})
            assert newest in (old[table], new[table]), step
        machines[ended].store = store
        publish_tables(machines[goes_on])
        assert read(store) == new
        assert_the_same(machines[goes_on], store)
        assert min(versions_in(store).values()) > 1  # they don't begin anew
        if is_over:
            break
    assert step > 20
    assert seen.count(old) > 10
    assert seen.count(new) > 3


def keep(tmp_path: Path, folders: Sequence[Path]) -> None:
    for folder in filter(Path.exists, folders):
        shutil.copytree(folder, tmp_path / "kept" / folder.relative_to(tmp_path))


def put_back(tmp_path: Path, folders: Sequence[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder) if folder.is_dir() else folder.unlink(missing_ok=True)
        if (kept := tmp_path / "kept" / folder.relative_to(tmp_path)).exists():
            shutil.copytree(kept, folder)


class EndedBeforeTheList(Breaking):
    """A store whose user is ended when all tables are committed and no list names them."""

    def create(self, key: str, content: bytes) -> bool:
        if key.startswith("delta/versions/"):
            raise Interrupted
        return super().create(key, content)


class Overtaken(Breaking):
    """A store that other machines use before the verb of that number, of those that change something."""

    def __init__(self, store: ObjectStore, left: int, others: Callable[[], object]) -> None:
        super().__init__(store)
        self.left: int = left
        self._others = others

    def _count(self) -> None:
        self.left -= 1
        if self.left == -1:
            self._others()


@pytest.mark.chaos
@pytest.mark.parametrize(
    "by", ["a whole publication", "one that ends before its list", "two publications", "one with nothing new"]
)
def test_a_machine_that_is_overtaken_at_any_step_says_so_or_is_seen(
    machine: Callable[[str], Lake], tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    with_some_tables(monkeypatch)
    one, two, three = machines = machine("one"), machine("two"), machine("three")
    publish_tables(one)
    publish_tables(two)
    old = some(published(one))
    land_more(one)
    for number, lake in enumerate(() if by == "one with nothing new" else (two, three, three)):
        land(lake, APPLICANT, [lead(f"another {number}", viewingTimes=[{}])], day=NEXT_DAY, sequence=10 + number)
        stage(lake, APPLICANT, NEXT_DAY)
        Warehouse(lake).publish(GRID, NOW)
    new, *others = (some(published(lake)) for lake in machines)
    theirs = others[-1] if by == "two publications" else others[0]
    folders = [tmp_path / "store", *map(delta_folder, machines)]
    keep(tmp_path, folders)
    lists = store.list("delta/versions/")
    overtaken = 0
    is_listed = False

    def overtake() -> None:
        nonlocal is_listed
        is_listed = store.list("delta/versions/") != lists
        two.store = EndedBeforeTheList(store) if "ends" in by else store
        with suppress(Interrupted):
            publish_tables(two)
        if by == "two publications":
            publish_tables(three)

    for step in range(1000):
        put_back(tmp_path, folders)
        overtaking = one.store = Overtaken(store, step, overtake)
        try:
            publish_tables(one)
        except StorageError as error:
            assert "another machine" in str(error)  # noqa: PT017 - most steps raise nothing
            overtaken += 1
            assert read(store) in (old, theirs), step
        else:
            assert read(store) == new or (is_listed and read(store) == theirs), step
        one.store = store
        publish_tables(one)
        assert read(store) == new
        assert_the_same(one, store)
        if overtaking.left >= 0:
            break
    assert step > 20
    assert overtaken > 1


@pytest.mark.chaos
@in_a_bucket_as_well
def test_readers_of_three_engines_see_one_moment_while_two_machines_publish(
    machine: Callable[[str], Lake], store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    see_one_moment(ENGINES, machine, store, monkeypatch)


def see_one_moment(
    engines: Sequence[Engine],
    machine: Callable[[str], Lake],
    store: ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_some_tables(monkeypatch)
    machines = machine("one"), machine("two")
    land_more(machines[1])
    states = [some(published(lake)) for lake in machines]
    assert all(states[0][table] != states[1][table] for table in SOME)
    publish_tables(machines[0])
    is_over = threading.Event()

    def seen_by(engine: Engine) -> list[int]:
        seen = []
        while not is_over.is_set():
            try:
                found = read_by(engine, store)
            except Exception:  # noqa: BLE001, S112 - each has its own for what isn't there any more: it begins again
                continue
            seen.append(states.index(found))
        return seen

    with ThreadPoolExecutor(len(engines)) as pool:
        readers = [pool.submit(seen_by, engine) for engine in engines]
        try:
            for number in range(24):
                publish_tables(machines[(number + 1) % 2])
        finally:
            is_over.set()
        for reader in readers:
            seen = reader.result()
            assert min(seen.count(0), seen.count(1)) > 1, seen


@pytest.mark.chaos
@in_a_bucket_as_well
def test_of_two_machines_that_land_and_stage_one_day_at_once_each_lead_is_shown_once(
    machine: Callable[[str], Lake], store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_some_tables(monkeypatch)
    machines = machine("one"), machine("two")
    publish_tables(machines[0])

    def follow(lake: Lake) -> None:
        lake.refresh([NEXT_DAY])
        stage(lake, APPLICANT, NEXT_DAY)
        Warehouse(lake).publish(GRID, NOW)
        publish_tables(lake)

    def work(number: int) -> int:
        refused = 0
        for count in range(1, 9):
            leads = [lead(f"{number} {one}", viewingTimes=[{}]) for one in range(count)]
            scope = f"branch-10{2 if count % 2 else number}"  # now both land the same window
            land(machines[number - 1], APPLICANT, leads, day=NEXT_DAY, scope=scope, sequence=100 + 2 * count + number)
            try:
                follow(machines[number - 1])
            except StorageError as error:
                assert "another machine" in str(error)  # noqa: PT017 - whoever comes first is told nothing
                refused += 1
        return refused

    seen = []
    with ThreadPoolExecutor() as pool:
        working = [pool.submit(work, number) for number in (1, 2)]
        while not all(one.done() for one in working):
            with suppress(Exception):  # what isn't there any more: a reader begins again
                seen.append(lead_ids(read_by(by_polars, store)))
    assert sum(one.result() for one in working) < 2 * 8
    for lake in machines:
        follow(lake)
        assert read(store) == some(published(lake))
        seen.append(lead_ids(read(store)))
        assert {id_ for id_ in seen[-1] if " " in id_} == {f"{number} {one}" for number in (1, 2) for one in range(8)}
    assert len(seen) > 3
    assert all(len(ids) == len(set(ids)) for ids in seen)


def lead_ids(tables: dict[str, Rows]) -> list[str]:
    return [re.findall(r"\('lead_id', '([^']*)'\)", row)[0] for row in tables["applicant_leads"]]


# --- who is erased ----------------------------------------------------------------------------------------------------


def test_whom_another_machine_has_erased_meanwhile_does_not_come_back(
    machine: Callable[[str], Lake], store: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with_some_tables(monkeypatch)
    one, two = machine("one"), machine("two")
    publish_tables(one)
    assert EMAIL.encode() in everything_in(tmp_path / "store" / "delta")
    listed(one.suppression)
    sweep(one, LONDON)
    Warehouse(one).publish(GRID, NOW)
    publish_tables(one)
    assert EMAIL.encode() not in everything_in(tmp_path / "store" / "delta")

    land_more(two)  # published before it has heard of the erasure
    with pytest.raises(StorageError, match="suppression list has changed"):
        publish_tables(two)
    assert EMAIL.encode() not in everything_in(tmp_path / "store" / "delta")
    assert read(store) == some(published(one))

    two.refresh()
    Warehouse(two).publish(GRID, NOW)
    publish_tables(two)
    assert EMAIL.encode() not in everything_in(tmp_path / "store" / "delta")
    assert read(store) == some(published(two))


def holders(store: ObjectStore, text: str, folder: Path) -> list[str]:
    """The objects that a reader of bytes finds it in, payloads decoded."""
    found = []
    for number, key in enumerate(store.list("")):
        copied = folder / str(number) / Path(key).name
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_bytes(store.get(key) or b"")
        if text.lower().encode() in everything_in(copied.parent):
            found.append(key)
        shutil.rmtree(copied.parent)
    return found


HER_TEXTS = (EMAIL, "old@people.example")


@pytest.mark.chaos
@in_a_bucket_as_well
def test_an_erasure_leaves_nothing_in_any_object(
    machine: Callable[[str], Lake], store: ObjectStore, tmp_path: Path
) -> None:
    one, two = machines = machine("one"), machine("two")
    for number, lake in enumerate(machines):
        publish_tables(lake)
        push(lake, HERS[0] | {"id": f"pushed to {number}"})
    where = [{key.partition("/")[0] for key in holders(store, text, tmp_path / "before")} for text in HER_TEXTS]
    assert where == [{"raw", "delta", "spool"}, {"raw"}]

    listed(one.suppression, phones=[PHONE], names=["Jane Roe"])
    for lake in machines:
        lake.refresh()
        sweep(lake, LONDON)
        Warehouse(lake).publish(GRID, NOW)
        publish_tables(lake)
        for text in HER_TEXTS:
            assert holders(store, text, tmp_path / lake.folder.name) == []
        assert left_by_list(lake) == []
    assert read(store) == published(two)


@pytest.mark.chaos
def test_whoever_is_erased_while_a_machine_puts_its_tables_there_is_in_no_file_when_it_is_done(
    machine: Callable[[str], Lake], tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_some_tables(monkeypatch)
    monkeypatch.setattr(mirror, "SIDE_BY_SIDE", 1)  # so that files follow the one that is overtaken
    one, two = machine("one"), machine("two")
    before = set(store.list(""))
    listed(two.suppression)
    entries = {key: store.get(key) or b"" for key in store.list("") if key not in before}
    sweep(two, LONDON)
    Warehouse(two).publish(GRID, NOW)
    store.delete([*entries])
    land_more(one)
    its_list = [one.suppression.folder, one.folder / ".state" / "privacy"]
    folders = [tmp_path / "store", delta_folder(one), delta_folder(two), *its_list]
    keep(tmp_path, folders)

    def erase() -> None:
        for key, entry in entries.items():
            store.create(key, entry)
        publish_tables(two)

    refused = 0
    for step in range(1000):
        put_back(tmp_path, folders)
        overtaking = one.store = Overtaken(store, step, erase)
        try:
            publish_tables(one)
        except StorageError:
            refused += 1
        one.store = store
        if overtaking.left >= 0:
            break
        assert EMAIL.encode() not in everything_in(tmp_path / "store" / "delta"), step
        assert read(store) == some(published(two)), step
    assert refused > 5


def test_an_erasure_names_tables_of_another_machine_until_they_have_followed(
    machine: Callable[[str], Lake],
) -> None:
    one, two = machine("one"), machine("two")
    publish_tables(two)
    assert left_by_list(one) == []
    listed(one.suppression)
    sweep(one, LONDON)
    Warehouse(one).publish(GRID, NOW)
    tables = [f"{table} of delta/" for table in ("applicant_leads", "applicant_viewing_times", "appraisal_leads")]
    assert left_by_list(one) == tables

    two.refresh()
    sweep(two, LONDON)
    Warehouse(two).publish(GRID, NOW)
    publish_tables(two)
    assert left_by_list(one) == left_by_list(two) == []


def test_tables_that_another_machine_goes_on_with_stay_in_the_store(
    machine: Callable[[str], Lake], store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_some_tables(monkeypatch)
    one, two = machine("one"), machine("two")
    publish_tables(one)
    land_more(two)
    publish_tables(two)
    assert remove_tables(one)
    assert not delta_folder(one).exists()
    assert read(store) == some(published(two))


def test_tables_that_nobody_wants_go_from_the_store_by_the_machine_that_had_them(
    machine: Callable[[str], Lake], store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_some_tables(monkeypatch)
    one, two = machine("one"), machine("two")
    publish_tables(one)
    assert not remove_tables(two)
    assert read(store) == some(published(one))
    assert remove_tables(one)
    assert store.list("delta/") == []
    assert store.list("raw/")
