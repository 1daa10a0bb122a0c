"""The report asset: the page made anew after each publication.

Belongs here: when it is written. Doesn't: what is on it (report/page.py).
"""

from dagster import AssetsDefinition, AssetSelection, AutomationCondition, MaterializeResult, MetadataValue, asset

from leads_pipeline.assets.raw import failure
from leads_pipeline.assets.staged import IS_FREE
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.resources import DataFolder
from leads_pipeline.warehouse import Warehouse, marts


def report_asset() -> AssetsDefinition:
    """`leads_report`: reports/leads.html."""

    @asset(
        deps=[mart.name for mart in marts()],
        group_name="reports",
        kinds={"html"},
        # In the publication's own run; one that goes wrong is made good by the next. A publication makes every mart, so
        # one of them is looked at: Dagster stores what it sees of each.
        automation_condition=(AutomationCondition.any_deps_updated().since_last_handled() & IS_FREE).allow(
            AssetSelection.assets(marts()[-1].name)
        ),
        description="One page of figures from the marts, for any browser: data/reports/leads.html. No personal data.",
    )
    def leads_report(data: DataFolder) -> MaterializeResult[None]:
        # Importing jinja2 takes a tenth of a second, which every run of any asset would pay.
        from leads_pipeline.report.page import write_report

        try:
            with Warehouse(data.lake).reading() as db:
                report = write_report(db, data.lake)
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
