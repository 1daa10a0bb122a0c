"""What `doctor` and `verify` ask of the inventory."""

from collections.abc import Callable, Iterator
from functools import partial

import duckdb

from leads_pipeline.errors import SettingsError
from leads_pipeline.features.inventory.client import InventoryClient
from leads_pipeline.features.inventory.searches import Inventory
from leads_pipeline.features.inventory.settings import InventorySettings
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.seen import ONE_ATTEMPT, Doubt, Light, Seen, about_token, ask
from leads_pipeline.portal import Service, Tokens
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.words import counted


def questions(facts: Facts) -> Iterator[Seen]:
    """Ask the inventory API for the first page of the first place."""
    from leads_pipeline.features.inventory.service import InventoryService  # loads Dagster

    own = facts.settings.of(InventorySettings)
    if own.inventory_base_url is None:
        yield Seen("inventory", Light.GREEN, "Not set up. Everything else works without it.")
        return
    service = InventoryService.of(facts.settings, facts.data)
    yield ask("inventory", partial(_first_page, own.inventory_base_url, own, service.tokens))


def _first_page(base_url: str, own: InventorySettings, tokens: Callable[[], Tokens]) -> str:
    if own.reason_against:
        raise Doubt(own.reason_against)
    if not own.inventory_agency_ref:
        raise SettingsError(
            "INVENTORY_AGENCY_REF is not set. It came by e-mail from the developer portal."
        )
    if not own.inventory_addresses:
        return f"{about_token(tokens())} Places come from leads, so there is no place to try."

    service = Service(base_url=base_url, tokens=tokens(), policy=ONE_ATTEMPT)
    client = InventoryClient(service, own.inventory_agency_ref)
    page = client.first_page(own.inventory_addresses[0])
    return (
        f"The first of {len(own.inventory_addresses)} places has {len(page.items)} items on its "
        "first page."
    )


def verify(data: DataFolder, db: duckdb.DuckDBPyConnection, number: int) -> Iterator[Seen]:  # noqa: ARG001 - as any
    """Read the newest search of each day. A damaged file is moved to quarantine."""
    days = len([*Inventory.of(data).searches()])
    if days:
        yield Seen(
            "inventory", Light.GREEN, f"The newest search of {counted(days, 'day')} is whole."
        )
