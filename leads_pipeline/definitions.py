"""The wiring: settings into resources, assets, jobs and schedules. The only reader of environment variables.

Belongs here: what exists in the code location that Dagster loads. Doesn't: what an asset does (assets/), how the
command line runs it (runs.py).
"""

import logging
import os
import resource
import warnings
from collections.abc import Mapping, MutableMapping
from datetime import UTC, date, datetime, timedelta

from dagster import (
    AssetSelection,
    AutomationConditionSensorDefinition,
    BetaWarning,
    DefaultScheduleStatus,
    DefaultSensorStatus,
    Definitions,
    RunRequest,
    ScheduleDefinition,
    ScheduleEvaluationContext,
    SkipReason,
    define_asset_job,
    definitions,
    in_process_executor,
    schedule,
)
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from leads_pipeline.assets import build_assets
from leads_pipeline.assets.privacy import PRIVACY_SWEEP
from leads_pipeline.contract import LEAD_KINDS
from leads_pipeline.housekeeping import evaluation_sensor, history_sensor
from leads_pipeline.lake import Lake
from leads_pipeline.partitions import RANGE_END_TAG, RANGE_START_TAG, Partitions
from leads_pipeline.resources import AlertService, DataFolder, InventoryService, LeadsService
from leads_pipeline.sensors import (
    catch_up_sensor,
    dead_run_sensor,
    failure_sensor,
    look_sensor,
    push_sensor,
    retry_sensor,
)
from leads_pipeline.settings import NO_PORTAL, OURS, Settings
from leads_pipeline.watch import alert_sensor
from leads_pipeline.window import RETENTION, today

logger = logging.getLogger(__name__)

PULL_JOB = "pull_leads"
INVENTORY_JOB = "pull_inventory"
PUSH_JOB = "take_in_pushes"
STAGE_JOB = "stage_leads"
PUBLISH_JOB = "publish_warehouse"
PRIVACY_JOB = "sweep_for_privacy"

# What Dagster calls a run that materializes assets of no job: from the UI's lineage, or by automation.
ASSET_JOB = "__ASSET_JOB"

# A day closes at midnight; leads of its last minutes may reach the portal's list a little later.
DAILY_CRON = "15 1 * * *"
HOURLY_CRON = "5 * * * *"

# Once the night's pull is over as a rule, so that what it landed is gone through in the same night.
PRIVACY_CRON = "0 2 * * *"

# What the daily schedule's runs are told from others by.
_NIGHTLY = {"dagster/schedule_name": "pull_daily"}

# How many closed days the daily schedule takes up again, for leads that reach the portal's list late.
LATE_DAYS = 3


def forgo_core_dumps() -> None:
    """Have this process, and all that it starts, leave no image of its memory when it crashes: it holds leads.

    The limit of one byte is Linux's own word for it: 0 would stop a file alone, and not a program that dumps are piped
    to (core(5)). Where somebody has forbidden dumps already, that stays.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if hard != 0:
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))


# Whatever runs leads-pipeline loads this module: the command line, Dagster's code server, each run.
forgo_core_dumps()


def variables() -> MutableMapping[str, str]:
    """The process's environment variables, for the command line to read, complete and hand on; ours aren't empty."""
    for name in [name for name in os.environ if name.startswith(OURS)]:
        if not os.environ[name].strip():
            del os.environ[name]
    return os.environ


def build_definitions(environment: Mapping[str, str]) -> Definitions:
    """Everything that Dagster needs, for the settings in `environment`.

    A missing service is no error here: the code location loads, and the assets that need it say what to set. Raises
    SettingsError for a value that can't be right.
    """
    with warnings.catch_warnings():
        # Backfill policies are what makes 15,000 windows one run; Dagster has called them beta for years.
        warnings.simplefilter("ignore", BetaWarning)
        return _build(Settings.from_variables(environment))


@definitions
def defs() -> Definitions:
    """The code location, for `workspace.yaml` and `dg`."""
    if "DAGSTER_HOME" not in variables():
        logger.warning(
            "DAGSTER_HOME is not set, so Dagster forgets at its end which runs there were, what failed and what is to "
            "be tried again. `leads-pipeline dev` keeps it all in .dagster in the data folder; Dagster's own commands "
            "do with the absolute path of that folder in DAGSTER_HOME."
        )
    return build_definitions(variables())


def _build(settings: Settings) -> Definitions:
    first = first_day(settings)
    partitions = Partitions.of(settings, first)
    data, leads, inventory = resources(settings, None if settings.start_date else first)
    jobs = {job.name: job for job in _jobs()}
    return Definitions(
        assets=build_assets(settings, partitions),
        resources={
            "data": data,
            "leads": leads,
            "inventory": inventory,
            "alerts": AlertService.of(settings),
        },
        jobs=list(jobs.values()),
        schedules=[*_schedules(settings, partitions), _privacy_schedule(settings)],
        sensors=[
            retry_sensor(settings, partitions, PULL_JOB),
            catch_up_sensor(settings, partitions, PULL_JOB),
            look_sensor(settings, partitions, PULL_JOB),
            failure_sensor(jobs[STAGE_JOB], jobs[PUBLISH_JOB], partitions.days),
            push_sensor(settings, PUSH_JOB),
            dead_run_sensor({job.name for job in _jobs()} | {ASSET_JOB}),
            evaluation_sensor(),
            history_sensor(),
            *([alert_sensor(settings, partitions, _NIGHTLY)] if settings.has_alerts else []),
            AutomationConditionSensorDefinition(
                "follow_sources",
                target=AssetSelection.all(),
                default_status=DefaultSensorStatus.RUNNING,
                minimum_interval_seconds=30,
            ),
        ],
        # A process per step costs more than most steps (1.25 s a run against 2.5 s).
        executor=in_process_executor,
    )


def resources(settings: Settings, first_day: date | None = None) -> tuple[DataFolder, LeadsService, InventoryService]:
    """What assets work with: the data folder and the two services; secrets by their variables' names.

    If `first_day` is given, the first run or sensor remembers it. Loading the code location writes nothing, but runs
    that are started from its partitions have to find them again.
    """
    data = DataFolder.of(settings, first_day)
    return data, LeadsService.of(settings, data), InventoryService.of(settings, data)


def first_day(settings: Settings) -> date:
    """The first partition: what the settings say, else 30 days before the first run or sensor, remembered since."""
    if settings.start_date is not None:
        return settings.start_date
    return Lake.of(settings).start_date() or today(settings.zone, datetime.now(UTC)) - RETENTION


def _jobs() -> list[UnresolvedAssetJobDefinition]:
    # The client and the retry sensor decide about retries; a third mechanism without their verdicts would retry what
    # is refused for ever.
    tags = {"dagster/max_retries": "0"}
    leads = [f"raw_{kind.table}" for kind in LEAD_KINDS]
    return [
        define_asset_job(
            PULL_JOB,
            AssetSelection.assets(*leads),
            description="Pull both kinds of leads: days x scopes.",
            tags=tags,
        ),
        define_asset_job(
            INVENTORY_JOB,
            AssetSelection.assets("raw_inventory"),
            description="Pull today's inventory.",
            tags=tags,
        ),
        define_asset_job(
            PUSH_JOB,
            AssetSelection.assets("raw_push"),
            description="Take pushed leads into the raw files. Follows deliveries by itself.",
            tags=tags,
        ),
        define_asset_job(
            STAGE_JOB,
            AssetSelection.groups("staged"),
            description="Flatten landed days. Follows the pulls by itself.",
            tags=tags,
        ),
        define_asset_job(
            PUBLISH_JOB,
            AssetSelection.groups("warehouse", "marts", "reports"),
            description="Publish changed days in leads.duckdb, then write the report. Follows staged days by itself.",
            tags=tags,
        ),
        define_asset_job(
            PRIVACY_JOB,
            AssetSelection.assets(PRIVACY_SWEEP),
            description="Apply the suppression list again, and the retention that is set. A publication follows.",
            tags=tags,
        ),
    ]


def _schedules(settings: Settings, partitions: Partitions) -> list[ScheduleDefinition]:
    def request(first: date, last: date, run_key: str) -> RunRequest | SkipReason:
        if settings.base_url is None:
            return SkipReason(NO_PORTAL)
        if not settings.scopes:
            return SkipReason("LEADS_BRANCH_IDS names no branch: there is nothing to pull.")
        if last < partitions.first_day:
            return SkipReason(f"The first day, {partitions.first_day}, isn't over yet.")
        scopes = [settings.scopes[0].key, settings.scopes[-1].key]
        return RunRequest(
            run_key=run_key,
            tags={
                RANGE_START_TAG: f"{max(first, partitions.first_day)}|{scopes[0]}",
                RANGE_END_TAG: f"{last}|{scopes[1]}",
            },
        )

    @schedule(
        name="pull_daily",
        job_name=PULL_JOB,
        cron_schedule=DAILY_CRON,
        execution_timezone=settings.zone.key,
        default_status=DefaultScheduleStatus.RUNNING,
        description=f"One run for the day that has closed and the {LATE_DAYS - 1} before it, over all scopes.",
    )
    def pull_daily(context: ScheduleEvaluationContext) -> RunRequest | SkipReason:
        day = today(settings.zone, context.scheduled_execution_time)
        return request(day - timedelta(days=LATE_DAYS), day - timedelta(days=1), f"daily-{day}")

    @schedule(
        name="pull_hourly",
        job_name=PULL_JOB,
        cron_schedule=HOURLY_CRON,
        execution_timezone=settings.zone.key,
        description="The day under way, over all scopes. Off until switched on: most agencies are well served daily.",
    )
    def pull_hourly(context: ScheduleEvaluationContext) -> RunRequest | SkipReason:
        day = today(settings.zone, context.scheduled_execution_time)
        return request(day, day, f"hourly-{context.scheduled_execution_time.astimezone(UTC):%Y-%m-%dT%HZ}")

    @schedule(
        name="pull_inventory_daily",
        job_name=INVENTORY_JOB,
        cron_schedule=DAILY_CRON,
        execution_timezone=settings.zone.key,
        default_status=DefaultScheduleStatus.RUNNING,
        description="Today's inventory.",
    )
    def pull_inventory_daily(context: ScheduleEvaluationContext) -> RunRequest | SkipReason:
        if settings.no_inventory:
            return SkipReason(settings.no_inventory)
        day = today(settings.zone, context.scheduled_execution_time).isoformat()
        return RunRequest(run_key=f"inventory-{day}", partition_key=day)

    return [pull_daily, pull_hourly, pull_inventory_daily]


def _privacy_schedule(settings: Settings) -> ScheduleDefinition:
    @schedule(
        name="sweep_for_privacy_nightly",
        job_name=PRIVACY_JOB,
        cron_schedule=PRIVACY_CRON,
        execution_timezone=settings.zone.key,
        default_status=DefaultScheduleStatus.RUNNING,
        description="The suppression list once more, and the retention that is set.",
    )
    def sweep_for_privacy_nightly(context: ScheduleEvaluationContext) -> RunRequest:
        return RunRequest(run_key=f"privacy-{today(settings.zone, context.scheduled_execution_time)}")

    return sweep_for_privacy_nightly
