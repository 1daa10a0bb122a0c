"""The pseudonymised copy: what passes, and what it says of itself."""

import stat
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from leads_pipeline.domain.contract import APPLICANT, APPRAISAL, LEAD_KINDS, FieldType, LeadKind
from leads_pipeline.errors import StorageError
from leads_pipeline.privacy import share as share_room
from leads_pipeline.privacy.share import write_share
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.people import listed
from leads_pipeline_tests.support.staging import DAY, land, publish

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)

PLANTED = "Quenby"
NAUGHTY = ("", " \u202e", "\0", "'; drop table x; --", "<b>", "\ud800", "😀" * 50, "\n")
NUMBER = 447700900123


@pytest.fixture
def data(tmp_path: Path) -> DataFolder:
    return DataFolder.at(tmp_path / "data")


def lead(lead_id: str, person: str | None, **more: Any) -> dict[str, Any]:
    contact = {"email": f"{person}@people.example"} if person else {}
    return {"id": lead_id, "createdAt": f"{DAY}T10:00:00Z", "contact": contact, **more}


def people(prefix: str, count: int) -> list[dict[str, Any]]:
    """A lead each of that many people."""
    return [lead(f"{prefix}{number}", f"{prefix}{number}") for number in range(count)]


def rows_of(file: Path, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(file, read_only=True) as db:
        return db.execute(sql).fetchall()


def texts_in(file: Path) -> list[str]:
    """Every cell of every table, every name and every comment."""
    with duckdb.connect(file, read_only=True) as db:
        tables = db.execute("select schema_name, table_name from duckdb_tables()").fetchall()
        sources = [f'{schema}."{table}"' for schema, table in tables]
        sources += [f"duckdb_{what}() where not internal" for what in ("tables", "views", "columns", "functions")]
        return [str(cell) for source in sources for row in db.execute(f"from {source}").fetchall() for cell in row]


def full_of(kind: LeadKind, lead_id: str, text: str) -> dict[str, Any]:
    """A lead whose every field bears that text, or the number, known and unknown ones alike."""
    values: dict[FieldType, Any] = {
        FieldType.TEXT: text,
        FieldType.INTEGER: NUMBER,
        FieldType.AMOUNT: NUMBER,
        FieldType.NUMBER: NUMBER,
        FieldType.BOOLEAN: text,
        FieldType.MOMENT: text,
    }
    full: dict[str, Any] = {"id": lead_id, text: text, "nickname": text, "viewingTimes": [{text: text}]}
    for field in kind.fields:
        *above, name = field.path.split(".")
        inner = full
        for step in above:
            inner = inner.setdefault(step, {text: text})
        inner[name] = values[field.type]
    full["contact"]["email"] = f"{lead_id}@people.example"
    return full


def test_nothing_of_a_person_is_in_any_cell_of_the_copy(data: DataFolder, tmp_path: Path) -> None:
    texts = [f"{PLANTED}{naughty}{PLANTED}" for naughty in NAUGHTY] + [f"{PLANTED} SW1A 1AA"]
    for kind in LEAD_KINDS:
        land(data, kind, [full_of(kind, f"{PLANTED}{number}", text) for number, text in enumerate(texts)])
    publish(data)
    write_share(data, tmp_path / "copy.duckdb", NOW)
    assert rows_of(tmp_path / "copy.duckdb", "select count(*) from lead_facts") == [(2 * len(texts),)]
    for kind in LEAD_KINDS:
        assert PLANTED in str(rows_of(data.folder / "leads.duckdb", f"from {kind.table}"))
    for text in texts_in(tmp_path / "copy.duckdb"):
        assert PLANTED.casefold() not in text.casefold()
        assert "people.example" not in text
        assert str(NUMBER)[:6] not in text
    content = (tmp_path / "copy.duckdb").read_bytes()
    assert PLANTED.encode() not in content
    assert NUMBER.to_bytes(8, "little") not in content


@pytest.mark.slow
def test_a_field_that_the_contract_gains_stays_out(data: DataFolder, tmp_path: Path) -> None:
    land(data, APPLICANT, people("p", 6))
    land(data, APPRAISAL, people("q", 6))
    publish(data)
    before, after = tmp_path / "before.duckdb", tmp_path / "after.duckdb"
    write_share(data, before, NOW)
    published = (data.folder / "leads.duckdb").resolve()
    published.chmod(0o600)
    with duckdb.connect(published) as db:
        tables = db.execute("select table_name from duckdb_tables() where schema_name = 'main'").fetchall()
        for (table,) in tables:
            for column in ("contact_pet", "is_small", "listing_details_pet_name"):
                db.execute(f"alter table \"{table}\" add column {column} varchar default '{PLANTED}'")
    write_share(data, after, NOW)
    columns = "select table_name, column_name, data_type from duckdb_columns() where not internal order by all"
    assert rows_of(before, columns) == rows_of(after, columns)
    assert not any(PLANTED in text for text in texts_in(after))


def test_the_copy_has_facts_without_ids_and_marts_of_no_single_person(data: DataFolder, tmp_path: Path) -> None:
    land(data, APPLICANT, people("p", 6))
    publish(data)
    file = tmp_path / "copy.duckdb"
    counts = write_share(data, file, NOW)
    columns = rows_of(file, "select table_name, column_name, comment from duckdb_columns() where not internal")
    names = {table: {column for of, column, _ in columns if of == table} for table, *_ in columns}
    assert names.keys() == {
        *("about", "lead_facts", "mart_coverage", "mart_enquiry_mix", "mart_hourly", "mart_leads_daily"),
    }
    assert {"person", "listing_id", "lead_day", "source"} <= names["lead_facts"]
    assert {"lead_id", "created_at"}.isdisjoint(names["lead_facts"])
    assert all(comment for *_, comment in columns)
    assert (counts["lead_facts"], rows_of(file, "select sum(leads) from mart_leads_daily")) == (6, [(6,)])
    about = dict(rows_of(file, "from about"))
    assert "isn't anonymous" in about["what it isn't"]
    assert "UK GDPR applies" in about["law"]
    assert about["made at"] == "2026-11-21T12:00:00+00:00"


def landed(data: DataFolder, made: Mapping[tuple[str, Any], Iterable[Any]]) -> None:
    for (scope, day), leads in made.items():
        land(data, APPLICANT, list(leads), scope=scope, day=day, fetched_at=NOW - timedelta(hours=1))
    publish(data)


@pytest.mark.slow
def test_two_copies_share_no_hash_and_no_order(data: DataFolder, tmp_path: Path) -> None:
    made = {
        ("branch-101", DAY): [lead(f"{n}", f"person{n % 30}", listingDetails={"id": f"{n % 20}"}) for n in range(90)]
    }
    landed(data, made)
    hashes, groups, orders = [], [], []
    for name in ("one", "other"):
        write_share(data, tmp_path / name, NOW)
        rows = rows_of(tmp_path / name, "select person, listing_id from lead_facts order by rowid")
        by_person = defaultdict(list)
        for place, (person, _) in enumerate(rows):
            by_person[person].append(place)
        hashes.append({cell for row in rows for cell in row})
        groups.append(sorted(map(len, by_person.values())))
        orders.append(sorted(by_person.values()))
    assert len(hashes[0]) == len(hashes[1]) == 50
    assert not hashes[0] & hashes[1]
    assert groups[0] == groups[1] == [3] * 30
    assert orders[0] != orders[1]
    published = {cell for (cell,) in rows_of(data.folder / "leads.duckdb", "select person from applicant_leads")}
    assert not published & (hashes[0] | hashes[1])


@pytest.mark.slow
def test_who_is_to_be_erased_is_swept_before_a_copy_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = DataFolder.at(tmp_path / "data", tmp_path / "list")
    land(data, APPLICANT, people("a", 2))
    publish(data)
    monkeypatch.setenv("LEADS_DATA_DIR", str(data.folder))
    monkeypatch.setenv("LEADS_PRIVACY_DIR", str(tmp_path / "list"))
    monkeypatch.setenv("LEADS_BRANCH_IDS", "101,102")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    listed(data.gate.entries, emails=["a1@people.example"], leads=[("applicant", "a1")])
    with pytest.raises(StorageError, match="privacy apply"):
        write_share(data, tmp_path / "copy.duckdb", NOW)
    assert not (tmp_path / "copy.duckdb").exists()
    assert run("privacy", "share", tmp_path / "copy.duckdb").exit_code == 0
    assert rows_of(tmp_path / "copy.duckdb", "select count(*) from lead_facts") == [(1,)]


@pytest.mark.slow
def test_the_copy_is_private_and_whole_or_not_there(
    data: DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEADS_DATA_DIR", str(data.folder))
    folder = tmp_path / "copies"
    folder.mkdir()
    file = folder / "copy.duckdb"
    data.folder.mkdir()
    told = run("privacy", "share", file)
    assert (told.exit_code, list(folder.iterdir())) == (2, [])
    assert "has no leads" in told.stderr
    land(data, APPLICANT, people("p", 6))
    told = run("privacy", "share", file)
    assert (told.exit_code, list(folder.iterdir())) == (2, [])
    assert "leads.duckdb is missing. Run `leads-pipeline backfill --last 1d`" in told.stderr
    publish(data)

    def cut(source: Path, _: Path) -> None:
        assert stat.S_IMODE(source.parent.stat().st_mode) == 0o700
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(share_room, "publish_file", cut)
        with pytest.raises(KeyboardInterrupt):
            write_share(data, file, NOW)
    assert list(folder.iterdir()) == []
    told = run("privacy", "share", file)
    assert told.exit_code == 0, told.output
    assert "not anonymous" in told.stdout
    assert list(folder.iterdir()) == [file]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    content = file.read_bytes()
    inside, nowhere = data.folder / "copy.duckdb", tmp_path / "nowhere" / "copy.duckdb"
    for refused, why in ((file, "Delete it"), (inside, "is in the data folder"), (nowhere, "Make it")):
        told = run("privacy", "share", refused)
        assert (told.exit_code, why in told.stderr) == (2, True), told.output
    assert file.read_bytes() == content
    assert not list((data.folder / ".state" / "duckdb").iterdir())


def test_a_damaged_leads_duckdb_is_told_with_the_command_that_makes_a_new_one(
    data: DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEADS_DATA_DIR", str(data.folder))
    land(data, APPLICANT, people("p", 6))
    publish(data)
    version = (data.folder / "leads.duckdb").resolve()
    version.chmod(0o600)
    version.write_bytes(b"not a database")
    told = run("privacy", "share", tmp_path / "copy.duckdb")
    assert (told.exit_code, (tmp_path / "copy.duckdb").exists()) == (2, False)
    assert "leads.duckdb is damaged: it can't be opened. Run `leads-pipeline backfill --last 1d`" in told.stderr
