"""`serve` as a server runs it: each of its processes is killed, and everything comes in all the same."""

import json
import os
import re
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import httpx

from leads_pipeline_tests.support.newcomer import Newcomer, free_port, is_alive, newcomer, wait_for

KINDS = ("applicant", "appraisal")
PROGRAMS = ("code location", "webserver", "read-only webserver", "daemon")


def processes(log: Path, program: str) -> list[int]:
    """The numbers of the program's processes, in the order in which they were started."""
    return [int(n) for n in re.findall(rf"INFO {program}(?: at \S+)? started \(process (\d+)\)", log.read_text())]


def asked(port: int, query: str) -> dict[str, Any]:
    """What the pages answer; nothing where nobody does."""
    try:
        answer = httpx.post(f"http://127.0.0.1:{port}/graphql", json={"query": query}, timeout=30)
    except httpx.TransportError:
        return {}
    return dict(answer.json()["data"])


def location(port: int) -> object:
    """What the pages say of the code location."""
    query = "{workspaceOrError {... on Workspace {locationEntries {name loadStatus locationOrLoadError {__typename}}}}}"
    return asked(port, query).get("workspaceOrError", {}).get("locationEntries")


def may_launch(port: int) -> bool:
    """Whether whoever opens these pages may start runs."""
    permissions = asked(port, "{permissions {permission value}}")["permissions"]
    return {one["permission"]: bool(one["value"]) for one in permissions}["launch_pipeline_execution"]


LOADED = [
    {
        "name": "leads_pipeline.definitions",
        "loadStatus": "LOADED",
        "locationOrLoadError": {"__typename": "RepositoryLocation"},
    }
]


def status(me: Newcomer) -> dict[str, object]:
    told: dict[str, object] = json.loads(me.run("leads-pipeline", "status", "--json").stdout)
    return told


def test_each_process_is_killed_and_every_lead_comes_in(tmp_path: Path) -> None:
    with newcomer(tmp_path, "--branches", "2", "--leads-per-day", "3") as me:
        me.fill_in()
        today = datetime.now(ZoneInfo("Europe/London")).date()
        first, last = today - timedelta(days=29), today - timedelta(days=2)
        before = {kind: me.asked(kind) for kind in KINDS}  # the oldest are deleted while the daemon works
        ports = (free_port(), free_port())
        command = ("leads-pipeline", "serve", "--port", str(ports[0]), "--read-only-port", str(ports[1]))
        with me.running(*command) as log:
            wait_for(lambda: processes(log, "daemon") != [])
            # The first time in the middle of the first pull, as soon as anything has landed.
            wait_for(lambda: any((me.folder / "data" / "raw").glob("*/*/*/*.parquet")), 180)
            for program in PROGRAMS:
                os.kill(processes(log, program)[-1], signal.SIGKILL)
            for program in PROGRAMS:
                wait_for(lambda: len(processes(log, program)) == 2)  # noqa: B023 - it is called at once
            wait_for(lambda: all(me.published(kind) >= me.asked(kind, first, last) for kind in KINDS), 400)
            wait_for(lambda: location(ports[0]) == location(ports[1]) == LOADED)
            refused = me.run("leads-pipeline", "serve", "--port", str(free_port()))
            assert (refused.returncode, "Another daemon runs on" in refused.stderr) == (2, True)
            seen = datetime.fromisoformat(str(status(me)["daemon_seen_at"]))
            assert datetime.now(UTC) - seen < timedelta(minutes=2)
            assert [may_launch(port) for port in ports] == [True, False]
            told = log.read_text()
            began = time.monotonic()
        assert time.monotonic() - began < 30
        for kind in KINDS:
            assert me.published(kind) <= before[kind] | me.asked(kind)
        assert [pid for program in PROGRAMS for pid in processes(log, program) if is_alive(pid)] == []
        # One line a happening: each program was started twice and ended once; nothing else went wrong.
        lines = [line for line in told.splitlines() if " INFO " in line or " WARNING " in line]
        assert sum(" started (process " in line for line in lines) == 2 * len(PROGRAMS)
        assert sum("ended: signal SIGKILL. It is started again in 1 s." in line for line in lines) == len(PROGRAMS)
        assert "Traceback" not in told
