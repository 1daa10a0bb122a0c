"""Dagster's event log, written in batches and made smaller again: in sqlite, or in Postgres where one is set.

Belongs here: what Dagster's own storages spend most of a pull's time on; which old events no state is read from.
Doesn't: what is recorded, which is Dagster's business; how old is old (housekeeping.py). `dagster.yaml` names the
classes; Dagster's own read the same tables, so that taking ours out again needs nothing but taking them out of there.
"""

from leads_pipeline.event_log.gathering import GatheringEventLog
from leads_pipeline.event_log.sqlite import BatchingSqliteEventLogStorage, refuse_newer

__all__ = ["BatchingSqliteEventLogStorage", "GatheringEventLog", "refuse_newer"]
