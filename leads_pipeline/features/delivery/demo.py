"""Delivery in `demo`: to the simulator, which stands in for a CRM."""

from datetime import date

from leads_pipeline.features.delivery.destinations import destinations_of
from leads_pipeline.features.delivery.sending import deliver
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.settings import Settings


def demo(settings: Settings, data: DataFolder, first_day: date) -> str:
    """Deliver all leads. Return what was done."""
    destinations = destinations_of(settings)
    if not destinations:
        return "LEADS_DELIVERY_URL is not set, so no lead was delivered."
    sent = deliver(settings, data, destinations[0], first_day=first_day)
    return f"Delivered {sent.delivered} leads to a simulated CRM."
