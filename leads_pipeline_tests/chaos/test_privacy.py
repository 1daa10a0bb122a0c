"""An erasure while the disk and the kernel are against it: the list is never behind the data, and a rerun converges.

Belongs here: faults at each system call of adding a person to the list and going through the folder. Doesn't: the
injection itself (system_calls.py), what an erasure does on a good day (test_privacy_erase.py).
"""

import shutil
from itertools import count
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from leads_pipeline.contract import APPLICANT
from leads_pipeline.lake import Lake
from leads_pipeline.privacy.erase import left_by_list, sweep
from leads_pipeline.spool import Spool
from leads_pipeline_tests.chaos.system_calls import Fault, needs_seccomp, run
from leads_pipeline_tests.people import EMAIL, lead, listed
from leads_pipeline_tests.staging import LONDON, land, stage, staged_leads
from leads_pipeline_tests.test_suppression import push

pytestmark = [pytest.mark.chaos, needs_seccomp]

BEFORE = "2026-11-19T10:00:00Z"
JANE = lead("jane", email=EMAIL, createdAt=BEFORE)
JOHN = lead("john", email="john@people.example", createdAt=BEFORE)


def lake_in(folder: Path) -> Lake:
    return Lake(folder / "data", folder / "list")


def erase(folder: Path) -> None:
    listed(lake_in(folder).suppression)
    sweep(lake_in(folder), LONDON)


def raw_rows(lake: Lake) -> dict[str, set[str]]:
    """The payloads by lead id."""
    found: dict[str, set[str]] = {}
    for path in lake.raw_lead_files():
        for row in pq.ParquetFile(path).read().to_pylist():
            found.setdefault(row["lead_id"], set()).add(row["payload"])
    return found


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two branches with both people, staged, and a delivery of each that waits."""
    folder = tmp_path_factory.mktemp("full")
    lake = lake_in(folder)
    land(lake, APPLICANT, [JANE, JOHN])
    land(lake, APPLICANT, [JANE | {"contact": JOHN["contact"]}, JOHN], scope="branch-102")
    stage(lake, APPLICANT)
    push(lake, JANE, JOHN)
    return folder


@pytest.mark.parametrize(("fault", "step"), [(Fault.KILL, 5), (Fault.EIO, 17), (Fault.EROFS, 17)])
def test_an_erasure_that_a_fault_stops_is_finished_by_the_next(
    tmp_path: Path, full: Path, fault: Fault, step: int
) -> None:
    johns = raw_rows(lake_in(full))["john"]
    injected = 0
    for at in count(0, step):
        folder = tmp_path / str(at)
        shutil.copytree(full, folder)
        outcome = run(erase, folder, folder=folder, fault=fault, at=at)
        if not outcome.was_injected:
            break
        injected += 1
        lake = lake_in(folder)
        rows = raw_rows(lake)
        assert rows["john"] == johns, outcome.calls[-1]
        if "jane" not in rows or len(Spool(lake).waiting()) == 0:
            assert lake.suppression.read().refusals, f"the data are ahead of the list at {outcome.calls[-1]}"
        erase(folder)
        assert raw_rows(lake) == {"john": johns}, outcome.calls[-1]
        assert left_by_list(lake) == [], outcome.calls[-1]
        assert staged_leads(lake, APPLICANT).keys() == {"john"}, outcome.calls[-1]
        assert b"jane.roe" not in b"".join(path.read_bytes() for path in Spool(lake).waiting())
        shutil.rmtree(folder)
    assert injected > 5
