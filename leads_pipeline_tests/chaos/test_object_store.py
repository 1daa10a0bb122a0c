"""Machines that land in one store. Killed again and again, they lose nothing."""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from leads_pipeline.contract import APPLICANT
from leads_pipeline.lake import Lake
from leads_pipeline.objects import open_store
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
