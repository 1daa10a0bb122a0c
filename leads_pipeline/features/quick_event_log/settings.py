"""The settings of the event log."""

from typing import Final

from leads_pipeline.settings import OF_DAGSTER, FeatureSettings, Secret, setting

POSTGRES_VARIABLE: Final = "LEADS_DAGSTER_POSTGRES_URL"


class QuickEventLogSettings(FeatureSettings):
    """Where Dagster's own state is kept."""

    dagster_postgres: Secret | None = setting(
        POSTGRES_VARIABLE,
        OF_DAGSTER,
        link="guides/install-on-a-server.md#dagsters-state-in-postgres",
    )
    """A Postgres for Dagster's own state instead of SQLite:
    postgresql://user:password@host:5432/database. It holds no leads, and needs the extra
    `postgres`. Set it before the first start, which writes it into `dagster.yaml`"""
