"""Whole runs with a token server that fails, and with a clock that is wrong. More in portal/test_tokens.py."""

import json
import socket
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from leads_pipeline.domain.contract import APPLICANT
from leads_pipeline.domain.window import Window
from leads_pipeline.errors import ServerError, UnreachableError
from leads_pipeline.simulator.app import Config
from leads_pipeline.simulator.faults import Rule, Then, When
from leads_pipeline.simulator.server import RunningSimulator, running
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.raw import RawFile, place_of
from leads_pipeline_tests.chaos.way import (
    ATTEMPTS,
    DAY,
    assert_all_landed_once,
    child,
    connect,
    failures,
    pull,
    raw_bytes,
    window,
    windows_of,
)

TOKENS = "/oauth2/token"
CONFIG = Config(branches=10, leads_per_day=4)


@pytest.fixture
def data(tmp_path: Path) -> DataFolder:
    return DataFolder.at(tmp_path / "data")


@pytest.fixture
def portal() -> Iterator[RunningSimulator]:
    with running(CONFIG) as portal:
        yield portal


def asked(portal: RunningSimulator) -> tuple[int, int]:
    """Requests for tokens and for leads."""
    return portal.counters().token_requests, portal.counters().requests["/applicant-leads"]


# --- the token server ---------------------------------------------------------------------------------------------


def test_without_a_token_server_no_lead_is_asked_for_and_later_all_land(data: DataFolder) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    nowhere = {"LEADS_AUTH_URL": f"http://127.0.0.1:{port}"}
    with running(CONFIG) as portal:
        windows = windows_of(portal)
        client, auth = connect({**portal.environment(), **nowhere}, data)
        errors = failures(pull(client, data, windows))
        assert [(type(error), error.reason) for error in errors] == [
            (UnreachableError, "token server unreachable")
        ] * len(windows)
        assert asked(portal) == (0, 0)
        assert auth.requests_made >= ATTEMPTS
    with running(CONFIG, port=port) as portal:
        assert failures(pull(connect({**portal.environment(), **nowhere}, data)[0], data, windows)) == []
        assert_all_landed_once(portal, data, windows)
        assert portal.counters().token_requests == 1


@pytest.mark.parametrize("then", [Then(status=503), Then(latency_ms=3000)])
def test_a_token_server_that_fails_for_a_while_costs_no_window(
    portal: RunningSimulator, data: DataFolder, then: Then
) -> None:
    portal.set_faults([Rule(then, When(path=TOKENS), "broken")])
    windows = windows_of(portal)
    client, _ = connect(portal.environment(), data, token_deadline_seconds=1.0)
    errors = failures(pull(client, data, windows[:1]))
    assert [type(error) for error in errors] in ([ServerError], [UnreachableError])
    assert asked(portal) == (ATTEMPTS, 0)
    assert raw_bytes(data) == {}

    portal.set_faults([Rule(then, When(path=TOKENS, first=ATTEMPTS - 1), "broken")])
    client, _ = connect(portal.environment(), data, token_deadline_seconds=1.0)
    assert failures(pull(client, data, windows)) == []

    assert asked(portal) == (2 * ATTEMPTS, len(windows))
    assert_all_landed_once(portal, data, windows)


# --- clocks -------------------------------------------------------------------------------------------------------

CLOCKED = """
import json, sys
from datetime import UTC, datetime
from pathlib import Path
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.domain.window import Window
from leads_pipeline_tests.chaos.way import UTC_ZONE, connect, failures, pull
windows = [Window.from_partition_key(key, UTC_ZONE) for key in json.loads(sys.argv[3])]
data = DataFolder.at(Path(sys.argv[2]))
client, auth = connect(json.loads(sys.argv[1]), data, max_concurrency=2)
outcomes = pull(client, data, windows)
print(json.dumps({
    "failures": [str(error) for error in failures(outcomes)],
    "tokens": auth.requests_made,
    "now": datetime.now(UTC).isoformat(),
}))
"""


@pytest.fixture(scope="module")
def libfaketime() -> str:
    for folder in (Path("/usr/lib"), Path("/usr/lib64"), Path("/usr/local/lib")):
        for path in sorted(folder.rglob("libfaketimeMT.so.1")):
            return str(path)
    pytest.skip("libfaketime is not installed: apt install faketime")


def clocked(
    library: str, moment: str | Path, portal: RunningSimulator, data: DataFolder, keys: list[str]
) -> Popen[str]:
    """A pull in a process whose clock says the moment, or what a file says at that time."""
    name = "FAKETIME_TIMESTAMP_FILE" if isinstance(moment, Path) else "FAKETIME"
    variables = {
        "LD_PRELOAD": library,
        name: str(moment),
        "FAKETIME_NO_CACHE": "1",
        # A clock that is set doesn't touch the monotonic one, nor the times of files already written.
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
        "TZ": "UTC",
    }
    return child(CLOCKED, json.dumps(portal.environment()), str(data.folder), json.dumps(keys), env=variables)


def are_closed(data: DataFolder, windows: Sequence[Window]) -> list[bool]:
    """Whether each window was looked at after its end, by the names of the files."""
    keys = [key for one in windows for key in data.store.list(place_of(APPLICANT, one).key)]
    return [file.state == "closed" for file in map(RawFile.parse, keys) if file]


def result(process: Popen[str]) -> dict[str, Any]:
    output, errors = process.communicate(timeout=120)
    assert errors == ""
    found: dict[str, Any] = json.loads(output)
    return found


def test_a_clock_that_jumps_in_the_middle_costs_a_token_each_time_and_no_window(
    data: DataFolder, tmp_path: Path, libfaketime: str
) -> None:
    clock, beside = tmp_path / "clock", tmp_path / "clock.new"
    clock.write_text("+0")
    slow = (Rule(Then(latency_ms=40)),)
    with running(Config(branches=20, leads_per_day=4, faults=slow)) as portal:
        windows = windows_of(portal, days=4)
        process = clocked(libfaketime, clock, portal, data, [one.partition_key for one in windows])
        jumps = {15: "+1h", 30: "+0", 45: "-1h", 60: "+0"}
        for requests, offset in jumps.items():
            while asked(portal)[1] < requests:
                assert process.poll() is None, process.communicate()
                time.sleep(0.01)
            beside.write_text(offset)
            beside.replace(clock)
        found = result(process)
        assert found["failures"] == []
        # An hour is a token's whole lifetime, so each jump may cost one; that it did shows that the clock was seen.
        assert 3 <= found["tokens"] == portal.counters().token_requests <= 1 + len(jumps)
        assert portal.counters().statuses.keys() == {200}
        assert_all_landed_once(portal, data, windows)
        assert are_closed(data, windows) == [True] * len(windows)


@pytest.mark.parametrize("offset", ["+1h", "-1h", "-30d"])
def test_a_clock_that_is_wrong_takes_one_token_for_all_its_runs(
    portal: RunningSimulator, data: DataFolder, libfaketime: str, offset: str
) -> None:
    windows = windows_of(portal)
    for tokens in (1, 0):
        found = result(clocked(libfaketime, offset, portal, data, [one.partition_key for one in windows]))
        assert abs(datetime.fromisoformat(found["now"]) - datetime.now(UTC)) > timedelta(minutes=58)
        assert (found["failures"], found["tokens"]) == ([], tokens)
        # A month ago, the day lies in the future, and is not taken for over.
        assert are_closed(data, windows) == [offset != "-30d"] * len(windows)
    assert_all_landed_once(portal, data, windows)


@pytest.mark.parametrize(("skew", "true_time"), [(1, "23:30"), (-1, "00:30")])
def test_a_window_pulled_around_midnight_by_a_wrong_clock_is_whole_after_the_daily_pull(
    data: DataFolder, libfaketime: str, skew: int, true_time: str
) -> None:
    evening = datetime.fromisoformat(f"{DAY}T{true_time}Z") + timedelta(days=int(skew < 0))
    now = [evening]
    with running(Config(branches=1, leads_per_day=2000, clock=lambda: now[0])) as portal:
        one = window(f"branch-{portal.organisation.branches[0].id}")
        closed = []
        for moment in (evening, datetime.fromisoformat(f"{DAY}T06:00Z") + timedelta(days=1)):
            now[0] = moment
            said = f"@{moment + timedelta(hours=skew):%Y-%m-%d %H:%M:%S}"
            found = result(clocked(libfaketime, said, portal, data, [one.partition_key]))
            assert found["failures"] == []
            closed += are_closed(data, [one])
        # A slow clock never calls a window over that isn't; a fast one may, which the next days' pulls make good.
        assert closed == [skew > 0, True]
        assert_all_landed_once(portal, data, [one])
