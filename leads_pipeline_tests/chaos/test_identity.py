"""Tokens in trouble: their server, lifetime and store, and clocks that are wrong, each with a whole run behind it."""

import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from leads_pipeline.auth import endpoint
from leads_pipeline.errors import CredentialsError, RefusedError, ServerError, StorageError, UnreachableError
from leads_pipeline.lake import Lake
from leads_pipeline.simulator.app import Config
from leads_pipeline.simulator.faults import Rule, Then, When
from leads_pipeline.simulator.server import RunningSimulator, running
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
from leads_pipeline_tests.small_portal import SmallPortal, no_leads, served

pytestmark = pytest.mark.chaos

TOKENS = "/oauth2/token"
CONFIG = Config(branches=10, leads_per_day=4)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "data")


@pytest.fixture
def portal() -> Iterator[RunningSimulator]:
    with running(CONFIG) as portal:
        yield portal


def asked(portal: RunningSimulator) -> tuple[int, int]:
    """Requests for tokens and for leads."""
    return portal.counters().token_requests, portal.counters().requests["/applicant-leads"]


# --- the token server ---------------------------------------------------------------------------------------------


def test_without_a_token_server_no_lead_is_asked_for_and_later_all_land(lake: Lake) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    nowhere = {"LEADS_AUTH_URL": f"http://127.0.0.1:{port}"}
    with running(CONFIG) as portal:
        windows = windows_of(portal)
        client, auth = connect({**portal.environment(), **nowhere}, lake)
        errors = failures(pull(client, lake, windows))
        assert [(type(error), error.reason) for error in errors] == [
            (UnreachableError, "token server unreachable")
        ] * len(windows)
        assert asked(portal) == (0, 0)
        assert auth.requests_made >= ATTEMPTS
    with running(CONFIG, port=port) as portal:
        assert failures(pull(connect({**portal.environment(), **nowhere}, lake)[0], lake, windows)) == []
        assert_all_landed_once(portal, lake, windows)
        assert portal.counters().token_requests == 1


@pytest.mark.parametrize(
    "then",
    [
        Then(status=503),
        Then(status=500, body="<html>"),
        Then(status=502, retry_after=0),
        Then(latency_ms=3000),
        Then(drip_bytes_per_second=20),
        Then(shape="html"),
        Then(shape="empty"),
        Then(shape="no_content"),
        Then(shape="redirect"),
        Then(shape="error_object"),
        Then(cut_off="length"),
        Then(cut_off="reset"),
        Then(status=200, body="[]"),
        Then(status=200, body='{"token_type": "Bearer", "expires_in": 3600}'),
        Then(status=200, body='{"access_token": null, "expires_in": 3600}'),
        Then(status=200, body='{"access_token": "a\\r\\nX-Header: b", "expires_in": 3600}'),
        Then(status=200, body='{"access_token": "' + "a" * 9000 + '"}'),
        Then(status=200, body='{"access_token": "a", "token_type": "mac"}'),
        Then(status=200, body='{"access_token": "' + "a" * 70_000),
        Then(status=404),
        Then(status=400, body='{"error": "temporarily_unavailable"}'),
    ],
)
def test_a_token_server_that_fails_for_a_while_costs_no_window(
    portal: RunningSimulator,
    lake: Lake,
    monkeypatch: pytest.MonkeyPatch,
    then: Then,
) -> None:
    monkeypatch.setattr(endpoint, "TOKEN_DEADLINE_SECONDS", 1.0)
    portal.set_faults([Rule(then, When(path=TOKENS), "broken")])
    windows = windows_of(portal)
    errors = failures(pull(connect(portal.environment(), lake)[0], lake, windows[:1]))
    assert [type(error) for error in errors] in ([ServerError], [UnreachableError])
    assert asked(portal) == (ATTEMPTS, 0)
    assert raw_bytes(lake) == {}

    portal.set_faults([Rule(then, When(path=TOKENS, first=ATTEMPTS - 1), "broken")])
    assert failures(pull(connect(portal.environment(), lake)[0], lake, windows)) == []

    assert asked(portal) == (2 * ATTEMPTS, len(windows))
    assert_all_landed_once(portal, lake, windows)


def test_a_slow_token_server_is_asked_once_by_all_who_wait(portal: RunningSimulator, lake: Lake) -> None:
    portal.set_faults([Rule(Then(latency_ms=1500), When(path=TOKENS), "slow")])
    windows = windows_of(portal)
    assert failures(pull(connect(portal.environment(), lake, max_concurrency=10)[0], lake, windows)) == []
    assert asked(portal) == (1, len(windows))


def test_a_refused_secret_ends_the_run_at_once(portal: RunningSimulator, lake: Lake) -> None:
    variables = {**portal.environment(), "LEADS_CLIENT_SECRET": "old"}
    errors = failures(pull(connect(variables, lake)[0], lake, windows_of(portal)))
    assert {type(error) for error in errors} == {CredentialsError}
    assert len(errors) == CONFIG.branches
    assert asked(portal) == (1, 0)


class OddLifetime(SmallPortal):
    """Issues good tokens with a lifetime that makes no sense."""

    def __init__(self, lifetime: str) -> None:
        super().__init__("secret", no_leads)
        self.lifetime = lifetime

    def get_token(self, secret: str) -> tuple[int, bytes]:
        status, body = super().get_token(secret)
        return status, body.replace(b'"expires_in": 3600', self.lifetime.encode())


@pytest.mark.parametrize(
    "value",
    [
        "0",
        "-1",
        "null",
        "true",
        "[]",
        "{}",
        '"soon"',
        '"3600"',
        '""',
        "NaN",
        "1e999",
        "-1e999",
        "1e-9",
        "9" * 5000,
        None,
    ],
)
def test_a_lifetime_that_makes_no_sense_is_no_reason_to_ask_again_and_again(lake: Lake, value: str | None) -> None:
    with served(OddLifetime(f'"expires_in": {value}' if value is not None else '"expired": 0')) as portal:
        variables = {**portal.environment(), "LEADS_CLIENT_SECRET": "secret"}
        windows = [window(f"branch-{number}") for number in range(40)]
        for _ in range(2):
            assert failures(pull(connect(variables, lake)[0], lake, windows)) == []
        assert len(portal.data_requests) == 2 * len(windows)
        # A lifetime of a nanosecond is one that was given: such tokens are renewed, but each serves whoever waits.
        assert len(portal.token_requests) == 1 or value == "1e-9"


# --- a token in the middle of a run -------------------------------------------------------------------------------


@pytest.mark.parametrize(("fault", "token"), [("401 in the middle", "expired"), ("403 in the middle", "revoked")])
def test_a_token_refused_in_the_middle_of_a_run_is_renewed_once(
    portal: RunningSimulator, lake: Lake, fault: str, token: Any
) -> None:
    refused = [Rule(Then(token=token), When(path="/applicant-leads", nth=nth), fault) for nth in (4, 13, 22)]
    portal.set_faults(refused)
    windows = windows_of(portal, days=3)
    # One at a time: side by side, one request could be refused twice, which is final.
    client, auth = connect(portal.environment(), lake, max_concurrency=1)

    assert failures(pull(client, lake, windows)) == []

    assert portal.counters().faults[fault] == len(refused)
    assert auth.requests_made == portal.counters().token_requests == 1 + len(refused)
    assert_all_landed_once(portal, lake, windows)


@pytest.mark.parametrize(("fault", "status"), [("401 in the middle", 401), ("403 in the middle", 403)])
def test_a_refusal_that_stays_is_permanent_for_its_window_alone_and_no_token_loop(
    portal: RunningSimulator, lake: Lake, fault: str, status: int
) -> None:
    windows = windows_of(portal, days=3)
    refused = [one for one in windows if one.scope.key == windows[4].scope.key]
    portal.set_faults([Rule(Then(status=status), When(scope=refused[0].scope.key), fault)])
    # One at a time: side by side, one could be refused with the new token before it is known that it didn't help.
    client, auth = connect(portal.environment(), lake, max_concurrency=1)

    outcomes = pull(client, lake, windows)

    assert {one for one, outcome in outcomes.items() if isinstance(outcome, RefusedError)} == set(refused)
    assert len(failures(outcomes)) == len(refused)
    assert auth.requests_made == portal.counters().token_requests == 2
    assert_all_landed_once(portal, lake, [one for one in windows if one not in refused])


def test_tokens_that_live_for_a_second_are_renewed_in_the_middle(lake: Lake) -> None:
    with running(Config(branches=20, leads_per_day=4, token_lifetime_seconds=1, latency_ms=50)) as portal:
        windows = windows_of(portal, days=5)
        client, _ = connect(portal.environment(), lake, max_concurrency=2)
        began = time.monotonic()
        assert failures(pull(client, lake, windows)) == []
        seconds = time.monotonic() - began
        tokens = portal.counters().token_requests
        # One a second, and one more where a token ran out on its way.
        assert 2 <= tokens <= 2 + seconds / 0.9 + portal.counters().statuses[401]
        assert_all_landed_once(portal, lake, windows)


RACE = """
import json, multiprocessing, sys
from pathlib import Path
from leads_pipeline.lake import Lake
from leads_pipeline_tests.chaos.way import connect, failures, pull, window

context = multiprocessing.get_context("fork")
barrier = context.Barrier(16)

def run(number):
    lake = Lake(Path(sys.argv[2]))
    client, auth = connect(json.loads(sys.argv[1]), lake, max_concurrency=1)
    barrier.wait()
    missed = failures(pull(client, lake, [window(f"branch-{101 + number}")]))
    print(f"{len(missed)} {auth.requests_made}\\n", end="", flush=True)

processes = [context.Process(target=run, args=(number,)) for number in range(16)]
for process in processes:
    process.start()
for process in processes:
    process.join()
"""


def test_sixteen_processes_that_race_for_a_token_ask_for_one(lake: Lake) -> None:
    with running(Config(branches=16, leads_per_day=4)) as portal:
        portal.set_faults([Rule(Then(latency_ms=300), When(path=TOKENS), "slow")])
        output, errors = child(RACE, json.dumps(portal.environment()), str(lake.folder)).communicate(timeout=120)
        assert errors == ""
        assert sorted(output.splitlines()) == ["0 0"] * 15 + ["0 1"]
        assert asked(portal) == (1, 16)
        assert_all_landed_once(portal, lake, windows_of(portal))


# --- the token store ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 4096,
        b'{"access_token": "half',
        b"[" * 100_000,
        b'{"access_token": "planted", "fetched_at": 1e400, "lifetime_seconds": 3600}',
        b'{"access_token": "planted", "fetched_at": 9e15, "lifetime_seconds": 3600}',
        b'{"access_token": "planted\\r\\nX: y", "fetched_at": 1.0, "lifetime_seconds": 3600}',
        None,
    ],
)
def test_a_corrupt_token_store_costs_one_token_request(
    portal: RunningSimulator, lake: Lake, content: bytes | None
) -> None:
    windows = windows_of(portal)
    for tokens in (1, 2, 2):
        assert failures(pull(connect(portal.environment(), lake)[0], lake, windows)) == []
        assert portal.counters().token_requests == tokens
        if tokens == 1:
            [path] = (lake.folder / ".state" / "tokens").glob("*.json")
            if content is None:
                path.unlink()
                path.symlink_to("/dev/zero")
            else:
                path.write_bytes(content)
    assert portal.counters().statuses.keys() == {200}
    assert_all_landed_once(portal, lake, windows)


NOBODY = 65534
AS_NOBODY = f"""
import json, os, sys, tempfile
from pathlib import Path
from leads_pipeline.lake import Lake
from leads_pipeline_tests.chaos.way import connect, failures, pull, window

def run(folder):
    client, auth = connect(json.loads(sys.argv[1]), Lake(Path(folder)))
    errors = failures(pull(client, Lake(Path(folder)), [window("branch-101"), window("branch-102")]))
    return [[type(error).__name__, str(error)] for error in errors], auth.requests_made, client.stats.requests

with tempfile.TemporaryDirectory() as folder:
    # As root, for what Python imports late: nobody may not go where it lies. Twice, as a file that is there is read.
    run(folder), run(folder)
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
print(json.dumps(run(sys.argv[2])))
"""


@pytest.fixture
def nobodys_lake() -> Iterator[Lake]:
    if os.geteuid() != 0:
        pytest.skip("only root can run a process as another user")
    folder = Path(tempfile.mkdtemp(prefix="leads-pipeline-"))
    os.chown(folder, NOBODY, NOBODY)
    folder.chmod(0o755)
    yield Lake(folder / "data")
    shutil.rmtree(folder)


def pull_as_nobody(portal: RunningSimulator, lake: Lake) -> tuple[list[list[str]], int, int]:
    """Errors, token requests and data requests of a pull of two windows by another user."""
    output, errors = child(AS_NOBODY, json.dumps(portal.environment()), str(lake.folder)).communicate(timeout=120)
    assert errors == ""
    failed, tokens, requests = json.loads(output)
    return failed, tokens, requests


def own_by_root(path: Path) -> None:
    path.write_text(json.dumps({"access_token": "planted", "fetched_at": time.time(), "lifetime_seconds": 3600.0}))
    os.chown(path, 0, 0)


@pytest.mark.parametrize("fault", ["unreadable token store", "foreign-owned token store"])
def test_a_token_that_is_not_ours_to_read_is_replaced(portal: RunningSimulator, nobodys_lake: Lake, fault: str) -> None:
    assert pull_as_nobody(portal, nobodys_lake) == ([], 1, 2)
    folder = nobodys_lake.folder / ".state" / "tokens"
    [path] = folder.glob("*.json")
    if fault == "foreign-owned token store":
        own_by_root(path)
    path.chmod(0o644 if fault == "foreign-owned token store" else 0)
    for tokens in (1, 0):
        assert pull_as_nobody(portal, nobodys_lake) == ([], tokens, 2)
    assert set(portal.counters().statuses) == {200}
    assert (path.stat().st_uid, path.stat().st_mode & 0o777) == (NOBODY, 0o600)


def test_a_token_store_of_ours_that_cannot_be_entered_is_opened_again(
    portal: RunningSimulator, nobodys_lake: Lake
) -> None:
    assert pull_as_nobody(portal, nobodys_lake) == ([], 1, 2)
    folder = nobodys_lake.folder / ".state" / "tokens"
    folder.chmod(0)
    assert pull_as_nobody(portal, nobodys_lake) == ([], 0, 2)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_token_store_that_another_user_owns_is_told_and_nothing_is_asked(
    portal: RunningSimulator, nobodys_lake: Lake
) -> None:
    assert pull_as_nobody(portal, nobodys_lake) == ([], 1, 2)
    folder = nobodys_lake.folder / ".state" / "tokens"
    os.chown(folder, 0, 0)
    errors, tokens, _ = pull_as_nobody(portal, nobodys_lake)
    assert tokens == 0
    assert [kind for kind, _ in errors] == [StorageError.__name__] * 2
    assert all(f"{folder}, can't be used" in text and "Make it this user's own" in text for _, text in errors)


def test_a_token_that_another_user_left_for_root_is_not_sent(portal: RunningSimulator, lake: Lake) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    windows = windows_of(portal)
    assert failures(pull(connect(portal.environment(), lake)[0], lake, windows)) == []
    [path] = (lake.folder / ".state" / "tokens").glob("*.json")
    own_by_root(path)
    os.chown(path, NOBODY, NOBODY)
    assert failures(pull(connect(portal.environment(), lake)[0], lake, windows)) == []
    assert (portal.counters().token_requests, set(portal.counters().statuses)) == (2, {200})


# --- clocks -------------------------------------------------------------------------------------------------------

CLOCKED = """
import json, sys
from datetime import UTC, datetime
from pathlib import Path
from leads_pipeline.lake import Lake
from leads_pipeline.window import Window
from leads_pipeline_tests.chaos.way import UTC_ZONE, connect, failures, pull
windows = [Window.from_partition_key(key, UTC_ZONE) for key in json.loads(sys.argv[3])]
lake = Lake(Path(sys.argv[2]))
client, auth = connect(json.loads(sys.argv[1]), lake, max_concurrency=2)
outcomes = pull(client, lake, windows)
print(json.dumps({
    "failures": [str(error) for error in failures(outcomes)],
    "tokens": auth.requests_made,
    "closed": [landed.is_closed for landed in outcomes.values() if not isinstance(landed, Exception)],
    "now": datetime.now(UTC).isoformat(),
}))
"""


@pytest.fixture(scope="module")
def libfaketime() -> str:
    for folder in (Path("/usr/lib"), Path("/usr/lib64"), Path("/usr/local/lib")):
        for path in sorted(folder.rglob("libfaketimeMT.so.1")):
            return str(path)
    pytest.skip("libfaketime is not installed: apt install faketime")


def clocked(library: str, moment: str | Path, portal: RunningSimulator, lake: Lake, keys: list[str]) -> Popen[str]:
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
    return child(CLOCKED, json.dumps(portal.environment()), str(lake.folder), json.dumps(keys), env=variables)


def result(process: Popen[str]) -> dict[str, Any]:
    output, errors = process.communicate(timeout=120)
    assert errors == ""
    found: dict[str, Any] = json.loads(output)
    return found


def test_a_clock_that_jumps_in_the_middle_costs_a_token_each_time_and_no_window(
    lake: Lake, tmp_path: Path, libfaketime: str
) -> None:
    clock, beside = tmp_path / "clock", tmp_path / "clock.new"
    clock.write_text("+0")
    with running(Config(branches=20, leads_per_day=4, latency_ms=40)) as portal:
        windows = windows_of(portal, days=4)
        process = clocked(libfaketime, clock, portal, lake, [one.partition_key for one in windows])
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
        assert_all_landed_once(portal, lake, windows)
        assert found["closed"] == [True] * len(windows)


@pytest.mark.parametrize("offset", ["+1h", "-1h", "-30d"])
def test_a_clock_that_is_wrong_takes_one_token_for_all_its_runs(
    portal: RunningSimulator, lake: Lake, libfaketime: str, offset: str
) -> None:
    windows = windows_of(portal)
    for tokens in (1, 0):
        found = result(clocked(libfaketime, offset, portal, lake, [one.partition_key for one in windows]))
        assert abs(datetime.fromisoformat(found["now"]) - datetime.now(UTC)) > timedelta(minutes=58)
        assert (found["failures"], found["tokens"]) == ([], tokens)
        # A month ago, the day lies in the future, and is not taken for over.
        assert found["closed"] == [offset != "-30d"] * len(windows)
    assert_all_landed_once(portal, lake, windows)


@pytest.mark.parametrize(("skew", "true_time"), [(1, "23:30"), (-1, "00:30")])
def test_a_window_pulled_around_midnight_by_a_wrong_clock_is_whole_after_the_daily_pull(
    lake: Lake, libfaketime: str, skew: int, true_time: str
) -> None:
    evening = datetime.fromisoformat(f"{DAY}T{true_time}Z") + timedelta(days=int(skew < 0))
    now = [evening]
    with running(Config(branches=1, leads_per_day=2000, clock=lambda: now[0])) as portal:
        one = window(f"branch-{portal.organisation.branches[0].id}")
        closed = []
        for moment in (evening, datetime.fromisoformat(f"{DAY}T06:00Z") + timedelta(days=1)):
            now[0] = moment
            said = f"@{moment + timedelta(hours=skew):%Y-%m-%d %H:%M:%S}"
            found = result(clocked(libfaketime, said, portal, lake, [one.partition_key]))
            assert found["failures"] == []
            closed += found["closed"]
        # A slow clock never calls a window over that isn't; a fast one may, which the next days' pulls make good.
        assert closed == [skew > 0, True]
        assert_all_landed_once(portal, lake, [one])
