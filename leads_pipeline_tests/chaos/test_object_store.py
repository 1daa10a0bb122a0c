"""Machines whose truth is in a store: killed again and again they lose nothing, and a month ends as in a folder."""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import duckdb
import pytest
from dagster import AssetCheckResult

from leads_pipeline.assets.checks import habit_checks
from leads_pipeline.assets.published import completeness_check, drift_check, uniqueness_check
from leads_pipeline.contract import APPLICANT, LEAD_KINDS
from leads_pipeline.flatten.batches import flatten_day
from leads_pipeline.lake import Lake
from leads_pipeline.objects import open_store
from leads_pipeline.warehouse import Grid, Warehouse
from leads_pipeline.window import Scope
from leads_pipeline_tests.chaos.test_weeks import Weeks
from leads_pipeline_tests.storage.test_lake import payloads
from leads_pipeline_tests.storage.test_objects import moto, new_bucket
from leads_pipeline_tests.support.sample_answers import DAY

__all__ = ["moto"]  # a fixture

MACHINES, KILLS = 4, 20

# Lands without end what it makes up, refreshes now and then, and says each lead once it is landed.
LANDS = """
import json, random, sys, time
from datetime import timedelta
from pathlib import Path
from leads_pipeline.contract import ReceivedLead
from leads_pipeline.flatten.batches import flatten_day
from leads_pipeline.lake import Lake
from leads_pipeline.objects import open_store
from leads_pipeline.warehouse import Grid, Warehouse
from leads_pipeline.window import Scope
from leads_pipeline_tests.support.sample_answers import CLOSED_AT, answer

address, folder, seed = sys.argv[1:]
random.seed(seed)
lake = Lake(Path(folder), store=open_store(address, plain_http=True))
lake.refresh()
while True:
    at = time.time_ns()
    ids = random.sample([f"lead-{number}" for number in range(30)], 3)
    leads = [ReceivedLead(id_, json.dumps({"id": id_, "at": at})) for id_ in ids]
    lake.land(answer(leads, fetched_at=CLOSED_AT + timedelta(microseconds=at // 1000 % 10**9), sequence=at), "run")
    print(json.dumps([ids, at]), flush=True)
    if random.random() < 0.2:
        lake.refresh()
"""


@pytest.fixture(params=["folder", "moto"])
def address(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "folder":
        yield (tmp_path / "store").as_uri()
    else:
        yield new_bucket(request.getfixturevalue(request.param), monkeypatch)
    open_store.cache_clear()


def test_of_four_machines_that_are_killed_none_loses_what_it_said_is_landed(address: str, tmp_path: Path) -> None:
    chance = random.Random("landing")  # noqa: S311 - no secret
    with ExitStack() as files:
        said = [files.enter_context((tmp_path / f"said-{number}").open("ab")) for number in range(MACHINES)]

        def begun(number: int, life: int) -> "subprocess.Popen[bytes]":
            command = [sys.executable, "-c", LANDS, address, str(tmp_path / f"machine-{number}"), f"{number} {life}"]
            return subprocess.Popen(command, stdout=said[number])

        machines = [begun(number, 0) for number in range(MACHINES)]
        time.sleep(4)
        for life in range(1, KILLS + 1):
            time.sleep(chance.uniform(0.05, 0.8))
            number = chance.randrange(MACHINES)
            machines[number].send_signal(signal.SIGKILL)
            machines[number].wait()
            machines[number] = begun(number, life)
        time.sleep(3)
        for machine in machines:
            machine.kill()
            machine.wait()
    newest: dict[str, int] = {}
    landed = 0
    for number in range(MACHINES):
        for line in (tmp_path / f"said-{number}").read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                ids, at = json.loads(line)
                landed += 1
                newest |= {id_: max(at, newest.get(id_, 0)) for id_ in ids}
    assert landed > KILLS

    store = open_store(address, plain_http=True)
    lakes = [Lake(tmp_path / f"machine-{number}", store=store) for number in (*range(MACHINES), 99)]
    for lake in [*lakes, *lakes]:
        lake.refresh()
    for lake in lakes:
        [path] = lake.raw_files(APPLICANT, DAY)
        held = {id_: json.loads(payload)["at"] for id_, payload in payloads(path).items()}
        assert {id_: at for id_, at in newest.items() if held.get(id_, 0) < at} == {}
    assert len(store.list("raw/")) == 1


MONTH_DAYS = 30

# These befall a folder, of which a store has another copy, or end a run after so many events, which come side by side.
OF_A_FOLDER = {"rot raw", "rot staged", "lose warehouse", "copy", "restore", "kill"}

# When and by what run it was looked at, by what publication it was written, and which file on which disk it was: no two
# machines have that in common.
NOT_COMPARED = ("run_id", "looked_at", "fetched_at", "sequence", "fingerprint", "id")


def test_a_month_with_the_truth_in_a_store_ends_as_with_the_truth_in_a_folder(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same portal, mishaps and clock: equal tables, marts and checks, each judged by the portal's ledger too."""
    monkeypatch.setattr(Lake, "person_key", lambda _: bytes(32))  # each makes one of its own
    there, here = (Weeks("a month", tmp_path / name, days=MONTH_DAYS) for name in ("there", "here"))
    there.machine.store = address
    for weeks in (there, here):
        weeks.happenings = [one for one in weeks.happenings if one.what not in OF_A_FOLDER]
        weeks.run()
    assert there.machine.runs == here.machine.runs
    assert there.published == here.published > 0
    assert differing(tables(there), tables(here)) == set()
    assert differing(checks(there), checks(here)) == set()

    there.machine.folder = tmp_path / "successor"  # of a machine that was lost
    lake = there.machine.lake
    lake.refresh()
    for kind in LEAD_KINDS:
        for day in lake.landed_days(kind):
            flatten_day(lake, kind, day, there.zone)
    scopes = [Scope.parse(f"branch-{branch}") for branch in there.machine.branches]
    Warehouse(lake).publish(Grid(scopes, there.first_day, there.zone), there.machine.now())
    # The facts have the settings, and each file numbers its own publications.
    own = {"pipeline.facts", "pipeline.publications", "pipeline.touched_days"}
    assert differing(tables(there), tables(here)) <= own


def differing(one: Mapping[str, object], other: Mapping[str, object]) -> set[str]:
    assert len(one) > 9
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


def tables(weeks: Weeks) -> dict[str, list[str]]:
    """Every row of every table of the published file, as text, sorted."""
    with duckdb.connect(weeks.machine.warehouse, read_only=True) as db:
        names = db.execute("select schema_name || '.' || table_name from duckdb_tables() where not internal").fetchall()
        compared = f"columns(lambda name: name not in {NOT_COMPARED})"
        return {name: sorted(map(str, db.execute(f"select {compared} from {name}").fetchall())) for (name,) in names}  # noqa: S608


def checks(weeks: Weeks) -> dict[str, AssetCheckResult]:
    """What each check says of the published file."""
    lake = weeks.machine.lake
    with Warehouse(lake).reading() as db:
        results = [
            *habit_checks(db),
            drift_check(db),
            *(uniqueness_check(db, kind.table) for kind in LEAD_KINDS),
            *(completeness_check(db, lake, kind) for kind in LEAD_KINDS),
        ]
    return {f"{result.asset_key} {result.check_name}": result for result in results}
