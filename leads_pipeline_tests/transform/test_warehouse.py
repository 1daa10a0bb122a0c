import json
import os
import random
import re
import shutil
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from math import ceil
from pathlib import Path
from typing import Any

import duckdb
import pytest

from leads_pipeline.assets.checks import habit_checks
from leads_pipeline.branches import Branches
from leads_pipeline.contract import APPLICANT, APPRAISAL, LEAD_KINDS, Answer, InventoryItem, LeadKind
from leads_pipeline.durable import copy_file
from leads_pipeline.errors import BugError, StorageError
from leads_pipeline.flatten.batches import sweep_stagings
from leads_pipeline.flatten.columns import staged_columns
from leads_pipeline.lake import Lake
from leads_pipeline.portal import LeadsClient, Timing
from leads_pipeline.resources import DataFolder, InventoryService, LeadsService
from leads_pipeline.simulator import Config, running
from leads_pipeline.warehouse import (
    Grid,
    Publication,
    Warehouse,
    loading,
    marts,
    pieces,
    schema,
    sql_marts,
    state,
    tables,
)
from leads_pipeline.warehouse import answers as answers_room
from leads_pipeline.warehouse import publication as publication_room
from leads_pipeline.window import Scope, Window
from leads_pipeline_tests.support.following import assert_touched_days_are_noted
from leads_pipeline_tests.support.staging import DAY, FETCHED_AT, LONDON, NEXT_DAY, land, stage

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


GRID = Grid(scopes=(Scope.parse("branch-101"),), first_day=DAY, zone=LONDON)
YORK = Branches({"branch-101": "York"}, ("region",), {"branch-101": ("North",)})


def in_all_rooms(monkeypatch: pytest.MonkeyPatch, name: str, value: object) -> None:
    for room in (loading, publication_room, schema, sql_marts, state):
        if name in vars(room):
            monkeypatch.setattr(room, name, value)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "data")


def publish(lake: Lake, grid: Grid = GRID, now: datetime = NOW) -> Publication:
    publication = Warehouse(lake).publish(grid, now)
    assert_touched_days_are_noted(lake)
    return publication


def land_and_stage(lake: Lake, kind: LeadKind, leads: list[Any], day: date = DAY, **more: Any) -> None:
    land(lake, kind, leads, day=day, **more)
    stage(lake, kind, day)


def query(lake: Lake, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(Warehouse(lake).path, read_only=True) as db:
        db.execute("set TimeZone = 'UTC'")
        return db.execute(sql).fetchall()


def leftovers(lake: Lake) -> list[str]:
    scratch = lake.folder / ".state" / "duckdb"
    return [path.name for path in (*lake.folder.glob(".leads.duckdb*"), *scratch.glob("*"))]


# --- what is in it ------------------------------------------------------------------------------------------------


def test_a_marts_file_describes_exactly_its_columns(lake: Lake) -> None:
    publish(lake)

    assert {mart.name for mart in marts()} >= {"mart_coverage", "mart_leads_daily"}
    for mart in marts():
        columns, _ = Warehouse(lake).query(f"from {mart.name} limit 0")
        assert list(mart.columns) == columns
        assert mart.description.startswith("One row per ")


# --- each lead once -----------------------------------------------------------------------------------------------


def messages(lake: Lake) -> list[tuple[Any, ...]]:
    """Leads with the number of their children, which say which version they are from."""
    return query(
        lake,
        """
        select lead_id, message, window_day, count(times.position)
        from applicant_leads left join applicant_viewing_times as times using (lead_id)
        group by all order by all
        """,
    )


def version(text: str, children: int) -> dict[str, Any]:
    return {"id": "a", "message": text, "viewingTimes": [{}] * children}


@pytest.mark.slow
def test_of_two_versions_fetched_at_once_the_later_days_counts(lake: Lake) -> None:
    for day in (NEXT_DAY, DAY):
        land_and_stage(lake, APPLICANT, [version(str(day), 1)], day)
        publish(lake)

    assert messages(lake) == [("a", str(NEXT_DAY), NEXT_DAY, 1)]


@pytest.mark.slow
def test_a_lead_whose_winning_day_gives_it_up_is_taken_from_the_other_day(lake: Lake) -> None:
    land_and_stage(lake, APPLICANT, [version("old", 2), {"id": "b"}], DAY)
    land_and_stage(lake, APPLICANT, [version("new", 3)], NEXT_DAY, fetched_at=FETCHED_AT + timedelta(hours=1))
    publish(lake)
    shutil.rmtree(lake.folder / "raw" / "applicant_leads" / f"day={NEXT_DAY}")
    give_up_what_is_staged(lake, NEXT_DAY)

    publication = publish(lake)

    assert (publication.is_rebuilt, publication.days_changed) == (False, 1)
    assert messages(lake) == [("a", "old", DAY, 2), ("b", None, DAY, 0)]


def test_files_staged_before_there_were_sequences_count_by_their_moment(lake: Lake) -> None:
    land_and_stage(lake, APPLICANT, [version("old", 1), {"id": "b"}], DAY)
    for table, column in (("applicant_leads", "sequence"), ("applicant_windows", "looked_at")):
        with duckdb.connect() as db, lake.replacing_staged([table], DAY) as paths:
            db.read_parquet(str(lake.staged_path(table, DAY))).create("staged")
            db.execute(f"alter table staged drop column {column}")
            db.table("staged").write_parquet(str(paths[table]))
    land_and_stage(lake, APPLICANT, [version("new", 2)], NEXT_DAY, fetched_at=FETCHED_AT + timedelta(hours=1))

    publish(lake)

    assert messages(lake) == [("a", "new", NEXT_DAY, 2), ("b", None, DAY, 0)]
    assert query(lake, "select count(*) from landed_windows where looked_at is null") == [(0,)]
    assert query(lake, "select sequence = epoch_us(fetched_at) from applicant_leads where lead_id = 'b'") == [(True,)]


def give_up_what_is_staged(lake: Lake, day: date) -> None:
    """Stage the day from nothing, as if nothing had been there before."""
    published = Warehouse(lake).path
    aside = published.rename(published.with_name("aside"))
    lake.staged_path("applicant_leads", day).unlink()
    stage(lake, APPLICANT, day)
    aside.rename(published)


def test_a_lead_that_is_given_up_is_gone_when_no_other_day_holds_it(lake: Lake) -> None:
    land_and_stage(lake, APPLICANT, [version("only", 2)])
    publish(lake)
    (raw,) = [window.path for window in lake.landed_windows(APPLICANT, DAY)]
    raw.unlink()
    give_up_what_is_staged(lake, DAY)

    publish(lake)

    assert messages(lake) == []
    assert query(lake, "select count(*) from applicant_viewing_times") == [(0,)]
    assert query(lake, "select count(*) from landed_windows") == [(0,)]


def test_many_leads_are_loaded_with_the_memory_for_many(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "MEMORY_LIMIT_OF_MANY", "1KB")  # so that it shows
    land_and_stage(lake, APPLICANT, [{"id": "a"}])
    files = [file for kind in LEAD_KINDS for table in staged_columns(kind) for file in lake.staged_files(table)]
    size = sum(file.path.stat().st_size for file in files)
    monkeypatch.setattr(loading, "MANY_BYTES", size - 1)
    with pytest.raises(StorageError, match="ran out of its memory and of space to spill to"):
        publish(lake)
    assert not Warehouse(lake).path.exists()

    monkeypatch.setattr(loading, "MANY_BYTES", size)
    publish(lake)
    land_and_stage(lake, APPLICANT, [{"id": "b"}], NEXT_DAY)
    publish(lake)  # what is loaded already doesn't count
    assert messages(lake) == [("a", None, DAY, 0), ("b", None, NEXT_DAY, 0)]


def test_a_reader_sees_one_version_whatever_is_published_meanwhile(lake: Lake) -> None:
    count = "select count(*) from applicant_leads"
    with Warehouse(lake).reading() as db:
        with pytest.raises(StorageError, match="is not there yet"):
            db.query(count)
        land_and_stage(lake, APPLICANT, [{"id": "a"}])
        publish(lake)
        seen = [db.query(count)[1]]
        land_and_stage(lake, APPLICANT, [{"id": "b"}], NEXT_DAY)
        publish(lake)
        with pytest.raises(BugError):
            db.query("select nothing")
        seen.append(db.query(count)[1])
    assert seen == [[(1,)], [(1,)]]
    assert query(lake, count) == [(2,)]


@pytest.mark.slow
def test_what_a_killed_reader_left_goes_and_a_living_one_keeps_its_version(lake: Lake) -> None:
    land_and_stage(lake, APPLICANT, [{"id": "a"}])
    publish(lake)
    scratch = lake.folder / ".state" / "duckdb"
    code = """
        import sys, time
        from pathlib import Path
        from leads_pipeline.lake import Lake
        from leads_pipeline.warehouse import Warehouse
        import duckdb
        connect = duckdb.connect
        def slow(*arguments, **named):
            print("reading", flush=True)
            sys.stdin.readline()
            return connect(*arguments, **named)
        duckdb.connect = slow
        print(Warehouse(Lake(Path(sys.argv[1]))).query("select lead_id from applicant_leads")[1], flush=True)
    """
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), str(lake.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    killed, living = readers
    with killed, living:
        assert killed.stdout is not None
        assert living.stdout is not None
        assert [reader.stdout.readline() for reader in readers if reader.stdout] == ["reading\n"] * 2
        killed.kill()
        killed.wait()
        (scratch / "query-0123456789abcdef-held").mkdir()  # as an older version left it
        assert len(list(scratch.glob("query-*/*.duckdb"))) == 2

        land_and_stage(lake, APPLICANT, [{"id": "b"}], NEXT_DAY)
        publish(lake)

        assert len(list(scratch.glob("query-*/*.duckdb"))) == 1
        assert len(list(scratch.glob("query-*"))) == 1
        assert Warehouse(lake).query("select count(*) from applicant_leads")[1] == [(2,)]
        assert living.communicate("go on\n", timeout=120)[0] == "[('a',)]\n"
    assert leftovers(lake) == []


# --- what is left as it is, and what is built anew ----------------------------------------------------------------


def test_a_file_of_the_version_that_knew_no_names_is_brought_up_to_date_and_not_built_anew(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    land_and_stage(lake, APPLICANT, [{"id": f"{n}"} for n in range(20)])
    with monkeypatch.context() as before:
        without = tuple(
            replace(mart, statement=mart.statement.replace("branch_of(", "upper("))
            for mart in marts()
            if mart.name != "branches"
        )
        in_all_rooms(before, "marts", lambda: without)
        macros = [macro for macro in sql_marts.MART_MACROS.split(";") if "branch_of" not in macro]
        in_all_rooms(before, "MART_MACROS", ";".join(macros))
        publish(lake)
        assert query(lake, "select branch from mart_leads_daily") == [("BRANCH-101",)]
        assert "main.branches" not in tables_in(Warehouse(lake).path)
    monkeypatch.setattr(Warehouse, "_rebuilt", lambda *_: pytest.fail("built anew"))
    monkeypatch.setattr(loading, "_load_leads", lambda *_, **__: pytest.fail("loaded"))

    publish(lake, replace(GRID, branches=YORK))

    assert query(lake, "select branch, leads from mart_leads_daily") == [("York", 20)]
    assert query(lake, "select count(*) from applicant_leads") == [(20,)]


def test_a_changed_statement_of_a_mart_rebuilds_the_marts_alone(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    publish(lake)
    path = tmp_path / "mart_new.sql"
    path.write_text("-- One row per question: which?\n-- answer: The answer\n\nselect 42 as answer\n")
    new = (*marts(), sql_marts.read_statement(path))  # as if it lay in sql/
    in_all_rooms(monkeypatch, "marts", lambda: new)

    publication = publish(lake)

    assert (publication.is_rebuilt, publication.rows["mart_new"]) == (False, 1)
    assert query(lake, "from mart_new") == [(42,)]


def tables_in(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    with duckdb.connect(path, read_only=True) as db:
        db.execute("set TimeZone = 'UTC'")
        # Each file numbers its own publications.
        own = "table_name not in ('publications', 'touched_days')"
        names = db.execute(f"select schema_name || '.' || table_name from duckdb_tables() where {own}").fetchall()  # noqa: S608
        return {name: db.execute(f"from {name} order by all").fetchall() for (name,) in names}


def damaged(content: bytes, rng: random.Random) -> bytes:
    """A few bits flipped, a stretch of zeros, or cut off; in the headers more often than their size would give."""
    harmed = bytearray(content)
    start = rng.randrange(3 * 4096 if rng.random() < 0.3 else len(harmed))
    harm = rng.choice(["flip", "zero", "cut"])
    if harm == "cut":
        del harmed[start:]
    elif harm == "zero":
        harmed[start : start + 4096] = bytes(len(harmed[start : start + 4096]))
    else:
        for at in {min(start + rng.randrange(500), len(harmed) - 1) for _ in range(rng.choice([1, 8]))}:
            harmed[at] ^= 1 << rng.randrange(8)
    return bytes(harmed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_file_damaged_anywhere_ends_in_a_right_publication(
    lake: Lake, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    rng = random.Random(seed)  # noqa: S311 - the same damage each time
    add_leads(lake)
    land_and_stage(lake, APPRAISAL, [{"id": str(number)} for number in range(20)], NEXT_DAY)
    publish(lake)
    path, tomorrow = Warehouse(lake).path, NOW + timedelta(days=1)
    whole, checksums = path.read_bytes(), (lake.folder / ".state" / "warehouse-pieces").read_bytes()
    assert not publish(lake, now=tomorrow).is_rebuilt
    right = tables_in(path)
    for number in range(12):
        harmed = damaged(whole, rng)
        path.chmod(0o600)
        path.write_bytes(harmed)
        (lake.folder / ".state" / "warehouse-pieces").write_bytes(checksums)
        caplog.clear()

        publication = publish(lake, now=tomorrow)

        assert publication.is_rebuilt == (harmed != whole), number
        assert publication.is_rebuilt == ("is damaged" in caplog.text)
        assert tables_in(path) == right


@pytest.mark.parametrize(
    "part", [part if part == 4 else pytest.param(part, marks=pytest.mark.slow) for part in range(1, 8)]
)
def test_a_file_that_rots_while_nothing_changes_is_built_anew(lake: Lake, part: int) -> None:
    add_leads(lake)
    publish(lake)
    path = Warehouse(lake).path
    right, harmed = tables_in(path), bytearray(path.read_bytes())
    harmed[len(harmed) * part // 8] ^= 1
    path.chmod(0o600)
    path.write_bytes(harmed)
    assert publish(lake).is_rebuilt
    assert tables_in(path) == right
    assert not publish(lake).is_changed


# Of pieces of 64 kB, for a file of some megabytes.
AT_ONCE = 16

# It fills blocks of DuckDB's, and no publication reads it.
TEXT = random.Random(1).randbytes(600_000).hex()  # noqa: S311 - the same each time


def rot(lake: Lake) -> None:
    """Flip a bit of the text, where only who reads it would notice; in a file of its own, as the disk's error would."""
    path = Warehouse(lake).path
    content = bytearray(path.read_bytes())
    place = content.index(TEXT[600_000:601_000].encode())
    assert place > AT_ONCE * pieces.PIECE_BYTES
    content[place] ^= 1
    path.chmod(0o600)
    path.write_bytes(content)


def published_in_pieces(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> int:
    """Publish a file of which a look sees a part alone; return how many looks see all of it."""
    monkeypatch.setattr(pieces, "PIECE_BYTES", 1 << 16)
    monkeypatch.setattr(pieces, "PIECES_AT_ONCE", AT_ONCE)
    add_leads(lake)
    publish(lake)
    land_and_stage(lake, APPLICANT, [{"id": "long", "message": TEXT}], NEXT_DAY)
    publish(lake)
    return ceil(Warehouse(lake).path.stat().st_size / pieces.PIECE_BYTES / AT_ONCE)


@pytest.mark.parametrize("blocks", ["sharing", "tmp_path"])
def test_damage_in_a_large_file_is_found_before_all_of_it_was_looked_at_twice(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, blocks: str
) -> None:
    lake = Lake(request.getfixturevalue(blocks) / "unchanged")
    looks = published_in_pieces(lake, monkeypatch)
    right = tables_in(Warehouse(lake).path)
    rot(lake)
    assert not Warehouse(lake).publish(GRID, NOW).is_changed

    publications = [Warehouse(lake).publish(GRID, NOW).is_rebuilt for _ in range(looks)]

    assert publications.count(True) == 1
    assert tables_in(Warehouse(lake).path) == right


def outcome_of_publication(lake: Lake) -> str:
    try:
        return "changed" if Warehouse(lake).publish(GRID, NOW).is_changed else "1 unchanged"
    except StorageError as error:
        return f"2 {error}"


def test_damage_that_was_found_is_still_known_where_building_anew_fails(
    sharing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(sharing / "known")
    looks = published_in_pieces(lake, monkeypatch)
    rot(lake)

    def full(*_: object) -> None:
        raise StorageError("The disk is full.")

    with monkeypatch.context() as disk:
        disk.setattr(Warehouse, "_rebuilt", full)
        outcomes = [outcome_of_publication(lake) for _ in range(looks + 1)]
        assert outcomes == sorted(outcomes)  # once it fails, it fails each time
        assert set(outcomes) == {"1 unchanged", "2 The disk is full."}

    assert Warehouse(lake).publish(GRID, NOW + timedelta(days=1)).is_rebuilt  # though there is something new, too


def test_a_file_that_cannot_be_written_anew_from_itself_is_built_anew(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every block is read for that, and damage may be where nothing else reads."""
    add_leads(lake)
    publish(lake)
    right = tables_in(Warehouse(lake).path)

    def broken(*_: object) -> None:
        raise StorageError("DuckDB found damage.")

    monkeypatch.setattr(publication_room, "write_anew", broken)
    lake.want_rebuild()
    assert publish(lake).is_rebuilt
    assert lake.rebuild_wanted() is None
    assert tables_in(Warehouse(lake).path) == right


@pytest.mark.slow
def test_damage_that_a_large_file_has_is_damage_in_its_next_version_too(
    sharing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(sharing / "damaged")
    looks = published_in_pieces(lake, monkeypatch)
    rot(lake)
    assert (
        not Warehouse(lake).publish(GRID, NOW + timedelta(days=1)).is_rebuilt
    )  # changed, from a copy that shares the damage

    rebuilt = [Warehouse(lake).publish(GRID, NOW + timedelta(days=2 + n)).is_rebuilt for n in range(looks)]

    assert rebuilt.count(True) == 1


def test_a_copy_that_shares_nothing_is_looked_at_as_a_whole(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    published_in_pieces(lake, monkeypatch)
    rot(lake)
    path = Warehouse(lake).path
    shutil.copyfile(path, lake.folder / "copy")
    assert pieces.Pieces(lake).look_at(lake.folder / "copy", path) is None
    assert Warehouse(lake).publish(GRID, NOW + timedelta(days=1)).is_rebuilt


@pytest.mark.slow
def test_what_a_version_shares_with_the_one_before_is_not_read_and_its_checksums_are_right(
    sharing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(sharing / "right")
    published_in_pieces(lake, monkeypatch)
    read: list[int] = []
    really = pieces._read  # noqa: SLF001 - the one place that reads

    def counted(file: Path, wanted: Collection[int]) -> dict[int, str]:
        read.append(len(wanted))
        return really(file, wanted)

    monkeypatch.setattr(pieces, "_read", counted)
    for number in range(4):
        land_and_stage(lake, APPLICANT, [{"id": f"new {number}"}], sequence=number + 9)
        read.clear()
        assert not publish(lake).is_rebuilt
        count = Warehouse(lake).path.stat().st_size // pieces.PIECE_BYTES
        assert sum(read) < 2 * count  # as many as reading all before and after would be
        noted = (lake.folder / ".state" / "warehouse-pieces").read_text().splitlines()[-1]
        assert noted == "".join(pieces.checksums_of(Warehouse(lake).path))


@pytest.mark.parametrize("is_damaged", [False, True])
def test_damage_beside_what_is_changed_is_found(
    sharing: Path, monkeypatch: pytest.MonkeyPatch, is_damaged: bool
) -> None:
    """A piece that is changed gets a new checksum, which would take the damage for right."""
    monkeypatch.setattr(pieces, "PIECES_AT_ONCE", 1)
    lake = Lake(sharing / f"beside {is_damaged}")
    file, draft = lake.folder / "file", lake.folder / "draft"
    lake.folder.mkdir()
    content = bytearray(random.Random(2).randbytes(8 * pieces.PIECE_BYTES))  # noqa: S311 - the same each time
    file.write_bytes(content)
    looks = pieces.Pieces(lake)
    looks.remember(pieces.checksums_of(file))
    content[4 * pieces.PIECE_BYTES + 500_000] ^= is_damaged
    file.write_bytes(content)
    copy_file(file, draft)
    assert (before := looks.look_at(draft, file))  # its turn hasn't come

    with draft.open("r+b") as opened:
        opened.seek(4 * pieces.PIECE_BYTES)
        opened.write(bytes(4096))
        opened.seek(0, os.SEEK_END)
        opened.write(b"more")
        os.fsync(opened.fileno())

    assert looks.after(draft, file, before) == (None if is_damaged else pieces.checksums_of(draft))


def test_a_file_that_grows_is_gone_round_all_the_same(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 10)
    monkeypatch.setattr(pieces, "PIECES_AT_ONCE", 10)
    looked_at: set[int] = set()
    really = pieces._read  # noqa: SLF001 - the one place that reads

    def noted(file: Path, wanted: Collection[int]) -> dict[int, str]:
        looked_at.update(wanted)
        return really(file, wanted)

    file = lake.folder / "file"
    lake.folder.mkdir()
    for number in range(40):
        file.write_bytes(bytes(10 * (200 + 3 * number)))
        looks = pieces.Pieces(lake)
        looks.remember(pieces.checksums_of(file))
        if number == 10:
            monkeypatch.setattr(pieces, "_read", noted)
        assert looks.look_at(file)
    assert looked_at >= set(range(200))


@pytest.mark.parametrize("is_damaged", [False, True])
def test_the_file_of_an_earlier_version_is_compared_with_what_that_noted(lake: Lake, is_damaged: bool) -> None:
    add_leads(lake)
    publish(lake)
    path = Warehouse(lake).path
    (lake.folder / ".state" / "warehouse-pieces").unlink()
    (lake.folder / ".state" / "warehouse-checksums").write_text(f"00000000 {state.checksum_of(path)}")
    if is_damaged:
        path.chmod(0o600)
        with path.open("ab") as file:
            file.write(b"x")
    assert publish(lake, now=NOW + timedelta(days=1)).is_rebuilt == is_damaged


@pytest.mark.parametrize("content", [b"", b"12", b"x\nabcdefgh", b"\xff\xfe", b"3\n12345678"])
def test_a_file_whose_checksums_are_illegible_is_built_anew(lake: Lake, content: bytes) -> None:
    add_leads(lake)
    publish(lake)
    right = tables_in(Warehouse(lake).path)
    (lake.folder / ".state" / "warehouse-pieces").write_bytes(content)

    assert publish(lake).is_rebuilt

    assert tables_in(Warehouse(lake).path) == right
    assert not publish(lake).is_changed


def test_an_earlier_version_takes_the_file_for_right_after_a_return_to_it(lake: Lake) -> None:
    add_leads(lake)
    publish(lake)
    former = lake.folder / ".state" / "warehouse-checksums"
    former.write_text("00000000")
    publish(lake, now=NOW + timedelta(days=1))
    assert not former.exists()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_damage_that_duckdb_alone_can_notice_is_no_bug(lake: Lake, seed: int) -> None:
    rng = random.Random(100 + seed)  # noqa: S311 - the same damage each time
    add_leads(lake)
    publish(lake)
    path = Warehouse(lake).path
    whole = path.read_bytes()
    outcomes = Counter[str]()
    for _ in range(12):
        path.chmod(0o600)
        path.write_bytes(damaged(whole, rng))
        (lake.folder / ".state" / "warehouse-pieces").unlink()  # an earlier version of the pipeline published it
        outcomes["rebuilt" if publish(lake, now=NOW + timedelta(days=1)).is_rebuilt else "unread"] += 1
    assert outcomes["rebuilt"] > 3


@pytest.mark.slow
def test_a_publication_killed_before_the_swap_leaves_a_file_that_counts_as_whole(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(lake)

    class Killed(BaseException):
        pass

    def killed(*_: Path) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(publication_room, "publish_file", killed)
        for days in (1, 2):
            with pytest.raises(Killed):
                publish(lake, now=NOW + timedelta(days))

    assert not publish(lake, now=NOW + timedelta(days=3)).is_rebuilt


def with_mart(monkeypatch: pytest.MonkeyPatch, name: str, **changes: Any) -> None:
    changed = tuple(replace(mart, **changes) if mart.name == name else mart for mart in marts())
    in_all_rooms(monkeypatch, "marts", lambda: changed)


@pytest.mark.parametrize(
    ("condition", "error", "told"),
    [
        ("no_such_column", "BinderException", "no_such_column"),
        ("no_such_function(person)", "CatalogException", "no_such_function"),
        ("(", "ParserException", "syntax error"),
        ("'secret words'::integer is null", "ConversionException", "left out"),
    ],
)
def test_a_wrong_statement_is_told_and_neither_rebuilds_nor_replaces_the_file(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, condition: str, error: str, told: str
) -> None:
    land_and_stage(lake, APPLICANT, [{"id": f"{n}"} for n in range(20)])
    publish(lake)
    before = Warehouse(lake).path.stat()
    land_and_stage(lake, APPLICANT, [{"id": "new"}], NEXT_DAY)
    is_touched = sql_marts._is_touched  # noqa: SLF001 - which rows of a mart are made anew
    monkeypatch.setattr(sql_marts, "_is_touched", lambda *names: f"{is_touched(*names)} and {condition}")
    monkeypatch.setattr(Warehouse, "_rebuilt", lambda *_: pytest.fail("built anew"))

    with pytest.raises(BugError, match=f"{error}.*Running again doesn't help") as caught:
        publish(lake)

    assert told in str(caught.value)
    assert "secret words" not in str(caught.value)
    after = Warehouse(lake).path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert leftovers(lake) == []


def test_reworded_comments_are_set_and_nothing_is_loaded_or_made_anew(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    land_and_stage(lake, APPLICANT, [version("x", 2)])
    publish(lake)
    first, *rest = tables()
    column = replace(first.columns[0], description="The id")
    reworded = replace(first, description="All of them", columns=(column, *first.columns[1:]))
    in_all_rooms(monkeypatch, "tables", lambda: (reworded, *rest))
    with_mart(monkeypatch, "mart_people", description="One row per human", columns={"person": "Who"})
    monkeypatch.setattr(Warehouse, "_rebuilt", lambda *_: pytest.fail("built anew"))
    monkeypatch.setattr(loading, "_load_leads", lambda *_, **__: pytest.fail("loaded"))

    publication = publish(lake)

    assert (publication.is_changed, publication.is_rebuilt, publication.days_changed) == (True, False, 0)
    named = "table_name in ('applicant_leads', 'mart_people')"
    assert query(lake, f"select comment from duckdb_tables() where {named} order by table_name") == [  # noqa: S608
        ("All of them",),
        ("One row per human",),
    ]
    first_columns = f"select comment from duckdb_columns() where column_index = 1 and {named} order by table_name"  # noqa: S608
    assert query(lake, first_columns) == [("The id",), ("Who",)]
    assert not publish(lake).is_changed


@pytest.mark.slow
def test_comments_are_reworded_while_leads_come_in(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    land_and_stage(lake, APPLICANT, [{"id": f"{n}", "contact": {"email": f"{n}@example.org"}} for n in range(20)])
    publish(lake)
    land_and_stage(lake, APPLICANT, [version("x", 2)], NEXT_DAY)
    with_mart(monkeypatch, "mart_people", description="One row per human")

    assert not publish(lake).is_rebuilt

    assert query(lake, "select comment from duckdb_tables() where table_name = 'mart_people'") == [
        ("One row per human",)
    ]
    assert query(lake, "select count(*) from applicant_leads") == [(21,)]


def test_a_mart_that_is_no_longer_in_the_folder_is_dropped(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(lake)
    rest = tuple(mart for mart in marts() if mart.name != "mart_hourly")
    in_all_rooms(monkeypatch, "marts", lambda: rest)

    publication = publish(lake)

    assert (publication.is_changed, publication.is_rebuilt) == (True, False)
    there = {name.removeprefix("main.") for name in tables_in(Warehouse(lake).path) if name.startswith("main.")}
    assert there == publication.rows.keys()
    assert "mart_hourly" not in there


def test_a_file_of_another_schema_version_is_built_anew(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    land_and_stage(lake, APPLICANT, [version("x", 2)])
    publish(lake)
    monkeypatch.setattr(state, "SCHEMA_VERSION", state.SCHEMA_VERSION + 1)

    publication = publish(lake)

    assert publication.is_rebuilt
    assert messages(lake) == [("a", "x", DAY, 2)]


# --- marts --------------------------------------------------------------------------------------------------------


# --- publication --------------------------------------------------------------------------------------------------


KILLED_WHILE_STAGING = """
import os, sys
from pathlib import Path
from leads_pipeline.contract import APPLICANT
from leads_pipeline.flatten import batches
from leads_pipeline.lake import Lake
from leads_pipeline_tests.support.staging import stage
batches.read_raw = lambda db, files: os._exit(9)
stage(Lake(Path(sys.argv[1])), APPLICANT)
"""


def test_what_a_killed_staging_left_goes_and_a_living_one_keeps_it(lake: Lake) -> None:
    land(lake, APPLICANT, [{"id": "1", "message": "before"}])
    [raw] = lake.landed_windows(APPLICANT, DAY)
    command = [sys.executable, "-c", KILLED_WHILE_STAGING, str(lake.folder)]
    assert subprocess.run(command, check=False, cwd=Path(__file__).parents[2]).returncode == 9
    assert raw.path.stat().st_nlink == 2
    with lake.holding_staged(DAY):
        sweep_stagings(lake)
        assert raw.path.stat().st_nlink == 2
    stage(lake, APPLICANT, NEXT_DAY)
    publish(lake)
    assert raw.path.stat().st_nlink == 1
    assert not list((lake.folder / ".state" / "duckdb").iterdir())


def test_what_killed_publications_left_is_swept_even_when_nothing_changes(lake: Lake) -> None:
    land_and_stage(lake, APPLICANT, [{"id": "a"}])
    publish(lake)
    draft, spill = (
        lake.folder / ".leads.duckdb.draft",
        lake.folder / ".state" / "duckdb" / "warehouse-spill" / "spill.tmp",
    )
    spill.parent.mkdir(parents=True, exist_ok=True)
    for leftover in (draft, draft.with_name(f"{draft.name}.wal"), spill):
        leftover.write_bytes(b"half a file, with personal data")
    assert not publish(lake).is_changed
    assert leftovers(lake) == []
    assert not spill.parent.exists()


def long_leads(ids: range, text_bytes: int = 300) -> list[dict[str, Any]]:
    """Leads with texts that don't shrink, the same each time."""
    rng = random.Random(ids.start)  # noqa: S311 - no secrets
    return [
        {
            "id": f"{n}",
            "createdAt": "2026-11-19T10:00:00Z",
            "message": rng.randbytes(text_bytes // 2).hex(),
            "contact": {"email": f"{n}@example.org"},
            "viewingTimes": [{}, {}],
        }
        for n in ids
    ]


def add_leads(lake: Lake) -> None:
    land_and_stage(lake, APPLICANT, long_leads(range(2000, 2050)), scope="branch-102")


def change_every_lead(lake: Lake, hours: int = 9) -> None:
    """So that the marts are made anew as a whole."""
    at = FETCHED_AT + timedelta(hours=hours)
    land_and_stage(lake, APPLICANT, long_leads(range(1000), 300 - hours), fetched_at=at)
    land_and_stage(lake, APPLICANT, long_leads(range(1000, 1400), 300 - hours), NEXT_DAY, fetched_at=at)


def add_long_texts(lake: Lake) -> None:
    """More than the 16 MB of write-ahead log at which DuckDB thinks of a checkpoint by itself."""
    land_and_stage(lake, APPLICANT, long_leads(range(3000, 3200), 100_000), scope="branch-102")


def publish_in_steps(lake: Lake, folder: Path, change: Callable[[Lake], None], now: datetime = NOW) -> None:
    """Publish the change; readers between whose steps of opening the file it was swapped in see one whole version.

    DuckDB opens a file by its name for its magic bytes, for its headers, and for all else: what such readers get to see
    is put together here.
    """

    path, met = Warehouse(lake).path, folder / "met.duckdb"
    old, held = path.read_bytes(), tables_in(path)
    change(lake)
    publication = publish(lake, now=now)
    new = path.read_bytes()
    assert (publication.is_changed, publication.is_rebuilt) == (True, False)
    assert tables_in(path) != held
    for magic, headers, seen in ((old, old, held), (old, new, tables_in(path))):
        met.write_bytes(magic[:4096] + headers[4096 : 3 * 4096] + new[3 * 4096 :])
        assert tables_in(met) == seen


def publish_base(lake: Lake) -> None:
    """Twice, so that there are free blocks before used ones, and the next version may be a shorter file."""
    for hours in range(2):
        change_every_lead(lake, hours)
        publish(lake)


@pytest.mark.slow
@pytest.mark.parametrize("change", [add_leads, change_every_lead, add_long_texts])
def test_a_swap_between_headers_and_blocks_shows_a_reader_one_whole_version(
    lake: Lake, tmp_path: Path, change: Callable[[Lake], None]
) -> None:
    publish_base(lake)

    publish_in_steps(lake, tmp_path, change)


@pytest.mark.slow
def test_swaps_one_after_the_other_show_readers_whole_versions_and_dont_make_the_file_grow(
    lake: Lake, tmp_path: Path
) -> None:
    publish_base(lake)
    sizes = []
    for number in range(8):
        at = FETCHED_AT + timedelta(minutes=number)

        def change(lake: Lake, number: int = number, at: datetime = at) -> None:
            if number % 3:  # else the grid alone changes
                leads = long_leads(range(5000 + number, 5020 + number))
                land_and_stage(lake, APPLICANT, leads, NEXT_DAY, scope="branch-102", fetched_at=at)

        publish_in_steps(lake, tmp_path, change, NOW + timedelta(days=number // 3 + 1))
        sizes.append(Warehouse(lake).path.stat().st_size)

    assert max(sizes[3:]) <= 1.1 * max(sizes[:3])


def PUBLISHING(lake: Lake, times: int = 1) -> list[str]:  # noqa: N802 - a command, made for one lake
    """A process of its own that publishes, each time for another day, so that each time there is something to do."""
    script = f"""
        from datetime import date, datetime, timedelta, UTC
        from pathlib import Path
        from zoneinfo import ZoneInfo
        from leads_pipeline.lake import Lake
        from leads_pipeline.warehouse import Grid, Warehouse
        from leads_pipeline.window import Scope
        warehouse = Warehouse(Lake(Path({str(lake.folder)!r})))
        for day in range({times}):
            grid = Grid((Scope.parse("branch-101"),), date(2026, 11, 19), ZoneInfo("Europe/London"))
            warehouse.publish(grid, datetime(2026, 11, 21, 12, tzinfo=UTC) + timedelta(days=day))
    """
    return [sys.executable, "-c", textwrap.dedent(script)]


@pytest.mark.slow
def test_two_processes_that_publish_at_once_take_turns(lake: Lake) -> None:
    land_and_stage(lake, APPLICANT, [{"id": "a"}])
    processes = [
        subprocess.Popen(PUBLISHING(lake, times=2), cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]

    errors = [process.communicate()[1] for process in processes]

    assert errors == ["", ""]
    assert query(lake, "select count(*) from applicant_leads") == [(1,)]
    assert leftovers(lake) == []


# --- mart_lead_properties -------------------------------------------------------------------------------------------


def inventory_item(id_: str, name_no: Any, street: Any, postcode: Any, flat: Any = None) -> InventoryItem:
    address = {"subDwelling": flat, "nameNo": name_no, "street": street, "postcode": postcode}
    return InventoryItem(id_, json.dumps({"id": id_, "address": address}), 1)


STOCK = [
    inventory_item("house", "14", "St. John's Road", "XA1 2BC"),
    inventory_item("flat", "16", "High Street", "XA1 2BD", "Flat 2"),
    inventory_item("no street", "20", None, "XA1 2BE"),
    inventory_item("no address", None, " ", "XA1 2BF"),
    inventory_item("no number", " ", "High Street", "XA1 2BH"),
    inventory_item("no postcode", "22", "High Street", None),
    inventory_item("again", "24", "High Street", "XA1 2BG"),
    inventory_item("once more", "24", "High Street", "XA1 2BG"),
]


def as_people_write(rng: random.Random, address: dict[str, Any]) -> None:
    """Change a listing's address as it changes on its way through people and other systems."""
    number, street, postcode = (address[name] for name in ("propertyNumberOrName", "streetName", "postcode"))
    if rng.random() < 0.3:
        for kind, short in {"Street": "St.", "Road": "Rd", "Avenue": "Ave", "Lane": "Ln", "Drive": "Dr"}.items():
            street = re.sub(rf" {kind}$", f" {short}", street)
    if rng.random() < 0.04:  # a letter lost
        street = street[:2] + street[3:]
    if number.startswith("Flat ") and rng.random() < 0.15:
        number = " ".join(number.split()[2:])
    if rng.random() < 0.03:
        number = ""
    if rng.random() < 0.2:
        number = f"{number},"
    if rng.random() < 0.2:
        postcode = postcode.replace(" ", "")
    if rng.random() < 0.02:
        postcode = rng.choice(["", postcode[:-1] + "Z"])
    cases: list[Callable[[str], str]] = [str, str, str.lower, str.upper]
    change = rng.choice(cases)
    address |= {"propertyNumberOrName": change(number), "streetName": change(street), "postcode": change(postcode)}


def neighbours(rng: random.Random, item: InventoryItem) -> Iterator[InventoryItem]:
    """More items at the item's postcode, as in a real street: two houses on, another flat, the house as a whole."""
    address = json.loads(item.payload)["address"]
    flat, number, street, postcode = (address[name] for name in ("subDwelling", "nameNo", "street", "postcode"))
    if number.isdigit():
        yield inventory_item(f"{item.item_id}-two-on", str(int(number) + 2), street, postcode, flat)
        yield inventory_item(f"{item.item_id}-longer", f"1{number}", street, postcode, flat)
    if flat and rng.random() < 0.5:
        yield inventory_item(f"{item.item_id}-whole", number, street, postcode)
        yield inventory_item(f"{item.item_id}-other-flat", number, street, postcode, f"{flat}0")


@pytest.fixture(scope="module")
def portal(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Answer], list[InventoryItem]]:
    """A week of applicants, whose listing's id is the truth, and every item of the simulator's inventory.

    The same week whatever the day is: what a week's leads give differs by two in a hundred.
    """
    data = DataFolder(path=str(tmp_path_factory.mktemp("tokens")))
    with running(Config(branches=30, leads_per_day=20, clock=lambda: NOW)) as simulator:
        said = simulator.environment()
        _, auth = LeadsService(
            data=data,
            base_url=said["LEADS_BASE_URL"],
            auth_url=said["LEADS_AUTH_URL"],
            client_id=said["LEADS_CLIENT_ID"],
            client_secret=said["LEADS_CLIENT_SECRET"],
            audience=said["LEADS_BASE_URL"],
        ).connect()
        leads = LeadsClient(said["LEADS_BASE_URL"], auth, max_concurrency=8, timing=Timing(now=lambda: NOW))
        inventory = InventoryService(
            data=data,
            base_url=said["INVENTORY_BASE_URL"],
            client_id=said["INVENTORY_CLIENT_ID"],
            client_secret=said["INVENTORY_CLIENT_SECRET"],
            agency_ref=said["INVENTORY_AGENCY_REF"],
        ).connect()
        days = [NOW.date() - timedelta(days=ago) for ago in range(1, 8)]
        branches = [Scope.parse(f"branch-{id_}") for id_ in said["LEADS_BRANCH_IDS"].split(",")]
        windows = [Window.of(day, branch, LONDON) for day in days for branch in branches]
        answers = [
            answer
            for _, answer in leads.fetch_windows(APPLICANT, windows, lambda answer: answer)
            if isinstance(answer, Answer)
        ]
        assert len(answers) == len(windows)
        # They come as they are answered, and what is drawn for each lead follows their order.
        return sorted(answers, key=lambda answer: answer.window), list(inventory.search(""))


@pytest.mark.parametrize("written", [pytest.param("by the portal", marks=pytest.mark.slow), "by people"])
@pytest.mark.slow
def test_the_match_is_as_good_as_its_comment_says(
    lake: Lake, portal: tuple[list[Answer], list[InventoryItem]], written: str
) -> None:
    answers, items = portal
    rng = random.Random(5)  # noqa: S311 - made-up slips of the pen
    stock = [item for item in items if rng.random() < 0.8]
    if written == "by people":
        stock += [neighbour for item in stock for neighbour in neighbours(rng, item)]
    lake.land_inventory(DAY, {"": stock}, FETCHED_AT, "run-1")
    for answer in answers:
        leads = []
        for received in answer.leads:
            lead = json.loads(received.payload)
            if written == "by people":
                as_people_write(rng, lead["listingDetails"]["address"])
            leads.append(received._replace(payload=json.dumps(lead)))
        lake.land(replace(answer, leads=tuple(leads)), "run-1")
    for day in {answer.window.day for answer in answers}:
        stage(lake, APPLICANT, day)
    publish(lake)

    [(leads_seen, listed, matched, right)] = query(
        lake,
        """
        select count(*), count(*) filter (truth.item_id is not null), count(*) filter (match = 'address'),
            count(*) filter (mart.item_id = listing_details_id)
        from mart_lead_properties as mart
        join applicant_leads using (lead_id)
        left join inventory as truth on truth.item_id = listing_details_id
        """,
    )
    precision, recall = right / matched, right / listed
    mart = next(mart for mart in marts() if mart.name == "mart_lead_properties")
    said = [int(number) / 100 for number in re.findall(r"(\d+) %", mart.columns["match"])]
    said_precision, said_recall = said[:2] if written == "by people" else said[2:]
    assert leads_seen > 3000
    assert precision == pytest.approx(said_precision, abs=0.01)
    assert recall == pytest.approx(said_recall, abs=0.01)


# --- the agency's own answers -----------------------------------------------------------------------------------------


def answers(lake: Lake) -> list[tuple[Any, ...]]:
    publish(lake)
    return query(lake, "select number, lead_id, answered_at, problem from answers order by all")


def test_answers_come_as_parquet_too(lake: Lake) -> None:
    land_and_stage(lake, APPLICANT, [{"id": "a", "createdAt": "2026-11-19T10:00:00Z"}])
    moments = "timestamptz '2026-11-19 10:30:00+00' as answered_at"
    duckdb.execute(f"copy (select 'a' as lead_id, {moments}) to '{lake.folder / 'answers.parquet'}'")
    assert answers(lake) == [(1, "a", datetime(2026, 11, 19, 10, 30, tzinfo=UTC), None)]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("answers.csv", b"", "answers.csv has no column lead_id, or none answered_at"),
        ("answers.csv", b"lead_id;answered_at\na;b\n", "answers.csv has no column lead_id, or none answered_at"),
        (
            "answers.csv",
            b"lead_id,answered_at\n\xff\n",
            "answers.csv is no CSV in UTF-8, or no Parquet file, from here on",
        ),
        ("answers.parquet", b"PAR1", "answers.parquet is no CSV in UTF-8, or no Parquet file, from here on"),
        ("answers.csv", None, "answers.csv can't be read: Is a directory"),
    ],
)
def test_a_file_of_answers_that_cant_be_read_is_told_and_holds_no_publication_back(
    lake: Lake, name: str, content: bytes | None, problem: str
) -> None:
    land_and_stage(lake, APPLICANT, [{"id": "a"}])
    path = lake.folder / name
    path.mkdir() if content is None else path.write_bytes(content)

    assert answers(lake) == [(None, None, None, problem)]
    assert query(lake, "select count(*) from applicant_leads") == [(1,)]
    assert query(lake, "from mart_answers") == []
    [check] = [result for result in habit_checks(Warehouse(lake)) if result.check_name == "answers_count"]
    assert (check.passed, check.description) == (False, f"- 1 rows: {problem}")


@pytest.mark.parametrize(
    ("written", "moment"),
    [
        ("2026-11-19T10:40:00Z", datetime(2026, 11, 19, 10, 40, tzinfo=UTC)),
        (" 2026-07-19 10:40 ", datetime(2026, 7, 19, 9, 40, tzinfo=UTC)),  # the agency's summer
        ("2026-11-19T10:40:00.5+05:30", datetime(2026, 11, 19, 5, 10, 0, 500_000, tzinfo=UTC)),
        ("2026-11-19", None),
        ("19/11/2026 10:40", None),
        ("0001-01-01T00:00:00+01:00", None),
        ("", None),
    ],
)
def test_a_moment_of_an_answer_is_read_in_the_agencys_zone(written: str, moment: datetime | None) -> None:
    assert answers_room._moment(written, LONDON) == moment  # noqa: SLF001 - a row at a time
