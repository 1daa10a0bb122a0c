import json
import random
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import wraps
from importlib.resources import files
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from leads_pipeline.contract import APPLICANT, APPRAISAL, LEAD_KINDS, Field, FieldType, LeadKind
from leads_pipeline.duck import sweep_readers
from leads_pipeline.flatten import batches, raw, repair, statement, windows
from leads_pipeline.flatten.batches import flatten_day, flatten_days
from leads_pipeline.flatten.columns import staged_columns, staged_tables
from leads_pipeline.flatten.counts import StagedDay, UnbalancedError
from leads_pipeline.flatten.lost import LostRawError
from leads_pipeline.flatten.plain import Plain, plain_leads
from leads_pipeline.lake import Lake
from leads_pipeline.lake.sealed import seal
from leads_pipeline.warehouse import Grid, Warehouse
from leads_pipeline.window import offsets
from leads_pipeline_tests.support import statements
from leads_pipeline_tests.support.drifting import drifting_leads, leads_with_one_change
from leads_pipeline_tests.support.staging import (
    DAY,
    FETCHED_AT,
    LONDON,
    NEXT_DAY,
    land,
    stage,
    staged_leads,
    staged_rows,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "data")


def flattened(lake: Lake, *leads: str | dict[str, Any], kind: LeadKind = APPLICANT) -> list[dict[str, Any]]:
    """The leads as staged rows, in the order given. Those without an id get one."""
    with_ids = [lead if isinstance(lead, str) else {"id": f"lead-{n:04}"} | lead for n, lead in enumerate(leads)]
    land(lake, kind, with_ids)
    stage(lake, kind)
    return staged_rows(lake, kind.table)


# --- types --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LEAD_KINDS, ids=lambda kind: kind.name)
def test_staged_files_have_the_declared_columns_even_when_nothing_was_landed(lake: Lake, kind: LeadKind) -> None:
    empty = stage(lake, kind)
    land(lake, kind, [])
    nothing = stage(lake, kind)

    assert (set(empty.rows.values()), empty.raw_rows) == ({0}, 0)
    assert {table: rows for table, rows in nothing.rows.items() if rows} == {f"{kind.name}_windows": 1}
    with duckdb.connect() as db:
        for table, columns in staged_columns(kind).items():
            described = db.execute(
                "describe from read_parquet($path, hive_partitioning = false)",
                {"path": str(lake.staged_path(table, DAY))},
            ).fetchall()
            types = [db.execute(f"select null::{column.type}").description[0][1] for column in columns]
            assert [name for name, *_ in described] == [column.name for column in columns]
            assert [type_ for _, type_, *_ in described] == [str(type_) for type_ in types]


# --- drift --------------------------------------------------------------------------------------------------------


def test_a_key_that_stands_twice_is_a_problem_and_the_first_counts(lake: Lake) -> None:
    rows = flattened(
        lake,
        '{"id":"a","intent":"one","intent":"two"}',
        '{"id":"b","contact":{"email":"x","email":"y","new":1,"new":1},"message":null}',
    )

    assert [(row["intent"], row["contact_email"], row["_problems"]) for row in rows] == [
        ("one", None, ["intent"]),
        (None, "x", ["contact.email", "contact.new"]),
    ]


@pytest.mark.parametrize("colon", ["\\u003a", "\\u003A"])
def test_a_colon_written_as_an_escape_makes_up_for_no_key_that_stands_twice(lake: Lake, colon: str) -> None:
    (row,) = flattened(lake, f'{{"id":"a","message":"first","message":"at 10{colon}30"}}')
    assert (row["message"], row["_problems"]) == ("first", ["message"])


def test_a_colon_written_as_an_escape_makes_up_for_no_key_that_stands_twice_in_another_lead(lake: Lake) -> None:
    rows = flattened(lake, '{"id":"a","message":"at 10\\u003a30"}', '{"id":"b","message":"first","message":"second"}')
    assert [(row["message"], row["_problems"]) for row in rows] == [("at 10:30", []), ("first", ["message"])]


@pytest.mark.parametrize("second", ['{"images":[{"original":"b","other":2}]}', '{"images":[]}', "{}", "5"])
def test_a_list_whose_owner_stands_twice_keeps_the_first_ones_elements(lake: Lake, second: str) -> None:
    first = '{"images":[{"original":"a","new":1}]}'

    (row,) = flattened(lake, f'{{"id":"a","listingDetails":{first},"listingDetails":{second}}}')

    assert row["_problems"] == ["listingDetails"]
    (image,) = staged_rows(lake, "applicant_listing_images")
    assert (image["original"], image["_problems"], image["_extra"]) == ("a", ["_extra"], None)


# --- child tables -------------------------------------------------------------------------------------------------


class Counting:
    """A decoder that counts the bytes it is given."""

    def __init__(self, decoder: Any, read: list[int]) -> None:
        self._decoder = decoder
        self._read = read

    def decode(self, text: bytes) -> Any:
        self._read.append(len(text))
        return self._decoder.decode(text)


@pytest.mark.parametrize(
    "drift",
    [
        lambda number: {"viewingTimes": [{"a": at} for at in range(number)]},
        lambda number: {"listingDetails": {"images": [{"filename": 1.5, "tags": [{"a": 1}] * 12}] * number}},
        lambda number: {"listingDetails": {"images": [{"filename": 1.5}] * number}},
        lambda number: {"new": [{"a": at} for at in range(number)]},
        lambda number: {"contact": {f"new {at}": {"a": at} for at in range(number)}},
    ],
    ids=["unknown members", "unknown lists", "numbers for texts", "an unknown list", "unknown names"],
)
def test_what_is_read_of_a_lead_that_drifts_grows_as_the_lead_does(
    lake: Lake, drift: Callable[[int], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read the lead once more for each element would take 3,000 times its length here."""
    read: list[int] = []
    for name in ("_MEMBERS", "_ELEMENTS", "_OBJECTS"):
        monkeypatch.setattr(repair, name, Counting(getattr(repair, name), read))

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)  # DuckDB counts the parameters
        def call(*arguments: Any) -> Any:
            read.extend(len(text) for text in arguments if isinstance(text, str))
            return function(*arguments)

        return call

    for name in ("unknown_members", "_extras", "_elements", "_written"):
        monkeypatch.setattr(repair, name, counted(getattr(repair, name)))
    lead = json.dumps({"id": "a"} | drift(3000))
    land(lake, APPLICANT, [lead])

    stage(lake, APPLICANT)

    assert sum(read) < 20 * len(lead)


@pytest.mark.parametrize("known", ["message", "new 7", 'a quoted " 7'])
def test_a_key_that_stands_twice_among_many_is_a_problem(lake: Lake, known: str) -> None:
    many = {f"new {number}": number for number in range(100)} | {'a quoted " 7': 1, "a quoted ": 2, "message": "m"}
    body = json.dumps({"id": "a"} | many)
    land(lake, APPLICANT, [f"{body[:-1]},{json.dumps(known)}:1}}", body.replace('"a"', '"b"', 1)])
    stage(lake, APPLICANT)

    assert [row["_problems"] for row in staged_rows(lake, "applicant_leads")] == [[known], []]


# --- days and duplicates ------------------------------------------------------------------------------------------


def test_a_leads_day_is_that_of_its_window_where_duckdb_knows_another_time(lake: Lake) -> None:
    """DuckDB knows this zone by its name and so for British; Python has newer data, by which it is 9 hours ahead."""
    with (files("tzdata.zoneinfo") / "Asia" / "Tokyo").open("rb") as file:
        zone = ZoneInfo.from_file(file, key="Europe/London")
    land(lake, APPLICANT, [{"id": "a", "createdAt": f"{DAY}T14:59:59Z"}, {"id": "b", "createdAt": f"{DAY}T15:00:00Z"}])
    flatten_day(lake, APPLICANT, DAY, zone)
    assert {key: row["lead_day"] for key, row in staged_leads(lake, APPLICANT).items()} == {"a": DAY, "b": NEXT_DAY}


def test_the_same_raw_files_give_the_same_bytes(lake: Lake) -> None:
    rng = random.Random(7)  # noqa: S311 - a made-up day, the same each time
    for scope in range(3):
        leads = [
            {"id": f"{rng.getrandbits(64):x}", "message": "x" * rng.randrange(300), "new": number, "isOverseas": "?",
             "viewingTimes": [{"earliest": "2026-11-20T10:00Z"}] * rng.randrange(3)} for number in range(3000)
        ]  # fmt: skip
        land(lake, APPLICANT, leads, scope=f"branch-{scope}")
    stage(lake, APPLICANT)
    paths = [lake.staged_path(table, DAY) for table in staged_tables(APPLICANT)]
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}

    stage(lake, APPLICANT)

    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths} == before


def test_a_day_in_parts_has_the_same_bytes_and_counts_as_at_once(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        leads: list[dict[str, Any]] = [
            *(
                {"id": f"{name}-{number}", "new": 1, "viewingTimes": [{}, {"new": 2}], "createdAt": "?", "contact": 5}
                for name in "abc"
            ),
            {"id": "in each window", "message": str(number)},
            {"id": "as often as it came", "message": "same"},
        ]
        land(lake, APPLICANT, [*leads, '{"id":"mended","message":"\n"}'], scope=f"branch-{number}")
    stage(lake, APPLICANT)
    at_once = Lake(tmp_path / "at once")
    shutil.copytree(lake.folder, at_once.folder)
    expected = stage(at_once, APPLICANT)
    monkeypatch.setattr(raw, "PART_ROWS", 1)
    parts: list[int] = []

    def counted(db: duckdb.DuckDBPyConnection, kind: LeadKind, received: pa.Table) -> int:
        parts.append(len(received))
        return raw.read_part(db, kind, received)

    monkeypatch.setattr(batches, "read_part", counted)

    assert stage(lake, APPLICANT) == expected

    assert len(parts) == 4
    for table in staged_tables(APPLICANT):
        assert lake.staged_path(table, DAY).read_bytes() == at_once.staged_path(table, DAY).read_bytes()


@pytest.mark.slow
def test_a_file_of_several_row_groups_is_in_order(lake: Lake) -> None:
    for number in range(5):
        land(lake, APPRAISAL, [{"id": f"{n:05}-{number}"} for n in range(60_000)], scope=f"branch-{number}")

    stage(lake, APPRAISAL)

    ids = [row["lead_id"] for row in staged_rows(lake, "appraisal_leads")]
    assert ids == sorted(ids)


@pytest.mark.slow
def test_days_flattened_together_are_as_if_each_were_flattened_alone(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = [DAY - timedelta(days=number) for number in range(7)]
    for number, day in enumerate(days):
        # One id on every day and twice in one; drift, problems and children; the last day has nothing.
        leads = [
            {
                "id": name,
                "createdAt": f"{'2026' if number % 2 else '0001'}-01-01T00:00Z",
                "new": number,
                "isOverseas": "?",
                "viewingTimes": [{}] * number,
            }
            for name in ("everywhere", "everywhere", *map(str, range(number)))
        ]
        if number < 6:
            land(lake, APPLICANT, leads, day=day)
    alone = Lake(tmp_path / "alone")
    shutil.copytree(lake.folder / "raw", alone.folder / "raw")
    monkeypatch.setattr(batches, "BATCH_LEADS", 10)

    together = dict(flatten_days(lake, APPLICANT, days, LONDON))

    assert together == {day: flatten_day(alone, APPLICANT, day, LONDON) for day in days}
    for table in staged_tables(APPLICANT):
        for day in days:
            assert lake.staged_path(table, day).read_bytes() == alone.staged_path(table, day).read_bytes()


def test_a_landing_during_the_flattening_changes_nothing_of_it(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    land(lake, APPLICANT, [{"id": "a", "viewingTimes": [{}]}])
    read_raw = raw.read_raw

    def landing_in_between(db: duckdb.DuckDBPyConnection, files: Mapping[Path, int | None]) -> Iterator[pa.Table]:
        land(lake, APPLICANT, [{"id": "b", "viewingTimes": [{}, {}]}])
        return read_raw(db, files)

    monkeypatch.setattr(batches, "read_raw", landing_in_between)
    staged = stage(lake, APPLICANT)

    assert (staged.raw_rows, dict(staged.rows)) == (
        1,
        {"applicant_leads": 1, "applicant_viewing_times": 1, "applicant_listing_images": 0, "applicant_windows": 1},
    )
    assert [row["rows"] for row in staged_rows(lake, "applicant_windows")] == [1]


def test_a_process_that_flattens_ends_without_a_word(lake: Lake) -> None:
    land(lake, APPRAISAL, [{"id": "a", "new": 1}])
    script = f"""
        from datetime import date
        from pathlib import Path
        from zoneinfo import ZoneInfo
        from leads_pipeline.contract import APPRAISAL
        from leads_pipeline.flatten.batches import flatten_day
        from leads_pipeline.lake import Lake
        flatten_day(Lake(Path({str(lake.folder)!r})), APPRAISAL, date({DAY.year}, {DAY.month}, {DAY.day}),
                    ZoneInfo("Europe/London"))
    """

    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# --- whatever comes -----------------------------------------------------------------------------------------------


# What was lost is named, so that making a failing day of fifty leads ever smaller isn't worth its minutes.
drifting = settings(
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


def check_both_ways(lake: Lake, kind: LeadKind, sent: list[str]) -> None:
    """The short statement gives of plain leads what the full one gives, and so do both of a day that has others too."""
    land(lake, kind, sent)
    staged = stage(lake, kind)
    paths = [lake.staged_path(table, DAY) for table in staged_tables(kind)]
    short = [path.read_bytes() for path in paths]

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(raw, "plain_leads", lambda _: lambda texts: [None] * len(texts))
        full = stage(lake, kind)

    assert staged == full
    for path, before in zip(paths, short, strict=True):
        if path.read_bytes() != before:
            after = staged_rows(lake, path.stem)
            path.write_bytes(before)
            rows = staged_rows(lake, path.stem)
            differ = [pair for pair in zip(rows, after, strict=True) if pair[0] != pair[1]]
            assert [
                (row["lead_id"], name, row[name], other[name])
                for row, other in differ
                for name in row
                if row[name] != other[name]
            ] == []
            assert before == b"other bytes of the same rows"


# A contract whose lists hold every type of field, at their top and deeper.
EVERY_TYPE = tuple(Field(f"{owner}{type_.value}", type_, "") for owner in ("", "deep.") for type_ in FieldType)
RICHER = replace(APPLICANT, children=tuple(replace(child, fields=EVERY_TYPE) for child in APPLICANT.children))


@pytest.mark.parametrize(
    "kind", [*LEAD_KINDS, pytest.param(RICHER, marks=pytest.mark.slow)], ids=["applicant", "appraisal", "every type"]
)
def test_a_plain_lead_has_the_same_rows_by_the_short_statement_and_by_the_full_one(lake: Lake, kind: LeadKind) -> None:
    sent = leads_with_one_change(kind)
    texts = [text.encode(errors="surrogateescape") for text in sent]
    read = plain_leads(kind)
    alone = [one for text in texts for one in read([text])]
    plain = [text for text, one in zip(sent, alone, strict=True) if one]
    assert len(sent) / 10 < len(plain) < len(sent) / 2  # both ways are gone
    assert read(texts) == alone
    neighbours = [b'{"id":"a"}'] * 6
    assert [read([text, None, *neighbours]) for text in texts] == [[one, None, *[Plain()] * 6] for one in alone]

    check_both_ways(lake, kind, sent)


@pytest.mark.slow
@pytest.mark.parametrize("kind", LEAD_KINDS, ids=lambda kind: kind.name)
@settings(drifting, max_examples=100)
@given(data=st.data())
def test_thousands_of_drifting_leads_have_the_same_rows_by_either_statement(
    tmp_path_factory: pytest.TempPathFactory, kind: LeadKind, data: st.DataObject
) -> None:
    check_both_ways(Lake(tmp_path_factory.mktemp("both")), kind, data.draw(drifting_leads(kind)))


@pytest.mark.parametrize("kind", LEAD_KINDS, ids=lambda kind: kind.name)
def test_the_statements_are_those_that_were_reviewed(kind: LeadKind) -> None:
    committed = (statements.FOLDER / f"{kind.name}.sql").read_text()
    assert statements.generated(kind) == committed, "renew: .venv/bin/python -m leads_pipeline_tests.support.statements"


@pytest.mark.parametrize("is_plain", [True, False], ids=["by the short statement", "by the full one"])
def test_a_key_field_that_flattening_loses_is_counted(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, is_plain: bool
) -> None:
    leads: list[dict[str, Any]] = [
        {"id": "a", "createdAt": "2026-11-19T09:00:00Z", "contact": {"email": "a@example.com"}},
        {"id": "b", "createdAt": "0001-01-01T00:00Z", "contact": {"email": None}},
        {"id": "c", "createdAt": "yesterday"},
    ]
    land(lake, APPRAISAL, leads)
    plain = Plain() if is_plain else None
    monkeypatch.setattr(raw, "plain_leads", lambda _: lambda texts: [plain] * len(texts))
    assert flatten_day(lake, APPRAISAL, DAY, LONDON).unexplained == 0

    intact = statement.columns_of
    email = '"value of contact_email" as'
    monkeypatch.setattr(statement, "columns_of", lambda fields: intact(fields).replace(email, "null::varchar as"))
    monkeypatch.setattr(statement, "_untyped", lambda _: "null")
    monkeypatch.setattr(statement, "statements_of", statement.statements_of.__wrapped__)  # what isn't cached
    with pytest.raises(UnbalancedError, match="2 lack a key field"):  # a's address, c's moment
        flatten_day(lake, APPRAISAL, DAY, LONDON)


@pytest.mark.parametrize(
    ("name", "broken", "said"),
    [
        (
            "_LEADS",
            lambda sound: f"{sound} where lead_id <> 'b'",
            "1 are repeats, 2 were to be staged, with 2 diff",
        ),
        (
            "_DROPPED",
            lambda sound: sound.replace("> 1", "> 9"),
            "0 are repeats, 4 were to be staged, with 3 diff",
        ),
    ],
    ids=["a lead is lost", "a lead is there twice"],
)
def test_a_day_that_does_not_add_up_keeps_its_files_and_holds_up_no_other(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, name: str, broken: Callable[[str], str], said: str
) -> None:
    days = [DAY, NEXT_DAY]
    for day in days:
        land(lake, APPRAISAL, [{"id": "a"}], day=day)
    assert len(dict(flatten_days(lake, APPRAISAL, days, LONDON))) == 2
    before = lake.staged_path("appraisal_leads", DAY).read_bytes()
    land(lake, APPRAISAL, [{"id": "b"}, {"id": "c"}])
    land(lake, APPRAISAL, [{"id": "a"}], scope="branch-102")
    land(lake, APPRAISAL, [{"id": "d"}], day=NEXT_DAY)
    monkeypatch.setattr(raw, name, broken(getattr(raw, name)))

    found = dict(flatten_days(lake, APPRAISAL, days, LONDON))

    assert isinstance(found[DAY], UnbalancedError)
    assert said in str(found[DAY])
    assert lake.staged_path("appraisal_leads", DAY).read_bytes() == before
    assert isinstance(found[NEXT_DAY], StagedDay)
    assert staged_leads(lake, APPRAISAL, NEXT_DAY).keys() == {"a", "d"}


def test_a_staged_day_accounts_for_every_row(lake: Lake) -> None:
    land(lake, APPRAISAL, [{"id": "a"}, {"id": "b"}])
    land(lake, APPRAISAL, [{"id": "b"}], scope="branch-102")

    staged = flatten_day(lake, APPRAISAL, DAY, LONDON)

    assert staged == StagedDay(
        kind="appraisal",
        day=DAY,
        raw_rows=3,
        duplicates=1,
        lead_ids=2,
        unexplained=0,
        rows={"appraisal_leads": 2, "appraisal_windows": 2},
        problems={},
        extra={},
    )


# --- what raw has lost -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("is_gone", [False, True])
def test_a_day_with_a_damaged_or_missing_raw_file_stays_as_it_was_staged_until_it_is_whole(
    lake: Lake, is_gone: bool
) -> None:
    land(lake, APPLICANT, [{"id": "a"}, {"id": "b"} | viewed()], scope="branch-101")
    land(lake, APPLICANT, [{"id": "c"} | viewed()], scope="branch-102")
    stage(lake, APPLICANT)
    held = {table: lake.staged_path(table, DAY).read_bytes() for table in staged_tables(APPLICANT)}
    path = lake.window_path(APPLICANT, DAY, "branch-101")
    path.unlink() if is_gone else path.write_bytes(b"rotten")
    land(lake, APPLICANT, [{"id": "d"}], scope="branch-102", fetched_at=FETCHED_AT + timedelta(hours=1))
    for _ in range(2):
        with pytest.raises(LostRawError) as told:
            stage(lake, APPLICANT)
        assert {table: lake.staged_path(table, DAY).read_bytes() for table in staged_tables(APPLICANT)} == held
    aside = lake.quarantined()
    assert len(aside) == (0 if is_gone else 1)
    assert all(str(one) in str(told.value) for one in (aside and [path, *aside]))
    assert f"applicant leads of {DAY}" in str(told.value)
    land(lake, APPLICANT, [{"id": "a"}, {"id": "b"} | viewed()], scope="branch-101")
    assert stage(lake, APPLICANT).raw_rows == 4
    assert sorted(staged_leads(lake, APPLICANT)) == ["a", "b", "c", "d"]


def test_a_lead_that_the_portal_no_longer_has_keeps_its_day_as_it_was_staged(lake: Lake) -> None:
    land(lake, APPLICANT, [{"id": "a"}, {"id": "b"}], scope="branch-101")
    stage(lake, APPLICANT)
    lake.window_path(APPLICANT, DAY, "branch-101").write_bytes(b"rotten")
    assert lake.landed_windows(APPLICANT, DAY) == []
    land(lake, APPLICANT, [{"id": "a"}], scope="branch-101")
    with pytest.raises(LostRawError, match="they lack 1 leads that are staged or published"):
        stage(lake, APPLICANT)
    assert sorted(staged_leads(lake, APPLICANT)) == ["a", "b"]


def test_what_is_left_of_a_day_is_staged_once_the_rest_is_deleted_as_the_error_says(lake: Lake) -> None:
    for branch in (101, 102):
        land(lake, APPLICANT, [{"id": f"of {branch}"}], scope=f"branch-{branch}")
    stage(lake, APPLICANT)
    Warehouse(lake).publish(Grid((), DAY, LONDON), FETCHED_AT)
    lake.window_path(APPLICANT, DAY, "branch-101").write_bytes(b"rotten")
    with pytest.raises(LostRawError) as told:
        stage(lake, APPLICANT)
    _, _, command = str(told.value).partition(": rm -r ")
    subprocess.run(f"rm -r {command.partition(' (')[0]}", shell=True, check=True)  # noqa: S602 - as a person would
    stage(lake, APPLICANT)
    assert list(staged_leads(lake, APPLICANT)) == ["of 102"]
    assert lake.quarantined() == []


def viewed() -> dict[str, Any]:
    """Members that make a row in each of the child tables."""
    made: dict[str, Any] = {}
    for child in APPLICANT.children:
        *objects, name = child.path.split(".")
        inside = made
        for step in objects:
            inside = inside.setdefault(step, {})
        inside[name] = [{}]
    return made


def test_a_newer_version_that_raw_has_lost_stays_until_raw_has_a_newer_one(lake: Lake) -> None:
    later = FETCHED_AT + timedelta(hours=1)
    land(lake, APPLICANT, [{"id": "a", "message": "old"}], scope="branch-101")
    land(lake, APPLICANT, [{"id": "a", "message": "new"} | viewed()], scope="branch-102", fetched_at=later)
    assert stage(lake, APPLICANT).duplicates == 1
    lake.window_path(APPLICANT, DAY, "branch-102").unlink()
    with pytest.raises(LostRawError):
        stage(lake, APPLICANT)
    assert [(row["message"], row["scope"]) for row in staged_rows(lake, "applicant_leads")] == [("new", "branch-102")]
    newest = later + timedelta(hours=1)
    land(lake, APPLICANT, [{"id": "a", "message": "newest"}], scope="branch-101", fetched_at=newest)
    stage(lake, APPLICANT)
    assert [row["message"] for row in staged_rows(lake, "applicant_leads")] == ["newest"]
    assert staged_rows(lake, "applicant_listing_images") == []


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_day_whose_staged_file_is_damaged_as_well_is_compared_with_what_is_published(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, is_gone: bool
) -> None:
    days = [DAY, NEXT_DAY]
    for day in days:
        land(lake, APPLICANT, [{"id": f"lost of {day}"}], scope="branch-101", day=day)
        land(lake, APPLICANT, [{"id": "there"}], scope="branch-102", day=day)
        stage(lake, APPLICANT, day)
    Warehouse(lake).publish(Grid((), DAY, LONDON), FETCHED_AT)
    for day in days:
        lake.window_path(APPLICANT, day, "branch-101").unlink()
        path = lake.staged_path("applicant_leads", day)
        path.unlink() if is_gone else path.write_bytes(path.read_bytes()[:-20])
    monkeypatch.setattr(batches, "BATCH_LEADS", 1)

    staged = dict(flatten_days(lake, APPLICANT, days, LONDON))

    assert [type(staged[day]) for day in days] == [LostRawError, LostRawError]


def test_a_broken_warehouse_keeps_no_day_from_being_staged(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    days = [DAY, NEXT_DAY]
    for day in days:
        land(lake, APPLICANT, [{"id": "a"}], day=day)
    (lake.folder / "leads.duckdb").write_bytes(b"broken")
    monkeypatch.setattr(batches, "BATCH_LEADS", 1)
    for _, staged in flatten_days(lake, APPLICANT, days, LONDON):
        assert isinstance(staged, StagedDay)
        assert staged.rows["applicant_leads"] == 1


def test_what_an_earlier_version_staged_without_numbers_is_compared_by_its_moments(lake: Lake) -> None:
    land(lake, APPLICANT, [{"id": "a"}])
    stage(lake, APPLICANT)
    path = lake.staged_path("applicant_leads", DAY)
    with duckdb.connect() as db:
        db.execute(f"copy (select * exclude (sequence) from '{path}') to '{path}.x' (format parquet)")  # noqa: S608
    path.write_bytes(seal(Path(f"{path}.x").read_bytes()))
    Path(f"{path}.x").unlink()
    assert stage(lake, APPLICANT).rows["applicant_leads"] == 1
    shutil.rmtree(lake.folder / "raw")
    with pytest.raises(LostRawError):
        stage(lake, APPLICANT)


def test_what_a_killed_query_on_staged_files_left_is_swept_and_one_under_way_is_not(lake: Lake) -> None:
    scratch = lake.folder / ".state" / "duckdb"
    (scratch / "query-0123456789abcdef" / "query-spill").mkdir(parents=True)
    with windows.querying(lake):
        sweep_readers(lake)
        assert len(list(scratch.iterdir())) == 1
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("name", ["Europe/London", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Kolkata", "UTC"])
def test_local_time_is_what_the_clocks_show_before_and_after_each_change(name: str) -> None:
    zone = ZoneInfo(name)
    changes = [since for since, _ in offsets(zone)[1:]] or [datetime(2026, 6, 1, tzinfo=UTC)]
    moments = [change + timedelta(microseconds=by) for change in changes for by in (-1, 0)]
    with duckdb.connect() as db:
        statement.define_local_time(db, offsets(zone))
        moment = "(select unnest($moments::timestamptz[]) as moment)"
        shown = db.execute(f"select local_time(moment) from {moment}", {"moments": moments}).fetchall()  # noqa: S608
        assert db.execute("select local_time(null::timestamptz)").fetchall() == [(None,)]
    assert [at for (at,) in shown] == [moment.astimezone(zone).replace(tzinfo=None) for moment in moments]
