"""Tables of one's own: marts and files in LEADS_MARTS_DIR, and lists about leads.

    own_marts.py    which file makes which table
    own_table.py    one table, made in a process of its own with limits
    lists.py        answers.csv, outcomes.csv and lead_prices.csv
    sql/            which of their rows count, how long leads waited, and what came of them

The other files are what the core asks for.
"""

from typing import Final

from leads_pipeline.features.feature import Feature

FEATURE: Final = Feature(
    name="own_tables",
    settings="leads_pipeline.features.own_tables.settings:OwnTablesSettings",
    has_marts=True,
    assets="leads_pipeline.features.own_tables.assets:own_specs",
    finders="leads_pipeline.features.own_tables.findings",
    inputs="leads_pipeline.features.own_tables.own_marts:look_of",
    steps="leads_pipeline.features.own_tables.own_marts:steps",
    made_tables="leads_pipeline.features.own_tables.own_marts:made_tables",
)
