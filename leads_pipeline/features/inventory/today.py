"""What `backfill` and `demo` know of the inventory. It loads no Dagster."""

from typing import Final

from leads_pipeline.cli.pulled_today import PulledToday
from leads_pipeline.features.inventory.settings import InventorySettings
from leads_pipeline.settings import Settings

INVENTORY_JOB: Final = "pull_inventory"


def _reason_against(settings: Settings) -> str | None:
    return settings.of(InventorySettings).reason_against


INVENTORY_TODAY: Final = PulledToday("inventory", INVENTORY_JOB, _reason_against)
