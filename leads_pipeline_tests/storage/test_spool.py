import json
import os
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pyarrow.parquet as pq
import pytest

from leads_pipeline import spool as spool_module
from leads_pipeline.contract import APPLICANT, APPRAISAL, LEAD_KINDS, LeadKind, PushedLead
from leads_pipeline.domain.answer import read_delivery
from leads_pipeline.errors import StorageError
from leads_pipeline.lake import PUSH_SCOPE, Lake
from leads_pipeline.spool import Placement, Spool, TakenIn
from leads_pipeline.warehouse import Grid, Warehouse
from leads_pipeline.window import RETENTION, Scope
from leads_pipeline_tests.support.staging import DAY, LONDON, NEXT_DAY, land, stage, staged_rows

RECEIVED_AT = datetime(2026, 11, 19, 15, tzinfo=UTC)
SCOPES = (Scope.parse("branch-101"), Scope.parse("company-7"))
PLACEMENT = Placement(SCOPES, LONDON, date(2026, 11, 1))
GRID = Grid(scopes=SCOPES, first_day=DAY, zone=LONDON)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "data")


@pytest.fixture
def spool(lake: Lake) -> Spool:
    return Spool(lake)


def lead(id_: str = "lead-1", **members: Any) -> dict[str, Any]:
    return {"id": id_, "createdAt": "2026-11-19T09:30:00Z", "portalBranchId": "101", **members}


def pushed(
    content: str | Mapping[str, Any], received_at: datetime = RECEIVED_AT, kind: LeadKind = APPLICANT
) -> PushedLead:
    text = content if isinstance(content, str) else json.dumps(content)
    [(kind, received)] = read_delivery(f'{{"{kind.name}": {text}}}'.encode())
    return PushedLead(kind, received, received_at)


def take_in(spool: Spool, placement: Placement = PLACEMENT) -> list[TakenIn]:
    return list(spool.take_in(placement, "run-1"))


def raw_rows(lake: Lake, kind: LeadKind = APPLICANT, day: date = DAY) -> list[dict[str, Any]]:
    return [row for path in lake.pushed_files(kind, day) for row in pq.ParquetFile(path).read().to_pylist()]


def warehouse_rows(lake: Lake, sql: str, days: Sequence[date] = (DAY, NEXT_DAY)) -> list[tuple[Any, ...]]:
    """What the query gives once those days are staged and published."""
    for kind in LEAD_KINDS:
        for day in days:
            stage(lake, kind, day)
    Warehouse(lake).publish(GRID, RECEIVED_AT + timedelta(days=3))
    return published_rows(lake, sql)


def published_rows(lake: Lake, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(Warehouse(lake).path, read_only=True) as db:
        db.execute("set TimeZone = 'UTC'")
        return db.execute(sql).fetchall()


# --- from the spool to raw ------------------------------------------------------------------------------------------


def test_a_pushed_lead_lands_with_its_exact_text_and_leaves_the_spool(lake: Lake, spool: Spool) -> None:
    text = (
        '{ "id":"lead-1", "createdAt": "2026-11-19T09:30Z","portalBranchId":101, '
        '"price":250000.10, "name":"Zoë \\u00e9\\n", "big":123456789012345678901234567890}'
    )
    spool.add([replace(pushed(text), sequence=7)])
    [waiting] = spool.waiting()
    assert stat.S_IMODE(waiting.stat().st_mode) == 0o600
    assert stat.S_IMODE(waiting.parent.stat().st_mode) == 0o700

    [taken] = take_in(spool)

    assert (taken.deliveries, taken.new, taken.changed) == ({DAY: 1}, 1, 0)
    assert spool.waiting() == []
    [path] = lake.pushed_files(APPLICANT, DAY)
    assert path == lake.folder / "raw/applicant_leads/day=2026-11-19/scope=branch-101/pushed.parquet"
    [row] = raw_rows(lake)
    assert row == {
        "kind": "applicant",
        "day": DAY,
        "scope": "branch-101",
        "lead_id": "lead-1",
        "position": 0,
        "sequence": 7,
        "fetched_at": RECEIVED_AT,
        "run_id": "run-1",
        "source": "push",
        "payload": text,
        "oddity": None,
    }


ODD = {
    "not valid JSON": '{"id":"odd","createdAt":"2026-11-19T09:30:00Z","portalBranchId":"101","n":NaN}',
    "not an object": '"just a text"',
    "no id": '{"message":"x"}',
}


@pytest.mark.parametrize("oddity", ODD)
def test_an_odd_lead_is_kept_and_flagged(lake: Lake, spool: Spool, oddity: str) -> None:
    spool.add([pushed(ODD[oddity]), pushed(lead("sound"))])
    take_in(spool)
    rows = {row["payload"]: row["oddity"] for row in raw_rows(lake)}
    assert rows[ODD[oddity]] == oddity
    assert len(rows) == 2


def test_a_lone_surrogate_is_kept_as_it_was_sent(lake: Lake, spool: Spool) -> None:
    text = '{"id":"cut","createdAt":"2026-11-19T09:30:00Z","portalBranchId":"101","message":"\\ud83d"}'
    spool.add([pushed(text)])
    take_in(spool)
    assert [(row["scope"], row["payload"]) for row in raw_rows(lake)] == [("branch-101", text)]


@pytest.mark.parametrize(
    ("members", "day", "scope"),
    [
        ({}, DAY, "branch-101"),
        ({"portalBranchId": 101}, DAY, "branch-101"),
        ({"portalBranchId": "999"}, DAY, PUSH_SCOPE),
        ({"portalBranchId": "999", "portalCompanyId": "7"}, DAY, "company-7"),
        ({"portalBranchId": "101/../../x"}, DAY, PUSH_SCOPE),
        ({"portalBranchId": None}, DAY, PUSH_SCOPE),
        ({"createdAt": "2026-11-18T23:59:59Z"}, date(2026, 11, 18), "branch-101"),
        ({"createdAt": "2026-11-19T00:30:00+02:00"}, date(2026, 11, 18), "branch-101"),
        ({"createdAt": "2026-11-01T00:00Z"}, date(2026, 11, 1), "branch-101"),
        # before the first partition, in the future, unknown, no moment
        ({"createdAt": "2026-10-31T23:59:59Z"}, DAY, "branch-101"),
        ({"createdAt": "2026-11-20T00:00:01Z"}, DAY, "branch-101"),
        ({"createdAt": "0001-01-01T00:00Z"}, DAY, "branch-101"),
        ({"createdAt": "9999-12-31T23:59:59-12:00"}, DAY, "branch-101"),
        ({"createdAt": "2026-11-18T10:00:00"}, DAY, "branch-101"),
        ({"createdAt": "yesterday"}, DAY, "branch-101"),
        ({"createdAt": {"nested": "2026-11-18T10:00Z"}}, DAY, "branch-101"),
    ],
)
def test_a_lead_belongs_to_the_day_it_was_created_and_the_scope_that_it_names(
    members: dict[str, Any], day: date, scope: str
) -> None:
    assert PLACEMENT.of(pushed(lead() | members)) == (day, scope)


def test_the_day_is_the_local_one() -> None:
    summer = pushed(lead(createdAt="2026-06-30T23:30:00Z"), datetime(2026, 7, 2, tzinfo=UTC))
    assert Placement(SCOPES, LONDON, date(2026, 1, 1)).of(summer) == (date(2026, 7, 1), "branch-101")
    assert Placement(SCOPES, ZoneInfo("UTC"), date(2026, 1, 1)).of(summer) == (date(2026, 6, 30), "branch-101")


def test_a_set_up_without_a_filter_takes_every_lead_as_its_own() -> None:
    assert Placement((Scope.parse("all"),), LONDON, DAY).of(pushed(lead(portalBranchId="999"))) == (DAY, "all")


def test_a_lead_pushed_again_is_one_row_with_its_first_moment(lake: Lake, spool: Spool) -> None:
    later = RECEIVED_AT + timedelta(hours=1)
    spool.add([pushed(lead()), pushed(lead(), later)])
    take_in(spool)
    spool.add([pushed(lead(), later)])
    [taken] = take_in(spool)
    assert (taken.deliveries, taken.new, taken.changed) == ({DAY: 1}, 0, 0)
    assert [(row["lead_id"], row["fetched_at"]) for row in raw_rows(lake)] == [("lead-1", RECEIVED_AT)]


def test_the_version_received_last_counts(lake: Lake, spool: Spool) -> None:
    old, new = lead(message="old"), lead(message="new")
    spool.add([pushed(new, RECEIVED_AT + timedelta(seconds=2)), pushed(old, RECEIVED_AT)])
    take_in(spool)
    others = [pushed(lead(f"other {number}"), RECEIVED_AT) for number in range(3)]
    spool.add([*others, pushed(old, RECEIVED_AT + timedelta(seconds=1))])  # received earlier, taken in later
    take_in(spool)
    own = old["id"]
    assert [json.loads(row["payload"])["message"] for row in raw_rows(lake) if row["lead_id"] == own] == ["old", "new"]
    assert warehouse_rows(lake, f"select message from applicant_leads where lead_id = '{own}'") == [("new",)]  # noqa: S608


def test_what_was_landed_by_a_killed_run_is_taken_in_again_to_no_harm(lake: Lake, spool: Spool) -> None:
    spool.add([pushed(lead("a")), pushed(lead("b"))])
    killed = spool.take_in(PLACEMENT, "run-1")
    next(killed)
    killed.close()  # type: ignore[attr-defined] # landed, and nothing said of it yet
    assert len(raw_rows(lake)) == 2
    assert len(spool.waiting()) == 1

    [taken] = take_in(spool)

    assert (taken.deliveries, taken.new, taken.changed) == ({DAY: 2}, 0, 0)
    assert [row["lead_id"] for row in raw_rows(lake)] == ["a", "b"]
    assert spool.waiting() == []


def test_a_long_queue_is_taken_in_by_portions(lake: Lake, spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "CHUNK_BYTES", 600)
    for number in range(9):
        spool.add([pushed(lead(f"lead-{number}"))])
    left = [len(spool.waiting()) for _ in spool.take_in(PLACEMENT, "run-1")]
    assert len(left) > 2
    assert left == sorted(left, reverse=True)
    assert left[-1] < 9
    assert len(raw_rows(lake)) == 9


def test_a_damaged_file_is_set_aside_and_the_others_go_on(lake: Lake, spool: Spool) -> None:
    for number in range(3):
        spool.add([pushed(lead(f"lead-{number}"))])
    bad = spool.waiting()[1]
    content = bytearray(bad.read_bytes())
    content[len(content) // 2] ^= 1
    bad.write_bytes(content)

    take_in(spool)

    assert {row["lead_id"] for row in raw_rows(lake)} == {"lead-0", "lead-2"}
    assert spool.waiting() == []
    [aside] = lake.quarantined()
    assert aside.name == bad.name
    assert aside.read_bytes() == content


def test_what_a_killed_receiver_left_unfinished_goes_after_an_hour(spool: Spool) -> None:
    spool.add([pushed(lead())])
    folder = spool.waiting()[0].parent
    fresh, stale = folder / ".a.pushed.x.tmp", folder / ".b.pushed.y.tmp"
    for path in (fresh, stale):
        path.touch()
    an_hour_ago = time.time() - 3700
    os.utime(stale, (an_hour_ago, an_hour_ago))
    take_in(spool)
    assert list(folder.iterdir()) == [fresh]


def test_a_file_that_a_receiver_finishes_meanwhile_is_no_trouble(lake: Lake, spool: Spool) -> None:
    spool.add([pushed(lead())])
    gone = spool.waiting()[0].parent / ".a.pushed.x.tmp"
    gone.symlink_to("nothing")  # listed, and not there when it is looked at
    take_in(spool)
    assert len(raw_rows(lake)) == 1


def test_a_folder_that_cannot_be_written_is_a_storage_error(lake: Lake, spool: Spool) -> None:
    lake.folder.mkdir()
    (lake.folder / "spool").touch()
    with pytest.raises(StorageError):
        spool.add([pushed(lead())])


# --- beside what is pulled ------------------------------------------------------------------------------------------


def test_a_push_lands_no_window(lake: Lake, spool: Spool) -> None:
    spool.add([pushed(lead()), pushed(lead("a"), kind=APPRAISAL)])
    take_in(spool)
    assert lake.landed_windows(APPLICANT, DAY) == []
    assert lake.landed_days(APPLICANT) == [DAY]
    assert lake.known_windows(APPLICANT, DAY) == []
    assert warehouse_rows(
        lake, "select distinct state, rows from mart_coverage where day = '2026-11-19' and scope = 'branch-101'"
    ) == [("missing", None)]
    assert published_rows(lake, "select lead_id, source from applicant_leads") == [("lead-1", "push")]
    assert published_rows(lake, "select count(*) from landed_windows") == [(0,)]


def test_a_push_is_not_counted_into_its_window(lake: Lake, spool: Spool) -> None:
    land(lake, APPLICANT, [lead("pulled")])
    spool.add([pushed(lead("pushed"))])
    take_in(spool)
    assert warehouse_rows(lake, "select scope, state, rows from mart_coverage where rows is not null") == [
        ("branch-101", "landed", 1)
    ]
    assert published_rows(lake, "select count(*) from applicant_leads") == [(2,)]


@pytest.mark.parametrize("first", ["push", "pull"])
@pytest.mark.slow
def test_a_lead_that_comes_by_both_ways_is_one_row_in_its_newest_version(lake: Lake, spool: Spool, first: str) -> None:
    pulled_at = RECEIVED_AT + timedelta(days=1 if first == "push" else -1, hours=12)
    land(lake, APPLICANT, [lead(message="pull")], fetched_at=pulled_at)
    spool.add([pushed(lead(message="push"))])
    take_in(spool)
    day = stage(lake, APPLICANT)
    assert (day.raw_rows, day.duplicates, len(staged_rows(lake, "applicant_leads"))) == (2, 1, 1)
    newest = "pull" if first == "push" else "push"
    assert warehouse_rows(lake, "select lead_id, message, source from applicant_leads") == [("lead-1", newest, newest)]


def test_a_lead_that_a_pull_finds_on_another_day_is_one_row(lake: Lake, spool: Spool) -> None:
    unknown = lead(createdAt="0001-01-01T00:00Z")
    spool.add([pushed(unknown, RECEIVED_AT + timedelta(days=1))])
    take_in(spool)
    land(lake, APPLICANT, [unknown], fetched_at=RECEIVED_AT + timedelta(days=2))
    assert len(raw_rows(lake, day=NEXT_DAY)) == 1
    assert warehouse_rows(lake, "select lead_id, source, window_day from applicant_leads") == [("lead-1", "pull", DAY)]


def test_a_lead_pushed_again_after_the_portal_has_deleted_it_is_still_one_lead(lake: Lake, spool: Spool) -> None:
    land(lake, APPLICANT, [lead(message="newest")], fetched_at=RECEIVED_AT + timedelta(hours=12))
    spool.add([pushed(lead(message="first"))])
    take_in(spool)
    spool.add([pushed(lead(message="first"), RECEIVED_AT + RETENTION + timedelta(days=5))])
    [taken] = take_in(spool)
    assert taken.deliveries == {DAY: 1}
    # Nothing tells a repeat from a change back to what it was.
    assert warehouse_rows(lake, "select message, source from applicant_leads") == [("first", "push")]
    assert published_rows(lake, "select distinct state from mart_coverage where day = '2026-11-19'") != [("missing",)]
