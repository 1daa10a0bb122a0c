# /// script
# dependencies = [
#     "dagster==1.13.27", "dagster-dlt==0.29.27", "dlt[duckdb,parquet]==1.31.0",
#     "duckdb==2.0.1", "pyarrow==26.0.1", "orjson==3.13.0",
# ]
# ///
"""dlt_pipeline.py as assets of dagster-dlt, Dagster's own integration.

One run pulls all days in this process. Dagster records it in its own sqlite; a run per day would be
the same again for each one's start, extract and load.
"""

import os
import sys

import dlt_pipeline  # beside this file; first, since it sets up dlt's environment

HOME = dlt_pipeline.FOLDER / "dagster"
os.environ.update({"DAGSTER_HOME": str(HOME), "DAGSTER_DISABLE_TELEMETRY": "1"})

from collections.abc import Iterator  # noqa: E402

from dagster import AssetExecutionContext, DagsterInstance, materialize  # noqa: E402
from dagster_dlt import DagsterDltResource, dlt_assets  # noqa: E402


@dlt_assets(dlt_source=dlt_pipeline.portal(), dlt_pipeline=dlt_pipeline.pipeline(), name="leads")
def leads(context: AssetExecutionContext, dlt: DagsterDltResource) -> Iterator:
    """All windows."""
    yield from dlt.run(context=context, loader_file_format="parquet")


def main() -> None:
    """One run, then the tables are copied out."""
    HOME.mkdir(parents=True, exist_ok=True)
    with DagsterInstance.get() as instance:
        quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
        done = materialize(
            [leads], instance=instance, resources={"dlt": DagsterDltResource()}, run_config=quiet
        )
    if not done.success:
        sys.exit("The run failed.")
    dlt_pipeline.copy_out()


if __name__ == "__main__":
    main()
