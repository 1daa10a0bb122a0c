"""The inventory: what the agency has on offer, by searches of the portal's second API.

    contract.py         the API's paths and fields, and its answers
    client.py           all pages of a search
    service.py          the client as a Dagster resource
    raw_inventory.py    the asset of the raw files, its job and its schedule
    searches.py         the raw files: what each day's newest search found
    table.py            the table `inventory`, each item once
    sql/                the marts that read it

The other files are what the core asks for.
"""

from typing import Final

from leads_pipeline.features.feature import Feature

FEATURE: Final = Feature(
    name="inventory",
    settings="leads_pipeline.features.inventory.settings:InventorySettings",
    definitions="leads_pipeline.features.inventory.raw_inventory:definitions",
    needed="leads_pipeline.features.inventory.raw_inventory:needed",
    pulled_today="leads_pipeline.features.inventory.today:INVENTORY_TODAY",
    finders="leads_pipeline.features.inventory.findings",
    questions="leads_pipeline.features.inventory.questions:questions",
    verifier="leads_pipeline.features.inventory.questions:verify",
    steps="leads_pipeline.features.inventory.table:steps",
    table="leads_pipeline.features.inventory.table:INVENTORY",
    has_marts=True,
)
