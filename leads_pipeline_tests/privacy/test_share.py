"""The pseudonymised copy: what passes, what small groups lose, what it says of itself."""

import random
import stat
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from leads_pipeline.domain.contract import APPLICANT, APPRAISAL, LEAD_KINDS, FieldType, LeadKind
from leads_pipeline.errors import StorageError
from leads_pipeline.privacy import share as share_room
from leads_pipeline.privacy.share import KEPT_OF_SMALL_GROUPS, allow_list, write_share
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.people import listed
from leads_pipeline_tests.support.staging import DAY, NEXT_DAY, land, publish

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SCOPES = ("branch-101", "branch-102")
WORDS = {"APPLICANT_SOURCE_ZOOPLA_WEBSITE": "zoopla website", "": "unknown", "Ann's own website": "…"}

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
    for kind in LEAD_KINDS:
        # A branch's day of people enough, so that it is the allow-list that keeps them out.
        sql = f"select count(*) from {kind.table} where not is_small_group"  # noqa: S608 - the contract's own name
        [(big,)] = rows_of(tmp_path / "copy.duckdb", sql)
        assert big == len(texts)
        assert PLANTED in str(rows_of(data.folder / "leads.duckdb", f"from {kind.table}"))
    for text in texts_in(tmp_path / "copy.duckdb"):
        assert PLANTED.casefold() not in text.casefold()
        assert "people.example" not in text
        assert str(NUMBER)[:6] not in text
    content = (tmp_path / "copy.duckdb").read_bytes()
    assert PLANTED.encode() not in content
    assert NUMBER.to_bytes(8, "little") not in content


POSTCODES = {
    "SW1A 1AA": "SW1A",
    "w1a1aa": "W1A",
    " e1 6an": "E1",
    "M60 1NW": "M60",
    "EC1V": "EC1V",
    "SW1A 1": None,
    "E1 6A": None,
    "N1 1AA, flat 2": None,
    "Jane's, N1 1AA": None,
    "07700 900123": None,
    "": None,
}


@pytest.mark.slow
def test_of_a_postcode_the_outward_half_alone_passes(data: DataFolder, tmp_path: Path) -> None:
    land(data, APPLICANT, [lead(str(n), f"p{n}", consumerPostcode=written) for n, written in enumerate(POSTCODES)])
    publish(data)
    write_share(data, tmp_path / "copy.duckdb", NOW)
    found = rows_of(tmp_path / "copy.duckdb", "select outward_code from applicant_leads")
    assert Counter(code for (code,) in found) == Counter(POSTCODES.values())


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


def test_the_copy_has_the_tables_and_columns_that_are_named_and_each_is_explained(
    data: DataFolder, tmp_path: Path
) -> None:
    publish(data)
    file = tmp_path / "copy.duckdb"
    write_share(data, file, NOW)
    named = {(table.name, column) for table in allow_list() for column in table.columns}
    named |= {("about", "topic"), ("about", "says")} | {(kind.table, "is_small_group") for kind in LEAD_KINDS}
    found = rows_of(file, "select table_name, column_name, comment from duckdb_columns() where not internal")
    assert {(table, column) for table, column, _ in found} == named
    assert all(comment for *_, comment in found)
    assert all(comment for (comment,) in rows_of(file, "select comment from duckdb_tables()"))
    about = dict(rows_of(file, "from about"))
    assert "isn't anonymous" in about["what it isn't"]
    assert "UK GDPR applies" in about["law"]
    assert about["made at"] == "2026-11-21T12:00:00+00:00"
    for table in allow_list():
        assert f"{table.name}: {', '.join(table.columns)}" in about["allow-list"]
    assert len(about["allow-list, checksum"]) == 64


@pytest.mark.slow
def test_a_small_group_keeps_branch_day_and_source_alone(data: DataFolder, tmp_path: Path) -> None:
    more = {"consumerSituation": "CONSUMER_SITUATION_OTHER", "organiseViewing": True, "consumerPostcode": "E1 6AN"}
    land(data, APPLICANT, [{**one, **more} for one in people("five", 5)], scope="branch-101")
    # Four people with nine leads, and as many that name nobody.
    again = [lead(f"again{number}", f"four{number % 4}", **more) for number in range(5)]
    nobody = [lead(f"nobody{number}", None, **more) for number in range(9)]
    small = [{**one, **more} for one in people("four", 4)] + again + nobody
    land(data, APPLICANT, small, scope="branch-102")
    # Another kind's people make the group no larger.
    land(data, APPRAISAL, people("owner", 6), scope="branch-102")
    publish(data)
    file = tmp_path / "copy.duckdb"
    assert write_share(data, file, NOW).in_small_groups == len(small)
    [columns] = [table.columns for table in allow_list() if table.name == "applicant_leads"]
    rest = ", ".join(column for column in columns if column not in KEPT_OF_SMALL_GROUPS)
    shown = f"select lead_day, branch, source, is_small_group, {rest} from applicant_leads where scope = "  # noqa: S608 - our own names
    found = rows_of(file, shown + "'branch-102'")
    assert found == [(DAY, "branch-102", "unknown", True, *[None] * len(rest.split(", ")))] * len(small)
    assert rows_of(
        file,
        "select distinct is_small_group, situation, wants_viewing, outward_code from applicant_leads "
        "where scope = 'branch-101'",
    ) == [(False, "other", True, "E1")]
    assert rows_of(file, "select distinct is_small_group from appraisal_leads") == [(False,)]


def made_up(seed: int) -> dict[tuple[str, Any], list[dict[str, Any]]]:
    """Leads by scope and day, of people who come again."""
    dice = random.Random(seed)  # noqa: S311 - made-up leads
    made: dict[tuple[str, Any], list[dict[str, Any]]] = {}
    for scope in SCOPES:
        for day in (DAY, NEXT_DAY):
            made[scope, day] = [
                lead(
                    f"{scope} {day} {number}",
                    dice.choice([None, *(f"person{one}" for one in range(9))]),
                    createdAt=f"{day}T{dice.randrange(8, 20):02}:00:00Z",
                    leadSource=dice.choice([*WORDS]),
                )
                for number in range(dice.choice([3, 60]))
            ]
    return made


def landed(data: DataFolder, made: Mapping[tuple[str, Any], Iterable[Any]]) -> None:
    for (scope, day), leads in made.items():
        land(data, APPLICANT, list(leads), scope=scope, day=day, fetched_at=NOW - timedelta(hours=1))
    publish(data)


@pytest.mark.slow
def test_leads_by_branch_day_and_source_are_right_in_the_copy(data: DataFolder, tmp_path: Path) -> None:
    made = made_up(1)
    landed(data, made)
    write_share(data, tmp_path / "copy.duckdb", NOW)
    truth = Counter((scope, day, WORDS[one["leadSource"]]) for (scope, day), of in made.items() for one in of)
    found = rows_of(
        tmp_path / "copy.duckdb", "select scope, lead_day, source, count(*) from applicant_leads group by all"
    )
    assert {tuple(key): count for *key, count in found} == truth
    people_of = {key: {one["contact"]["email"] for one in of if one["contact"]} for key, of in made.items()}
    big = rows_of(
        tmp_path / "copy.duckdb",
        "select scope, lead_day, count(distinct person) from applicant_leads where not is_small_group group by all",
    )
    assert {(scope, day): count for scope, day, count in big} == {
        key: len(of) for key, of in people_of.items() if len(of) >= 5
    }


@pytest.mark.slow
def test_two_copies_share_no_hash_and_no_order(data: DataFolder, tmp_path: Path) -> None:
    made = {
        ("branch-101", DAY): [lead(f"{n}", f"person{n % 30}", listingDetails={"id": f"{n % 20}"}) for n in range(90)]
    }
    landed(data, made)
    hashes, groups, orders = [], [], []
    for name in ("one", "other"):
        write_share(data, tmp_path / name, NOW)
        rows = rows_of(tmp_path / name, "select person, listing from applicant_leads order by rowid")
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
    assert rows_of(tmp_path / "copy.duckdb", "select count(*) from applicant_leads") == [(1,)]


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
    assert "not there yet" in told.stderr
    land(data, APPLICANT, people("p", 6))
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
    for refused, why in ((file, "Remove it"), (inside, "lies in the data folder"), (nowhere, "Make it")):
        told = run("privacy", "share", refused)
        assert (told.exit_code, why in told.stderr) == (2, True), told.output
    assert file.read_bytes() == content
    assert not list((data.folder / ".state" / "duckdb").iterdir())
