"""The wiring: settings into resources, assets, jobs and schedules.

Belongs here: what exists in the code location that Dagster loads. Doesn't: what an asset does
(orchestration/raw_leads.py, orchestration/warehouse.py), how the command line runs it (orchestration/runs.py).
"""

import logging
import warnings
from collections.abc import Mapping
from typing import Final

from dagster import (
    AssetsDefinition,
    AssetSelection,
    AssetSpec,
    BetaWarning,
    Definitions,
    define_asset_job,
    definitions,
    in_process_executor,
)

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.orchestration.catalog import own_specs, with_conventions
from leads_pipeline.orchestration.partitions import Partitions
from leads_pipeline.orchestration.publish_sensor import publish_sensor
from leads_pipeline.orchestration.pulling import INVENTORY_JOB, PUBLISH_JOB, PULL_JOB, Asking, inventory_schedule
from leads_pipeline.orchestration.raw_inventory import raw_inventory_asset
from leads_pipeline.orchestration.raw_leads import raw_leads_asset
from leads_pipeline.orchestration.resources import DataFolderResource, InventoryService, LeadsService
from leads_pipeline.orchestration.sensors import alert_sensor, deliver_sensor
from leads_pipeline.orchestration.warehouse import report_asset, warehouse_asset
from leads_pipeline.settings import Settings, variables
from leads_pipeline.storage.data_folder import first_day
from leads_pipeline.storage.durable import forgo_core_dumps

logger = logging.getLogger(__name__)

# Dagster's code server and each run load this module.
forgo_core_dumps()

_JOBS: Final = {
    PULL_JOB: (
        AssetSelection.assets(*(f"raw_{kind.table}" for kind in LEAD_KINDS)),
        "Pull both kinds of leads: days x scopes.",
    ),
    INVENTORY_JOB: (AssetSelection.assets("raw_inventory"), "Pull today's inventory."),
    PUBLISH_JOB: (
        AssetSelection.groups("warehouse", "marts", "reports"),
        "Publish what has landed in leads.duckdb, then write the report. Follows the pulls by itself.",
    ),
}

# Windows that are due are asked for again (domain/due.py). Dagster would retry refused ones for ever.
_TAGS: Final = {"dagster/max_retries": "0"}


def build_definitions(environment: Mapping[str, str]) -> Definitions:
    """Everything that Dagster needs, for the settings in `environment`.

    A missing service is no error here: the code location loads, and the assets that need it say what to set. Raises
    SettingsError for a value that can't be right.
    """
    with warnings.catch_warnings():
        # Backfill policies are what makes 15,000 windows one run; Dagster has called them beta for years.
        warnings.simplefilter("ignore", BetaWarning)
        return _build(Settings.from_variables(environment))


@definitions
def defs() -> Definitions:
    """The code location, for `workspace.yaml` and `dg`."""
    if "DAGSTER_HOME" not in variables():
        logger.warning(
            "DAGSTER_HOME is not set, so Dagster forgets all runs when it ends. Use `leads-pipeline dev`, or set "
            "DAGSTER_HOME to the absolute path of .dagster in the data folder."
        )
    return build_definitions(variables())


def _build(settings: Settings) -> Definitions:
    first = first_day(settings)
    partitions = Partitions.of(settings, first)
    # Loading the code location writes nothing. The first run or sensor remembers the first day, so that the partitions
    # stay the same.
    data = DataFolderResource.of(settings, None if settings.start_date else first)
    asking = Asking(settings, first)
    assets: list[AssetsDefinition | AssetSpec] = [
        *(raw_leads_asset(kind, settings, partitions) for kind in LEAD_KINDS),
        raw_inventory_asset(settings, partitions),
        warehouse_asset(settings, partitions),
        *own_specs(settings.marts_dir),
        report_asset(),
    ]
    return Definitions(
        assets=with_conventions(assets, settings),
        resources={
            "data": data,
            "leads": LeadsService.of(settings, data),
            "inventory": InventoryService.of(settings, data),
        },
        jobs=[define_asset_job(name, assets, description=text, tags=_TAGS) for name, (assets, text) in _JOBS.items()],
        schedules=[*asking.schedules(), inventory_schedule(settings)],
        sensors=[
            asking.sensor(),
            publish_sensor(settings.zone, settings.marts_dir, is_bucket=settings.store is not None),
            alert_sensor(settings),
            deliver_sensor(settings),
        ],
        # A process per step costs more than most steps (1.25 s a run against 2.5 s).
        executor=in_process_executor,
    )
