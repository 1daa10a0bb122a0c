"""The Dagster assets: raw windows, staged days, the warehouse and its marts, with their checks.

No IO manager: an asset calls lake, flatten or warehouse, and says what was done. One module a layer.
"""

from dagster import AssetsDefinition

from leads_pipeline.assets.delta import delta_tables_asset
from leads_pipeline.assets.privacy import privacy_sweep_asset
from leads_pipeline.assets.published import warehouse_asset
from leads_pipeline.assets.pushed import raw_push_asset
from leads_pipeline.assets.raw import raw_inventory_asset, raw_leads_asset
from leads_pipeline.assets.report import report_asset
from leads_pipeline.assets.staged import staged_leads_asset
from leads_pipeline.contract import LEAD_KINDS
from leads_pipeline.partitions import Partitions
from leads_pipeline.settings import Settings


def build_assets(settings: Settings, partitions: Partitions) -> list[AssetsDefinition]:
    """All assets of the pipeline for these settings."""
    return [
        *(raw_leads_asset(kind, settings, partitions) for kind in LEAD_KINDS),
        raw_push_asset(settings, partitions),
        raw_inventory_asset(settings, partitions),
        *(staged_leads_asset(kind, settings, partitions) for kind in LEAD_KINDS),
        privacy_sweep_asset(settings),
        warehouse_asset(settings, partitions),
        report_asset(),
        *([delta_tables_asset()] if settings.has_delta else []),
    ]
