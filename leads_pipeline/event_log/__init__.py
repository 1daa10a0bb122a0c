"""The former place of the event log. A dagster.yaml of an earlier release names these classes."""

from leads_pipeline.orchestration.event_log import SqliteEventLog as BatchingSqliteEventLogStorage

__all__ = ["BatchingSqliteEventLogStorage"]
