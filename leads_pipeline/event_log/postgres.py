"""The former place of the event log in Postgres. A dagster.yaml of an earlier release names this class."""

from leads_pipeline.orchestration.event_log_postgres import PostgresStorage

__all__ = ["PostgresStorage"]
