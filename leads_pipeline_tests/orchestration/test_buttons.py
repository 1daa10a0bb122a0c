"""Each asset's buttons in Dagster's UI end green on the first day, and backfills show the truth.

The requests are the UI's own.

Belongs here: materialize, backfill, cancel. Doesn't: what an asset does (test_assets.py), jobs
(test_runs.py), schedules and sensors (test_asking.py, test_publish_changes.py).
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

import pytest
from dagster_graphql.schema import create_schema

from leads_pipeline.simulator.faults import Rule, Then, When
from leads_pipeline_tests.support.installation import Daemon, Installation, installation

# Empty, as in a copy of .env.example in which the first six variables are filled in.
NO_INVENTORY = dict.fromkeys(
    (
        *("INVENTORY_BASE_URL", "INVENTORY_CLIENT_ID", "INVENTORY_CLIENT_SECRET"),
        *("INVENTORY_AGENCY_REF", "INVENTORY_ADDRESSES"),
    ),
    "",
)

REPOSITORY = {"repositoryLocationName": "leads_pipeline", "repositoryName": "__repository__"}

ASSET_FIELDS = """{
  assetKey { path } jobNames partitionKeys
  assetChecksOrError { ... on AssetChecks { checks { name jobNames executionForLatestMaterialization { status } } } }
}"""

ASSETS = f"{{ assetNodes {ASSET_FIELDS} }}"

ASSETS_OF_JOB = f"query ($job: PipelineSelector!) {{ assetNodes(pipeline: $job) {ASSET_FIELDS} }}"

REQUIRED_TOO = (
    "query ($keys: [AssetKeyInput!]!) "
    "{ assetNodeAdditionalRequiredKeys(assetKeys: $keys) { path } }"
)

TAGS_OF_PARTITION = """query ($job: PipelineSelector!, $partition: String!, $keys: [AssetKeyInput!]!) {
  pipelineOrError(params: $job) { ... on Pipeline { partition(partitionName: $partition, selectedAssetKeys: $keys) {
    tagsOrError { ... on PartitionTags { results { key value } } }
  } } }
}"""

LAUNCH_RUN = """mutation ($params: ExecutionParams!) { launchPipelineExecution(executionParams: $params) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
} }"""

RUN = """query ($id: ID!) { runOrError(runId: $id) { ... on Run {
  status assetMaterializations { assetKey { path } partition }
} } }"""

LAUNCH_BACKFILL = """mutation ($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
  __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message }
} }"""

BACKFILL = """query ($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill {
  status runs(limit: 100) { status }
  assetBackfillData { assetBackfillStatuses { ... on AssetPartitionsStatusCounts {
    numPartitionsTargeted numPartitionsInProgress numPartitionsMaterialized numPartitionsFailed
  } } }
} } }"""

CANCEL = "mutation ($id: String!) { cancelPartitionBackfill(backfillId: $id) { __typename } }"

PARTITIONS = """query ($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
  partitionStats { numMaterialized numFailed numMaterializing numPartitions }
} } }"""

_schema = cache(create_schema)


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

    def assets(self, job: str | None = None) -> dict[str, Any]:
        """All assets, or those of a job, by name."""
        nodes = (
            self.ask(ASSETS_OF_JOB, job={**REPOSITORY, "pipelineName": job})
            if job
            else self.ask(ASSETS)
        )
        return {node["assetKey"]["path"][0]: node for node in nodes}

    def with_required(self, asset: str) -> frozenset[str]:
        """What the button of an asset materializes: the UI adds the other assets of the same
        function.
        """
        return frozenset(
            {asset, *(key["path"][0] for key in self.ask(REQUIRED_TOO, keys=keys_of([asset])))}
        )

    def materialize(
        self, assets: Collection[str], job: str, *, first: str = "", last: str = ""
    ) -> None:
        """One run: without partitions, for one of them, or for a range ("Pass partition ranges to
        single run").
        """
        tags: list[Mapping[str, str]] = []
        if first:
            selector = {**REPOSITORY, "pipelineName": job, "assetSelection": keys_of(assets)}
            found = self.ask(TAGS_OF_PARTITION, job=selector, partition=first, keys=keys_of(assets))
            tags = found["partition"]["tagsOrError"]["results"]
        if last:
            tags = [tag for tag in tags if not tag["key"].startswith("dagster/partition")]
            tags.append({"key": "dagster/asset_partition_range_start", "value": first})
            tags.append({"key": "dagster/asset_partition_range_end", "value": last})
        nodes = self.assets()
        checks = [
            {"assetKey": {"path": [asset]}, "name": check["name"]}
            for asset in assets
            for check in nodes[asset]["assetChecksOrError"]["checks"]
            if job in check["jobNames"]
        ]
        selection = {"assetSelection": keys_of(assets), "assetCheckSelection": checks}
        params = {
            "mode": "default",
            "executionMetadata": {"tags": list(tags)},
            "runConfigData": "{}",
            "selector": {**REPOSITORY, "pipelineName": job, **selection},
        }

        launched = self.ask(LAUNCH_RUN, params=params)
        assert launched["__typename"] == "LaunchRunSuccess", launched
        self.daemon.launch_queued()

        ended = self.ask(RUN, id=launched["run"]["runId"])
        assert ended["status"] == "SUCCESS"
        # Otherwise the run is green, and its partitions stay grey.
        shown = {
            (one["assetKey"]["path"][0], one["partition"]) for one in ended["assetMaterializations"]
        }
        assert {(asset, key or None) for asset in assets for key in (first, last or first)} <= shown

    def backfill(
        self, assets: Collection[str], partitions: Sequence[str] | None = None, job: str = ""
    ) -> None:
        """Launch a backfill of partitions, or of all that there are, and wait until it has
        succeeded.
        """
        launched = self.launch_backfill(assets, partitions, job)
        assert launched["__typename"] == "LaunchBackfillSuccess", launched
        self.daemon.finish_backfill(launched["backfillId"])
        assert self.ask(BACKFILL, id=launched["backfillId"])["status"] == "COMPLETED_SUCCESS"

    def launch_backfill(
        self, assets: Collection[str], partitions: Sequence[str] | None = None, job: str = ""
    ) -> Any:
        """Launch a backfill of partitions, or of all that there are. Return the answer."""
        params: dict[str, Any] = {"tags": [{"key": "dagster/from_ui", "value": "true"}]}
        params["assetSelection"] = keys_of(assets)
        params |= (
            {"fromFailure": False, "partitionNames": partitions}
            if partitions
            else {"allPartitions": True}
        )
        if job:
            params["selector"] = {
                "partitionSetName": f"{job}_partition_set",
                "repositorySelector": REPOSITORY,
            }
        return self.ask(LAUNCH_BACKFILL, params=params)


def keys_of(assets: Collection[str]) -> list[dict[str, list[str]]]:
    return [{"path": [asset]} for asset in sorted(assets)]


@dataclass(frozen=True)
class Backfill:
    """What the pages of a backfill and of its asset show: how many partitions there are, green, red
    and under way.
    """

    status: str
    runs: Counter[str]
    counts: tuple[int, ...]
    of_asset: tuple[int, ...]

    @classmethod
    def shown(cls, page: Page, backfill_id: str, asset: str) -> Self:
        said = page.ask(BACKFILL, id=backfill_id)
        [counts] = said["assetBackfillData"]["assetBackfillStatuses"]
        names = ("Targeted", "Materialized", "Failed", "InProgress")
        stats = page.ask(PARTITIONS, key={"path": [asset]})["partitionStats"]
        return cls(
            said["status"],
            Counter(run["status"] for run in said["runs"]),
            tuple(counts[f"numPartitions{name}"] for name in names),
            tuple(
                stats[f"num{name}"]
                for name in ("Partitions", "Materialized", "Failed", "Materializing")
            ),
        )


@pytest.fixture
def page(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The UI of a fresh installation of three days; with those variables, where a test gives some."""
    variables = {"LEADS_TIMEZONE": "Europe/London", **getattr(request, "param", {})}
    with installation(tmp_path, variables=variables, first=2) as here, here.daemon() as daemon:
        yield Page(daemon, here)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [pytest.param({}, id="as in the demo"), pytest.param(NO_INVENTORY, id="six variables")],
    indirect=True,
)
def test_materialize_all_is_green_and_runs_each_check(page: Page) -> None:
    page.backfill(page.assets())
    statuses = {
        (asset, check["name"]): (check["executionForLatestMaterialization"] or {}).get("status")
        for asset, node in page.assets().items()
        for check in node["assetChecksOrError"]["checks"]
    }
    # The simulator sends a field that the contract doesn't know.
    assert statuses.pop(("drift", "contract_knows_what_comes")) in ("SUCCEEDED", "FAILED")
    assert {check: status for check, status in statuses.items() if status != "SUCCEEDED"} == {}


@pytest.mark.slow
def test_each_asset_is_green(page: Page) -> None:
    assets = page.assets()
    for group in {page.with_required(asset): None for asset in assets}:
        one = assets[min(group)]
        job = next(
            job
            for job in one["jobNames"]
            if all(job in assets[asset]["jobNames"] for asset in group)
        )
        keys = one["partitionKeys"]
        if not keys:
            page.materialize(group, job)
            continue
        assert job == "__ASSET_JOB"
        page.materialize(group, job, first=keys[0])
        page.materialize(group, job, first=keys[-1])
        page.materialize(group, job, first=keys[0], last=keys[-1])
        page.backfill(group, [key for key in keys if key[:10] != keys[0][:10]])
        page.backfill(group, keys)


# --- backfills that don't go well: 3 days x 3 branches are 3 runs ---------------------------------

RAW = "raw_applicant_leads"


@pytest.mark.slow
def test_a_backfill_shows_the_windows_of_a_refused_branch_red_and_the_next_one_heals_them(
    page: Page,
) -> None:
    page.here.simulator.set_faults([Rule(Then(status=403), When(scope="branch-102"))])
    backfill_id = page.launch_backfill([RAW])["backfillId"]
    page.daemon.finish_backfill(backfill_id)
    assert Backfill.shown(page, backfill_id, RAW) == Backfill(
        "COMPLETED_FAILED", Counter(FAILURE=3), (9, 6, 3, 0), (9, 6, 3, 0)
    )
    page.here.simulator.set_faults([])
    page.backfill([RAW])
    assert page.here.shown() == dict.fromkeys(page.here.keys([0, 1, 2]), "MATERIALIZED")


@pytest.mark.slow
def test_a_backfill_that_is_cancelled_keeps_what_landed_and_can_be_started_again(
    page: Page,
) -> None:
    backfill_id = page.launch_backfill([RAW])["backfillId"]
    page.daemon.begin_backfill()
    assert sum(page.here.asked().values()) == 3
    assert page.ask(CANCEL, id=backfill_id)["__typename"] == "CancelBackfillSuccess"
    page.daemon.finish_backfill(backfill_id)
    assert Backfill.shown(page, backfill_id, RAW) == Backfill(
        # Dagster counts windows that it never came to as failed in the backfill. On the asset's
        # page they stay grey.
        *("CANCELED", Counter(SUCCESS=1, CANCELED=2), (9, 3, 6, 0), (9, 3, 0, 0))
    )
    assert sum(page.here.asked().values()) == 3
    page.backfill([RAW])
    assert page.here.shown() == dict.fromkeys(page.here.keys([0, 1, 2]), "MATERIALIZED")
