"""The class path that dagster.yaml files name. The event log itself is features/quick_event_log/.

Without it, or if this Dagster has moved what it needs, Dagster's own event log does the work.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagster import StringSource

if TYPE_CHECKING:
    from dagster._config.config_schema import UserConfigSchema

try:
    from leads_pipeline.features.quick_event_log.sqlite import SqliteEventLog
except ImportError:
    from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage

    class SqliteEventLog(SqliteEventLogStorage):  # type: ignore[no-redef]
        """Dagster's own, told its folder as dagster.yaml has it."""

        @classmethod
        def config_type(cls) -> "UserConfigSchema":
            """Dagster's home, as an environment variable."""
            return {"dagster_home": StringSource}

        @classmethod
        def from_config_value(  # type: ignore[override]  # Dagster takes any event log
            cls, inst_data: Any, config_value: Any
        ) -> SqliteEventLogStorage:
            """Make one from dagster.yaml."""
            return SqliteEventLogStorage(
                str(Path(config_value["dagster_home"], "history", "runs")), inst_data
            )


__all__ = ["SqliteEventLog"]
