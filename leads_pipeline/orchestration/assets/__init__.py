"""The Dagster assets: raw inventory, the tables and marts of leads.duckdb, the report, with their checks.

The assets of raw leads are in orchestration/raw_leads.py. There is no IO manager: an asset calls storage or a
publication, and reports what it did.
"""

from dagster import AssetsDefinition

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.orchestration.assets.inventory import raw_inventory_asset
from leads_pipeline.orchestration.assets.published import leads_file_asset
from leads_pipeline.orchestration.assets.report import report_asset
from leads_pipeline.orchestration.partitions import Partitions
from leads_pipeline.orchestration.raw_leads import raw_leads_asset
from leads_pipeline.settings import Settings


def build_assets(settings: Settings, partitions: Partitions) -> list[AssetsDefinition]:
    """All assets of the pipeline for these settings."""
    return [
        *(raw_leads_asset(kind, settings, partitions) for kind in LEAD_KINDS),
        raw_inventory_asset(settings, partitions),
        leads_file_asset(settings, partitions),
        report_asset(),
    ]
