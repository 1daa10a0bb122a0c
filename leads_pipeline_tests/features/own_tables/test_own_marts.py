"""Marts and files of the agency's own: what becomes a table, what can't hurt, and what is told."""

# ruff: noqa: S608 - the statements are the tests' own

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from threading import Thread

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from leads_pipeline.features.own_tables.own_marts import MakeOwnTables
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.finding import all_finders, find
from leads_pipeline.settings import Settings
from leads_pipeline.warehouse.step import Changes
from leads_pipeline_tests.support.house import House
from leads_pipeline_tests.support.newcomer import wait_for

JANE = {
    "id": "a",
    "contact": {"email": "jane@example.org", "firstName": "Jane"},
    "message": "Jane Roe",
}
JOHN = {"id": "b", "contact": {"email": "john@example.org", "firstName": "John"}, "message": "1"}
LEADS = "-- One row\n-- leads bigint: Leads\n\n"
COUNT = LEADS + "select count(*) as leads from applicant_leads"


@pytest.fixture
def house(tmp_path: Path) -> House:
    """A house with two leads, and an empty folder for marts."""
    house = House(tmp_path / "data")
    house.marts = tmp_path / "marts"
    house.marts.mkdir()
    house.land("applicant", [JANE, JOHN])
    return house


def write(house: House, **files: str | None) -> None:
    """Write files such as `name_sql`, or remove those that are None."""
    assert house.marts
    for key, text in files.items():
        name, _, suffix = key.rpartition("_")
        file = house.marts / f"{name}.{suffix}"
        if text is None:
            file.unlink()
        else:
            file.write_text(text, encoding="utf-8")


def told(house: House) -> dict[str, str]:
    """The findings about the folder, by file, each with what to do."""
    variables = {"LEADS_DATA_DIR": str(house.folder), "LEADS_MARTS_DIR": str(house.marts)}
    settings = Settings.from_variables(variables)
    found = find(Facts(settings, house.data, house.now), [all_finders()["own-marts"]])
    return {one.key.partition("/")[2]: f"{one.message} {one.what_to_do}" for one in found}


def tables(house: House) -> set[str]:
    return {
        name
        for (name,) in house.query(
            "select table_name from duckdb_tables() where schema_name = 'main'"
        )
    }


# --- what becomes a table -------------------------------------------------------------------------


def test_files_become_tables_with_comments_and_read_tables_marts_macros_and_each_other(
    house: House,
) -> None:
    assert house.marts
    write(house, negotiators_csv="scope,negotiator,phone\nbranch-101,Ann,07700900123\n")
    pq.write_table(
        pa.table({"scope": ["branch-101"], "target": [5]}), house.marts / "targets.parquet"
    )
    write(
        house,
        a_sql="-- One row per negotiator\n-- negotiator varchar: Who\n-- leads bigint: Leads\n-- target: Target\n"
        "-- at: Branch\n\nselect negotiator, leads, target, branch_of(scope) as at from leads_by_scope "
        "join negotiators using (scope) join targets using (scope); -- done",
        leads_by_scope_sql="-- One row per scope\n-- by lead_day\n-- scope: Scope\n-- leads: Leads\n"
        "\nselect scope, sum(leads) as leads from mart_leads_daily group by scope",
    )
    house.publish()

    assert house.query("from a") == [("Ann", 2, 5, "branch-101")]
    assert house.query("from negotiators") == [("branch-101", "Ann", "07700900123")]
    kind = (
        "select table_type from information_schema.tables where table_name in ('a', 'negotiators')"
    )
    assert house.query(kind) == [("BASE TABLE",)] * 2
    comments = (
        "select comment from duckdb_columns() where table_name = 'a' or table_name = 'targets'"
    )
    assert {text for (text,) in house.query(comments)} >= {"Who", "Target"}
    assert house.query(f"select count(*) from ({comments}) where comment is null") == [(0,)]
    assert house.query("select comment from duckdb_tables() where table_name = 'a'") == [
        ("One row per negotiator",)
    ]


@pytest.mark.slow
def test_a_change_in_the_folder_alone_is_published_and_the_rest_of_the_file_stays(
    house: House,
) -> None:
    house.publish()
    write(house, a_sql=COUNT, b_csv="x\n1\n")
    house.publish()
    made = house.query("select publication from pipeline.touched_days")
    assert (house.query("from a"), house.query("from b")) == ([(2,)], [(1,)])

    write(house, a_sql=COUNT + " where message = '1'", b_csv=None)
    house.publish()
    assert house.query("from a") == [(1,)]
    assert "b" not in tables(house)
    assert house.query("select publication from pipeline.touched_days") == made

    house.marts = None
    house.publish()
    assert "a" not in tables(house)


def test_answers_in_the_folder_feed_mart_answers_before_those_in_the_data_folder(
    house: House,
) -> None:
    house.land("applicant", [JANE | {"createdAt": "2026-11-19T10:00Z"}])
    house.answers([["a", "2026-11-19 10:10"]])
    house.publish()
    assert house.query("select minutes from mart_answers where lead_id = 'a'") == [(10,)]

    write(house, answers_csv="lead_id,answered_at\na,2026-11-19 10:30\n")
    house.publish()
    assert house.query("select minutes from mart_answers where lead_id = 'a'") == [(30,)]
    assert told(house) == {}


# --- what can't be made ---------------------------------------------------------------------------

HEADER = "has no header"
ONE = "exactly one SELECT"
CASES = {
    "a column is wrong": (
        LEADS + "select nope as leads from applicant_leads",
        'column "nope" not found',
    ),
    "a table is missing": (
        LEADS + "select count(*) as leads from nope",
        "Table with name nope does not exist",
    ),
    "it fails on a row": (
        LEADS + "select sum(message::int) as leads from applicant_leads",
        "ConversionException",
    ),
    "it raises a lead": (
        LEADS + "select error(message) as leads from applicant_leads",
        "InvalidInputException",
    ),
    "other columns": (
        LEADS + "select 1 as leads, 2 as more",
        "selects 2 columns, and its header has 1",
    ),
    "a file without a header": (LEADS + "select leads from customers", 'column "leads" not found'),
    "a group of such a file": (
        LEADS + "select *, count(*) as leads from customers",
        "It fails with BinderException",
    ),
    "a sum of such a file": (
        LEADS + "select sum(staff) as leads from staff",
        "It fails with BinderException",
    ),
    "all of such a file": (LEADS + "select * from customers", "It doesn't select leads."),
    "no SQL": (LEADS + "selec 1", "syntax error"),
    "nothing": (LEADS, ONE),
    "several": (LEADS + "select 1 as leads; drop table applicant_leads", ONE),
    "an end too early": (
        LEADS + "select 1 as leads); drop table leads.applicant_leads; --",
        "syntax error",
    ),
    "drops": (LEADS + "drop table applicant_leads", ONE),
    "deletes within": (
        LEADS
        + "with gone as (delete from leads.applicant_leads returning 1 as leads) select leads from "
        "gone",
        "It writes, and a mart may only read.",
    ),
    "copies": (LEADS + "copy applicant_leads to '{there}/stolen.csv'", ONE),
    "reads a file": (
        LEADS + "select count(*) as leads from read_csv('{there}/secret.csv')",
        "opens files",
    ),
    "names a file": (LEADS + "select a as leads from '{there}/secret.csv'", "opens files"),
    "unlocks": (LEADS + "select 1 as leads from enable_logging()", "InvalidInputException"),
    "no header": ("select 1 as leads", HEADER),
    "no empty line": ("-- One row\n-- leads: Leads\nselect 1 as leads", HEADER),
}


@pytest.mark.slow
def test_each_mart_that_cannot_be_made_is_one_finding_keeps_its_rows_and_hurts_nothing(
    house: House, tmp_path: Path
) -> None:
    (tmp_path / "secret.csv").write_text("a\nJane Roe\n")
    names = {case: case.replace(" ", "_") for case in CASES}
    write(
        house,
        customers_csv="Jane Roe,jane@people.example\nJohn,john@people.example\n",
        staff_csv="Ann,Roe\nJo,1\n",
    )
    write(house, fine_sql=COUNT, **{f"{name}_sql": COUNT for name in names.values()})
    house.publish()
    assert told(house) == {}
    write(
        house,
        **{
            f"{names[case]}_sql": text.replace("{there}", str(tmp_path))
            for case, (text, _) in CASES.items()
        },
    )
    house.land("applicant", [JANE, JOHN, {"id": "c"}])
    house.publish()

    found = told(house)
    assert list(found) == sorted(f"{name}.sql" for name in names.values())
    for case, (_, problem) in CASES.items():
        assert problem in found[f"{names[case]}.sql"], case
        assert "keeps its last good rows" in found[f"{names[case]}.sql"], case
        assert house.query(f"from {names[case]}") == [(2,)], case
    assert "Jane" not in f"{found}"
    assert house.query("from fine") == [(3,)]
    assert len(house.leads("applicant")) == 3
    assert house.failing_checks() == {}
    assert not {file.name for file in tmp_path.rglob("*")} & {"stolen.csv"}


def in_a_draft(house: House, folder: Path) -> Callable[..., dict[str, str]]:
    """Make the tables in a copy of what is published. What is wrong with which file?"""
    marts, house.marts = house.marts, None
    house.publish()
    house.marts = marts
    draft = folder / "draft.duckdb"
    shutil.copyfile(house.file, draft)
    draft.chmod(0o600)

    def make(
        day: date = house.today, seconds: float = 60, *, forgets: bool = False
    ) -> dict[str, str]:
        step = MakeOwnTables(house.folder, marts, day, seconds)
        step.sealed(draft, Changes(1, {}, forgets=forgets))
        with duckdb.connect(draft, read_only=True) as db:
            problems = db.execute(
                "select file, problem from pipeline.own_tables where problem is not null"
            )
            return dict(problems.fetchall())

    return make


ENDLESS = (
    LEADS
    + "with recursive t(n) as (select 1 union all select n + 1 from t) select count(*) as leads "
    "from t"
)
STOPPED = "It took longer than 60 seconds, or had its process killed."
TOO_MUCH = "It needs more than 350MB of memory and 1GB of disk."


@pytest.mark.parametrize(
    ("mart", "problem"),
    [
        pytest.param(ENDLESS, STOPPED, marks=pytest.mark.slow),
        # DuckDB looks at its limits between its steps. This is one step.
        (LEADS + "select length(repeat('x', 4000000000)) as leads", TOO_MUCH),
        (LEADS + "select repeat('x', 200000000) as leads", TOO_MUCH),
        (
            LEADS + "select list(lead_id || repeat('x', 1000000)) as leads from applicant_leads, "
            "range(10000)",
            TOO_MUCH,
        ),
    ],
)
def test_a_mart_without_end_or_bounds_is_stopped(
    house: House, tmp_path: Path, mart: str, problem: str
) -> None:
    write(house, a_sql=mart, b_sql=COUNT)

    assert in_a_draft(house, tmp_path)(seconds=5 if mart is ENDLESS else 60) == {"a.sql": problem}


@pytest.mark.slow
def test_a_mart_that_was_stopped_is_tried_again_each_day_when_its_file_changes_and_after_an_erasure(
    house: House, tmp_path: Path
) -> None:
    much = LEADS + "select length(repeat('x', n)) as leads from steps"
    write(house, a_sql=much, steps_csv="n\n4000000000\n")
    make = in_a_draft(house, tmp_path)
    stopped = {"a.sql": TOO_MUCH}
    assert make() == stopped

    write(house, steps_csv="n\n1\n")
    assert make() == stopped
    assert make(house.today + timedelta(days=1)) == {}
    write(house, steps_csv="n\n4000000000\n")
    assert make() == stopped
    write(house, steps_csv="n\n1\n")
    assert make(forgets=True) == {}
    write(house, steps_csv="n\n4000000000\n")
    assert make() == stopped
    write(house, steps_csv="n\n1\n", a_sql=much + " ")
    assert make() == {}


def test_a_mart_whose_process_is_killed_is_a_finding_and_the_others_are_made(
    house: House, tmp_path: Path
) -> None:
    write(house, a_sql=ENDLESS, b_sql=COUNT)
    make = in_a_draft(house, tmp_path)
    with killing(tmp_path, makers):
        assert make() == {"a.sql": STOPPED}
    assert make(seconds=300) == {"a.sql": STOPPED}  # it isn't tried


def test_a_killed_publication_leaves_no_process_and_the_next_one_removes_its_files(
    house: House, tmp_path: Path
) -> None:
    write(house, a_sql=ENDLESS)
    in_a_draft(house, tmp_path)
    code = (
        "from datetime import date; from pathlib import Path; "
        "from leads_pipeline.features.own_tables.own_marts import *; "
        f"MakeOwnTables(Path('{house.folder}'), Path('{house.marts}'), date.min)"
        f".sealed(Path('{tmp_path}/draft.duckdb'), Changes(1, {{}}))"
    )
    left: list[int] = []

    def find() -> list[int]:
        left.extend(children_of(publication.pid))
        return [publication.pid]

    with subprocess.Popen([sys.executable, "-c", code]) as publication, killing(tmp_path, find):
        pass
    assert left
    wait_for(lambda: not any(map(is_running, left)))
    assert [*(house.folder / ".state" / "duckdb").iterdir()]

    write(house, a_sql=COUNT)
    house.publish()
    assert not [*(house.folder / ".state" / "duckdb").iterdir()]
    assert not [*(house.folder / ".state" / "locks").glob("spill-*")]


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@contextmanager
def killing(folder: Path, find: Callable[[], list[int]]) -> Iterator[None]:
    """Kill the processes as soon as one makes a table."""

    def kill() -> None:
        while not (folder / "draft-own.duckdb").exists():
            time.sleep(0.01)
        for process in find():
            os.kill(process, signal.SIGKILL)

    thread = Thread(target=kill)
    thread.start()
    yield
    thread.join()


def makers() -> list[int]:
    """The children that make tables. Other tests have children too, such as a server of buckets."""
    return [
        child
        for child in children_of(os.getpid())
        if b"own_table" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def children_of(process: int) -> list[int]:
    files = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for file in files for child in file.read_text().split()]


def test_a_name_that_is_taken_or_no_name_is_a_finding_that_names_both_files(house: House) -> None:
    problems = {
        "mart_people.sql": "mart_people itself",
        "Mart_Hourly.sql": "mart_hourly itself",
        "applicant_leads.csv": "applicant_leads itself",
        "raw_inventory.csv": "raw_inventory itself",
        "order.csv": "No table can have this name",
        "my-list.csv": "No table can have this name",
        "été.csv": "No table can have this name",
        "ok.csv": "OK.csv makes a table of this name too",
    }
    assert house.marts
    for name in (*problems, "OK.csv"):
        (house.marts / name).write_text(COUNT if name.endswith("sql") else "a\n1\n")
    house.publish()

    found = told(house)
    assert list(found) == sorted(problems)
    assert all(problem in found[name] for name, problem in problems.items())
    assert house.query("from ok") == [(1,)]
    assert len(house.leads("applicant")) == 2
    assert house.failing_checks() == {}


@pytest.mark.slow
def test_a_table_with_the_name_of_a_table_that_publishing_uses_for_itself_does_no_harm(
    house: House,
) -> None:
    names = ("touched", "hashes", "lowered", "every_lead", "leads", "made")
    write(house, **{f"{name}_csv": "x\n1\n" for name in names})
    house.publish()
    house.land("applicant", [JANE, JOHN, {"id": "c"}])
    house.erase(email="john@example.org")

    assert set(house.leads("applicant")) == {"a", "c"}
    assert [house.query(f'from main."{name}"') for name in names] == [[(1,)]] * len(names)


def test_marts_that_read_each_other_in_a_circle_are_findings_and_the_others_are_made(
    house: House,
) -> None:
    write(
        house, a_sql=LEADS + "select leads from b", b_sql=LEADS + "select leads from a", c_sql=COUNT
    )
    house.publish()

    found = told(house)
    assert set(found) == {"a.sql", "b.sql"}
    assert "circle" in found["a.sql"]
    assert house.query("from c") == [(2,)]


def test_a_comment_or_a_column_with_a_marts_name_is_no_circle(house: House) -> None:
    write(
        house,
        a_sql=LEADS + "select leads from B -- for c",
        b_sql=LEADS + "select a as leads from (select 1 as a, 2 as c)",
        c_sql=LEADS + "select leads /* see b */ from a",
    )
    house.publish()

    assert told(house) == {}
    assert house.query("from c") == [(1,)]


def test_rows_of_a_csv_that_cannot_be_read_are_named_by_their_lines(house: House) -> None:
    write(
        house,
        a_csv="scope,name\nbranch-101,Ann\nbranch-102\nbranch-103,Cy,Jane Roe\nbranch-104,Di\n",
    )
    assert house.marts
    (house.marts / "b.parquet").write_bytes(b"none")
    house.publish()

    found = told(house)
    assert set(found) == {"a.csv", "b.parquet"}
    assert "are 3, 4." in found["a.csv"]
    assert "Jane" not in found["a.csv"]
    assert house.query("select name from a") == [("Ann",), ("Di",)]


def test_what_is_no_file_is_a_finding_of_its_own_and_hurts_no_other(house: House) -> None:
    write(house, fine_sql=COUNT)
    assert house.marts
    os.mkfifo(house.marts / "answers.csv")
    os.mkfifo(house.folder / "answers.parquet")
    os.mkfifo(house.marts / "pipe.csv")
    os.mkfifo(house.marts / "pipe2.sql")
    (house.marts / "link.csv").symlink_to("nowhere")
    (house.marts / "folder.parquet").mkdir()
    house.publish()

    found = told(house)
    assert set(found) == {"answers.csv", "pipe.csv", "pipe2.sql", "link.csv", "folder.parquet"}
    assert all(
        "It isn't a file, or it is a link to a file that can't be read." in text
        for text in found.values()
    )
    assert house.query("from fine") == [(2,)]


@pytest.mark.slow
def test_a_folder_that_is_gone_is_one_finding_and_the_tables_stay(house: House) -> None:
    write(house, a_sql=COUNT, b_csv="x\n1\n")
    house.publish()
    assert house.marts
    away = house.marts.rename(house.marts.with_name("away"))
    for number in range(2):
        house.land("applicant", [JANE, JOHN, {"id": f"more-{number}"}])
        house.publish()

    assert list(told(house)) == ["LEADS_MARTS_DIR"]
    assert (house.query("from a"), house.query("from b")) == ([(2,)], [(1,)])

    away.rename(house.marts)
    write(house, b_csv=None)
    house.publish()
    assert told(house) == {}
    assert house.query("from a") == [(4,)]
    assert "b" not in tables(house)


# --- people ---------------------------------------------------------------------------------------

NAMES = "-- One row per lead\n-- name: Name\n-- message: Message\n\n"
NAMED = NAMES + "select contact_first_name as name, message from applicant_leads"


@pytest.mark.slow
def test_after_an_erasure_an_own_mart_is_as_if_the_person_had_never_been(
    house: House, tmp_path: Path
) -> None:
    write(house, names_sql=NAMED, again_sql=NAMES + "select name, message from names")
    house.publish()
    assert ("Jane", "Jane Roe") in house.query("from again")
    house.erase(email="jane@example.org")

    never = House(tmp_path / "never" / "data")
    never.marts = house.marts
    never.land("applicant", [JOHN])
    never.publish()
    assert house.tables()["names"] == never.tables()["names"]
    assert house.tables()["again"] == never.tables()["again"]


@pytest.mark.slow
def test_after_an_erasure_an_own_mart_that_fails_is_removed(house: House) -> None:
    write(house, names_sql=NAMED, list_csv="name\nJane\n")
    house.publish()
    write(house, names_sql=NAMES + "select nope", list_csv=None)
    assert house.marts
    (house.marts / "list.csv").mkdir()
    house.erase(email="jane@example.org")

    assert set(found := told(house)) == {"names.sql", "list.csv"}
    assert "last good rows" not in f"{found}"
    assert not {"names", "list"} & tables(house)
    assert [file.name for file in (house.folder / ".versions").glob("*.duckdb")] == [
        house.file.resolve().name
    ]


@pytest.mark.slow
def test_after_an_erasure_the_tables_of_a_folder_that_is_gone_are_removed(house: House) -> None:
    write(house, names_sql=NAMED)
    house.publish()
    assert house.marts
    house.marts.rename(house.marts.with_name("away"))
    house.erase(email="jane@example.org")

    assert list(told(house)) == ["LEADS_MARTS_DIR"]
    assert "names" not in tables(house)
