"""Processes that flatten beside this one: the same files, and each day once, whatever ends them."""

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path

import pytest

from leads_pipeline.contract import APPLICANT
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.flatten import batches
from leads_pipeline.flatten.batches import flatten_day, flatten_days
from leads_pipeline.flatten.beside import Beside, Flattened, Left
from leads_pipeline.flatten.columns import staged_tables
from leads_pipeline.lake import Lake
from leads_pipeline.objects.folder import FolderStore
from leads_pipeline_tests.support.staging import DAY, LONDON, land

DAYS = [DAY - timedelta(days=number) for number in range(6)]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path / "data")
    for day in DAYS:
        land(
            lake, APPLICANT, [{"id": f"{day}-{n}", "isOverseas": "?", "viewingTimes": [{}]} for n in range(3)], day=day
        )
    return lake


def once_all_is_taken(monkeypatch: pytest.MonkeyPatch, do: Callable[[], None] = lambda: None) -> None:
    """Have this process begin another after its first day, and wait until that one has taken the others."""
    monkeypatch.setattr(batches, "BESIDE_FROM_LEADS", 1)
    monkeypatch.setattr(batches, "BATCH_LEADS", 1)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    begin = Beside.begin

    def waiting(beside: Beside) -> None:
        begin(beside)
        deadline = time.monotonic() + 30
        while beside.left and children() and time.monotonic() < deadline:
            time.sleep(0.001)
        do()

    monkeypatch.setattr(Beside, "begin", waiting)


def children() -> list[int]:
    """The processes that this one has begun to flatten, and that live."""
    found = list[int]()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # one that has just ended
            parent = int((process / "stat").read_text().rpartition(") ")[2].split()[1])
            if parent == os.getpid() and b"leads_pipeline.flatten.batches" in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


def as_alone(flattened: list[Flattened], lake: Lake, alone: Lake) -> bool:
    """Whether each day came out once, with the same files as where each is flattened by itself."""
    shutil.copytree(lake.folder / "raw", alone.folder / "raw")
    expected: dict[date, object] = {day: flatten_day(alone, APPLICANT, day, LONDON) for day in DAYS}
    same = all(
        lake.staged_path(table, day).read_bytes() == alone.staged_path(table, day).read_bytes()
        for table in staged_tables(APPLICANT)
        for day in DAYS
    )
    return same and len(flattened) == len(DAYS) and dict(flattened) == expected


def test_a_process_beside_flattens_the_same(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = list[list[int]]()
    once_all_is_taken(monkeypatch, lambda: begun.append(children()))
    assert as_alone(list(flatten_days(lake, APPLICANT, DAYS, LONDON)), lake, Lake(tmp_path / "alone"))
    assert [len(processes) for processes in begun] == [1]
    assert children() == []


@pytest.mark.slow
def test_days_of_a_process_that_is_killed_are_flattened_here(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def kill() -> None:
        for child in children():
            os.kill(child, signal.SIGKILL)

    once_all_is_taken(monkeypatch, kill)
    assert as_alone(list(flatten_days(lake, APPLICANT, DAYS, LONDON)), lake, Lake(tmp_path / "alone"))
    assert "was ended (by signal 9, as by the kernel where memory is short)" in caplog.text


@pytest.mark.parametrize(("python", "told"), [("/no/such/python", "No process can be begun"), ("/bin/false", "code 1")])
@pytest.mark.slow
def test_where_there_is_no_process_all_is_flattened_here(
    lake: Lake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    python: str,
    told: str,
) -> None:
    once_all_is_taken(monkeypatch)
    monkeypatch.setattr(sys, "executable", python)
    assert as_alone(list(flatten_days(lake, APPLICANT, DAYS, LONDON)), lake, Lake(tmp_path / "alone"))
    assert told in caplog.text


def test_a_day_that_fails_there_fails_alone_and_what_is_told_there_is_told_here(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lake.staged_path(APPLICANT.table, DAYS[1]).mkdir(parents=True)
    [damaged] = lake.raw_files(APPLICANT, DAYS[0])
    damaged.write_bytes(b"no Parquet")
    once_all_is_taken(monkeypatch)
    flattened = dict(flatten_days(lake, APPLICANT, DAYS, LONDON))
    failed = {day for day, staged in flattened.items() if isinstance(staged, LeadsPipelineError)}
    assert failed == set(DAYS[:2])  # one can't be written, the other has lost a raw file
    assert str(damaged) in caplog.text


def test_who_stops_taking_days_leaves_no_process(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    once_all_is_taken(monkeypatch)
    flattened = flatten_days(lake, APPLICANT, DAYS, LONDON)
    next(flattened)
    flattened.close()  # type: ignore[attr-defined]
    assert children() == []


def test_a_lake_with_a_store_begins_no_process(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    once_all_is_taken(monkeypatch, lambda: pytest.fail("It would take the store's secrets there."))
    shared = Lake(lake.folder, store=FolderStore(tmp_path / "store"))
    assert len(list(flatten_days(shared, APPLICANT, DAYS, LONDON))) == len(DAYS)


def test_of_the_last_days_a_batch_leaves_half_to_others() -> None:
    left = Left(DAYS)
    left.are_shared = True
    assert [left.take(number, 1000 * number) for number in range(4)] == [*sorted(DAYS)[:3], None]
    assert [left.take(number, 2999) for number in range(2)] == sorted(DAYS)[3:5]
    assert (left.take(1, 3000), left.take(0, 3000), left.take(0, 0)) == (None, DAYS[0], None)


def test_who_is_alone_leaves_none() -> None:
    left = Left(DAYS)
    assert [left.take(number, 1000 * number) for number in range(7)] == [*sorted(DAYS), None]
