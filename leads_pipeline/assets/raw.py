"""The raw assets: each window of the portal as one Parquet file, and each day's inventory.

Belongs here: window -> fetch -> land -> metadata, and partial success. Doesn't: HTTP (portal/), files (lake/),
retries (sensors.py).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from functools import cache

from dagster import (
    AssetExecutionContext,
    AssetMaterialization,
    AssetObservation,
    AssetsDefinition,
    BackfillPolicy,
    Failure,
    MetadataValue,
    TableColumn,
    TableSchema,
    asset,
)

from leads_pipeline.branches import Branches, readable_branches
from leads_pipeline.contract import Answer, LeadKind
from leads_pipeline.duck import statement
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.lake import RAW_COLUMNS, RAW_INVENTORY_COLUMNS, Lake, Landing, RawColumn
from leads_pipeline.partitions import Partitions, PullConfig, requested_keys
from leads_pipeline.resources import DataFolder, InventoryService, LeadsService
from leads_pipeline.settings import Settings
from leads_pipeline.status import Verdict
from leads_pipeline.warehouse import Warehouse
from leads_pipeline.window import Window, today

# One pull run at a time: the portal answers 429 when busy, and two runs don't know of each other's slowing down.
PORTAL_POOL = "leads_portal"

# Metadata of a day of which no inventory was pulled: why.
NOT_PULLED = "not_pulled"

# How many of a run's failed windows its failure message names; the rest are in the observations.
NAMED_FAILURES = 5


def _schema(columns: Mapping[str, RawColumn]) -> TableSchema:
    return TableSchema([TableColumn(name, str(column.type), column.description) for name, column in columns.items()])


RAW_SCHEMA = _schema(RAW_COLUMNS)


def raw_leads_asset(kind: LeadKind, settings: Settings, partitions: Partitions) -> AssetsDefinition:
    """`raw_applicant_leads` or `raw_appraisal_leads`, by day and scope."""

    @asset(
        name=f"raw_{kind.table}",
        description=(
            f"{kind.description}: one Parquet file per day and scope in raw/{kind.table}/, each lead as the exact "
            "JSON text received and how it was fetched. Landing merges: what was landed once is never taken away."
        ),
        partitions_def=partitions.windows,
        backfill_policy=BackfillPolicy.single_run(),
        output_required=False,
        group_name="raw",
        kinds={"python", "parquet"},
        pool=PORTAL_POOL,
        metadata={"dagster/column_schema": RAW_SCHEMA},
    )
    def raw_leads(
        context: AssetExecutionContext, config: PullConfig, leads: LeadsService, data: DataFolder
    ) -> Iterator[AssetMaterialization | AssetObservation]:
        keys = requested_keys(context, partitions.windows, config.partition_keys)
        windows = [Window.from_partition_key(key, settings.zone) for key in keys]
        left = dict.fromkeys(windows)
        failures: dict[Window, LeadsPipelineError] = {}
        settings_of_run = cache(leads.fingerprint)

        def land(answer: Answer) -> tuple[Answer, Landing]:
            landing = data.lake.land(answer, context.run.run_id)
            if answer.failure is not None:
                raise answer.failure
            return answer, landing

        try:
            client, tokens = leads.connect()
            data.lake.refresh({window.day for window in windows})
            data.lake.make_folders(kind, windows)
            with _turn(context, data.lake):
                for window, outcome in client.fetch_windows(kind, windows, land):
                    key = window.partition_key
                    left.pop(window, None)
                    if isinstance(outcome, LeadsPipelineError):
                        failures[window] = outcome
                        metadata = Verdict.metadata(outcome, settings_of_run())
                        yield AssetObservation(context.asset_key, partition=key, metadata=metadata)
                    else:
                        metadata = _metadata(*outcome, token_source=tokens.source)
                        yield AssetMaterialization(context.asset_key, partition=key, metadata=metadata)
        except LeadsPipelineError as error:
            metadata = Verdict.metadata(error, settings_of_run())
            for window in left:
                yield AssetObservation(context.asset_key, partition=window.partition_key, metadata=metadata)
            raise failure(f"No {kind.name} leads could be pulled", error) from None
        if failures:
            raise Failure(
                _summary(failures, len(windows), readable_branches(settings.branches_file)), allow_retries=False
            )

    return raw_leads


@contextmanager
def _turn(context: AssetExecutionContext, lake: Lake) -> Iterator[None]:
    if lake.is_pulling():
        context.log.info("Another pull is under way, perhaps of the command line. This one begins when it has ended.")
    with lake.pulling():
        yield


def _metadata(answer: Answer, landing: Landing, *, token_source: str | None) -> dict[str, MetadataValue]:
    window = answer.window
    return {
        "dagster/partition_row_count": MetadataValue.int(landing.leads),
        "new": MetadataValue.int(landing.new),
        "changed": MetadataValue.int(landing.changed),
        "refused": MetadataValue.int(landing.refused),
        "bytes": MetadataValue.int(answer.body_bytes),
        "window": MetadataValue.text(f"{window.start:%Y-%m-%dT%H:%MZ}/{window.end:%Y-%m-%dT%H:%MZ}"),
        "requests": MetadataValue.int(answer.attempts),
        "duration_seconds": MetadataValue.float(round(answer.duration_seconds, 3)),
        "token_source": MetadataValue.text(token_source or "unknown"),
        "is_closed": MetadataValue.bool(landing.is_closed),
        "is_partial": MetadataValue.bool(landing.is_partial),
    }


def _summary(failures: Mapping[Window, LeadsPipelineError], total: int, branches: Branches) -> str:
    """How many windows failed and why, grouped by reason, the first few named."""
    by_reason: dict[str, list[Window]] = defaultdict(list)
    for window, error in failures.items():
        by_reason[error.reason].append(window)
    lines = [f"{len(failures)} of {total} windows failed; the others are landed."]
    for reason, windows in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        named = ", ".join(branches.shown_window(window.partition_key) for window in sorted(windows)[:NAMED_FAILURES])
        more = f" and {len(windows) - NAMED_FAILURES} more" if len(windows) > NAMED_FAILURES else ""
        lines.append(f"{reason}: {len(windows)} ({named}{more}). {failures[min(windows)]}")
    lines.append(
        "The retry sensor takes them up again: what can pass soon, what was refused about daily, and at once after a "
        "change of settings or secret."
    )
    return "\n".join(lines)


def failure(tried: str, error: LeadsPipelineError) -> Failure:
    """The run's failure for one of the pipeline's own errors, whose verdict holds: Dagster doesn't retry it."""
    return Failure(f"{tried}. {error}", metadata=Verdict.metadata(error), allow_retries=False)


# Each postcode is a request, and pages more. Beyond this many a day, searching for whole towns costs less.
MAX_POSTCODES = 500


def _addresses(settings: Settings, lake: Lake, day: date) -> list[str]:
    """What to search for: the places of the settings, and on wish the postcodes of listings that leads ask about."""
    addresses = list(settings.inventory_addresses)
    if settings.inventory_from_leads_days:
        warehouse = Warehouse(lake)
        if warehouse.path.exists():
            since = day - timedelta(days=settings.inventory_from_leads_days)
            _, rows = warehouse.query(statement("pull/postcodes_asked_about"), {"since": since, "most": MAX_POSTCODES})
            addresses += [postcode for (postcode,) in rows]
    return list(dict.fromkeys(addresses))


def raw_inventory_asset(settings: Settings, partitions: Partitions) -> AssetsDefinition:
    """`raw_inventory`, by day."""

    @asset(
        name="raw_inventory",
        description=(
            "The agency's inventory at the addresses of INVENTORY_ADDRESSES, and at the postcodes that leads of the "
            "last INVENTORY_FROM_LEADS_DAYS days ask about, one Parquet file per day in raw/inventory/. The API knows "
            "the present only: a day that is over keeps the file that it has, and `not_pulled` says so."
        ),
        partitions_def=partitions.days,
        backfill_policy=BackfillPolicy.single_run(),
        output_required=False,
        group_name="raw",
        kinds={"python", "parquet"},
        pool=PORTAL_POOL,
        metadata={"dagster/column_schema": _schema(RAW_INVENTORY_COLUMNS)},
    )
    def raw_inventory(
        context: AssetExecutionContext, inventory: InventoryService, data: DataFolder
    ) -> Iterator[AssetMaterialization]:
        for key in requested_keys(context, partitions.days):
            day = date.fromisoformat(key)
            reason = settings.no_inventory
            if day != today(settings.zone, datetime.now(UTC)):
                reason = f"The API knows the present only, and {day} isn't today in {settings.zone.key}."
            # Not a failure: it would hold back all tables below, and no later run could mend it.
            metadata = {NOT_PULLED: reason} if reason else _pull_inventory(context, inventory, data.lake, settings, day)
            yield AssetMaterialization(context.asset_key, partition=key, metadata=metadata)

    return raw_inventory


def _pull_inventory(
    context: AssetExecutionContext, inventory: InventoryService, lake: Lake, settings: Settings, day: date
) -> dict[str, str | int]:
    """Land today's inventory. Returns the metadata of its materialization."""
    now = datetime.now(UTC)
    try:
        lake.refresh([day])
        addresses = _addresses(settings, lake, day)
        if not addresses:
            return {NOT_PULLED: "INVENTORY_ADDRESSES names no place to search, and no lead asks about one."}
        client = inventory.connect()
        with _turn(context, lake):
            sequence = lake.next_sequence()
            answers = {address: client.search(address) for address in addresses}
        rows = lake.land_inventory(day, answers, now, context.run.run_id, sequence)
    except LeadsPipelineError as error:
        raise failure(f"No inventory could be pulled for {day}", error) from None
    return {"dagster/partition_row_count": rows, "addresses": len(answers), "requests": client.stats.requests}
