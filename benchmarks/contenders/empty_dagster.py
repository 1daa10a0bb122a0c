"""Dagster alone: one run that records each window as landed, and one that records a publication.

Both do nothing.
"""

import os
import sys
from pathlib import Path

HOME = Path(os.environ["LEADS_DATA_DIR"]) / "dagster"
os.environ.update({"DAGSTER_HOME": str(HOME), "DAGSTER_DISABLE_TELEMETRY": "1"})

from collections.abc import Iterator  # noqa: E402 - Dagster reads the environment
from datetime import date, timedelta  # noqa: E402

from dagster import (  # noqa: E402
    AssetExecutionContext,
    AssetMaterialization,
    DagsterInstance,
    MultiPartitionKey,
    MultiPartitionsDefinition,
    StaticPartitionsDefinition,
    asset,
    materialize,
)

FIRST, LAST = (date.fromisoformat(os.environ[f"BENCH_{which}_DAY"]) for which in ("FIRST", "LAST"))
DAYS = [str(FIRST + timedelta(days=n)) for n in range((LAST - FIRST).days + 1)]
BRANCHES = os.environ["LEADS_BRANCH_IDS"].split(",")
WINDOWS = MultiPartitionsDefinition(
    {"day": StaticPartitionsDefinition(DAYS), "scope": StaticPartitionsDefinition(BRANCHES)}
)


@asset(partitions_def=WINDOWS, output_required=False)
def raw_leads(context: AssetExecutionContext) -> Iterator[AssetMaterialization]:
    """Each window."""
    for day in DAYS:
        for branch in BRANCHES:
            key = MultiPartitionKey({"day": day, "scope": branch})
            yield AssetMaterialization(
                context.asset_key, partition=key, metadata={"dagster/partition_row_count": 0}
            )


@asset(deps=[raw_leads])
def warehouse() -> None:
    """The file."""


def main() -> None:
    """Record both."""
    HOME.mkdir(parents=True, exist_ok=True)
    with DagsterInstance.get() as instance:
        key = MultiPartitionKey({"day": DAYS[0], "scope": BRANCHES[0]})
        quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
        for asset_, partition in ((raw_leads, key), (warehouse, None)):
            if not materialize(
                [asset_], instance=instance, partition_key=partition, run_config=quiet
            ).success:
                sys.exit("The run failed.")


if __name__ == "__main__":
    main()
