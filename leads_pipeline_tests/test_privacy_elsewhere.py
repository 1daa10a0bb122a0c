"""`leads-pipeline privacy apply PATH`: who is on the list leaves a restored data folder, and a copy of leads.duckdb."""

import json
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest

from leads_pipeline.contract import APPLICANT
from leads_pipeline.durable import copy_file
from leads_pipeline.lake import Lake
from leads_pipeline.person.matching import Group, Sought
from leads_pipeline.privacy.erase import add_redaction, sweep
from leads_pipeline.privacy.search import FoundLead
from leads_pipeline.suppression import Action
from leads_pipeline.warehouse import Warehouse
from leads_pipeline_tests.command_line import run
from leads_pipeline_tests.people import EMAIL, PHONE, listed
from leads_pipeline_tests.staging import LONDON, installed, land, stage
from leads_pipeline_tests.test_privacy_erase import (
    GRID,
    HERS,
    HOLDERS,
    NOW,
    OTHERS,
    everything_in,
    fill,
    of_somebody_else,
    published,
)

# What says of windows and staged files what they held, when the copy was made.
OF_THEN = {"landed_windows", "mart_coverage", "drift"}


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder that has published everybody."""
    folder = tmp_path_factory.mktemp("full") / "data"
    fill(Lake(folder), HERS)
    return folder


@pytest.fixture
def lake(full: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """The same as an installation."""
    shutil.copytree(full, tmp_path / "data")
    return installed(tmp_path, monkeypatch)


def copied(lake: Lake, tmp_path: Path) -> Path:
    """What an analyst keeps."""
    copy = tmp_path / "copies" / "last week.duckdb"
    copy.parent.mkdir()
    shutil.copy2(Warehouse(lake).path, copy)
    return copy


def erase_here(lake: Lake) -> None:
    listed(lake.suppression, phones=[PHONE], names=["Jane Roe"])
    assert sweep(lake, LONDON).failed == {}
    Warehouse(lake).publish(GRID, NOW)


@pytest.mark.chaos
def test_a_copy_becomes_what_the_published_file_is_after_the_erasure(lake: Lake, tmp_path: Path) -> None:
    copy = copied(lake, tmp_path)
    erase_here(lake)
    mode = copy.stat().st_mode
    told = run("privacy", "apply", copy)
    assert (told.exit_code, "4 leads were taken out" in told.stdout) == (0, True), told.output
    assert b"jane" not in everything_in(copy.parent)
    shutil.copy2(copy, tmp_path / "leads.duckdb")
    found, wanted = published(Lake(tmp_path)), published(lake)
    assert found.keys() == wanted.keys()
    for name in wanted.keys() - OF_THEN:
        assert found[name] == wanted[name], name
    assert (copy.stat().st_mode, [*copy.parent.iterdir()]) == (mode, [copy])
    with duckdb.connect(copy, read_only=True) as db:
        assert db.execute("select count(*) from duckdb_tables() where comment is null").fetchall() == [(0,)]


@pytest.mark.chaos
def test_a_copy_of_another_version_loses_the_rows_of_the_person_all_the_same(lake: Lake, tmp_path: Path) -> None:
    copy = copied(lake, tmp_path)
    copy.chmod(0o600)
    with duckdb.connect(copy) as db:
        db.execute("update pipeline.facts set value = 'of another version' where name = 'comments'")
        db.execute("insert into pipeline.digests values ('applicant_leads', date '2026-11-01', 1, 2, 3)")
        [(before,)] = db.execute("select count(*) from mart_people").fetchall()
        hers = {
            person
            for (person,) in db.execute("select distinct person from applicant_leads where lead_id = 'jane'").fetchall()
        }
    listed(lake.suppression, phones=[PHONE], names=["Jane Roe"])
    assert run("privacy", "apply", copy).exit_code == 0
    assert b"jane" not in everything_in(copy.parent)
    with duckdb.connect(copy, read_only=True) as db:
        assert hers.isdisjoint(person for (person,) in db.execute("select person from mart_people").fetchall())
        assert 0 < db.execute("select count(*) from mart_people").fetchall()[0][0] < before
        assert db.execute("from pipeline.digests").fetchall() == []


@pytest.mark.parametrize(
    "changes",
    [
        ["drop column contact_email", "drop column created_at", "drop column _extra"],
        ["drop column contact_phone_number", "rename contact_email to email"],
    ],
)
def test_a_copy_that_lacks_columns_loses_whom_the_others_show(lake: Lake, tmp_path: Path, changes: list[str]) -> None:
    copy = copied(lake, tmp_path)
    copy.chmod(0o600)
    with duckdb.connect(copy) as db:
        for change in changes:
            db.execute(f"alter table applicant_leads {change}")
    # By her id alone where the address is gone, which "mail" had nothing beside.
    listed(lake.suppression, phones=[PHONE], names=["Jane Roe"], leads=[("applicant", "mail")])
    entries = lake.suppression.read().entries
    told = run("privacy", "apply", copy)
    # Whoever is known by what is missing alone may be there still, and nobody is learned from what others may change.
    assert (told.exit_code, "4 leads were taken out" in told.stdout) == (1, True), told.output
    assert "perhaps who is known by contact_email of applicant_leads alone" in " ".join(told.stderr.split())
    assert lake.suppression.read().entries == entries
    assert b"jane" not in everything_in(copy.parent)
    with duckdb.connect(copy, read_only=True) as db:
        assert db.execute("select lead_id from applicant_leads order by all").fetchall() == [("john",), ("mary",)]
        assert db.execute("select lead_id from appraisal_leads order by all").fetchall() == [("john",), ("mary",)]
    # Marts are left, and with them who objects.
    listed(lake.suppression, Action.OBJECT, emails=["john@people.example"], until=None)
    told = run("privacy", "apply", copy)
    assert (told.exit_code, "perhaps who objects" in told.stderr) == (1, True), told.output


def test_redactions_restrictions_and_objections_hold_for_a_copy_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = installed(tmp_path, monkeypatch)
    land(lake, APPLICANT, [*HERS, OTHERS[0], of_somebody_else()])
    stage(lake, APPLICANT)
    Warehouse(lake).publish(GRID, NOW)
    copy = copied(lake, tmp_path)
    add_redaction(
        lake, Sought.of([EMAIL], [PHONE], names=["Jane Roe"]), [FoundLead("applicant", "mary", Group.MENTION, [])], NOW
    )
    listed(lake.suppression, Action.RESTRICT, until=None)
    listed(lake.suppression, Action.OBJECT, emails=["john@people.example"], until=None)
    assert run("privacy", "apply", copy).exit_code == 0
    assert b"jane.roe" not in everything_in(copy.parent)
    with duckdb.connect(copy, read_only=True) as db:
        [(message,)] = db.execute("select message from applicant_leads where lead_id = 'mary'").fetchall()
        assert message.count("[removed]") == 3
        assert db.execute("select distinct lead_id from pipeline.objected").fetchall() == [("john",)]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems don't say which deleted files are open")
def test_a_copy_that_a_program_has_open_is_not_shown_to_be_gone(lake: Lake, tmp_path: Path) -> None:
    copy = copied(lake, tmp_path)
    listed(lake.suppression)
    command = [sys.executable, "-c", HOLDERS["descriptor"], str(copy)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        told = run("privacy", "apply", copy)
        assert (told.exit_code, f"process {process.pid}" in told.stderr) == (1, True), told.output
        process.communicate(b"\n")
    assert run("privacy", "apply", copy).exit_code == 0


def test_what_analysts_made_in_a_copy_is_named_and_their_views_follow(lake: Lake, tmp_path: Path) -> None:
    copy = copied(lake, tmp_path)
    copy.chmod(0o600)
    with duckdb.connect(copy) as db:
        db.execute("create view their_view as select lead_id, person from applicant_leads")
        db.execute("create table their_table as select contact_email from applicant_leads")
    listed(lake.suppression)
    told = run("privacy", "apply", copy)
    assert (told.exit_code, "their_table" in told.stderr, "their_view" in told.stderr) == (1, True, False), told.output
    with duckdb.connect(copy) as db:
        assert db.execute("select count(*) from their_view where lead_id = 'jane'").fetchall() == [(0,)]
        db.execute("drop table their_table")
    assert run("privacy", "apply", copy).exit_code == 0


@pytest.mark.chaos
def test_a_restored_folder_loses_who_was_erased_since(lake: Lake, tmp_path: Path) -> None:
    restored = tmp_path / "restored"
    shutil.copytree(lake.folder, restored)
    listed(lake.suppression, received=NOW.date())
    Warehouse(lake).publish(GRID, NOW)
    before = everything_in(lake.folder / "raw")
    told = run("privacy", "apply", restored)
    assert (told.exit_code, "leads were taken out of" in told.stdout) == (0, True), told.output + told.stderr
    assert b"jane.roe" not in everything_in(restored)
    assert {id_ for (id_,) in Warehouse(Lake(restored)).query("select lead_id from applicant_leads")[1]} == {
        "john",
        "mary",
    }
    # This folder is as it was, and its erasure as open.
    assert everything_in(lake.folder / "raw") == before
    [row] = json.loads(run("privacy", "log", "--json").stdout)["entries"]
    assert row["done"] is None


def test_a_folder_that_knows_another_list_is_left(lake: Lake, tmp_path: Path) -> None:
    other = Lake(tmp_path / "other", tmp_path / "other list")
    land(other, APPLICANT, HERS)
    listed(other.suppression)
    listed(lake.suppression)
    before = everything_in(other.folder / "raw")
    told = run("privacy", "apply", other.folder)
    assert (told.exit_code, "that this data folder knows" in told.stderr) == (2, True), told.output
    assert everything_in(other.folder / "raw") == before


CHANGES = {
    "a copy without ids": ["applicant_leads drop column person", "applicant_viewing_times drop column lead_id"],
    "a copy without names": [
        *("applicant_leads drop column contact_last_name", "appraisal_leads alter column window_day type varchar"),
    ],
}


@pytest.mark.parametrize(
    ("what", "complaint"),
    [
        ("nothing", "isn't there"),
        ("a folder", "is no data folder"),
        ("backups", "leads-pipeline restore"),
        ("a text", "neither a data folder nor a copy"),
        ("another database", "has no table"),
        ("a copy without ids", "lacks lead_id of applicant_viewing_times, person of applicant_leads, without which"),
        ("a copy without names", "lacks contact_last_name of applicant_leads, window_day of appraisal_leads, without"),
        ("a share", "Delete it, and make it anew"),
        ("a log beside it", "open for writing"),
        ("the published file", "Name the folder"),
    ],
)
def test_what_the_list_cannot_be_applied_to_is_said_and_left(
    lake: Lake, tmp_path: Path, what: str, complaint: str
) -> None:
    path = tmp_path / "it"
    match what:
        case "a folder":
            path.mkdir()
        case "backups":
            (path / "backups").mkdir(parents=True)
            (path / "files").mkdir()
        case "a text":
            path.write_text("lead_id,email\n")
        case "another database":
            duckdb.connect(path).close()
        case "a copy without ids" | "a copy without names":
            shutil.copy2(Warehouse(lake).path, path)
            path.chmod(0o600)
            with duckdb.connect(path) as db:
                for change in CHANGES[what]:
                    db.execute(f"alter table {change}")
        case "a share":
            assert run("privacy", "share", path).exit_code == 0
        case "a log beside it":
            shutil.copy2(Warehouse(lake).path, path)
            path.with_name("it.wal").touch()
        case "the published file":
            path = Warehouse(lake).path
    listed(lake.suppression)
    before = path.read_bytes() if path.is_file() else None
    told = run("privacy", "apply", path)
    assert (told.exit_code, complaint in " ".join(told.stderr.split())) == (2, True), told.output + told.stderr
    assert (path.read_bytes() if path.is_file() else None) == before


def test_a_copy_that_somebody_writes_meanwhile_is_left(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copied(lake, tmp_path)
    copy.chmod(0o600)
    listed(lake.suppression)

    def written_meanwhile(source: Path, target: Path) -> None:
        copy_file(source, target)
        with duckdb.connect(source) as db:
            db.execute("create table notes as select 'mine' as note")

    monkeypatch.setattr("leads_pipeline.privacy.elsewhere.copy_file", written_meanwhile)
    told = run("privacy", "apply", copy)
    assert (told.exit_code, "was written just now" in told.stderr) == (2, True), told.output + told.stderr
    with duckdb.connect(copy, read_only=True) as db:
        assert db.execute("from notes").fetchall() == [("mine",)]
    assert [*copy.parent.iterdir()] == [copy]


def test_a_list_with_nobody_on_it_is_named(lake: Lake, tmp_path: Path) -> None:
    copy = copied(lake, tmp_path)
    told = run("privacy", "apply", copy)
    assert (told.exit_code, f"Nobody is on the suppression list {lake.suppression.path}" in told.stdout) == (0, True)
    assert datetime.now(UTC).timestamp() > copy.stat().st_mtime
