"""Headless runs: the same assets and the same Dagster instance as the UI's, without the UI.

Belongs here: Dagster's home, launching a pull, a staging, a publication in this process, and telling how they went.
Doesn't: what the assets do, or how a result is shown (cli/).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from dagster import AssetKey, DagsterEvent, DagsterEventType, DagsterInstance, Definitions, EventLogEntry, MetadataValue
from dagster._core.errors import DagsterExecutionInterruptedError
from dagster._core.utils import make_new_run_id

from leads_pipeline.assets.raw import NOT_PULLED
from leads_pipeline.contract import LeadKind
from leads_pipeline.definitions import INVENTORY_JOB, PUBLISH_JOB, PULL_JOB, PUSH_JOB, STAGE_JOB
from leads_pipeline.durable import replace_file
from leads_pipeline.errors import SettingsError, how_to_install
from leads_pipeline.event_log import refuse_newer
from leads_pipeline.partitions import RANGE_END_TAG, RANGE_START_TAG, Rectangle
from leads_pipeline.settings import Settings

_DAGSTER_YAML = """\
# leads-pipeline wrote this file at the first start. It is yours now: change it as you like.
# Examples with a container for each run are in deploy/: dagster.docker.yaml and dagster.kubernetes.yaml.
# https://docs.dagster.io/deployment/oss/dagster-yaml

telemetry:
  enabled: false

nux:
  # The dialog that asks a new user for an e-mail address.
  enabled: false

# Sensors and schedules tick 10,000 times a day, and most ticks find nothing to do. Those are deleted after a day. The
# sensor forget_old_runs deletes old runs and their events.
retention:
  schedule:
    purge_after_days: {skipped: 7, success: 90, failure: 90}
  sensor:
    purge_after_days: {skipped: 1, success: 90, failure: 90}
  auto_materialize:
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
# Dagster's own sqlite storage with fewer connections: it records 15,000 windows in one minute instead of six. Delete
# this section to go back to Dagster's own class, which reads the same files.
event_log_storage:
  module: leads_pipeline.event_log
  class: BatchingSqliteEventLogStorage
  config:
    dagster_home: {env: DAGSTER_HOME}
"""

_IN_POSTGRES = """
# Dagster's own Postgres storage with fewer connections.
storage:
  custom:
    module: leads_pipeline.event_log.postgres
    class: PostgresStorage
    config:
      %s: {env: %s}
"""

_RETRIES = """
run_retries:
  # The client and the retry sensor retry. Dagster would also retry windows that the portal refuses.
  enabled: false
"""


def home_folder(settings: Settings) -> Path:
    """Where Dagster's own state is or will be: DAGSTER_HOME, else `.dagster` in the data folder."""
    return settings.dagster_home or settings.data_dir / ".dagster"


def dagster_home(settings: Settings) -> Path:
    """Return the folder of Dagster's own state, with a new dagster.yaml if it has none.

    A dagster.yaml that exists belongs to the user: it is neither read nor changed here.

    Raises StorageError if a newer Dagster wrote the state, SettingsError if Postgres is wanted and can't be used.
    """
    home = home_folder(settings)
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


@dataclass(slots=True)
class PullReport:
    """What a pull did: windows landed by kind, leads seen in them, failed windows with reason and message."""

    landed: dict[str, int] = field(default_factory=dict)
    leads: int = 0
    new: int = 0
    failed: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    @property
    def succeeded(self) -> bool:
        """Whether every window landed."""
        return not self.failed and not self.broken


@dataclass(frozen=True, slots=True)
class Runner:
    """Launches the code location's jobs in this process, on the instance that the UI shows."""

    definitions: Definitions
    instance: DagsterInstance

    def pull(
        self, kinds: Sequence[LeadKind], area: Rectangle, report: PullReport, on_progress: Callable[[], None]
    ) -> None:
        """Pull a rectangle of windows, adding to `report` as each window ends."""

        def watch(entry: EventLogEntry) -> None:
            if _note(entry, report):
                on_progress()

        broken = self._run(PULL_JOB, area.tags, [AssetKey(f"raw_{kind.table}") for kind in kinds], listener=watch)
        if broken and not report.failed:
            report.broken.append(broken)

    def pull_inventory(self, day: date) -> str | None:
        """Pull today's inventory. Returns why none was pulled, None if it landed."""
        reasons: list[str] = []

        def watch(entry: EventLogEntry) -> None:
            if reason := _materialized(entry).get(NOT_PULLED):
                reasons.append(str(reason.value))

        broken = self._run(INVENTORY_JOB, {"dagster/partition": day.isoformat()}, listener=watch)
        return broken or next(iter(reasons), None)

    def take_in(self, today: date) -> tuple[set[date], str | None]:
        """Take in what was pushed. Returns the days that it belongs to, and what went wrong, None when nothing did."""
        touched: set[date] = set()

        def watch(entry: EventLogEntry) -> None:
            event = entry.dagster_event
            if event and event.partition and _number(_materialized(entry), "deliveries"):
                touched.add(date.fromisoformat(event.partition))

        broken = self._run(PUSH_JOB, {"dagster/partition": today.isoformat()}, listener=watch)
        return touched, broken

    def stage(self, first: date, last: date) -> str | None:
        """Flatten those days. Returns what went wrong, None when nothing did."""
        return self._run(STAGE_JOB, {RANGE_START_TAG: first.isoformat(), RANGE_END_TAG: last.isoformat()})

    def publish(self) -> str | None:
        """Publish what changed. Returns what went wrong, None when nothing did."""
        return self._run(PUBLISH_JOB, {})

    def _run(
        self,
        job_name: str,
        tags: Mapping[str, str],
        assets: Sequence[AssetKey] | None = None,
        listener: Callable[[EventLogEntry], None] | None = None,
    ) -> str | None:
        job = self.definitions.resolve_job_def(job_name)
        if assets:
            job = job.get_subset(asset_selection=set(assets))
        run_id = make_new_run_id()
        if listener is not None:
            self.instance.add_event_listener(run_id, listener)
        result = job.execute_in_process(
            run_id=run_id,
            instance=self.instance,
            tags=dict(tags),
            raise_on_error=False,
            # Dagster's console log would drown what the command line has to say; the UI has it all.
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        )
        if result.success:
            return None
        if any(_is_interruption(event) for event in result.all_events):
            raise KeyboardInterrupt
        return _why(result.all_events) or f"Run {run_id} of {job_name} failed; the Dagster UI shows why."


def _materialized(entry: EventLogEntry) -> Mapping[str, MetadataValue[Any]]:
    """The metadata of a materialization; of any other event, nothing."""
    event = entry.dagster_event
    if event is None or event.event_type is not DagsterEventType.ASSET_MATERIALIZATION:
        return {}
    return event.step_materialization_data.materialization.metadata


def _note(entry: EventLogEntry, report: PullReport) -> bool:
    """Add one of a run's events to the report; True where it ends a window."""
    event = entry.dagster_event
    if event is None or event.asset_key is None or event.partition is None:
        return False
    kind = event.asset_key.path[-1].removeprefix("raw_")
    if event.event_type is DagsterEventType.ASSET_MATERIALIZATION:
        metadata = _materialized(entry)
        report.landed[kind] = report.landed.get(kind, 0) + 1
        report.leads += _number(metadata, "dagster/partition_row_count")
        report.new += _number(metadata, "new")
        report.failed.pop((kind, event.partition), None)
        return True
    if event.event_type is DagsterEventType.ASSET_OBSERVATION:
        metadata = event.asset_observation_data.asset_observation.metadata
        report.failed[kind, event.partition] = (str(metadata["reason"].value), str(metadata["error"].value))
        return True
    return False


def _number(metadata: Mapping[str, MetadataValue[Any]], name: str) -> int:
    value = metadata[name].value if name in metadata else 0
    return value if isinstance(value, int) else 0


def _is_interruption(event: DagsterEvent) -> bool:
    """Whether a step ended by ctrl-C, which Dagster turns into an error of its own."""
    error = event.step_failure_data.error if event.is_step_failure else None
    return error is not None and error.cls_name == DagsterExecutionInterruptedError.__name__


def _why(events: Sequence[DagsterEvent]) -> str | None:
    """The message of the step that failed first: the body's own words where it raised Failure."""
    for event in events:
        if event.is_step_failure:
            data = event.step_failure_data
            if data.user_failure_data is not None and data.user_failure_data.description:
                return data.user_failure_data.description
            if data.error is not None:
                return data.error.message.strip()
    return None
