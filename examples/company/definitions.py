"""A company's own Dagster project with leads_pipeline merged in.

docs/guides/add-to-your-dagster.md explains it.
"""

import os
import subprocess
from pathlib import Path

from dagster import (
    AssetKey,
    Definitions,
    EnvVar,
    MaterializeResult,
    RunRequest,
    asset,
    asset_sensor,
    define_asset_job,
    definitions,
)

from leads_pipeline.definitions import build_definitions
from leads_pipeline.orchestration.resources import PublishedLeads

DBT_PROJECT = Path(__file__).with_name("dbt")

# leads_pipeline materializes them in each publication.
APPLICANT_LEADS = AssetKey(["leads", "applicant_leads"])
DAILY_MART = AssetKey(["leads", "mart_leads_daily"])


@asset(deps=[APPLICANT_LEADS])
def applicants_by_branch(published_leads: PublishedLeads) -> MaterializeResult[None]:
    """Count the applicants of each branch."""
    counts = published_leads.query(
        "select scope, count(*) as leads from applicant_leads group by scope order by scope"
    )

    # Dagster keeps metadata for ever. Counts may go there, and nothing that shows a person.
    leads = dict(zip(counts["scope"].to_pylist(), counts["leads"].to_pylist(), strict=True))
    return MaterializeResult(metadata=leads)


@asset(deps=[DAILY_MART])
def branch_totals() -> None:
    """Let dbt build its models in a file of their own, and test them."""
    options = ["--project-dir", str(DBT_PROJECT), "--profiles-dir", str(DBT_PROJECT)]
    subprocess.run(["dbt", "build", *options], check=True)


after_leads = define_asset_job("after_leads", [applicants_by_branch])

# In a job of its own, because it fails where dbt isn't installed.
dbt_build = define_asset_job("dbt_build", [branch_totals])


@asset_sensor(asset_key=APPLICANT_LEADS, job=after_leads)
def on_publication() -> RunRequest:
    """Start the job when leads_pipeline has published."""
    return RunRequest()


@definitions
def defs() -> Definitions:
    """Return the company's own definitions, with those of leads_pipeline."""
    own = Definitions(
        assets=[applicants_by_branch, branch_totals],
        jobs=[after_leads, dbt_build],
        sensors=[on_publication],
        resources={"published_leads": PublishedLeads(data_dir=EnvVar("LEADS_DATA_DIR"))},
    )
    leads = build_definitions(os.environ, key_prefix="leads")
    return Definitions.merge(own, leads)
