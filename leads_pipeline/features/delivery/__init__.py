"""Delivery: every new lead, and every new version of one, to the agency's own endpoint.

    due.py        which versions are due: those that landed and were not delivered
    ledger.py     what was delivered and what waits, in SQLite
    message.py    a version as JSON, signed by the Standard Webhooks specification
    sending.py    sending what is due, and what an answer means

The other files are what the core asks for.
"""

from typing import Final

from leads_pipeline.features.feature import Command, Feature

FEATURE: Final = Feature(
    name="delivery",
    settings="leads_pipeline.features.delivery.settings:DeliverySettings",
    commands={
        "deliver": Command(
            "leads_pipeline.features.delivery.command:deliver",
            "Send new leads to your own system, or show what waits.",
        )
    },
    definitions="leads_pipeline.features.delivery.sensor:definitions",
    needed="leads_pipeline.features.delivery.sensor:needed",
    finders="leads_pipeline.features.delivery.findings",
    figures="leads_pipeline.features.delivery.figures:figures",
    holds_people="leads_pipeline.features.delivery.people:DeliveredLeads",
    demo="leads_pipeline.features.delivery.demo:demo",
)
