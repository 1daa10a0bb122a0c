"""The class path that dagster.yaml files name.

Dagster's state in Postgres itself is features/quick_event_log/.
"""

from leads_pipeline.features.quick_event_log.postgres import PostgresStorage

__all__ = ["PostgresStorage"]
