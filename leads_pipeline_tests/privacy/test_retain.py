"""The agency's own retention: old leads become anonymous, and figures stay."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leads_pipeline.assets.published import completeness_check
from leads_pipeline.contract import APPLICANT, LEAD_KINDS, FieldType, LeadKind, PushedLead, ReceivedLead
from leads_pipeline.domain.cutting import cut_payload
from leads_pipeline.lake import Lake
from leads_pipeline.privacy.retain import CutDay, cut_days, due_before
from leads_pipeline.warehouse import Grid, Warehouse, marts
from leads_pipeline.window import Scope
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.staging import DAY, LONDON, NEXT_DAY, land, stage, staged_rows

PLANTED = "Quenby"
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
GRID = Grid(scopes=(Scope.parse("branch-101"), Scope.parse("branch-102")), first_day=DAY, zone=LONDON)
# So long that it stands in a file as it is.
SECRET = "Zyxwvutsrqponmlkjihgfedcba" * 8
ADDRESS = "5b7e2f0a-0000-4000-8000-000000000000@removed.invalid"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "data")


def lead(lead_id: str, person: str, day: date = DAY, **more: Any) -> dict[str, Any]:
    contact = {
        "firstName": PLANTED,
        "lastName": person,
        "email": f"{person}.{PLANTED}@people.example" if not person.startswith("phone") else None,
        "phoneNumber": f"07700 90{person[-1] * 4}",
        "preferences": {"method": "CONTACT_METHOD_PHONE", "note": PLANTED},
    }
    return {
        "id": lead_id,
        "createdAt": f"{day}T10:00:00Z",
        "contact": contact,
        "message": PLANTED,
        "leadSource": "APPLICANT_SOURCE_ZOOPLA_WEBSITE",
        "intent": "APPLICANT_INTENT_BUY",
        "nickname": PLANTED,
        "listingDetails": {"id": "listing-1", "pricing": {"price": 250000.10}, "images": [{"original": "https://x"}]},
        "viewingTimes": [{"earliest": f"{day}T12:00:00Z", "with": PLANTED}],
        **more,
    }


def push(lake: Lake, lead_id: str) -> None:
    one = ReceivedLead(lead_id, json.dumps(lead(lead_id, "eve6")))
    lake.land_pushed(APPLICANT, DAY, "branch-101", [PushedLead(APPLICANT, one, NOW)], "run-3")


def publish(lake: Lake) -> None:
    Warehouse(lake).publish(GRID, NOW)


def landed(lake: Lake) -> None:
    """Two days of two branches, with a midnight lead, a corrected one, a moved one and one that was pushed."""
    people = ["ann1", "bob2", "ann1", "phone3"]
    for kind in LEAD_KINDS:
        for day in (DAY, NEXT_DAY):
            for scope in ("branch-101", "branch-102"):
                leads = [lead(f"{kind.name} {scope} {day} {n}", who, day) for n, who in enumerate(people)]
                land(lake, kind, leads, day=day, scope=scope)
        midnight = lead(f"{kind.name} midnight", "ann1", NEXT_DAY, createdAt=f"{NEXT_DAY}T00:00:00Z")
        for day in (DAY, NEXT_DAY):
            land(lake, kind, [midnight], day=day, fetched_at=NOW - timedelta(hours=2))
        land(lake, kind, [{**midnight, "intent": "corrected"}], day=NEXT_DAY, fetched_at=NOW - timedelta(hours=1))
        pushed = ReceivedLead(f"{kind.name} pushed", json.dumps(lead(f"{kind.name} pushed", "cat4")))
        lake.land_pushed(kind, DAY, "branch-101", [PushedLead(kind, pushed, NOW)], "run-2")
        land(lake, kind, [lead(f"{kind.name} long", "dan5", message=SECRET)])
        for day in (DAY, NEXT_DAY):
            stage(lake, kind, day)
    publish(lake)


def retain(lake: Lake, before: date = NEXT_DAY, **more: Any) -> list[CutDay]:
    days = list(cut_days(lake, before, LONDON, **more))
    assert [one.error for one in days if one.error] == []
    return days


def everything(lake: Lake, table: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(Warehouse(lake).path, read_only=True) as db:
        return db.execute(f"from {table} order by all").fetchall()


FIGURES = [
    mart.name
    for mart in marts()
    if mart.name not in ("drift", "mart_lead_properties", "mart_hidden_valuations")
    # They follow a person from one day to the next, which nobody can over the edge of an anonymous day.
    and mart.name not in ("mart_people", "mart_people_daily", "mart_listing_demand")
]


def figures(lake: Lake) -> dict[str, list[tuple[Any, ...]]]:
    return {name: everything(lake, name) for name in FIGURES}


def texts_below(lake: Lake, day: date) -> str:
    """Each row of the day's raw and staged files, decoded."""
    paths = [*lake.folder.glob(f"raw/*/day={day}/**/*.parquet"), *lake.folder.glob(f"staged/*/day={day}/*.parquet")]
    assert len(paths) >= 5
    return "".join(f"{pq.read_metadata(path).metadata} {pq.ParquetFile(path).read().to_pylist()}" for path in paths)


@pytest.mark.slow
def test_old_leads_lose_their_person_everywhere_and_no_figure_changes(lake: Lake) -> None:
    landed(lake)
    before, rows = figures(lake), {kind.table: everything(lake, kind.table) for kind in LEAD_KINDS}
    assert PLANTED in texts_below(lake, DAY)
    assert SECRET.encode() in Warehouse(lake).path.read_bytes()
    untouched = texts_below(lake, NEXT_DAY)
    modified = {path: path.stat().st_mtime_ns for path in lake.folder.glob("raw/**/*.parquet")}

    dry = retain(lake, is_dry=True)
    assert {(one.kind.name, one.day, one.files, one.leads) for one in dry} == {
        (kind.name, DAY, 3, 11) for kind in LEAD_KINDS
    }
    assert lake.rebuild_wanted() is None
    assert PLANTED in texts_below(lake, DAY)

    assert [(one.day, one.leads) for one in retain(lake)] == [(DAY, 11)] * 2
    publish(lake)
    assert PLANTED.casefold() not in texts_below(lake, DAY).casefold()
    assert "07700" not in texts_below(lake, DAY)
    assert texts_below(lake, NEXT_DAY) == untouched
    assert {path: path.stat().st_mtime_ns for path in modified} == modified
    assert figures(lake) == before
    assert SECRET.encode() not in Warehouse(lake).path.read_bytes()
    for kind in LEAD_KINDS:
        after = everything(lake, kind.table)
        assert len(after) == len(rows[kind.table])
        with Warehouse(lake).reading() as db:
            _, old = db.query(f"from {kind.table} where window_day < $day", {"day": NEXT_DAY})
            assert len(old) == 10
            assert PLANTED not in str(old)
            assert completeness_check(db, lake, kind).passed
    assert lake.rebuild_wanted() is None
    assert retain(lake) == []
    # What is staged from the cut files is what was cut when it was staged.
    for kind in LEAD_KINDS:
        staged = {table: staged_rows(lake, table) for table in kind.tables}
        for table in kind.tables:
            lake.staged_path(table, DAY).unlink()
        stage(lake, kind)
        assert {table: staged_rows(lake, table) for table in kind.tables} == staged


def test_a_push_or_a_backup_is_cut_at_the_next_run(lake: Lake) -> None:
    for scope in ("branch-101", "branch-102"):
        land(lake, APPLICANT, [lead(scope, "ann1")], scope=scope)
    stage(lake, APPLICANT)
    [window] = [one for one in lake.landed_windows(APPLICANT, DAY) if one.scope == "branch-102"]
    backup = window.path.read_bytes()
    retain(lake)
    window.path.write_bytes(backup)
    push(lake, "late")
    again = retain(lake)
    assert [(one.kind, one.files) for one in again] == [(APPLICANT, 2)]
    assert PLANTED not in texts_below(lake, DAY)
    assert "late" in texts_below(lake, DAY)
    assert retain(lake) == []


def test_a_day_whose_staged_file_is_damaged_is_told_and_cut_once_it_is_staged_anew(lake: Lake) -> None:
    land(lake, APPLICANT, [lead("a", "ann1")])
    stage(lake, APPLICANT)
    lake.staged_path(APPLICANT.table, DAY).write_bytes(b"rotten")
    [damaged] = cut_days(lake, NEXT_DAY, LONDON)
    assert "damaged in staged/" in str(damaged.error)
    assert lake.rebuild_wanted() is None
    stage(lake, APPLICANT)
    assert [one.leads for one in retain(lake)] == [1]


def test_who_has_set_no_retention_is_told_so(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADS_DATA_DIR", str(lake.folder))
    monkeypatch.setenv("LEADS_BRANCH_IDS", "101")
    told = run("privacy", "retain")
    assert (told.exit_code, "kept as they are" in told.stderr) == (2, True), told.output


def test_a_landing_beside_it_loses_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    push(lake, "first")
    stage(lake, APPLICANT)
    flawed = Lake.make_anonymous

    def pushed_meanwhile(self: Lake, path: Path, cut: Callable[[str], str]) -> None:
        flawed(self, path, cut)
        push(lake, "late")

    with monkeypatch.context() as patched:
        patched.setattr(Lake, "make_anonymous", pushed_meanwhile)
        retain(lake)
    assert PLANTED in texts_below(lake, DAY)
    [late] = retain(lake)
    assert (late.kind, late.files) == (APPLICANT, 1)
    assert {row["lead_id"] for row in staged_rows(lake, "applicant_leads")} == {"first", "late"}
    assert PLANTED not in texts_below(lake, DAY)


@pytest.mark.slow
def test_retention_keeps_a_day_that_is_in_the_published_file_alone(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    today = datetime.now(UTC).date()
    for name, value in {
        "LEADS_DATA_DIR": str(lake.folder),
        "DAGSTER_HOME": str(lake.folder.parent / "home"),
        "LEADS_BRANCH_IDS": "101",
        "LEADS_START_DATE": today.isoformat(),
        "LEADS_KEEP_PERSONAL_DAYS": "35",
    }.items():
        monkeypatch.setenv(name, value)
    for day in (today - timedelta(days=400), today):
        land(lake, APPLICANT, [lead(f"of {day}", "ann1", day)], day=day)
        stage(lake, APPLICANT, day)
    publish(lake)
    lake.staged_path(APPLICANT.table, today).write_bytes(b"rotten")
    with monkeypatch.context() as patched:  # nor can it be staged anew
        patched.setattr("leads_pipeline.flatten.counts._unexplained", lambda _: f"select date '{today}', 1")
        told = run("privacy", "retain")
    assert (told.exit_code, lake.rebuild_wanted()) == (0, None), told.output
    planted = {"planted": PLANTED}
    _, rows = Warehouse(lake).query(
        "select lead_day, contains(contact_email, $planted) from applicant_leads order by all", planted
    )
    assert rows == [(today - timedelta(days=400), False), (today, True)]


# Ends the process at the n-th of its steps.
KILLED = """
import os, sys
from pathlib import Path
from leads_pipeline import durable
from leads_pipeline.lake import Lake
from leads_pipeline_tests.privacy import test_retain as test
left = int(sys.argv[2])
def counted(of):
    def step(source, path):
        global left
        left -= 1
        if left == 0:
            os._exit(9)
        of(source, path)
        if left == 0:
            os._exit(9)
    return step
from leads_pipeline.lake import staged
from leads_pipeline.warehouse import publication
step = counted(durable.publish_file)
for room in (durable, staged, publication):
    room.publish_file = step
lake = Lake(Path(sys.argv[1]))
test.retain(lake)
test.publish(lake)
"""


@pytest.mark.slow
def test_a_kill_at_any_step_is_finished_by_the_next_run(tmp_path: Path) -> None:
    whole = Lake(tmp_path / "whole")
    landed(whole)
    expected = figures(whole)
    for step in range(1, 60):
        lake = Lake(tmp_path / f"{step}")
        subprocess.run(["cp", "-a", whole.folder, lake.folder], check=True)
        command = [sys.executable, "-c", KILLED, str(lake.folder), str(step)]
        code = subprocess.run(command, check=False, cwd=Path(__file__).parents[2], env=os.environ).returncode
        retain(lake)
        publish(lake)
        assert figures(lake) == expected
        assert PLANTED not in texts_below(lake, DAY)
        assert lake.rebuild_wanted() is None
        if code == 0:
            break
        assert code == 9
    assert 10 < step < 59


@pytest.mark.parametrize(
    ("now", "zone", "before"),
    [
        ("2026-11-22T00:30:00Z", "Europe/London", "2026-10-18"),
        ("2026-10-25T00:30:00Z", "Europe/London", "2026-09-20"),  # 01:30 on the day of 25 hours
        ("2026-07-01T22:30:00Z", "Europe/London", "2026-05-27"),
        ("2026-07-01T23:30:00Z", "Europe/London", "2026-05-28"),  # 00:30 the next day there
        ("2026-07-01T23:30:00Z", "UTC", "2026-05-27"),
        ("2026-03-29T00:59:00Z", "America/New_York", "2026-02-21"),
    ],
)
def test_days_are_due_by_the_agencys_own_calendar(now: str, zone: str, before: str) -> None:
    found = due_before(datetime.fromisoformat(now), ZoneInfo(zone), 35)
    assert found.isoformat() == before


# --- what stays of a lead's text --------------------------------------------------------------------------------------


@settings(max_examples=80)
@given(
    st.sampled_from(LEAD_KINDS),
    st.recursive(
        st.text(max_size=9) | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["id", "contact", "email", "firstName", "message", "viewingTimes", "address", "postcode", PLANTED]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    ),
)
def test_cutting_again_changes_nothing_and_gives_json(kind: LeadKind, content: Any) -> None:
    for text in (
        json.dumps(content),
        json.dumps(content)[:-1],
        f'{{"id": "1", {json.dumps(PLANTED)}: {json.dumps(content)}',
    ):
        once = cut_payload(kind, text, ADDRESS)
        assert cut_payload(kind, once, ADDRESS) == once
        assert json.loads(once)["contact"]["email"] == ADDRESS
        assert PLANTED not in once


@pytest.mark.parametrize("kind", LEAD_KINDS)
def test_each_declared_field_that_names_nobody_stays_as_it_was_received(kind: LeadKind) -> None:
    values = {
        FieldType.TEXT: '"a\\u00e9 \\"b\\""',
        FieldType.INTEGER: "12",
        FieldType.AMOUNT: "250000.10",
        FieldType.NUMBER: "-1.5e3",
        FieldType.BOOLEAN: "true",
        FieldType.MOMENT: '"2026-11-19T10:00:00.123Z"',
    }
    for field in kind.fields:
        *above, name = field.path.split(".")
        text = "".join(f'{{"{step}": ' for step in above) + f'{{"{name}": {values[field.type]}}}' + "}" * len(above)
        cut = cut_payload(kind, text, None)
        assert (values[field.type] in cut) == (not field.is_personal), field.path
    assert (
        cut_payload(kind, '{"organiseViewing": "Quenby", "id": "1", "isOverseas": null}', None)
        == '{"id":"1","isOverseas":null}'
    )
