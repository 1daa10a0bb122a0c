"""Dagster's whole state in Postgres, its event log gathered there as in sqlite. Takes the extra `postgres`."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import sqlalchemy
from dagster import Field, StringSource
from dagster._config.config_schema import UserConfigSchema
from dagster._serdes import ConfigurableClassData
from dagster_postgres.event_log import PostgresEventLogStorage
from dagster_postgres.storage import DagsterPostgresStorage
from sqlalchemy.engine import URL, Connection
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from leads_pipeline.credentials import secret_of
from leads_pipeline.errors import SettingsError, StorageError
from leads_pipeline.event_log.gathering import GatheringEventLog, refuse_unknown
from leads_pipeline.settings import POSTGRES_VARIABLE

# How long to wait for a server that doesn't answer, where the address doesn't say.
_CONNECT_SECONDS = 10


class PostgresStorage(DagsterPostgresStorage):
    """As DagsterPostgresStorage, with a gathering event log, and an address that may lie in a file."""

    def __init__(self, postgres_url: str, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__(postgres_url, inst_data=inst_data)
        self._event_log_storage = GatheringPostgresEventLogStorage(postgres_url)

    @classmethod
    def config_type(cls) -> UserConfigSchema:
        """The address, or the file that holds it, as environment variables: dagster.yaml is no place for a password."""
        return {name: Field(StringSource, is_required=False) for name in ("postgres_url", "postgres_url_file")}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Any) -> Self:
        """Make one from dagster.yaml. Raises SettingsError, CredentialsError or StorageError."""
        url = _address(config_value.get("postgres_url"), config_value.get("postgres_url_file"))
        _try(url)
        return cls(url.render_as_string(hide_password=False), inst_data)


class GatheringPostgresEventLogStorage(GatheringEventLog, PostgresEventLogStorage):
    """As PostgresEventLogStorage, over one connection that stays open, where Dagster's makes four for each window."""

    def __init__(self, postgres_url: str) -> None:
        super().__init__(postgres_url)
        # More are made where one isn't enough, and closed again. A server that was started anew is noticed.
        options = {"pool_size": 1, "max_overflow": -1, "pool_pre_ping": True, "pool_recycle": 3600}
        self._engine = sqlalchemy.create_engine(postgres_url, isolation_level="AUTOCOMMIT", **options)

    @contextmanager
    def _connect(self) -> Iterator[Connection]:
        self._store_gathered()
        with super()._connect() as connection:
            yield connection

    def dispose(self) -> None:
        """Store what is gathered and close what is open."""
        super().dispose()
        self._engine.dispose()

    def has_log(self, run_id: str) -> bool:
        """Whether there is anything of the run but what of assets and checks it did."""
        query = "select exists (select from event_logs where run_id = :run_id and asset_key is null)"
        with self.index_connection() as connection:
            return bool(connection.execute(sqlalchemy.text(query), {"run_id": run_id}).scalar_one())

    def shrink(self) -> bool:
        """Leave it to Postgres, whose autovacuum has what is free used again."""
        return False

    def _text(self, statement: str) -> sqlalchemy.TextClause:
        """The statement in Postgres' words: its `is` is for null alone, and it joins large tables by `=` alone."""
        same = r"coalesce(\1, '') = coalesce(\2, '')"
        return super()._text(re.sub(r"(\w+\.partition) is (\w+\.partition)", same, statement))


def _address(value: str | None, file: str | None) -> URL:
    """The address in the form that SQLAlchemy wants, with the driver that Dagster uses."""
    source = secret_of(value, file)
    if source is None:
        raise SettingsError(f"{POSTGRES_VARIABLE} is not set, and dagster.yaml in DAGSTER_HOME says that it is used.")
    try:
        url = sqlalchemy.make_url(source.read().strip())
    except (ArgumentError, ValueError):  # a port that is no number
        url = None
    # An @ that isn't written %40 has a part of the password count as the host's name, which messages show.
    if url is not None and "@" in f"{url.host}{url.database}":
        url = None
    if url is None or url.drivername not in ("postgresql", "postgres", "postgresql+psycopg2"):
        raise SettingsError(
            f"{POSTGRES_VARIABLE} is no address of a Postgres, as postgresql://user:password@host:5432/database is. "
            "In user and password, a %, @ or / is written %25, %40 or %2F."
        ) from None
    url = url.set(drivername="postgresql+psycopg2")
    return url if "connect_timeout" in url.query else url.update_query_dict({"connect_timeout": str(_CONNECT_SECONDS)})


def _try(url: URL) -> None:
    """Raise StorageError where the server can't be asked, or a newer Dagster was there."""
    where = (
        f"Postgres at {url.host or url.query.get('host') or 'this machine'}, database {url.database or 'of that name'}"
    )
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    try:
        with engine.connect() as connection:
            if sqlalchemy.inspect(connection).has_table("alembic_version"):
                versions = connection.execute(sqlalchemy.text("select version_num from alembic_version"))
                refuse_unknown(versions.scalars(), where)
    except SQLAlchemyError as error:
        why = str(getattr(error, "orig", None) or type(error).__name__).strip().partition("\n")[0]
        raise StorageError(
            f"Dagster's state in {where} can't be reached: {why}. Is it running, and is {POSTGRES_VARIABLE} right? "
            "It is tried again at the next start.",
            reason="unreachable",
        ) from None
