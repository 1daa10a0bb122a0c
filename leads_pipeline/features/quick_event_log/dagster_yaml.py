"""What a new dagster.yaml says of the event log."""

from importlib import import_module
from importlib.util import find_spec

from leads_pipeline.errors import SettingsError, how_to_install
from leads_pipeline.features.quick_event_log.settings import QuickEventLogSettings
from leads_pipeline.settings import Settings

_IN_SQLITE = """
# Dagster's own SQLite storage with connections that stay open: a third of the time for each window.
# Delete this section to go back to Dagster's own class, which reads the same files.
event_log_storage:
  module: leads_pipeline.orchestration.event_log
  class: SqliteEventLog
  config:
    dagster_home: {env: DAGSTER_HOME}
"""

_IN_POSTGRES = """
# Dagster's own Postgres storage with connections that stay open.
storage:
  custom:
    module: leads_pipeline.orchestration.event_log_postgres
    class: PostgresStorage
    config:
      %s: {env: %s}
"""


def section(settings: Settings) -> str:
    """Return its section. Raises SettingsError if Postgres is wanted and its package is missing."""
    address = settings.of(QuickEventLogSettings).dagster_postgres
    if address is None:
        return _IN_SQLITE if _can_be_quick() else ""
    if find_spec("dagster_postgres") is None:
        raise SettingsError(
            f"{address.variable} is set, and the package dagster-postgres isn't installed. "
            f"{how_to_install('postgres')}"
        )
    return _IN_POSTGRES % (
        "postgres_url_file" if address.file else "postgres_url",
        address.variable,
    )


def _can_be_quick() -> bool:
    """Whether this Dagster has what our event log is made from."""
    try:
        import_module("leads_pipeline.features.quick_event_log.sqlite")
    except ImportError:
        return False
    return True
