"""A property portal's leads, pulled by day and branch into Parquet and DuckDB with Dagster."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leads_pipeline.features.component.component import LeadsPipelineComponent

__all__ = ["LeadsPipelineComponent"]


def __getattr__(name: str) -> object:
    """Load the component when somebody asks for it: the command line doesn't wait for Dagster."""
    if name == "LeadsPipelineComponent":
        from leads_pipeline.features.component.component import LeadsPipelineComponent

        return LeadsPipelineComponent
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Have `dg` find the component, which looks through the module's names."""
    return [*globals(), *__all__]
