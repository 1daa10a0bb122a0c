"""The Dagster resources: the authenticated client of leads, the data folder, and leads.duckdb.

Belongs here: a client made of the settings. Fields are what the UI may show, so none holds a
secret. Doesn't: which windows are pulled (asking.py), or what a value may be (settings.py).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path
from typing import Any, Self, TypeVar

import duckdb
from dagster import ConfigurableResource, InitResourceContext, ResourceDependency

from leads_pipeline.domain.contract import LEADS_TOKEN_PATH
from leads_pipeline.errors import SettingsError, StorageError
from leads_pipeline.portal import ClientCredentials, LeadsClient, Service, Tokens
from leads_pipeline.portal.credentials import PgpSecret
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.settings import Secret, Settings, origin
from leads_pipeline.warehouse.published import open_published, table_of

T = TypeVar("T")


class DataFolderResource(ConfigurableResource[DataFolder]):
    """The folder or bucket of Parquet, leads.duckdb and the pipeline's own state.

    `store` is the address of the bucket, if the data is in one. `first_day` is the first partition.
    The first run or sensor remembers it.
    """

    settings: ResourceDependency[Settings]
    path: str
    store: str | None
    first_day: str | None

    @classmethod
    def of(cls, settings: Settings, first_day: date | None = None) -> Self:
        """Return the folder of these settings. Without `first_day`, nothing is remembered."""
        day = first_day.isoformat() if first_day else None
        return cls(
            settings=settings, path=str(settings.data_dir), store=settings.store, first_day=day
        )

    def create_resource(self, context: InitResourceContext) -> DataFolder:
        """Open the folder. Raises SettingsError if another version wrote it."""
        data = DataFolder.of(self.settings)
        is_run = context.run is not None
        data.want_format(reads_bucket=is_run)  # sensors write to this machine's folder alone

        with suppress(StorageError):  # whoever lands something says so in better words
            if is_run:
                data.note_format()
            if self.first_day is not None:
                data.state.remember_start_date(date.fromisoformat(self.first_day))
            data.state.remember_time_zone(self.settings.zone.key)

        return data


class LeadsService(ConfigurableResource[None]):
    """The leads service and its token server (specification, endpoints 1, 3 and 4)."""

    settings: ResourceDependency[Settings]
    data: ResourceDependency[DataFolder]
    base_url: str | None
    auth_url: str | None
    client_id: str | None
    max_concurrency: int

    @classmethod
    def of(cls, settings: Settings, data: DataFolderResource | DataFolder) -> Self:
        """Return the service of these settings."""
        return cls(
            settings=settings,
            data=data,
            base_url=settings.base_url,
            auth_url=settings.auth_url,
            client_id=settings.client_id,
            max_concurrency=settings.max_concurrency,
        )

    def connect(self) -> LeadsClient:
        """Return a client, and claim the data folder for this portal.

        Raises SettingsError naming the missing variables, or the folder if it holds another
        portal's leads.
        """
        base_url = required(self.base_url, "LEADS_BASE_URL")
        service = Service(base_url=base_url, tokens=self.tokens())
        self.data.state.claim(origin(base_url))
        return LeadsClient(
            service,
            max_concurrency=self.max_concurrency,
            keep_unreadable=self.data.quarantine.keep_answer,
        )

    def tokens(self) -> Tokens:
        """Return the access tokens for the service.

        Raises SettingsError naming the missing variables.
        """
        credentials = ClientCredentials(
            token_url=required(self.auth_url, "LEADS_AUTH_URL") + LEADS_TOKEN_PATH,
            client_id=required(self.client_id, "LEADS_CLIENT_ID"),
            secret=self.secret(),
            method=self.settings.auth_method,
            audience=self.settings.audience,
            scope=self.settings.token_scope,
        )
        return Tokens(credentials, self.data.state.path / "tokens")

    def secret(self) -> Secret | PgpSecret:
        """Return where the client secret comes from.

        Raises SettingsError naming the missing variable.
        """
        settings = self.settings
        if settings.client_secret_pgp_file is None:
            return required(settings.client_secret, "LEADS_CLIENT_SECRET")
        private_key = required(settings.pgp_private_key_file, "LEADS_PGP_PRIVATE_KEY_FILE")
        return PgpSecret(settings.client_secret_pgp_file, private_key, settings.pgp_passphrase)


class PublishedLeads(ConfigurableResource[None]):
    """leads.duckdb, read-only: for assets of your own that read the leads.

    `data_dir` is the folder that holds leads.duckdb: LEADS_DATA_DIR, or LEADS_WORK_DIR if the data
    is in a bucket. Each query sees one whole publication, and waits for none.
    """

    data_dir: str

    @contextmanager
    def connect(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Open the newest publication for several queries.

        Raises StorageError if nothing is published yet.
        """
        with open_published(Path(self.data_dir)) as db:
            yield db

    def query(self, statement: str, parameters: Mapping[str, object] | None = None) -> Any:
        """Return the answer to one query as a table of pyarrow, which has `to_pandas()`.

        Raises StorageError if nothing is published yet, and DuckDB's own errors for a wrong
        statement.
        """
        with self.connect() as db:
            return table_of(db, statement, parameters)


def required(value: T | None, variable: str) -> T:
    """Return the value of a setting. Raises SettingsError if there is none."""
    if not value:
        raise SettingsError(
            f"{variable} is not set. Put it into .env or the environment and start again; "
            "`leads-pipeline demo` shows everything without a real service."
        )
    return value
