"""Dagster's home: where its own state lies, and the dagster.yaml that a new one begins with.

Belongs here: the file's first text. Doesn't: runs (orchestration/runs.py), the event log (orchestration/event_log.py).
"""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from leads_pipeline.errors import SettingsError, how_to_install
from leads_pipeline.orchestration.event_log import refuse_newer
from leads_pipeline.settings import Settings
from leads_pipeline.storage.durable import replace_file

_DAGSTER_YAML = """\
# leads-pipeline wrote this file at the first start. It is yours now: change it as you like.
# Examples with a container for each run are in deploy/: dagster.docker.yaml and dagster.kubernetes.yaml.
# https://docs.dagster.io/deployment/oss/dagster-yaml

telemetry:
  enabled: false

nux:
  # The dialog that asks a new user for an e-mail address.
  enabled: false

# Sensors and schedules tick 4,000 times a day, and most ticks find nothing to do. Those are deleted after a day. The
# publication of each night deletes old runs of publications.
retention:
  schedule:
    purge_after_days: {skipped: 7, success: 90, failure: 90}
  sensor:
    purge_after_days: {skipped: 1, success: 90, failure: 90}

concurrency:
  runs:
    max_concurrent_runs: 4
  pools:
    # One pull at a time, in the pool leads_portal: two pulls don't know when the portal asks the other to slow down.
    default_limit: 1
    granularity: run

python_logs:
  # The UI has Dagster's own events. On the console they would hide everything else.
  python_log_level: INFO

run_monitoring:
  enabled: true
  free_slots_after_run_end_seconds: 60
  # After a power cut a run would count as under way for ever. A pull that is really that slow keeps what it landed, and
  # the sensor pulls the rest.
  max_runtime_seconds: 21600
"""

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

_RETRIES = """
run_retries:
  # The sensor retry_failed_partitions retries. Dagster would also retry windows that the portal refuses.
  enabled: false
"""


def dagster_home(settings: Settings) -> Path:
    """Return the folder of Dagster's own state, with a new dagster.yaml if it has none.

    A dagster.yaml that exists belongs to the user: it is neither read nor changed here.

    Raises StorageError if a newer Dagster wrote the state, SettingsError if Postgres is wanted and can't be used.
    """
    home = settings.dagster_folder
    refuse_newer(home)
    file = home / "dagster.yaml"
    address = settings.dagster_postgres
    if address is not None:
        _want_postgres(address.variable)
    if not file.exists():
        state = _IN_SQLITE
        if address is not None:
            state = _IN_POSTGRES % ("postgres_url_file" if address.file else "postgres_url", address.variable)
        replace_file(file, (_DAGSTER_YAML + state + _RETRIES).encode())
    return home


def _want_postgres(variable: str) -> None:
    try:
        version("dagster-postgres")
    except PackageNotFoundError:
        raise SettingsError(
            f"{variable} is set, and the package dagster-postgres isn't installed. {how_to_install('postgres')}"
        ) from None
