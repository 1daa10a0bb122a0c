"""The asset of the Delta tables: they follow each publication.

Belongs here: when, and what the UI says of it. Doesn't: what is written (delta/).
"""

from dagster import AssetsDefinition, AssetSelection, AutomationCondition, MaterializeResult, MetadataValue, asset

from leads_pipeline.assets.raw import failure
from leads_pipeline.assets.staged import IS_FREE
from leads_pipeline.delta.folder import delta_folder, want_deltalake
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.resources import DataFolder
from leads_pipeline.warehouse import marts


def delta_tables_asset() -> AssetsDefinition:
    """`delta_tables`: all of delta/, where LEADS_TABLES wants it."""

    @asset(
        deps=[mart.name for mart in marts()],
        # Of the job that publishes: so an erasure, which runs it, doesn't end before they have followed.
        group_name="warehouse",
        kinds={"deltalake"},
        # As the report: in the publication's own run, by one of the marts.
        automation_condition=(AutomationCondition.any_deps_updated().since_last_handled() & IS_FREE).allow(
            AssetSelection.assets(marts()[-1].name)
        ),
        description=(
            "The tables and marts of leads.duckdb as Delta tables, for other engines: data/delta/, or in the bucket. "
            "Of tables of leads, days that changed are replaced; marts are replaced whole."
        ),
    )
    def delta_tables(data: DataFolder) -> MaterializeResult[None]:
        try:
            want_deltalake()
            # Whoever doesn't want the tables needn't have what they are written by.
            from leads_pipeline.delta.publishing import publish_tables

            done = publish_tables(data.lake)
        except LeadsPipelineError as error:
            raise failure("The Delta tables could not be brought up to date", error) from None
        return MaterializeResult(
            metadata={
                "tables": len(done.versions),
                "tables_changed": len(done.rows_written),
                "rows_written": sum(done.rows_written.values()),
                "duration_seconds": round(done.seconds, 3),
                **({"store": data.lake.store.address} if data.lake.store else {}),
                "path": MetadataValue.path(delta_folder(data.lake)),
            }
        )

    return delta_tables
