"""Dagster's state in Postgres, its event log over a connection that stays open.

Takes the extra `postgres`.
"""

from typing import TYPE_CHECKING, Any, Final, Self

import sqlalchemy
from dagster import Field, StringSource
from dagster_postgres.event_log import PostgresEventLogStorage
from dagster_postgres.storage import DagsterPostgresStorage
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from leads_pipeline.errors import SettingsError, StorageError
from leads_pipeline.features.quick_event_log.settings import POSTGRES_VARIABLE
from leads_pipeline.features.quick_event_log.sqlite import EventLog
from leads_pipeline.portal.credentials import read_secret
from leads_pipeline.settings import Secret, path_of

if TYPE_CHECKING:
    from dagster._config.config_schema import UserConfigSchema
    from dagster._serdes import ConfigurableClassData

# How long to wait for a server that doesn't answer, if the address doesn't say.
_CONNECT_SECONDS: Final = 10


class PostgresStorage(DagsterPostgresStorage):
    """DagsterPostgresStorage, whose connection stays open and whose address may lie in a file."""

    def __init__(self, postgres_url: str, inst_data: "ConfigurableClassData | None" = None) -> None:
        super().__init__(postgres_url, inst_data=inst_data)
        self._event_log_storage = PostgresEventLog(postgres_url)

    @classmethod
    def config_type(cls) -> "UserConfigSchema":
        """Return the options: the address, or the file that holds it, as environment variables.

        dagster.yaml is no place for a password.
        """
        return {
            name: Field(StringSource, is_required=False)
            for name in ("postgres_url", "postgres_url_file")
        }

    @classmethod
    def from_config_value(
        cls, inst_data: "ConfigurableClassData | None", config_value: Any
    ) -> Self:
        """Make one from dagster.yaml. Raises SettingsError, CredentialsError or StorageError."""
        url = _address(config_value.get("postgres_url"), config_value.get("postgres_url_file"))
        _want_reachable(url)
        return cls(url.render_as_string(hide_password=False), inst_data)


class PostgresEventLog(EventLog, PostgresEventLogStorage):
    """PostgresEventLogStorage with one connection.

    The original connects four times for each window.
    """

    def __init__(self, postgres_url: str) -> None:
        super().__init__(postgres_url)
        # More connections are made if one isn't enough, and closed again. A restart of the server
        # is noticed.
        options = {"pool_size": 1, "max_overflow": -1, "pool_pre_ping": True, "pool_recycle": 3600}
        self._engine = sqlalchemy.create_engine(
            postgres_url, isolation_level="AUTOCOMMIT", **options
        )

    def dispose(self) -> None:
        """Close the connections."""
        super().dispose()
        self._engine.dispose()


def _address(value: str | None, file: str | None) -> URL:
    """Return the address in SQLAlchemy's form, with the driver that Dagster uses."""
    if not (value or file):
        raise SettingsError(
            f"{POSTGRES_VARIABLE} is not set, and dagster.yaml in DAGSTER_HOME uses it."
        )

    try:
        url = sqlalchemy.make_url(
            read_secret(Secret(POSTGRES_VARIABLE, value, path_of(file) if file else None)).strip()
        )
    except (ArgumentError, ValueError):  # a port that is no number
        url = None

    # An @ that isn't written %40 makes a part of the password count as the host's name, which
    # messages show.
    is_torn = url is not None and "@" in f"{url.host}{url.database}"
    if (
        url is None
        or is_torn
        or url.drivername not in ("postgresql", "postgres", "postgresql+psycopg2")
    ):
        raise SettingsError(
            f"{POSTGRES_VARIABLE} is no address of a Postgres, as "
            "postgresql://user:password@host:5432/database is. In user and password, write %, @ "
            "and / as %25, %40 and %2F."
        ) from None

    url = url.set(drivername="postgresql+psycopg2")
    return (
        url
        if "connect_timeout" in url.query
        else url.update_query_dict({"connect_timeout": str(_CONNECT_SECONDS)})
    )


def _want_reachable(url: URL) -> None:
    """Raise StorageError if the server doesn't answer."""
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    try:
        with engine.connect():
            pass
    except SQLAlchemyError as error:
        host = url.host or url.query.get("host") or "this machine"
        why = str(getattr(error, "orig", None) or type(error).__name__).strip().partition("\n")[0]
        raise StorageError(
            f"Dagster's state in Postgres at {host}, database {url.database or 'of that name'} "
            f"can't be reached: {why}. Check that it runs and that {POSTGRES_VARIABLE} is right, "
            "then start again.",
            reason="unreachable",
        ) from None
