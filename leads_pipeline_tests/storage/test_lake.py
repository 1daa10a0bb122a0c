import errno
import fcntl
import hashlib
import json
import logging
import os
import random
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leads_pipeline import durable
from leads_pipeline.contract import APPLICANT, APPRAISAL, Answer, InventoryItem, PushedLead, ReceivedLead
from leads_pipeline.errors import ServerError, SettingsError, StorageError
from leads_pipeline.lake import Lake, raw
from leads_pipeline.lake.state import SEQUENCE_STEP
from leads_pipeline.window import RETENTION, Scope, ScopeKind, Window
from leads_pipeline_tests.support.sample_answers import CLOSED_AT, DAY, LATER, TWENTY, UTC_ZONE, WINDOW, answer, lead

ROOT = Path(__file__).parents[2]
NEIGHBOUR = Window.of(DAY, Scope.parse("branch-102"), UTC_ZONE)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "data")


def rows(path: Path) -> list[dict[str, Any]]:
    return pq.ParquetFile(path).read().to_pylist()


def payloads(path: Path) -> dict[str, str]:
    """Each lead's version that counts."""
    newest = sorted(rows(path), key=lambda row: (row["sequence"], row["position"]))
    return {row["lead_id"]: row["payload"] for row in newest}


def versions(path: Path) -> set[tuple[str, str]]:
    return {(row["lead_id"], row["payload"]) for row in rows(path)}


def everything_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


# --- landing ------------------------------------------------------------------------------------------------------


def test_an_answer_lands_with_the_exact_payload_and_how_it_was_fetched(lake: Lake) -> None:
    odd = ReceivedLead("odd", '{"id":"odd","n":1e400,"big":' + "9" * 5000 + ',"nul":"\x00"}', "not valid JSON")

    landing = lake.land(answer([lead(1), odd], sequence=7), "run-1")

    assert landing.path == lake.folder / "raw/applicant_leads/day=2026-11-19/scope=branch-101/leads.parquet"
    assert rows(landing.path) == [
        {
            "kind": "applicant",
            "day": DAY,
            "scope": "branch-101",
            "lead_id": one.lead_id,
            "position": position,
            "sequence": 7,
            "fetched_at": CLOSED_AT,
            "run_id": "run-1",
            "source": "pull",
            "payload": one.payload,
            "oddity": one.oddity,
        }
        for position, one in enumerate([lead(1), odd])
    ]
    assert duckdb.execute(
        "SELECT payload FROM read_parquet(?) WHERE lead_id = 'odd'", [str(landing.path)]
    ).fetchall() == [(odd.payload,)]


def test_the_file_says_by_itself_how_it_came_to_be(lake: Lake) -> None:
    path = lake.land(answer(TWENTY), "run-1").path
    (landed,) = lake.landed_windows(APPLICANT, DAY)

    assert (landed.kind, landed.day, landed.scope, landed.path) == ("applicant", DAY, "branch-101", path)
    assert (landed.start, landed.end) == (WINDOW.start, WINDOW.end)
    assert (landed.leads, landed.rows, landed.run_id, landed.attempts) == (20, 20, "run-1", 2)
    assert (landed.fetched_at, landed.looked_at) == (CLOSED_AT, CLOSED_AT)
    assert (landed.request, landed.body_sha256) == ("/applicant-leads?branch-id=101", "ab" * 32)
    assert landed.is_closed
    assert not landed.is_partial


def test_an_unchanged_lead_keeps_the_moment_it_was_first_received(lake: Lake) -> None:
    lake.land(answer(TWENTY[:2]), "run-1")

    path = lake.land(answer([lead(0), lead(1, "changed")], fetched_at=LATER), "run-2").path

    assert [(row["fetched_at"], row["run_id"]) for row in rows(path)] == [
        (CLOSED_AT, "run-1"),
        (CLOSED_AT, "run-1"),
        (LATER, "run-2"),
    ]


def test_the_same_answer_twice_changes_nothing_but_when_it_was_last_seen(lake: Lake) -> None:
    first = lake.land(answer(TWENTY, sequence=1), "run-1")
    before = rows(first.path)

    second = lake.land(answer(TWENTY, fetched_at=LATER, sequence=2), "run-2")

    assert first.is_changed
    assert not second.is_changed
    assert (second.unchanged, second.leads) == (20, 20)
    assert rows(first.path) == [row | {"sequence": 2} for row in before]
    (landed,) = lake.landed_windows(APPLICANT, DAY)
    assert (landed.run_id, landed.fetched_at) == ("run-1", CLOSED_AT)
    assert (landed.looked_at, landed.sequence) == (LATER, 2)


def test_no_leads_is_not_the_same_as_never_fetched(lake: Lake) -> None:
    assert lake.landed_windows(APPLICANT, DAY) == []

    landing = lake.land(answer([]), "run-1")

    assert landing.is_changed
    assert rows(landing.path) == []
    assert [landed.leads for landed in lake.landed_windows(APPLICANT, DAY)] == [0]
    assert [window.path for window in lake.landed_windows(APPLICANT, DAY)] == [landing.path]


def test_two_versions_of_a_lead_in_one_answer_both_stay_and_repeats_are_kept_once(lake: Lake) -> None:
    twice = [lead(1), lead(2), lead(1, "other"), lead(1)]
    path = lake.land(answer(twice), "run-1").path

    assert [(row["lead_id"], row["position"], row["payload"]) for row in rows(path)] == [
        ("lead-01", 2, lead(1, "other").payload),
        ("lead-01", 3, lead(1).payload),
        ("lead-02", 1, lead(2).payload),
    ]
    assert not lake.land(answer(twice[::-1], fetched_at=LATER), "run-2").is_changed

    landing = lake.land(answer([lead(1, "third")], fetched_at=LATER + timedelta(hours=1)), "run-3")
    assert (landing.changed, landing.kept, landing.leads) == (1, 1, 2)
    assert payloads(path) == {"lead-01": lead(1, "third").payload, "lead-02": lead(2).payload}
    assert len(rows(path)) == 4


def test_an_older_answer_that_lands_later_adds_but_does_not_overwrite(lake: Lake) -> None:
    older, newer = lake.next_sequence(), lake.next_sequence()
    lake.land(answer([lead(1, "newer")], fetched_at=LATER, sequence=newer), "fast run")

    landing = lake.land(answer([lead(1, "older"), lead(2)], fetched_at=CLOSED_AT, sequence=older), "slow run")

    assert payloads(landing.path) == {"lead-01": lead(1, "newer").payload, "lead-02": lead(2).payload}
    assert (landing.new, landing.changed, landing.unchanged) == (1, 0, 1)
    assert ("lead-01", lead(1, "older").payload) in versions(landing.path)
    (landed,) = lake.landed_windows(APPLICANT, DAY)
    assert (landed.looked_at, landed.sequence) == (LATER, newer)


@pytest.mark.parametrize("clock", [timedelta(hours=-1), timedelta(days=-365)], ids=["by an hour", "by a year"])
def test_after_the_clock_was_set_back_the_newer_version_counts(
    lake: Lake, clock: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.land(answer([lead(1, "older")], fetched_at=LATER, sequence=lake.next_sequence()), "run-1")
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + int(clock.total_seconds() * 1e9))

    landing = lake.land(answer([lead(1, "newer")], fetched_at=LATER + clock, sequence=lake.next_sequence()), "run-2")

    assert payloads(landing.path) == {"lead-01": lead(1, "newer").payload}
    assert versions(landing.path) == {("lead-01", lead(1, text).payload) for text in ("older", "newer")}


def test_an_id_that_would_leave_the_folder_is_refused(lake: Lake) -> None:
    escaping = Window.of(DAY, Scope(ScopeKind.BRANCH, "../../../../escaped"), UTC_ZONE)

    with pytest.raises(SettingsError, match="not a scope"):
        lake.land(answer([lead(1)], escaping), "run-1")

    assert not lake.folder.exists()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 5),  # hours after the window's end at which the answer was fetched
            st.dictionaries(st.integers(0, 6), st.sampled_from(["a", "b", "c"]), max_size=5),
        ),
        max_size=8,
    )
)
def test_after_any_answers_in_any_order_every_id_is_there_once_in_its_newest_version(
    answers: list[tuple[int, dict[int, str]]],
) -> None:
    # The model: every version with when it was first landed, and the number of the last answer that held it.
    expected: dict[tuple[int, str], tuple[datetime, int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Path(folder))
        for hour, held in answers:
            at = CLOSED_AT + timedelta(hours=hour)
            leads = [lead(number, text) for number, text in held.items()]
            landing = lake.land(answer(leads, fetched_at=at, sequence=hour), "run")
            for version in held.items():
                first, last = expected.get(version, (at, hour))
                expected[version] = (first, max(last, hour))
            found = {
                (row["lead_id"], row["payload"]): (row["fetched_at"], row["sequence"]) for row in rows(landing.path)
            }
            assert found == {(f"lead-{n:02}", lead(n, text).payload): known for (n, text), known in expected.items()}
            assert len(rows(landing.path)) == len(expected)
            assert landing.leads == len({number for number, _ in expected})


# --- the order of receipt ------------------------------------------------------------------------------------------


def test_a_sequence_grows_over_threads_and_processes(lake: Lake) -> None:
    code = """
        for _ in range(200):
            print(lake.next_sequence())
    """
    processes = [start(code, lake) for _ in range(3)]
    with ThreadPoolExecutor(4) as pool:
        here = list(pool.map(lambda _: lake.next_sequence(), range(400)))
    drawn = [[int(line) for line in finish(process).split()] for process in processes]

    assert all(one == sorted(one) and len(one) == 200 for one in drawn)
    assert len({*here, *(number for one in drawn for number in one)}) == 1000
    assert lake.next_sequence() > max(*here, *(one[-1] for one in drawn))


@pytest.mark.parametrize("content", [None, b"", bytes(19), b"no number\n", b"9" * 40], ids=repr)
def test_a_lost_or_broken_counter_begins_with_the_clock(lake: Lake, content: bytes | None) -> None:
    lake.next_sequence()
    path = lake.folder / ".state/sequence"
    path.unlink()
    if content is not None:
        path.write_bytes(content)

    before = time.time_ns() // 1000
    assert before <= lake.next_sequence() < before + SEQUENCE_STEP + 60_000_000


def test_a_power_cut_that_takes_the_last_numbers_away_gives_none_twice(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 10**15)  # it stands still, or was set back
    path = lake.folder / ".state/sequence"
    synced: list[bytes] = []
    fsync = os.fsync

    def recorded(file: int) -> None:
        synced.append(path.read_bytes() if path.exists() else b"")
        fsync(file)

    monkeypatch.setattr(os, "fsync", recorded)
    drawn = [lake.next_sequence() for _ in range(50)]
    path.write_bytes(synced[-1])
    monkeypatch.setattr("leads_pipeline.lake.state._synced_sequences", {})  # after the cut it is another process

    assert lake.next_sequence() > drawn[-1] == max(drawn)


def test_a_folder_restored_without_its_counter_goes_on_above_what_its_files_hold(lake: Lake) -> None:
    ahead = lake.next_sequence() + 10**12
    lake.land(answer([lead(1)], sequence=ahead), "run-1")
    (lake.folder / ".state/sequence").unlink()

    lake.land(answer([lead(1)], sequence=lake.next_sequence()), "run-2")

    assert lake.next_sequence() > ahead


# --- files of the first format -------------------------------------------------------------------------------------


def in_first_format(path: Path) -> None:
    """Rewrite a raw file as the version before sequences wrote it."""
    file = pq.ParquetFile(path)
    facts = {key.decode(): value.decode() for key, value in (file.metadata.metadata or {}).items()}
    facts = {name: value for name, value in facts.items() if name not in ("leads", "looked_at", "sequence")}
    table = file.read().drop_columns(["sequence"])
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(facts | {"schema_version": "1"})
    content = sink.getvalue().to_pybytes()
    at = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    path.write_bytes(content[:at] + hashlib.sha256(content).digest() + content[at:])


def test_a_file_of_the_first_format_is_read_as_it_is_and_goes_on(lake: Lake) -> None:
    path = lake.land(answer([*TWENTY, lead(1, "twice in one answer")]), "run-1").path
    in_first_format(path)
    content = path.read_bytes()

    assert [window.path for window in lake.landed_windows(APPLICANT, DAY)] == [path]
    (landed,) = lake.landed_windows(APPLICANT, DAY)
    assert (landed.leads, landed.rows, landed.fetched_at, landed.looked_at) == (20, 21, CLOSED_AT, CLOSED_AT)
    assert path.read_bytes() == content

    changed = answer([lead(0, "changed")], fetched_at=LATER, sequence=lake.next_sequence())
    landing = lake.land(changed, "run-2")

    assert (landing.leads, landing.changed, landing.kept) == (20, 1, 19)
    assert len(rows(path)) == 22
    assert payloads(path) == {one.lead_id: one.payload for one in TWENTY} | {
        "lead-00": lead(0, "changed").payload,
        "lead-01": lead(1, "twice in one answer").payload,
    }
    assert {row["fetched_at"] for row in rows(path) if row["lead_id"] != "lead-00"} == {CLOSED_AT}
    assert lake.quarantined() == []


def test_pushed_leads_and_items_of_the_first_format_are_read_and_go_on(lake: Lake) -> None:
    one = [PushedLead(APPLICANT, lead(1), CLOSED_AT)]
    lake.land_pushed(APPLICANT, DAY, "branch-101", one, "run-1")
    lake.land_inventory(DAY, {"Leeds": [item(1)]}, CLOSED_AT, "run-1")
    [pushed], [items] = lake.pushed_files(APPLICANT, DAY), lake.inventory_files()
    in_first_format(pushed)
    in_first_format(items)

    two = [PushedLead(APPLICANT, lead(1, "changed"), LATER, lake.next_sequence())]
    assert lake.land_pushed(APPLICANT, DAY, "branch-101", two, "run-2") == (0, 1)
    assert lake.land_inventory(DAY, {"Leeds": [item(1, "changed"), item(2)]}, LATER, "run-2") == 2
    assert payloads(pushed) == {"lead-01": lead(1, "changed").payload}
    assert (len(rows(pushed)), len(rows(items))) == (2, 3)
    assert lake.quarantined() == []


# --- what is asked every minute ------------------------------------------------------------------------------------


def test_a_known_file_is_read_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.land(answer([lead(1)]), "run")
    reads: list[Path] = []
    read = Path.read_bytes

    def counted(path: Path) -> bytes:
        reads.append(path)
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", counted)
    for _ in range(3):
        assert Lake(lake.folder).known_windows(APPLICANT, DAY) == lake.landed_windows(APPLICANT, DAY)
    assert len(reads) == 1 + 3  # once for the first, each time for the second


@pytest.mark.parametrize("keeps_time", [False, True])
def test_a_known_file_that_was_replaced_is_read_again(lake: Lake, keeps_time: bool) -> None:
    path = lake.land(answer([lead(1)], fetched_at=BEFORE_ITS_END), "run").path
    older, times = path.read_bytes(), path.stat()
    lake.land(answer([lead(1)], fetched_at=WINDOW.end), "run")
    assert [known.is_closed for known in lake.known_windows(APPLICANT, DAY)] == [True]
    path.write_bytes(older)
    if keeps_time:
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert [known.is_closed for known in lake.known_windows(APPLICANT, DAY)] == [False]


def test_a_known_file_that_rots_is_noticed_within_a_day(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    path = lake.land(answer([lead(1)]), "run").path
    identities = vars(raw)["_identities"]
    [(_, [*stat, _])] = identities(path.parents[1])

    def unmoved(folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
        # A disk that rots tells nobody.
        return ((name, (*stat, identity[-1])) for name, identity in identities(folder))

    now = time.time()
    monkeypatch.setattr(raw, "_identities", unmoved)
    assert len(lake.known_windows(APPLICANT, DAY)) == 1
    path.write_bytes(b"rotten")
    assert len(lake.known_windows(APPLICANT, DAY)) == 1
    monkeypatch.setattr(raw, "time", SimpleNamespace(time=lambda: now + 86_400))
    assert lake.known_windows(APPLICANT, DAY) == []
    assert len(lake.quarantined()) == 1


# --- closed and partial -------------------------------------------------------------------------------------------

BEFORE_ITS_END = WINDOW.end - timedelta(seconds=1)
STRADDLING = WINDOW.start + RETENTION + timedelta(seconds=1)
BARELY_WHOLE = WINDOW.start + RETENTION
ALL_DELETED = WINDOW.end + RETENTION


@pytest.mark.parametrize(
    ("fetched_at", "is_closed", "is_partial"),
    [
        pytest.param([BEFORE_ITS_END], False, False, id="still open"),
        pytest.param([WINDOW.end], True, False, id="closed"),
        pytest.param([WINDOW.end, BEFORE_ITS_END], True, False, id="once closed stays closed"),
        pytest.param([BEFORE_ITS_END, WINDOW.end], True, False, id="closes without a new lead"),
        pytest.param([BARELY_WHOLE], True, False, id="the last moment at which nothing is deleted"),
        pytest.param([STRADDLING], True, True, id="deletion had begun"),
        pytest.param([ALL_DELETED], True, True, id="deletion was over"),
        pytest.param([BEFORE_ITS_END, STRADDLING], True, True, id="open, then deletion had begun"),
        pytest.param([WINDOW.end, STRADDLING], True, False, id="once complete stays complete"),
        pytest.param([STRADDLING, WINDOW.end], True, False, id="completed by an answer that lands late"),
    ],
)
def test_a_window_is_partial_unless_it_was_pulled_after_its_end_and_before_deletion_began(
    lake: Lake, fetched_at: list[datetime], is_closed: bool, is_partial: bool
) -> None:
    for moment in fetched_at:
        landing = lake.land(answer([lead(1)], fetched_at=moment), "run")

    (landed,) = lake.landed_windows(APPLICANT, DAY)
    assert (landing.is_closed, landing.is_partial) == (is_closed, is_partial)
    assert (landed.is_closed, landed.is_partial) == (is_closed, is_partial)


def test_what_came_of_a_window_is_kept_and_closes_it_no_more_than_before(lake: Lake) -> None:
    def part(number: int, moment: datetime) -> Answer:
        return replace(answer([lead(number)], fetched_at=moment), failure=ServerError("The rest failed."))

    lake.land(part(1, CLOSED_AT), "run-1")
    lake.land(part(2, LATER), "run-2")
    (landed,) = lake.landed_windows(APPLICANT, DAY)
    assert (landed.leads, landed.is_closed, landed.is_partial, landed.looked_at) == (2, False, False, LATER)

    lake.land(answer([lead(3)], fetched_at=LATER), "run-3")
    lake.land(part(4, LATER + timedelta(days=7)), "run-4")
    (landed,) = lake.landed_windows(APPLICANT, DAY)
    assert (landed.leads, landed.is_closed, landed.is_partial) == (4, True, False)
    assert landed.looked_at == LATER, "a part is no look at a window that was whole"


def test_closing_a_window_changes_it_once(lake: Lake) -> None:
    lake.land(answer([lead(1)], fetched_at=BEFORE_ITS_END), "run-1")

    assert lake.land(answer([lead(1)], fetched_at=WINDOW.end), "run-2").is_changed
    assert not lake.land(answer([lead(1)], fetched_at=LATER), "run-3").is_changed

    assert [(landed.run_id, landed.fetched_at) for landed in lake.landed_windows(APPLICANT, DAY)] == [
        ("run-2", WINDOW.end)
    ]


def test_another_time_zone_keeps_the_leads_and_forgets_that_the_day_was_closed(lake: Lake) -> None:
    lake.land(answer([lead(1)], fetched_at=WINDOW.end), "run-1")
    in_new_york = Window.of(DAY, WINDOW.scope, ZoneInfo("America/New_York"))

    landing = lake.land(answer([], in_new_york, fetched_at=WINDOW.end), "run-2")

    (landed,) = lake.landed_windows(APPLICANT, DAY)
    assert (landed.start, landed.end, landed.is_closed) == (in_new_york.start, in_new_york.end, False)
    assert set(payloads(landing.path)) == {"lead-01"}


# --- reading ------------------------------------------------------------------------------------------------------


def test_days_scopes_and_kinds_are_told_apart(lake: Lake) -> None:
    yesterday = Window.of(DAY - timedelta(days=1), WINDOW.scope, UTC_ZONE)
    paths = [lake.land(answer([lead(1)], window), "run").path for window in (NEIGHBOUR, WINDOW, yesterday)]
    (lake.folder / "raw/applicant_leads/day=someday").mkdir()

    assert [window.path for window in lake.landed_windows(APPLICANT, DAY)] == [paths[1], paths[0]]
    assert lake.landed_days(APPLICANT) == [DAY - timedelta(days=1), DAY]
    assert [landed.scope for landed in lake.landed_windows(APPLICANT, DAY)] == ["branch-101", "branch-102"]
    assert [window.path for window in lake.landed_windows(APPRAISAL, DAY)] == []
    assert lake.landed_days(APPRAISAL) == []
    assert lake.landed_windows(APPRAISAL, DAY) == []


def test_folders_made_beforehand_wait_for_the_disk_once_a_day(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    sync = durable.sync

    def counting(path: Path) -> None:
        synced.append(path)
        sync(path)

    for module in (durable, raw):
        monkeypatch.setattr(module, "sync", counting)
    windows = [WINDOW, NEIGHBOUR]
    day = lake.folder / "raw" / "applicant_leads" / f"day={DAY}"

    lake.make_folders(APPLICANT, windows)

    assert (synced.count(day), lake.landed_days(APPLICANT)) == (1, [])
    for window in windows:
        lake.land(answer([lead(1)], window), "run")
    lake.make_folders(APPLICANT, windows)
    assert synced.count(day) == 1
    assert len([window.path for window in lake.landed_windows(APPLICANT, DAY)]) == 2


def empty(content: bytes) -> bytes:
    return content[:0]


def truncated(content: bytes) -> bytes:
    return content[: len(content) * 2 // 3]


def bit_flipped(content: bytes) -> bytes:
    at = len(content) // 3
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def foreign(_: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"lead_id": ["x"], "payload": ["{}"]}), sink)
    return sink.getvalue().to_pybytes()


DAMAGES: list[Callable[[bytes], bytes]] = [empty, truncated, bit_flipped, foreign]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_an_unreadable_file_is_set_aside_and_its_neighbours_go_on(
    lake: Lake, caplog: pytest.LogCaptureFixture, damage: Callable[[bytes], bytes]
) -> None:
    bad, good = (lake.land(answer(TWENTY, window), "run-1").path for window in (WINDOW, NEIGHBOUR))
    damaged = damage(bad.read_bytes())
    bad.write_bytes(damaged)

    with caplog.at_level(logging.WARNING, logger="leads_pipeline.lake"):
        assert [window.path for window in lake.landed_windows(APPLICANT, DAY)] == [good]

    (aside,) = lake.quarantined()
    assert aside.read_bytes() == damaged
    assert aside.parent == lake.folder / "quarantine" / bad.parent.relative_to(lake.folder)
    assert aside.suffix != ".parquet"
    assert str(bad) in caplog.text
    assert str(aside) in caplog.text
    assert not bad.exists()
    assert [landed.scope for landed in lake.landed_windows(APPLICANT, DAY)] == ["branch-102"]

    assert lake.land(answer(TWENTY), "run-2").new == 20
    assert [window.path for window in lake.landed_windows(APPLICANT, DAY)] == [bad, good]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_landing_over_an_unreadable_file_sets_it_aside_first(lake: Lake, damage: Callable[[bytes], bytes]) -> None:
    path = lake.land(answer(TWENTY), "run-1").path
    path.write_bytes(damage(path.read_bytes()))

    landing = lake.land(answer(TWENTY[:3], fetched_at=LATER), "run-2")

    assert (landing.new, landing.leads) == (3, 3)
    assert len(lake.quarantined()) == 1


def test_a_file_copied_to_another_window_is_not_taken_for_that_windows(lake: Lake) -> None:
    path = lake.land(answer(TWENTY), "run-1").path
    stray = path.parent.with_name("scope=branch-999") / path.name
    stray.parent.mkdir()
    stray.write_bytes(path.read_bytes())

    assert [landed.scope for landed in lake.landed_windows(APPLICANT, DAY)] == ["branch-101"]
    assert [window.path for window in lake.landed_windows(APPLICANT, DAY)] == [path]
    assert len(lake.quarantined()) == 1


def test_no_flipped_bit_goes_unnoticed(lake: Lake) -> None:
    path = lake.land(answer([lead(1), lead(2, "x" * 50)]), "run-1").path
    content = path.read_bytes()
    positions = random.Random(7).sample(range(len(content) * 8), 300)  # noqa: S311 - a seeded choice

    for position in positions:
        flipped = bytearray(content)
        flipped[position // 8] ^= 1 << position % 8
        path.write_bytes(flipped)
        assert [window.path for window in lake.landed_windows(APPLICANT, DAY)] == [], (
            f"bit {position} of {len(content) * 8}"
        )

    assert len(lake.quarantined()) == len(positions)


def test_a_file_of_a_newer_version_is_refused_and_not_set_aside(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    path = lake.land(answer(TWENTY), "run-1").path
    content = path.read_bytes()
    monkeypatch.setattr("leads_pipeline.lake.sealed.SCHEMA_VERSION", "0")

    with pytest.raises(StorageError, match="Update"):
        lake.land(answer([]), "run-2")

    assert path.read_bytes() == content
    assert lake.quarantined() == []


# --- inventory ----------------------------------------------------------------------------------------------------


def item(number: int, text: str = "") -> InventoryItem:
    return InventoryItem(f"item-{number}", json.dumps({"id": f"item-{number}", "text": text}), page=1)


def test_inventory_merges_by_item_id_or_payload_hash(lake: Lake) -> None:
    nameless = InventoryItem(None, '{"address":{}}', page=2, oddity="no id")
    assert lake.land_inventory(DAY, {"Leeds": [item(1), nameless], "York": [item(1), item(2)]}, CLOSED_AT, "run-1") == 3
    (path,) = lake.inventory_files()

    assert lake.land_inventory(DAY, {"Leeds": [nameless]}, LATER, "run-2") == 3
    assert lake.land_inventory(DAY, {"York": [item(2, "changed"), item(3)]}, LATER, "run-3") == 4

    assert path == lake.folder / "raw/inventory/day=2026-11-19/items.parquet"
    found = [(row["item_id"][:7], row["address"], row["page"], row["position"], row["run_id"]) for row in rows(path)]
    assert found == [
        ("item-1", "Leeds", 1, 2, "run-1"),
        ("item-2", "York", 1, 3, "run-1"),
        ("item-2", "York", 1, 0, "run-3"),
        ("item-3", "York", 1, 1, "run-3"),
        ("sha256:", "Leeds", 2, 0, "run-1"),
    ]
    assert {row["payload"] for row in rows(path)} == {
        one.payload for one in (item(1), nameless, item(2), item(2, "changed"), item(3))
    }


def test_an_unreadable_inventory_file_is_set_aside(lake: Lake) -> None:
    lake.land_inventory(DAY, {}, CLOSED_AT, "run-1")
    lake.land_inventory(DAY + timedelta(days=1), {}, CLOSED_AT, "run-1")
    bad, good = lake.inventory_files()
    bad.write_bytes(b"PAR1")

    assert lake.inventory_files() == [good]
    assert len(lake.quarantined()) == 1


# --- staged -------------------------------------------------------------------------------------------------------

TABLES = ("applicant_leads", "applicant_viewing_times")


def stage(lake: Lake, content: str, day: date = DAY) -> None:
    with lake.replacing_staged(TABLES, day) as paths:
        for table, path in paths.items():
            path.write_text(f"{table} {content}")


def staged_texts(lake: Lake) -> list[str]:
    return [staged_text(file.path) for table in TABLES for file in lake.staged_files(table)]


def staged_text(path: Path) -> str:
    """What `stage` wrote: of a text, which has no footer as Parquet has, the seal is the beginning."""
    return path.read_bytes()[32:].decode()


def test_no_flipped_bit_of_a_staged_file_goes_unnoticed(lake: Lake) -> None:
    with lake.replacing_staged(TABLES[:1], DAY) as paths:
        duckdb.execute(f"copy (select 'text' as text from range(3)) to '{paths[TABLES[0]]}' (format parquet)")  # noqa: S608
    path = lake.staged_path(TABLES[0], DAY)
    assert lake.whole_staged(TABLES[0], DAY) == path
    content = path.read_bytes()

    for position in random.Random(7).sample(range(len(content) * 8), 300):  # noqa: S311 - a seeded choice
        flipped = bytearray(content)
        flipped[position // 8] ^= 1 << position % 8
        path.write_bytes(flipped)
        assert lake.whole_staged(TABLES[0], DAY) is None


def test_duckdb_writes_staged_files_that_its_globs_see_only_once_published(lake: Lake) -> None:
    glob = f"{lake.folder}/staged/**/*"
    with lake.replacing_staged(TABLES, DAY) as paths:
        for table, path in paths.items():
            duckdb.execute(f"COPY (SELECT '{table}' AS text) TO '{path}' (FORMAT parquet)")
        assert duckdb.execute("SELECT file FROM glob(?) WHERE file LIKE '%.parquet'", [glob]).fetchall() == []

    assert duckdb.execute("SELECT text, day FROM read_parquet(?) ORDER BY 1", [f"{glob}.parquet"]).fetchall() == [
        (table, DAY) for table in TABLES
    ]


def test_staged_files_are_replaced_together(lake: Lake) -> None:
    stage(lake, "one")
    stage(lake, "two")

    assert staged_texts(lake) == [f"{table} two" for table in TABLES]
    (file,) = lake.staged_files(TABLES[0])
    assert file.path == lake.folder / "staged/applicant_leads/day=2026-11-19/applicant_leads.parquet"
    assert (file.table, file.day, file.path) == (TABLES[0], DAY, lake.staged_path(TABLES[0], DAY))
    assert everything_below(lake.folder / "staged") == [lake.staged_path(table, DAY) for table in TABLES]


def test_a_fingerprint_changes_with_the_content_alone(lake: Lake) -> None:
    stage(lake, "one")
    stage(lake, "one", DAY + timedelta(days=1))
    before = lake.staged_files(TABLES[0])

    stage(lake, "one")
    assert lake.staged_files(TABLES[0]) == before
    stage(lake, "two")

    after = lake.staged_files(TABLES[0])
    assert after[0].fingerprint != before[0].fingerprint
    assert after[1] == before[1]


def test_an_error_while_staging_replaces_nothing(lake: Lake) -> None:
    stage(lake, "one")

    def write_half(error: Exception | None) -> None:
        with lake.replacing_staged(TABLES, DAY) as paths:
            paths[TABLES[0]].write_bytes(b"half")
            if error:
                raise error

    with pytest.raises(ZeroDivisionError):
        write_half(ZeroDivisionError())
    with pytest.raises(StorageError, match=f"{TABLES[1]}"):
        write_half(None)

    assert staged_texts(lake) == [f"{table} one" for table in TABLES]
    assert everything_below(lake.folder / "staged") == [lake.staged_path(table, DAY) for table in TABLES]


# --- processes ----------------------------------------------------------------------------------------------------

# What the child processes share: argv[1] is the data folder.
CHILD = textwrap.dedent(
    """
    import os, signal, sys, time
    from datetime import date
    from pathlib import Path
    from leads_pipeline.errors import StorageError
    from leads_pipeline.lake import Lake
    from leads_pipeline_tests.support.sample_answers import *
    lake = Lake(Path(sys.argv[1]))
    """
)


def start(code: str, lake: Lake, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD + textwrap.dedent(code), str(lake.folder), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out


def test_threads_that_land_the_same_window_at_once_lose_nothing(lake: Lake) -> None:
    with ThreadPoolExecutor(8) as pool:
        landings = list(pool.map(lambda n: lake.land(answer([lead(n)]), "run"), range(40)))

    assert len(payloads(landings[0].path)) == 40
    assert sorted(landing.leads for landing in landings) == list(range(1, 41))


def test_threads_that_land_pushed_leads_of_one_day_at_once_lose_nothing(lake: Lake) -> None:
    def land_one(number: int) -> None:
        lake.land_pushed(APPLICANT, DAY, "branch-101", [PushedLead(APPLICANT, lead(number), CLOSED_AT)], "run")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(land_one, range(40)))

    [path] = lake.pushed_files(APPLICANT, DAY)
    assert len(payloads(path)) == 40


def test_a_leftover_of_a_killed_writer_is_swept_even_when_nothing_changes(lake: Lake) -> None:
    path = lake.land(answer(TWENTY), "run-1").path
    leftover = path.with_name(".leads.parquet.abc.tmp")
    leftover.write_bytes(b"half a file")

    assert not lake.land(answer(TWENTY), "run-2").is_changed
    assert not leftover.exists()


# --- full and forbidden -------------------------------------------------------------------------------------------


def test_a_file_that_finds_no_room_leaves_the_old_one_and_no_remains(lake: Lake) -> None:
    path = lake.land(answer(TWENTY), "run-1").path
    content = path.read_bytes()
    code = """
        import resource
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        try:
            lake.land(answer([lead(n, os.urandom(200).hex()) for n in range(20)], fetched_at=LATER), "run-2")
        except StorageError as error:
            print(error)
    """
    message = finish(start(code, lake))

    assert "leads.parquet can't be written" in message
    assert "ulimit" in message
    assert everything_below(lake.folder / "raw") == [path]
    assert path.read_bytes() == content


def test_a_folder_that_may_not_be_written_is_a_storage_error_that_says_what_to_do(tmp_path: Path) -> None:
    """A file where a folder should be: the one obstacle that stops root too."""
    blocked = tmp_path / "blocked"
    blocked.write_text("a file")

    with pytest.raises(StorageError, match="can't be written"):
        Lake(blocked).land(answer(TWENTY), "run-1")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_a_storage_error(lake: Lake) -> None:
    path = lake.land(answer(TWENTY), "run-1").path
    path.parent.chmod(0o500)
    try:
        with pytest.raises(StorageError, match="Give this user the right"):
            lake.land(answer([lead(50)], fetched_at=LATER), "run-2")
    finally:
        path.parent.chmod(0o700)
    assert len(payloads(path)) == 20


def test_a_folder_in_the_place_of_a_file_is_no_reason_to_set_data_aside(lake: Lake) -> None:
    path = lake.land(answer(TWENTY), "run-1").path
    path.unlink()
    path.mkdir()

    with pytest.raises(StorageError, match="can't be read: Is a directory"):
        lake.land(answer(TWENTY), "run-2")
    assert lake.quarantined() == []


def test_what_holds_personal_data_is_private_whatever_the_umask(lake: Lake) -> None:
    before = os.umask(0)
    try:
        path = lake.land(answer(TWENTY), "run-1").path
        stage(lake, "one")
        lake.claim("https://portal.example")
        path.write_bytes(b"")
        [window.path for window in lake.landed_windows(APPLICANT, DAY)]
    finally:
        os.umask(before)

    for found in lake.folder.rglob("*"):
        mode = stat.S_IMODE(found.stat().st_mode)
        assert mode == (0o700 if found.is_dir() else 0o600), found
    assert {entry.name for entry in lake.folder.iterdir()} == {"raw", "staged", "quarantine", ".state"}


# --- locks --------------------------------------------------------------------------------------------------------


def test_a_run_goes_on_although_one_of_its_assets_broke_off_and_is_still_held(lake: Lake) -> None:
    """As by the traceback of an event that Dagster's database didn't take."""

    def asset() -> Generator[None]:
        with Lake(lake.folder).running("run-1"):
            yield

    broken_off = asset()
    next(broken_off)
    with lake.running("run-1"):
        broken_off.close()
        assert Lake(lake.folder).is_running("run-1")
    assert not lake.is_running("run-1")
    assert list((lake.folder / ".state" / "locks").iterdir()) == []


def test_a_lock_keeps_other_threads_out_and_says_when_it_waits_too_long(lake: Lake) -> None:
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lake.lock("publish"):
            held.set()
            done.wait(10)

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(hold)
        assert held.wait(10)
        with pytest.raises(StorageError, match=r"publish.lock .* end it"), lake.lock("publish", timeout_seconds=0.02):
            pass
        with lake.lock("another", timeout_seconds=0):
            pass
        done.set()
        holding.result(10)
    with lake.lock("publish", timeout_seconds=0):
        pass


def test_a_killed_holder_frees_its_lock(lake: Lake) -> None:
    process = start('with lake.lock("x"):\n    print("held", flush=True)\n    time.sleep(60)', lake)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    with pytest.raises(StorageError), lake.lock("x", timeout_seconds=0):
        pass

    process.kill()
    process.communicate(timeout=10)

    with lake.lock("x", timeout_seconds=1):
        pass


def test_a_lock_whose_file_is_removed_before_it_is_had_is_taken_anew(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def removed_first(descriptor: int, operation: int) -> None:
        monkeypatch.undo()
        (lake.folder / ".state" / "locks" / "x.lock").unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", removed_first)
    with lake.lock("x"), pytest.raises(StorageError), lake.lock("x", timeout_seconds=0):
        pass


def test_an_error_of_the_holder_passes_through_and_frees_the_lock(lake: Lake) -> None:
    with pytest.raises(PermissionError), lake.lock("x"):
        raise PermissionError
    with lake.lock("x", timeout_seconds=0):
        pass


def test_a_lock_that_a_fault_keeps_from_being_had_is_free_while_its_error_is_looked_at(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error holds what was open, and whoever handles it may do the work once more."""

    def broken(_: int) -> os.stat_result:
        monkeypatch.undo()
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fstat", broken)
    with pytest.raises(StorageError) as told, lake.lock("x"):
        pytest.fail("it was had")
    assert "x.lock can't be written: Input/output error" in str(told.value)
    with lake.lock("x", timeout_seconds=0):
        pass


def test_a_lock_that_cannot_be_freed_fails_nothing_that_was_done(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    flock = fcntl.flock

    def no_unlocking(descriptor: int, operation: int) -> None:
        if operation == fcntl.LOCK_UN:
            monkeypatch.undo()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", no_unlocking)
    with caplog.at_level(logging.WARNING, logger="leads_pipeline.lake"):
        landing = lake.land(answer(TWENTY), "run-1")

    assert landing.new == 20
    assert "can't be freed" in caplog.text
    with lake.lock("applicant_leads-branch-101", timeout_seconds=0):
        pass


# --- what the folder remembers ------------------------------------------------------------------------------------


def test_a_folder_takes_the_leads_of_one_portal_only(lake: Lake) -> None:
    lake.claim("http://127.0.0.1:8099")
    Lake(lake.folder).claim("http://127.0.0.1:8099")

    with pytest.raises(SettingsError) as caught:
        lake.claim("https://portal.example")

    for part in ("http://127.0.0.1:8099", "https://portal.example", "LEADS_DATA_DIR", str(lake.folder)):
        assert part in str(caught.value)


def test_the_first_start_date_is_remembered_over_processes(lake: Lake) -> None:
    code = "print(lake.remember_start_date(date.fromisoformat(sys.argv[2])))"
    proposed = ["2026-11-01", "2026-11-02", "2026-11-03"]
    remembered = {finish(process).strip() for process in [start(code, lake, day) for day in proposed]}

    assert len(remembered) == 1
    assert remembered <= set(proposed)
    assert lake.remember_start_date(DAY).isoformat() in remembered


def test_a_start_date_that_cannot_be_read_is_not_replaced(lake: Lake) -> None:
    lake.remember_start_date(DAY)
    (lake.folder / ".state/start_date").write_text("soon\n")

    with pytest.raises(StorageError, match="start_date holds no day"):
        lake.remember_start_date(DAY)


def test_a_new_lake_touches_nothing(lake: Lake) -> None:
    assert lake.landed_days(APPLICANT) == []
    assert lake.inventory_files() == []
    assert lake.quarantined() == []
    assert [window.path for window in lake.landed_windows(APPLICANT, DAY)] == []
    assert lake.staged_files(TABLES[0]) == []
    assert not lake.folder.exists()
