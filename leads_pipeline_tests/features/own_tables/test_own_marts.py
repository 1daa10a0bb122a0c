"""Marts and files of the agency's own: what becomes a table, what can't hurt, and what is told."""

# ruff: noqa: S608 - the statements are the tests' own

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from leads_pipeline.features.own_tables.own_marts import MakeOwnTables
from leads_pipeline.warehouse.step import Changes
from leads_pipeline_tests.support.analyst import query
from leads_pipeline_tests.support.house import House

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
    found = house.findings("own-marts")
    return {one.key.partition("/")[2]: f"{one.message} {one.what_to_do}" for one in found}


def has_table(house: House, name: str) -> bool:
    return house.query("from duckdb_tables() where table_name = ?", name) != []


# --- what becomes a table -------------------------------------------------------------------------


def test_files_become_tables_with_comments_and_read_tables_marts_macros_and_each_other(
    house: House,
) -> None:
    assert house.marts
    targets = pa.table({"scope": ["branch-101"], "target": [5]})
    pq.write_table(targets, house.marts / "targets.parquet")
    write(
        house,
        negotiators_csv="scope,negotiator,phone\nbranch-101,Ann,07700900123\n",
        a_sql="-- One row per negotiator\n-- negotiator varchar: Who\n-- leads bigint: Leads\n-- target: Target\n"
        "-- at: Branch\n\nselect negotiator, leads, target, branch_of(scope) as at from leads_by_scope "
        "join negotiators using (scope) join targets using (scope); -- done",
        leads_by_scope_sql="-- One row per scope\n-- by lead_day\n-- scope: Scope\n-- leads: Leads\n"
        "\nselect scope, sum(leads) as leads from mart_leads_daily group by scope",
    )
    house.publish()

    assert house.query("from a") == [("Ann", 2, 5, "branch-101")]
    assert house.query("from negotiators") == [("branch-101", "Ann", "07700900123")]
    comment = "select comment from duckdb_tables() where table_name = 'a'"
    assert house.query(comment) == [("One row per negotiator",)]


@pytest.mark.slow
def test_a_change_in_the_folder_alone_is_published_and_the_rest_of_the_file_stays(
    house: House,
) -> None:
    house.publish()
    write(house, a_sql=COUNT, b_csv="x\n1\n")
    house.publish()
    made = house.query("select publication from pipeline.touched_days")
    assert house.query("from a, b") == [(2, 1)]

    write(house, a_sql=COUNT + " where message = '1'", b_csv=None)
    house.publish()
    assert house.query("from a") == [(1,)]
    assert not has_table(house, "b")
    assert house.query("select publication from pipeline.touched_days") == made

    house.marts = None
    house.publish()
    assert not has_table(house, "a")


# --- what can't be made ---------------------------------------------------------------------------

ONE = "exactly one SELECT"
CASES = {
    "a column is wrong": ("select nope as leads from applicant_leads", 'column "nope" not found'),
    "it raises a lead": (
        "select error(message) as leads from applicant_leads",
        "InvalidInputException",
    ),
    # Its first line would be somebody's name.
    "a file without a header": ("select * from customers", "It doesn't select leads."),
    "several": ("select 1 as leads; drop table applicant_leads", ONE),
    "deletes within": (
        "with gone as (delete from leads.applicant_leads returning 1 as leads) select leads from "
        "gone",
        "It writes, and a mart may only read.",
    ),
    "copies": ("copy applicant_leads to '{there}/stolen.csv'", ONE),
    "reads a file": (
        "select count(*) as leads from read_csv('{there}/secret.csv')",
        "opens files",
    ),
}


@pytest.mark.slow
def test_each_mart_that_cannot_be_made_is_one_finding_keeps_its_rows_and_hurts_nothing(
    house: House, tmp_path: Path
) -> None:
    (tmp_path / "secret.csv").write_text("a\nJane Roe\n")
    names = {case: case.replace(" ", "_") for case in CASES}
    write(house, customers_csv="Jane Roe,jane@people.example\nJohn,john@people.example\n")
    write(house, fine_sql=COUNT, **{f"{name}_sql": COUNT for name in names.values()})
    house.publish()
    assert told(house) == {}
    for case, (text, _) in CASES.items():
        write(house, **{f"{names[case]}_sql": LEADS + text.replace("{there}", str(tmp_path))})
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
    assert not list(tmp_path.rglob("stolen.csv"))


def problems_in_a_draft(house: House, folder: Path, seconds: float = 60) -> dict[str, str]:
    """Make the tables in a copy of what is published. What is wrong with which file?"""
    marts = house.marts
    house.marts = None
    house.publish()
    house.marts = marts
    draft = folder / "draft.duckdb"
    shutil.copyfile(house.file, draft)
    draft.chmod(0o600)

    MakeOwnTables(house.folder, marts, house.today, seconds).sealed(draft, Changes(1, {}))
    problems = "select file, problem from pipeline.own_tables where problem is not null"
    return dict(query(draft, problems))


@pytest.mark.slow
def test_a_mart_without_end_is_stopped(house: House, tmp_path: Path) -> None:
    endless = (
        "with recursive t(n) as (select 1 union all select n + 1 from t) select count(*) as leads "
        "from t"
    )
    write(house, a_sql=LEADS + endless)

    problems = problems_in_a_draft(house, tmp_path, seconds=5)

    assert problems["a.sql"].startswith("It took longer than")


@pytest.mark.slow
def test_a_mart_without_bounds_is_stopped(house: House, tmp_path: Path) -> None:
    """DuckDB looks at its limits between its steps. The first one is one step."""
    many = "select list(lead_id || repeat('x', 1000000)) as leads from applicant_leads, range(9999)"
    write(
        house,
        a_sql=LEADS + "select length(repeat('x', 4000000000)) as leads",
        b_sql=LEADS + many,
        c_sql=COUNT,
    )

    problems = problems_in_a_draft(house, tmp_path)

    too_much = "It needs more than 350MB of memory and 1GB of disk."
    assert problems == {"a.sql": too_much, "b.sql": too_much}


@pytest.mark.slow
def test_each_file_that_makes_no_table_is_one_finding_and_hurts_no_other(house: House) -> None:
    """A name that is taken, no name, a circle, rows that can't be read, and what is no file."""
    no_file = "It isn't a file, or it is a link to a file that can't be read."
    problems = {
        "Mart_Hourly.sql": "mart_hourly itself",
        "applicant_leads.csv": "applicant_leads itself",
        "my-list.csv": "No table can have this name",
        "ok.csv": "OK.csv makes a table of this name too",
        "one.sql": "circle",
        "other.sql": "circle",
        "rows.csv": "are 3, 4.",
        "none.parquet": "",
        "pipe.csv": no_file,
    }
    assert house.marts
    for name in ("Mart_Hourly.sql", "fine.sql"):
        (house.marts / name).write_text(COUNT)
    for name in ("applicant_leads.csv", "my-list.csv", "ok.csv", "OK.csv"):
        (house.marts / name).write_text("a\n1\n")
    write(
        house,
        one_sql=LEADS + "select leads from other",
        other_sql=LEADS + "select leads from one",
        rows_csv="scope,name\nbranch-101,Ann\nbranch-102\nbranch-103,Cy,Jane Roe\nbranch-104,Di\n",
        none_parquet="none",
    )
    os.mkfifo(house.marts / "pipe.csv")

    house.publish()

    found = told(house)
    assert found.keys() == problems.keys()
    for name, problem in problems.items():
        assert problem in found[name]
    assert "Jane" not in f"{found}"
    assert house.query("from ok") == [(1,)]
    assert house.query("select name from rows") == [("Ann",), ("Di",)]
    assert house.query("from fine") == [(2,)]
    assert len(house.leads("applicant")) == 2


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
    assert house.query("from a, b") == [(2, 1)]

    away.rename(house.marts)
    house.publish()
    assert told(house) == {}
    assert house.query("from a") == [(4,)]


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

    assert told(house).keys() == {"names.sql", "list.csv"}
    assert not has_table(house, "names")
    assert not has_table(house, "list")
    assert [*house.folder.glob(".versions/*.duckdb")] == [house.file.resolve()]


@pytest.mark.slow
def test_after_an_erasure_the_tables_of_a_folder_that_is_gone_are_removed(house: House) -> None:
    write(house, names_sql=NAMED)
    house.publish()
    assert house.marts
    house.marts.rename(house.marts.with_name("away"))
    house.erase(email="jane@example.org")

    assert list(told(house)) == ["LEADS_MARTS_DIR"]
    assert not has_table(house, "names")
