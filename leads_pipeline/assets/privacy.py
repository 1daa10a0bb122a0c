"""The asset that keeps the data folder as privacy wants it, each night.

Belongs here: what the UI says of a night. Doesn't: what is done (privacy/nightly.py), when (definitions.py).
"""

from datetime import UTC, datetime

from dagster import AssetExecutionContext, AssetsDefinition, Failure, MaterializeResult, asset

from leads_pipeline.assets.raw import failure
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.privacy.nightly import keep_clean
from leads_pipeline.resources import DataFolder
from leads_pipeline.settings import Settings

PRIVACY_SWEEP = "privacy_sweep"


def privacy_sweep_asset(settings: Settings) -> AssetsDefinition:
    """`privacy_sweep`: unpartitioned, a run a night."""

    @asset(
        name=PRIVACY_SWEEP,
        description=(
            "Takes erased people out of files that somebody put back by hand, makes old leads anonymous if "
            "LEADS_KEEP_PERSONAL_DAYS is set, and deletes leftovers of killed processes. A publication follows."
        ),
        group_name="privacy",
        kinds={"python", "parquet"},
        # Beside pulls and publications, whose files it takes one by one; beside another sweep it would only wait.
        pool="privacy",
    )
    def privacy_sweep(context: AssetExecutionContext, data: DataFolder) -> MaterializeResult[None]:
        try:
            data.lake.refresh()
        except LeadsPipelineError as error:
            raise failure("The data folder could not be gone through", error) from None
        night = keep_clean(data.lake, settings, datetime.now(UTC))
        if night.came_back:
            context.log.warning(
                "Leads of people who were erased were in the data folder again, and were taken out. Was a backup "
                "restored? Then look into quarantine/, where the list can't look."
            )
        if night.troubles:
            raise Failure(
                f"{len(night.troubles)} things couldn't be done; what could be is done, and the next night tries "
                f"again. {night.troubles[0]}",
                metadata={**night.counts, "troubles": night.troubles},
                allow_retries=False,
            )
        return MaterializeResult(metadata={**night.counts, "erased_people_were_back": night.came_back})

    return privacy_sweep
