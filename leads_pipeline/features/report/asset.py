"""The asset `leads_report`: reports/leads.html."""

from dagster import AssetExecutionContext, AssetsDefinition, MaterializeResult, MetadataValue, asset

from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.orchestration.checks import failure
from leads_pipeline.orchestration.names import PLAIN, Names
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.warehouse.marts import marts
from leads_pipeline.warehouse.published import LeadsFile


def report_asset(names: Names = PLAIN) -> AssetsDefinition:
    """`leads_report`: reports/leads.html."""

    @asset(
        key=names.key("leads_report"),
        deps=[names.key(table) for table in (*(mart.name for mart in marts()), "drift")],
        group_name=names.name("reports"),
        required_resource_keys={names.name("data")},
        kinds={"html"},
        description="A page of last week's figures, for any browser: data/reports/leads.html. No "
        "personal data.",
    )
    def leads_report(context: AssetExecutionContext) -> MaterializeResult[None]:
        data: DataFolder = names.resource(context.resources, "data")
        # Importing jinja2 takes a tenth of a second, which every run of any asset would pay.
        from leads_pipeline.features.report.page import write_report

        try:
            with LeadsFile(data).reading() as db:
                path = write_report(db, data.folder)
        except LeadsPipelineError as error:
            raise failure("The report could not be written", error, "report") from None
        return MaterializeResult(
            metadata={"path": MetadataValue.path(path), "file_bytes": path.stat().st_size}
        )

    return leads_report
