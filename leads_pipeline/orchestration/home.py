"""Dagster's home: where its own state lies, and the dagster.yaml that a new one begins with.

Belongs here: what is added to the text of dagster.yaml beside this file, and the limit of a pool. Doesn't: the event
log (event_log.py).
"""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from dagster import DagsterInstance

from leads_pipeline.errors import SettingsError, how_to_install
from leads_pipeline.settings import Settings
from leads_pipeline.storage.durable import replace_file

_IN_SQLITE = """
# Dagster's own SQLite storage with connections that stay open: a third of the time for each window. Delete this section
# to go back to Dagster's own class, which reads the same files.
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


def dagster_home(settings: Settings) -> Path:
    """Return the folder of Dagster's own state, with a new dagster.yaml if it has none.

    A dagster.yaml that exists belongs to the user: it is neither read nor changed here.

    Raises SettingsError if Postgres is wanted and the package for it is missing.
    """
    home, address = settings.dagster_folder, settings.dagster_postgres
    if address is not None and find_spec("dagster_postgres") is None:
        raise SettingsError(
            f"{address.variable} is set, and the package dagster-postgres isn't installed. {how_to_install('postgres')}"
        )
    if not (file := home / "dagster.yaml").exists():
        state = _IN_SQLITE if _has_quick_event_log() else ""
        if address is not None:
            state = _IN_POSTGRES % ("postgres_url_file" if address.file else "postgres_url", address.variable)
        replace_file(file, Path(__file__).with_name("dagster.yaml").read_bytes() + state.encode())
    return home


def _has_quick_event_log() -> bool:
    """Whether this Dagster has what our event log is made from. Otherwise its own class does the work."""
    try:
        import_module("leads_pipeline.orchestration.event_log")
    except ImportError:
        return False
    return True


def pool_limit(home: Path, pool: str) -> int | None:
    """Return the limit of a pool in this Dagster home, None if it has none.

    Raises SettingsError if it can't be read.
    """
    if not (home / "dagster.yaml").is_file():
        raise SettingsError(
            f"{home} has no dagster.yaml yet. `leads-pipeline serve` writes one. If another Dagster runs the pulls, "
            "set DAGSTER_HOME to its home and run this again."
        )
    try:
        with DagsterInstance.from_config(str(home)) as instance:
            limits = {one.name: one.limit for one in instance.event_log_storage.get_pool_limits()}
            default = instance.get_concurrency_config().pool_config.default_pool_limit
    except Exception as error:  # noqa: BLE001 - of any storage. Its message may quote a password
        raise SettingsError(
            f"Dagster's state in {home} can't be read ({type(error).__name__}). Start Dagster there to see why."
        ) from None
    return limits.get(pool, default)
