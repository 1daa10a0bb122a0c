"""Delivery: every new lead, and every new version of one, to the agency's own systems.

    destinations.py         which destinations there are, and which leads each wants
    destinations_file.py    reads LEADS_DESTINATIONS_FILE
    due.py                  which versions are due: those that landed and were not delivered
    ledger.py               what was delivered to a destination and what waits, in SQLite
    questions.py            what a person asks of a ledger
    events.py, message.py   a version as a message
    webhook.py              a request that is signed by the Standard Webhooks specification
    request_form.py         a request by templates for an API of its own
    posting.py, answers.py  requests, and what an answer means
    sending.py              a pass over what is due
    outcomes.py, alto.py    what came of leads there

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
    night="leads_pipeline.features.delivery.outcomes:work_of_night",
    derives=("outcomes",),
    finders="leads_pipeline.features.delivery.findings",
    figures="leads_pipeline.features.delivery.figures:figures",
    holds_people="leads_pipeline.features.delivery.people:DeliveredLeads",
    demo="leads_pipeline.features.delivery.demo:demo",
)
