"""Tables of one's own: marts and files in LEADS_MARTS_DIR become tables of leads.duckdb."""

from typing import Final

from leads_pipeline.features.feature import Feature

FEATURE: Final = Feature(
    name="own_tables",
    assets="leads_pipeline.features.own_tables.assets:own_specs",
    finders="leads_pipeline.features.own_tables.findings",
    inputs="leads_pipeline.features.own_tables.own_marts:look_of",
    step="leads_pipeline.features.own_tables.own_marts:step_of",
    made_tables="leads_pipeline.features.own_tables.own_marts:made_tables",
)
