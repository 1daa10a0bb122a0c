"""The inventory API's authenticated client as a Dagster resource, and a data folder's raw files."""

from typing import Self

from dagster import ConfigurableResource, ResourceDependency

from leads_pipeline.features.inventory.client import InventoryClient
from leads_pipeline.features.inventory.contract import INVENTORY_TOKEN_PATH
from leads_pipeline.features.inventory.settings import InventorySettings
from leads_pipeline.orchestration.resources import DataFolderResource, required
from leads_pipeline.portal import ClientCredentials, Service, Tokens
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.settings import AuthMethod, Settings


class InventoryService(ConfigurableResource[None]):
    """The inventory API and its own token endpoint (specification, endpoints 2 and 5)."""

    settings: ResourceDependency[Settings]
    data: ResourceDependency[DataFolder]
    base_url: str | None
    client_id: str | None
    agency_ref: str | None

    @classmethod
    def of(cls, settings: Settings, data: DataFolderResource | DataFolder) -> Self:
        """Return the service of these settings."""
        own = settings.of(InventorySettings)
        return cls(
            settings=settings,
            data=data,
            base_url=own.inventory_base_url,
            client_id=own.inventory_client_id,
            agency_ref=own.inventory_agency_ref,
        )

    def connect(self) -> InventoryClient:
        """Return a client with its token. Raises SettingsError naming the missing variables."""
        service = Service(
            base_url=required(self.base_url, "INVENTORY_BASE_URL"), tokens=self.tokens()
        )
        return InventoryClient(service, required(self.agency_ref, "INVENTORY_AGENCY_REF"))

    def tokens(self) -> Tokens:
        """Return the access tokens for the API.

        Raises SettingsError naming the missing variables.
        """
        secret = self.settings.of(InventorySettings).inventory_client_secret
        credentials = ClientCredentials(
            token_url=required(self.base_url, "INVENTORY_BASE_URL") + INVENTORY_TOKEN_PATH,
            client_id=required(self.client_id, "INVENTORY_CLIENT_ID"),
            secret=required(secret, "INVENTORY_CLIENT_SECRET"),
            method=AuthMethod.BASIC,
        )
        return Tokens(credentials, self.data.state.path / "tokens")
