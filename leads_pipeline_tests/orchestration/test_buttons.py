"""Each asset's buttons in Dagster's UI end green on the first day, and backfills show the truth.

The requests are the UI's own.

Belongs here: materialize all, backfill. Doesn't: what an asset does (test_assets.py), jobs
(test_runs.py), schedules and sensors (test_asking.py, test_publish_changes.py).
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from leads_pipeline.simulator.faults import Rule, Then, When
from leads_pipeline_tests.support.daemon_loops import Daemon
from leads_pipeline_tests.support.installation import Installation, installation

pytestmark = pytest.mark.slow

# As in a copy of .env.example in which the first six variables are filled in.
NO_INVENTORY = {"INVENTORY_BASE_URL": "", "INVENTORY_CLIENT_ID": "", "INVENTORY_ADDRESSES": ""}

ASSETS = """{ assetNodes {
  assetKey { path }
  assetChecksOrError { ... on AssetChecks { checks { name executionForLatestMaterialization { status } } } }
} }"""

LAUNCH_BACKFILL = """mutation ($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
  __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message }
} }"""

BACKFILL = """query ($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill {
  status runs(limit: 100) { status }
} } }"""

PARTITIONS = """query ($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
  partitionStats { numPartitions numMaterialized numFailed }
} } }"""


@cache
def _schema() -> Any:
    from dagster_graphql.schema import create_schema  # which takes a second

    return create_schema()


@dataclass(frozen=True)
class Page:
    """The UI: what its buttons send, and what it shows then."""

    daemon: Daemon
    here: Installation

    def ask(self, question: str, **variables: Any) -> Any:
        """The answer to a question in GraphQL that has one."""
        context = self.daemon.workspace.create_request_context()
        result = asyncio.run(
            _schema().execute_async(question, context_value=context, variable_values=variables)
        )
        assert result.errors is None, result.errors
        assert result.data is not None
        [answer] = result.data.values()
        return answer

    def assets(self) -> dict[str, Any]:
        """All assets by name."""
        return {node["assetKey"]["path"][0]: node for node in self.ask(ASSETS)}

    def backfill(self, assets: Iterable[str], keys: Collection[str] = ()) -> Any:
        """Launch a backfill of those partitions or of all, and wait for its end.

        Return what its page says.
        """
        params = {
            "tags": [{"key": "dagster/from_ui", "value": "true"}],
            "assetSelection": [{"path": [asset]} for asset in sorted(assets)],
            **({"partitionNames": sorted(keys)} if keys else {"allPartitions": True}),
        }
        launched = self.ask(LAUNCH_BACKFILL, params=params)
        assert launched["__typename"] == "LaunchBackfillSuccess", launched
        self.daemon.finish_backfill(launched["backfillId"])
        return self.ask(BACKFILL, id=launched["backfillId"])


@pytest.fixture
def page(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The UI of a fresh installation of three days; with those variables, where a test gives some."""
    variables = {"LEADS_TIMEZONE": "Europe/London", **getattr(request, "param", {})}
    with installation(tmp_path, variables=variables, first=2) as here, here.daemon() as daemon:
        yield Page(daemon, here)


@pytest.mark.parametrize(
    "page",
    [pytest.param({}, id="as in the demo"), pytest.param(NO_INVENTORY, id="six variables")],
    indirect=True,
)
def test_materialize_all_is_green_and_runs_each_check(page: Page) -> None:
    done = page.backfill(page.assets())

    assert done["status"] == "COMPLETED_SUCCESS"
    statuses = {
        (asset, check["name"]): (check["executionForLatestMaterialization"] or {}).get("status")
        for asset, node in page.assets().items()
        for check in node["assetChecksOrError"]["checks"]
    }
    # The simulator sends a field that the contract doesn't know.
    assert statuses.pop(("drift", "contract_knows_what_comes")) in ("SUCCEEDED", "FAILED")
    assert {check: status for check, status in statuses.items() if status != "SUCCEEDED"} == {}


def test_a_backfill_of_some_partitions_asks_once_for_each(page: Page) -> None:
    wanted = page.here.keys([1], [101, 102]) | {page.here.key(2, 103)}

    page.backfill(["raw_applicant_leads"], wanted)

    assert page.here.asked() == dict.fromkeys(wanted, 1)
    assert page.here.shown() == dict.fromkeys(wanted, "MATERIALIZED")


def test_a_backfill_shows_the_windows_of_a_refused_branch_red_and_the_next_one_heals_them(
    page: Page,
) -> None:
    """Three days of three branches are three runs."""
    raw = "raw_applicant_leads"
    page.here.simulator.set_faults([Rule(Then(status=403), When(scope="branch-102"))])

    failed = page.backfill([raw])

    assert failed["status"] == "COMPLETED_FAILED"
    assert Counter(run["status"] for run in failed["runs"]) == {"FAILURE": 3}
    shown = page.ask(PARTITIONS, key={"path": [raw]})["partitionStats"]
    assert shown == {"numPartitions": 9, "numMaterialized": 6, "numFailed": 3}

    page.here.simulator.set_faults([])
    assert page.backfill([raw])["status"] == "COMPLETED_SUCCESS"
    assert page.here.shown() == dict.fromkeys(page.here.keys([0, 1, 2]), "MATERIALIZED")
