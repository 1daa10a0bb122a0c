"""How a run says that it couldn't do what it was for."""

from dagster import Failure

from leads_pipeline.errors import LeadsPipelineError


def failure(tried: str, error: LeadsPipelineError) -> Failure:
    """The run's failure for one of the pipeline's own errors. What is due is asked for again, and not by Dagster."""
    return Failure(f"{tried}. {error}", metadata={"reason": error.reason}, allow_retries=False)
