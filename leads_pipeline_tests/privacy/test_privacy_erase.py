"""`leads-pipeline privacy erase`: a person is gone from every place, stays gone, and nobody else's row is touched."""

import json
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pyarrow.parquet as pq
import pytest

from leads_pipeline.contract import APPLICANT, APPRAISAL
from leads_pipeline.lake import Lake
from leads_pipeline.person.matching import Group, Sought
from leads_pipeline.privacy.erase import Wish, add_to_list, left_by_list
from leads_pipeline.privacy.requests import due_on, no_backup_from
from leads_pipeline.privacy.search import search
from leads_pipeline.privacy.sweeping import sweep
from leads_pipeline.suppression import Action
from leads_pipeline.warehouse import Grid, Warehouse
from leads_pipeline.window import Scope
from leads_pipeline_tests.privacy.test_suppression import push, take_in
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.people import EMAIL, PHONE, lead, listed
from leads_pipeline_tests.support.staging import (
    DAY,
    FETCHED_AT,
    LONDON,
    NEXT_DAY,
    installed,
    land,
    publish,
    publish_in_line,
    stage,
)

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


def published(lake: Lake) -> dict[str, list[tuple[Any, ...]]]:
    """Every table and mart, without what says how it came about, and the pull's own counts of what was removed."""
    left_out = {"removed", "received", "run_id", "state"}
    tables: dict[str, list[tuple[Any, ...]]] = {}
    with duckdb.connect(str(lake.folder / "leads.duckdb"), read_only=True) as db:
        for (name,) in db.execute("select table_name from duckdb_tables() where schema_name = 'main'").fetchall():
            columns = [row[0] for row in db.execute(f"describe {name}").fetchall() if row[0] not in left_out]
            rows = db.sql(f"from {name}").select(*columns).fetchall()
            tables[name] = sorted(rows, key=repr)
    return tables


def everything_in(folder: Path) -> bytes:
    """What a reader of bytes finds, payloads decoded."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file():
            found.append(path.read_bytes())
            if path.suffix == ".parquet":
                found.append(repr(pq.ParquetFile(path).read().to_pylist()).encode())
    return b"\n".join(found).lower()


def test_after_a_sweep_it_is_as_if_the_person_had_never_been(tmp_path: Path) -> None:
    lake, without = Lake(tmp_path / "data", tmp_path / "list"), Lake(tmp_path / "without")
    without.person_key()
    (lake.folder / ".state").mkdir(parents=True)
    shutil.copy(without.folder / ".state" / "person_key", lake.folder / ".state" / "person_key")
    fill(lake, HERS)
    fill(without, [])
    assert b"jane.roe" in everything_in(lake.folder / "raw")
    (lake.folder / "raw" / "applicant_leads" / f"day={DAY}" / "scope=branch-101" / ".leads.parquet.0.tmp").write_bytes(
        EMAIL.encode()
    )
    push(lake, *HERS)

    listed(lake.suppression, phones=[PHONE], names=["Jane Roe"])
    _, swept = publish_in_line(lake, GRID, NOW)
    publish(lake, GRID, NOW)

    assert (swept.failed, swept.deliveries) == ({}, 2)
    assert left_by_list(lake) == []
    assert published(lake) == published(without)
    for text in (b"jane.roe", b"old@people"):
        assert text not in everything_in(lake.folder)
    assert sweep(lake, LONDON).files == 0


@pytest.mark.parametrize("wrong", [("--case", "Jane Roe"), ("--received", "2999-01-01")])
def test_a_name_for_a_reference_and_a_day_that_has_not_come_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: tuple[str, str]
) -> None:
    lake = installed(tmp_path, monkeypatch)
    told = run("privacy", "erase", "--email", EMAIL, "--yes", *wrong)
    assert (told.exit_code, wrong[0] in told.stderr, "Jane" in told.stderr) == (2, True, False)
    assert not lake.suppression.read()


@pytest.mark.slow
def test_whoever_was_erased_is_gone_from_everywhere_and_comes_back_by_no_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, lake = tmp_path / "data", installed(tmp_path, monkeypatch)
    fill(lake, HERS)
    shutil.copytree(data, tmp_path / "backup")
    who = ("--email", EMAIL)

    dry = run("privacy", "erase", *who, "--dry-run")
    assert (dry.exit_code, lake.suppression.folder.exists()) == (0, False)
    assert run("privacy", "erase", *who, "--case", EMAIL).exit_code == 2
    told = run("privacy", "erase", *who, "--yes", "--case", "DSR-7", "--received", "2026-10-31")
    assert told.exit_code == 0, told.output + told.stderr
    assert "DSR-7" in told.stdout
    for text in (EMAIL, "Roe", "people.example"):
        assert text not in told.output + told.stderr
    assert b"jane.roe" not in everything_in(data)
    assert run("privacy", "verify", *who).exit_code == 0
    assert run("privacy", "verify").exit_code == 0
    [row] = json.loads(run("privacy", "log", "--json").stdout)["entries"]
    assert (row["case"], row["due"], row["done"] is not None) == ("DSR-7", "2026-11-30", True)

    shutil.rmtree(data)
    shutil.copytree(tmp_path / "backup", data)
    assert run("privacy", "verify").exit_code == 1
    assert run("privacy", "verify", *who).exit_code == 1
    assert run("privacy", "apply").exit_code == 0
    assert run("privacy", "verify", *who).exit_code == 0
    assert b"jane.roe" not in everything_in(data)


# Holds the file that is named open until its input ends: with DuckDB, or no more than a descriptor of it.
HOLDERS = {
    "duckdb": "import duckdb, sys; db = duckdb.connect(sys.argv[1], read_only=True); print(0, flush=True); input()",
    "descriptor": "import sys; file = open(sys.argv[1], 'rb'); print(0, flush=True); input()",
}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems don't say which deleted files are open")
@pytest.mark.parametrize("holder", HOLDERS)
def test_a_program_that_has_the_old_file_open_is_named_until_it_closes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holder: str
) -> None:
    lake = installed(tmp_path, monkeypatch)
    land(lake, APPLICANT, [*HERS, *OTHERS])
    stage(lake, APPLICANT)
    publish(lake, GRID, NOW)
    who = ("--email", EMAIL)
    command = [sys.executable, "-c", HOLDERS[holder], str(lake.folder / "leads.duckdb")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        told = run("privacy", "erase", *who, "--yes")
        assert told.exit_code == 1, told.output
        assert f"process {process.pid}" in told.stderr
        for again in (run("privacy", "verify", *who), run("privacy", "verify"), run("privacy", "apply")):
            assert (again.exit_code, f"process {process.pid}" in again.stderr) == (1, True), again.output
        process.communicate(b"\n")
    # One that had a version open from after the erasure is in nobody's way.
    with duckdb.connect(lake.folder / "leads.duckdb", read_only=True):
        Warehouse(lake).path.rename(lake.folder / "leads.duckdb.old")
        (lake.folder / "leads.duckdb.old").unlink()
        assert publish(lake, GRID, NOW).is_rebuilt
        assert run("privacy", "verify", *who).exit_code == 0
        assert run("privacy", "verify").exit_code == 0
    assert run("privacy", "log").exit_code == 0


@pytest.mark.parametrize(
    ("received", "due"),
    [
        ("2026-01-31", "2026-02-28"),
        ("2026-12-15", "2027-01-15"),
        ("2026-03-31", "2026-04-30"),
        ("2026-05-01", "2026-06-01"),
    ],
)
def test_an_answer_is_due_a_month_after_the_request(received: str, due: str) -> None:
    assert due_on(datetime.fromisoformat(received).date()).isoformat() == due


@pytest.mark.parametrize(("days", "day"), [("0", "2026-11-20"), ("30", "2026-12-20"), (None, None)])
def test_no_backup_holds_a_person_once_the_last_that_may_is_deleted(days: str | None, day: str | None) -> None:
    late = datetime(2026, 11, 18, 23, 30, tzinfo=UTC)  # the next day in Athens
    found = no_backup_from(late, ZoneInfo("Europe/Athens"), None if days is None else int(days))
    assert (found and found.isoformat()) == day


@pytest.mark.parametrize("days", [None, "7"])
def test_a_receipt_says_from_when_no_backup_holds_the_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: str | None
) -> None:
    lake = installed(tmp_path, monkeypatch)
    if days is not None:
        monkeypatch.setenv("LEADS_BACKUP_DAYS", days)
    land(lake, APPLICANT, HERS)
    monkeypatch.setattr("leads_pipeline.cli.erasing.published", lambda session: [*sweep(session.lake, LONDON).failed])
    told = run("privacy", "erase", "--email", EMAIL, "--yes")
    assert told.exit_code == 0, told.output + told.stderr
    [row] = json.loads(run("privacy", "log", "--json").stdout)["entries"]
    receipt = (lake.suppression.folder / "receipts" / "1.txt").read_text()
    if days is None:
        assert ("Set LEADS_BACKUP_DAYS" in " ".join(receipt.split()), row["no_backup_from"]) == (True, None)
    else:
        gone = datetime.fromisoformat(f"{row['done']}Z").astimezone(LONDON).date()
        assert row["no_backup_from"] == (gone + timedelta(days=8)).isoformat()
        assert f"No backup holds them from {row['no_backup_from']} on" in receipt
    for place in ("portal", "Copies of leads.duckdb", "Notebooks", "CRM", "Backups", "Programs"):
        assert place in receipt.partition("see to them:")[2], f"{place} is out of reach, and the receipt says so"


def test_an_erasure_is_open_until_the_person_was_shown_to_be_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEADS_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    lake = Lake(tmp_path / "data")
    assert run("privacy", "log").exit_code == 0
    land(lake, APPLICANT, [*HERS, *OTHERS])
    listed(lake.suppression, received=DAY)
    [row] = json.loads(run("privacy", "log", "--json").stdout)["entries"]
    assert (row["done"], run("privacy", "log").exit_code) == (None, 1)
    assert run("privacy", "verify").exit_code == 1
    sweep(lake, LONDON)
    assert run("privacy", "verify").exit_code == 0
    broken = lake.folder / "quarantine" / "cut.parquet"
    broken.parent.mkdir()
    broken.write_bytes(b"PAR1 cut off")
    told = run("privacy", "verify", "--email", EMAIL)
    assert told.exit_code == 1
    assert "cut.parquet" in told.stderr
    assert run("privacy", "log").exit_code == 1
    broken.unlink()
    assert run("privacy", "verify", "--email", EMAIL).exit_code == 0
    assert run("privacy", "log").exit_code == 0


@pytest.mark.slow
def test_applying_the_list_closes_no_erasure_as_it_looks_not_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEADS_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LEADS_BRANCH_IDS", "101")
    lake = Lake(tmp_path / "data")
    listed(lake.suppression, received=DAY, phones=[PHONE])
    aside = lake.folder / "quarantine" / "notes.txt"
    aside.parent.mkdir()
    aside.write_text(EMAIL)
    push(Lake(lake.folder, tmp_path / "no list"), *HERS)
    assert run("privacy", "verify").exit_code == 1

    told = run("privacy", "apply")
    assert (told.exit_code, "erasure 1" in told.stdout) == (0, True), told.output
    assert run("privacy", "log").exit_code == 1
    assert run("privacy", "verify", "--email", EMAIL).exit_code == 1
    aside.unlink()
    assert run("privacy", "verify", "--email", EMAIL).exit_code == 0
    assert run("privacy", "log").exit_code == 1  # her number is still to be looked for
    assert run("privacy", "verify", "--email", EMAIL, "--phone", PHONE).exit_code == 0
    assert run("privacy", "log").exit_code == 0


NOTE = (
    "Née \\u0041? Ask Jane\\tRoe, Jane.Roe@People.example, or +44 7700 900123 and 07700 900456; jane@x.example stays."
)


def of_somebody_else(message: str = NOTE) -> str:
    return (
        f'{{"id": "mary",  "contact":{{"email":"mary@people.example"}}, "createdAt":"{BEFORE}", "x": 1.0, '
        f'"message":"{message}", "other":"\\u0041"}}'
    )


@pytest.mark.slow
def test_the_command_takes_a_person_out_of_what_others_wrote_when_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = installed(tmp_path, monkeypatch)
    fill(lake, HERS)
    land(lake, APPLICANT, [of_somebody_else()], sequence=9)
    stage(lake, APPLICANT)
    publish(lake, GRID, NOW)
    who = ("--email", EMAIL, "--phone", PHONE, "--name", "Jane Roe")

    dry = run("privacy", "erase", *who, "--clear-message", "mary", "--dry-run")
    assert (dry.exit_code, "messages of 1 others emptied" in dry.stdout) == (0, True), dry.output
    assert EMAIL not in dry.output.lower()
    told = run("privacy", "erase", *who, "--yes")
    assert (told.exit_code, "emptied the messages of 0 leads, left in 1" in told.stdout) == (0, True), (
        told.output + told.stderr
    )
    assert NOTE.encode().lower() in everything_in(lake.folder / "raw").replace(b"\\\\", b"\\")
    told = run("privacy", "erase", *who, "--yes", "--clear-message", "mary")
    assert (told.exit_code, "emptied the messages of 1 leads, left in 0" in told.stdout) == (0, True), (
        told.output + told.stderr
    )
    assert b"jane.roe" not in everything_in(lake.folder)
    assert run("privacy", "verify", *who).exit_code == 0
    assert "mary" not in run("privacy", "find", *who).stdout


def test_verify_says_of_somebody_whom_nobody_has_erased_that_they_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = installed(tmp_path, monkeypatch)
    land(lake, APPLICANT, [*HERS, *OTHERS])
    listed(lake.suppression, received=DAY)
    sweep(lake, LONDON)
    told = run("privacy", "verify", "--email", "mary@people.example")
    assert (told.exit_code, "nobody has erased them" in told.stderr) == (1, True), told.output
    nowhere = run("privacy", "verify", "--email", "who@people.example")
    assert (nowhere.exit_code, "No erasure on the list is of who was given" in nowhere.stdout) == (0, True)
    monkeypatch.setenv("LEADS_BACKUP_DAYS", "30")
    hers = run("privacy", "verify", "--email", EMAIL)
    assert (hers.exit_code, "No erasure" in hers.stdout) == (0, False), hers.output + hers.stderr
    receipt = (lake.suppression.folder / "receipts" / "1.txt").read_text()
    assert "Shown to be gone" in receipt
    [row] = json.loads(run("privacy", "log", "--json").stdout)["entries"]
    assert f"No backup holds them from {row['no_backup_from']} on" in receipt
    # The due date is what the log is for.
    log = run("privacy", "log").stdout
    assert max(map(len, log.splitlines())) <= 80
    assert due_on(DAY).isoformat() in log


@pytest.mark.slow
def test_whoever_has_no_lead_here_yet_is_refused_what_a_pull_still_brings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = installed(tmp_path, monkeypatch)
    land(lake, APPLICANT, OTHERS, sequence=1)

    told = run("privacy", "erase", "--email", EMAIL, "--yes", "--case", "DSR-8")
    assert (told.exit_code, "DSR-8" in told.stdout) == (0, True), told.output + told.stderr
    land(lake, APPLICANT, [*HERS, *OTHERS], sequence=2)
    assert EMAIL.encode() not in everything_in(lake.folder).lower()
    # Asked again, what was sent since the first time is meant as well.
    assert run("privacy", "erase", "--email", EMAIL, "--yes").exit_code == 0
    assert [entry.action for entry in lake.suppression.read().entries].count(Action.ERASE) == 2
    assert "Nothing to erase" in run("privacy", "erase", "--name", "Jane Roe", "--yes").stdout


@pytest.mark.slow
def test_listing_whoever_has_no_lead_here_takes_nothing_of_a_shared_telephone_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = installed(tmp_path, monkeypatch)
    ann, nameless = (
        lead("ann", phone=PHONE, name="Ann Roe", createdAt=BEFORE),
        lead("who", phone=PHONE, createdAt=BEFORE),
    )
    land(lake, APPLICANT, [ann, nameless])
    told = run("privacy", "erase", "--email", "bob@people.example", "--phone", PHONE, "--name", "Bob Roe", "--yes")
    assert told.exit_code == 0, told.output + told.stderr
    assert lake.lead_ids(APPLICANT, DAY) == {"ann", "who"}


def test_who_stops_an_erasure_is_told_that_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = installed(tmp_path, monkeypatch)
    land(lake, APPLICANT, HERS)

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("leads_pipeline.cli.erasing.published", stopped)
        told = run("privacy", "erase", "--email", EMAIL, "--yes")
    assert told.exit_code == 130
    assert "erasure 1 is on the list" in " ".join(told.stderr.split())
    assert "privacy apply" in told.stderr


def naughty(email: str, name: str) -> dict[str, str]:
    """Leads of somebody with that address in texts that break programs, by what is odd in each."""
    hidden = f"{email[:4]}\\u0000\\u202e{email[4:]}\\u202c"
    contacts = {
        "a lone surrogate": f'{{"email": "{email}", "firstName": "J\\ud800"}}',
        "NUL and marks of direction": f'{{"email": "{hidden}"}}',
        "5,000 digits": f'{{"email": "{email}", "phoneNumber": "{"0123456789" * 500}"}}',
        "a key that stands twice": f'{{"email": "{email}", "email": "twice@elsewhere.example"}}',
        "the same the other way round": f'{{"email": "twice@elsewhere.example", "email": "{email}"}}',
        "a number that is none": f'{{"email": "{email}", "phoneNumber": 1e9999}}',
    }
    of_ids = {
        what: f'{{"id": "{name} {what}", "contact": {contact}, "createdAt": "{BEFORE}"}}'
        for what, contact in contacts.items()
    }
    return of_ids | {"no id": f'{{"contact": {{"email": "{email}"}}, "createdAt": "{BEFORE}"}}'}


@pytest.mark.slow
def test_no_text_hides_a_person_from_an_erasure_or_takes_a_neighbour(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "data", tmp_path / "list")
    hers, others = naughty(EMAIL, "jane"), naughty("mary.poe@people.example", "mary")
    land(lake, APPLICANT, [*hers.values(), *others.values()])
    stage(lake, APPLICANT)
    publish(lake, GRID, NOW)
    sought = Sought.of([EMAIL.upper()])
    found = search(lake, tmp_path / "home", sought, may_be_shared=True)
    assert len({lead.lead_id for lead in found.leads}) == len(hers)
    assert {lead.group for lead in found.leads} == {Group.GIVEN}

    add_to_list(lake, sought, found.leads, Wish(action=Action.ERASE), NOW)
    publish(lake, GRID, NOW)
    again = search(lake, tmp_path / "home", sought, may_be_shared=True)
    assert (again.leads, again.traces, again.undecoded) == ([], {}, {})
    land(lake, APPLICANT, [*hers.values(), *others.values()])
    payloads = [row["payload"] for path in lake.raw_lead_files() for row in pq.ParquetFile(path).read().to_pylist()]
    assert sorted(payloads) == sorted(others.values())
    assert Warehouse(lake).query("select count(*) from applicant_leads")[1] == [(len(others),)]
