"""The failure of a run, in our words."""

from dagster import Failure, MetadataValue

from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.observe.finding import RUNBOOK


def failure(tried: str, error: LeadsPipelineError, finder: str) -> Failure:
    """Return the run's failure for one of the pipeline's own errors. The finder's entry in the runbook says what to do.

    Dagster retries nothing: what is due is asked for again.
    """
    runbook = f"{RUNBOOK}#{finder}"
    return Failure(
        f"{tried}. {error}\nWhat to do: {runbook}",
        metadata={"reason": error.reason, "runbook": MetadataValue.path(runbook)},
        allow_retries=False,
    )
