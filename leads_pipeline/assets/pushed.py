"""The asset of pushed leads: what the receiver has kept goes into the raw files of the days that it belongs to.

Belongs here: taking in, and which days the staged assets are to follow. Doesn't: receiving (receiver.py), which day
and scope a lead belongs to (spool.py).
"""

from collections.abc import Iterator

from dagster import AssetExecutionContext, AssetMaterialization, AssetsDefinition, BackfillPolicy, asset

from leads_pipeline.assets.raw import RAW_SCHEMA, failure
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.partitions import Partitions, requested_keys
from leads_pipeline.resources import DataFolder
from leads_pipeline.settings import Settings
from leads_pipeline.spool import Placement, Spool


def raw_push_asset(settings: Settings, partitions: Partitions) -> AssetsDefinition:
    """`raw_push`, by day. A run takes in the deliveries of all days; it materializes them and the days it is for."""

    @asset(
        name="raw_push",
        description=(
            "Leads that the portal delivered by itself, taken from the receiver's spool into pushed.parquet, one file "
            "per kind, day and scope beside the pulled ones. A run materializes each day that it touched, and each day "
            "that it was started for."
        ),
        partitions_def=partitions.days,
        backfill_policy=BackfillPolicy.single_run(),
        output_required=False,
        group_name="raw",
        kinds={"python", "parquet"},
        metadata={"dagster/column_schema": RAW_SCHEMA},
    )
    def raw_push(context: AssetExecutionContext, data: DataFolder) -> Iterator[AssetMaterialization]:
        placement = Placement(settings.scopes, settings.zone, partitions.first_day)
        untouched = set(requested_keys(context, partitions.days))
        try:
            data.lake.refresh(())
            for taken in Spool(data.lake).take_in(placement, context.run.run_id):
                untouched -= {day.isoformat() for day in taken.deliveries}
                for day, count in sorted(taken.deliveries.items()):
                    yield AssetMaterialization(
                        context.asset_key, partition=day.isoformat(), metadata={"deliveries": count}
                    )
                # Afterwards, as it takes what the event log has gathered to the disk, before the spool forgets it.
                context.log.info(
                    "%d leads were delivered: %d new, %d changed.",
                    taken.deliveries.total(),
                    taken.new,
                    taken.changed,
                )
        except LeadsPipelineError as error:
            raise failure("Pushed leads could not be taken in", error) from None
        # In a backfill, a day that is asked for and not materialized counts as failed, and so does all that follows it.
        for key in sorted(untouched):
            yield AssetMaterialization(context.asset_key, partition=key, metadata={"deliveries": 0})

    return raw_push
