"""The report asset: the page made anew after each publication.

Belongs here: when it is written. Doesn't: what is on it (transform/report/page.py).
"""

from dagster import AssetsDefinition, MaterializeResult, MetadataValue, ResourceParam, asset

from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.orchestration.failing import failure
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.transform.marts import marts
from leads_pipeline.transform.reading import LeadsFile


def report_asset() -> AssetsDefinition:
    """`leads_report`: reports/leads.html."""

    @asset(
        deps=[*(mart.name for mart in marts()), "drift"],
        group_name="reports",
        kinds={"html"},
        description="One page of figures from the marts, for any browser: data/reports/leads.html. No personal data.",
    )
    def leads_report(data: ResourceParam[DataFolder]) -> MaterializeResult[None]:
        # Importing jinja2 takes a tenth of a second, which every run of any asset would pay.
        from leads_pipeline.transform.report.page import write_report

        try:
            with LeadsFile(data).reading() as db:
                report = write_report(db, data)
        except LeadsPipelineError as error:
            raise failure("The report could not be written", error) from None
        return MaterializeResult(
            metadata={
                "last_day": report.last_day.isoformat() if report.last_day else "none yet",
                "file_bytes": report.size_bytes,
                "path": MetadataValue.path(report.path),
            }
        )

    return leads_report
