"""The Dagster resources: the two services' authenticated clients, and the data folder.

Belongs here: settings as fields that the UI may show, and clients made of them. A secret's field names its variable or
its file. Doesn't: which windows are pulled (pulling.py), or what a value may be (settings.py).
"""

from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any, Self, TypeVar

from dagster import ConfigurableResource, EnvVar, InitResourceContext, ResourceDependency

from leads_pipeline.domain.contract import INVENTORY_TOKEN_PATH, LEADS_TOKEN_PATH
from leads_pipeline.errors import SettingsError, StorageError
from leads_pipeline.portal import ClientCredentials, InventoryClient, LeadsClient, Tokens
from leads_pipeline.portal.credentials import PgpSecret, SecretSource, secret_of
from leads_pipeline.settings import AuthMethod, Secret, Settings, origin
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.store import open_store

T = TypeVar("T")


def _fields(**secrets: Secret | None) -> dict[str, Any]:
    """Return the fields that hold a resource's secrets: a variable for Dagster to read, or the path of a file."""
    fields: dict[str, Any] = {}
    for name, secret in secrets.items():
        if secret and secret.file:
            fields[f"{name}_file"] = str(secret.file)
        elif secret:
            fields[name] = EnvVar(secret.variable)
    return fields


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


class DataFolderResource(ConfigurableResource[DataFolder]):
    """Where Parquet, leads.duckdb and the pipeline's own state lie."""

    path: str
    # Where the suppression list lies; `privacy` in the folder where not set.
    privacy_path: str | None = None
    # The object store that has the truth, as LEADS_DATA_DIR has it; unset where the folder has it itself.
    store: str | None = None
    plain_http: bool = False
    keeps_personal_days: bool = False
    # The first partition, to be remembered by whoever acts; unset where the settings say it, and for who only looks.
    first_day: str | None = None
    time_zone: str | None = None

    @classmethod
    def of(cls, settings: Settings, first_day: date | None = None) -> Self:
        """The folder of these settings. If `first_day` is given, the first run or sensor remembers it."""
        return cls(
            path=str(settings.data_dir),
            privacy_path=_text(settings.privacy_dir),
            store=settings.store,
            plain_http=settings.plain_http,
            keeps_personal_days=settings.keep_personal_days is not None,
            first_day=first_day.isoformat() if first_day else None,
            time_zone=settings.zone.key,
        )

    def create_resource(self, context: InitResourceContext) -> DataFolder:  # noqa: ARG002 - Dagster's form
        """Open the folder. What an earlier release left in it is taken over."""
        data = DataFolder.at(
            Path(self.path),
            Path(self.privacy_path) if self.privacy_path else None,
            open_store(self.store, plain_http=self.plain_http) if self.store else None,
            keeps_personal_days=self.keeps_personal_days,
        )
        data.take_over()
        with suppress(StorageError):  # whoever lands something says so in better words
            if self.first_day is not None:
                data.state.remember_start_date(date.fromisoformat(self.first_day))
            if self.time_zone is not None:
                data.state.remember_time_zone(self.time_zone)
        return data


def _token_folder(data: DataFolder) -> Path:
    """Where all processes of this machine share access tokens."""
    return data.folder / ".state" / "tokens"


class LeadsService(ConfigurableResource[None]):
    """The leads service and its token server (specification, endpoints 1, 3 and 4)."""

    data: ResourceDependency[DataFolder]
    base_url: str | None = None
    auth_url: str | None = None
    client_id: str | None = None
    client_secret: str | None = None
    client_secret_file: str | None = None
    client_secret_pgp_file: str | None = None
    pgp_private_key_file: str | None = None
    pgp_passphrase: str | None = None
    pgp_passphrase_file: str | None = None
    auth_method: str = AuthMethod.BODY.value
    audience: str | None = None
    token_scope: str = Settings.model_fields["token_scope"].default
    max_concurrency: int = Settings.model_fields["max_concurrency"].default

    @classmethod
    def of(cls, settings: Settings, data: DataFolderResource | DataFolder) -> Self:
        """The service of these settings."""
        return cls(
            data=data,
            base_url=settings.base_url,
            auth_url=settings.auth_url,
            client_id=settings.client_id,
            auth_method=settings.auth_method.value,
            audience=settings.audience,
            token_scope=settings.token_scope,
            max_concurrency=settings.max_concurrency,
            client_secret_pgp_file=_text(settings.client_secret_pgp_file),
            pgp_private_key_file=_text(settings.pgp_private_key_file),
            **_fields(client_secret=settings.client_secret, pgp_passphrase=settings.pgp_passphrase),
        )

    def tokens(self) -> Tokens:
        """The access tokens for the service. Raises SettingsError naming the missing variables."""
        credentials = ClientCredentials(
            token_url=_required(self.auth_url, "LEADS_AUTH_URL") + LEADS_TOKEN_PATH,
            client_id=_required(self.client_id, "LEADS_CLIENT_ID"),
            secret=self.secret(),
            method=AuthMethod(self.auth_method),
            audience=self.audience,
            scope=self.token_scope,
        )
        return Tokens(credentials, _token_folder(self.data))

    def connect(self) -> tuple[LeadsClient, Tokens]:
        """A client and its tokens; claims the data folder for this portal.

        Raises SettingsError naming the missing variables, or the folder where it holds another portal's leads.
        """
        base_url = _required(self.base_url, "LEADS_BASE_URL")
        tokens = self.tokens()
        data = self.data
        data.state.claim(origin(base_url))
        client = LeadsClient(
            base_url, tokens, max_concurrency=self.max_concurrency, keep_unreadable=data.quarantine.keep_answer
        )
        return client, tokens

    def secret(self) -> SecretSource:
        """Where the client secret comes from. Raises SettingsError naming the missing variable."""
        if not self.client_secret_pgp_file:
            return _required_secret("LEADS_CLIENT_SECRET", self.client_secret, self.client_secret_file)
        private_key = _required(self.pgp_private_key_file, "LEADS_PGP_PRIVATE_KEY_FILE")
        passphrase = secret_of(self.pgp_passphrase, self.pgp_passphrase_file)
        return PgpSecret(Path(self.client_secret_pgp_file), Path(private_key), passphrase)


class InventoryService(ConfigurableResource[None]):
    """The inventory API and its own token endpoint (specification, endpoints 2 and 5)."""

    data: ResourceDependency[DataFolder]
    base_url: str | None = None
    client_id: str | None = None
    client_secret: str | None = None
    client_secret_file: str | None = None
    agency_ref: str | None = None

    @classmethod
    def of(cls, settings: Settings, data: DataFolderResource | DataFolder) -> Self:
        """The service of these settings."""
        return cls(
            data=data,
            base_url=settings.inventory_base_url,
            client_id=settings.inventory_client_id,
            agency_ref=settings.inventory_agency_ref,
            **_fields(client_secret=settings.inventory_client_secret),
        )

    def tokens(self) -> Tokens:
        """The access tokens for the API. Raises SettingsError naming the missing variables."""
        base_url = _required(self.base_url, "INVENTORY_BASE_URL")
        credentials = ClientCredentials(
            token_url=base_url + INVENTORY_TOKEN_PATH,
            client_id=_required(self.client_id, "INVENTORY_CLIENT_ID"),
            secret=_required_secret("INVENTORY_CLIENT_SECRET", self.client_secret, self.client_secret_file),
            method=AuthMethod.BASIC,
        )
        return Tokens(credentials, _token_folder(self.data))

    def connect(self) -> InventoryClient:
        """A client with its token. Raises SettingsError naming the missing variables."""
        agency_ref = _required(self.agency_ref, "INVENTORY_AGENCY_REF")
        return InventoryClient(_required(self.base_url, "INVENTORY_BASE_URL"), self.tokens(), agency_ref)


def _required_secret(variable: str, value: str | None, file: str | None) -> SecretSource:
    return _required(secret_of(value, file), variable)


def _required(value: T | None, variable: str) -> T:
    if not value:
        raise SettingsError(
            f"{variable} is not set. Put it into .env or the environment and start again; `leads-pipeline demo` shows "
            "everything without a real service."
        )
    return value
