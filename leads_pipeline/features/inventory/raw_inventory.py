"""The raw inventory in Dagster: what the searches of a day found, its job and its schedule.

Belongs here: what is searched for and when, and what the UI says of it. Doesn't: HTTP (client.py),
files (searches.py).
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

from dagster import (
    AssetExecutionContext,
    AssetMaterialization,
    AssetsDefinition,
    BackfillPolicy,
    Definitions,
    RunRequest,
    ScheduleDefinition,
    ScheduleEvaluationContext,
    SkipReason,
    TableColumn,
    TableSchema,
    asset,
    schedule,
)

from leads_pipeline.domain.window import today
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.features.inventory.searches import Inventory
from leads_pipeline.features.inventory.service import InventoryService
from leads_pipeline.features.inventory.settings import InventorySettings
from leads_pipeline.features.inventory.table import RAW_INVENTORY
from leads_pipeline.features.inventory.today import INVENTORY_JOB
from leads_pipeline.orchestration.asking import DAILY_CRON, DAILY_TAGS
from leads_pipeline.orchestration.catalog import with_conventions
from leads_pipeline.orchestration.checks import failure
from leads_pipeline.orchestration.jobs import asset_job
from leads_pipeline.orchestration.names import PLAIN, Names
from leads_pipeline.orchestration.partitions import Partitions, requested_keys
from leads_pipeline.orchestration.raw_leads import PORTAL_POOL
from leads_pipeline.orchestration.resources import DataFolderResource
from leads_pipeline.raw.data_folder import DataFolder, first_day
from leads_pipeline.settings import Settings
from leads_pipeline.warehouse.duck import statement
from leads_pipeline.warehouse.published import LeadsFile

# Name of the metadata that says why no inventory was pulled for a day.
NOT_PULLED: Final = "not_pulled"

# Each postcode is a request, and pages more. Beyond this many a day, searching for whole towns
# costs less.
MAX_POSTCODES: Final = 500

_SCHEMA: Final = TableSchema(
    [
        TableColumn(
            "item_id",
            "string",
            "The item's own id; sha256: and the hash of its payload if it has none",
        ),
        TableColumn("address", "string", "Place whose search found it"),
        TableColumn("payload", "string", "The exact JSON text that was received"),
        TableColumn(
            "fetched_at", "timestamp", "When a search of the day first found this text, UTC"
        ),
    ]
)


_SQL: Final = Path(__file__).parent / "sql"


def definitions(settings: Settings, names: Names) -> Definitions:
    """What the inventory adds to Dagster."""
    partitions = Partitions.of(settings, first_day(settings))
    raw_inventory = raw_inventory_asset(settings, partitions, names)
    return Definitions(
        assets=with_conventions(
            [raw_inventory], settings, names, are_expected=bool(needed(settings))
        ),
        resources={
            names.name("inventory"): InventoryService.of(settings, DataFolderResource.of(settings))
        },
        jobs=[
            asset_job(
                INVENTORY_JOB,
                [raw_inventory],
                names,
                "Pull today's inventory.",
                is_last_in_queue=True,
            )
        ],
        schedules=[inventory_schedule(settings, names)],
    )


def needed(settings: Settings) -> list[str]:
    """Without an inventory the schedule has nothing to do."""
    is_set_up = settings.of(InventorySettings).reason_against is None
    return ["pull_inventory_daily"] if is_set_up else []


def inventory_schedule(settings: Settings, names: Names = PLAIN) -> ScheduleDefinition:
    """Return `pull_inventory_daily`."""

    @schedule(
        name=names.name("pull_inventory_daily"),
        job_name=names.name(INVENTORY_JOB),
        cron_schedule=DAILY_CRON,
        execution_timezone=settings.zone.key,
        default_status=names.schedule_status,
        description="Pulls today's inventory.",
    )
    def pull_inventory_daily(context: ScheduleEvaluationContext) -> RunRequest | SkipReason:
        reason = settings.of(InventorySettings).reason_against
        if reason:
            return SkipReason(reason)
        day = today(settings.zone, context.scheduled_execution_time).isoformat()
        return RunRequest(run_key=f"inventory-{day}", partition_key=day, tags=DAILY_TAGS)

    return pull_inventory_daily


def raw_inventory_asset(
    settings: Settings, partitions: Partitions, names: Names = PLAIN
) -> AssetsDefinition:
    """`raw_inventory`, by day."""

    @asset(
        key=names.key(RAW_INVENTORY),
        required_resource_keys={names.name("inventory"), names.name("data")},
        description=(
            "The agency's inventory at the addresses of INVENTORY_ADDRESSES, and at the postcodes "
            "that leads of the last INVENTORY_FROM_LEADS_DAYS days ask about: the day's newest "
            "search in raw/inventory/. The API knows the present only. If a day is over, nothing "
            "is pulled, its file stays, and `not_pulled` says so."
        ),
        partitions_def=partitions.days,
        backfill_policy=BackfillPolicy.single_run(),
        output_required=False,
        group_name=names.name("raw"),
        kinds={"python", "parquet"},
        pool=names.name(PORTAL_POOL),
        metadata={
            "dagster/column_schema": _SCHEMA,
            "dagster/uri": f"{settings.store or settings.data_dir}/raw/inventory",
        },
    )
    def raw_inventory(context: AssetExecutionContext) -> Iterator[AssetMaterialization]:
        inventory: InventoryService = names.resource(context.resources, "inventory")
        data: DataFolder = names.resource(context.resources, "data")

        for key in requested_keys(context, partitions.days):
            day = date.fromisoformat(key)
            reason = _reason_against(settings, day)
            if reason is None:
                metadata = _pull(inventory, data, settings, day)
            else:
                # No failure: it would hold back all tables below, and no later run could mend it.
                metadata = {NOT_PULLED: reason}
            yield AssetMaterialization(context.asset_key, partition=key, metadata=metadata)

    return raw_inventory


def _reason_against(settings: Settings, day: date) -> str | None:
    """Return why nothing can be pulled for that day. None if nothing speaks against it."""
    if day != today(settings.zone, datetime.now(UTC)):
        return f"The API knows the present only, and {day} isn't today in {settings.zone.key}."
    return settings.of(InventorySettings).reason_against


def _pull(
    inventory: InventoryService, data: DataFolder, settings: Settings, day: date
) -> dict[str, str | int]:
    """Land today's inventory. Returns the metadata of its materialization."""
    try:
        addresses = _addresses(settings, data, day)
        if not addresses:
            return {
                NOT_PULLED: "INVENTORY_ADDRESSES names no place to search, and no lead asks about "
                "one."
            }
        client = inventory.connect()
        with data.state.pulling():
            began_at = datetime.now(UTC)
            answers = {address: client.search(address) for address in addresses}
        rows = Inventory.of(data).land(day, answers, began_at)
    except LeadsPipelineError as error:
        raise failure(f"No inventory could be pulled for {day}", error, "inventory") from None
    return {
        "dagster/partition_row_count": rows,
        "addresses": len(answers),
        "requests": client.requests_made,
    }


def _addresses(settings: Settings, data: DataFolder, day: date) -> list[str]:
    """Return the places to search.

    They are those of the settings, and if set, at most MAX_POSTCODES postcodes of listings that
    applicants ask about.
    """
    own = settings.of(InventorySettings)
    addresses = list(own.inventory_addresses)

    if own.inventory_from_leads_days:
        file = LeadsFile(data)
        if file.path.exists():
            since = day - timedelta(days=own.inventory_from_leads_days)
            query = statement("pull/postcodes_asked_about", _SQL)
            _, rows = file.query(query, {"since": since, "most": MAX_POSTCODES})
            addresses += [postcode for (postcode,) in rows]

    return list(dict.fromkeys(addresses))
