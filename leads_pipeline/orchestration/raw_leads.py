"""The raw assets: each window of the portal is pulled into Parquet.

Belongs here: the asset, and what the catalog says of it. Doesn't: the pull itself (pull.py), when a
run starts (asking.py).
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime
from typing import Final

from dagster import (
    AssetCheckResult,
    AssetExecutionContext,
    AssetsDefinition,
    BackfillPolicy,
    TableColumn,
    TableSchema,
    asset,
)

from leads_pipeline.domain.contract import LeadKind
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.extensions import brought
from leads_pipeline.orchestration.asking import PullConfig, raw_key, utc_now
from leads_pipeline.orchestration.checks import failure, raw_check_specs, raw_checks
from leads_pipeline.orchestration.names import PLAIN, Names
from leads_pipeline.orchestration.partitions import Partitions
from leads_pipeline.orchestration.pull import Plan, Pull, Record
from leads_pipeline.orchestration.resources import LeadsService
from leads_pipeline.orchestration.service import note_home
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.settings import Settings

# One pull run at a time: two runs don't know when the portal asks the other one to slow down.
PORTAL_POOL: Final = "leads_portal"

_SCHEMA: Final = TableSchema(
    [
        TableColumn("lead_id", "string", "The lead's id"),
        TableColumn(
            "number",
            "int64",
            "The moment of the request in microseconds since 1970. A lead's highest counts",
        ),
        TableColumn("payload", "string", "The exact JSON text that was received"),
        TableColumn("source", "string", "pull, push or correction"),
    ]
)


def raw_leads_asset(
    kind: LeadKind,
    settings: Settings,
    partitions: Partitions,
    names: Names = PLAIN,
    *,
    clock: Callable[[], datetime] = utc_now,
) -> AssetsDefinition:
    """Return `raw_applicant_leads` or `raw_appraisal_leads`, by day and scope."""
    key = raw_key(kind, names)

    @asset(
        key=key,
        required_resource_keys={names.name("leads"), names.name("data")},
        description=(
            f"{kind.description}: one folder of Parquet per day and scope in raw/{kind.table}/, "
            "each lead as the exact JSON text received. Landing merges: what was landed once is "
            "never taken away. A backfill in the UI starts a run for each day or each scope, "
            "whichever are fewer. Sensors and `leads-pipeline backfill` start one."
        ),
        partitions_def=partitions.windows,
        backfill_policy=BackfillPolicy.single_run(),
        output_required=False,
        check_specs=raw_check_specs(key),
        group_name=names.name("raw"),
        kinds={"python", "parquet"},
        pool=names.name(PORTAL_POOL),
        metadata={
            "dagster/column_schema": _SCHEMA,
            "dagster/uri": f"{settings.store or settings.data_dir}/raw/{kind.table}",
        },
    )
    def raw_leads(
        context: AssetExecutionContext, config: PullConfig
    ) -> Iterator[Record | AssetCheckResult]:
        leads: LeadsService = names.resource(context.resources, "leads")
        data: DataFolder = names.resource(context.resources, "data")

        if names.is_guest:  # its sensors may be off
            note_home(context.instance, data.state, names)

        if data.state.is_pulling():
            context.log.info(
                "Another pull is under way: of the other kind of leads in this run, of another run "
                "or of a command. This one begins after it."
            )

        try:
            with data.state.pulling():
                # Another machine with the same bucket may have erased somebody.
                data.gate.exchange_with_bucket()
                plan = Plan.of(context, config, data, kind, settings, partitions, clock())
                pull = Pull(
                    context=context,
                    config=config,
                    plan=plan,
                    data=data,
                    kind=kind,
                    settings=settings,
                    clock=clock,
                )
                with ExitStack() as during_pull:
                    for of_feature in brought("during_pull"):
                        during_pull.enter_context(of_feature(settings, len(plan.windows)))
                    yield from pull.records(leads.connect)
        except LeadsPipelineError as error:  # nothing can be listed
            raise failure(
                f"No {kind.name} leads could be pulled", error, "windows-failing"
            ) from None

        yield from raw_checks(settings, data, key, kind, clock())
        if pull.failures or pull.not_asked:
            raise pull.failure()

    return raw_leads
