"""Tells whoever isn't looking: finds what went wrong, and sends it where the settings say.

Belongs here: finding causes in Dagster's records, the published file and the disk; the sensor that tells them. Doesn't:
what is told when (observe/alerts.py), how it is sent (observe/channels.py).
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

from dagster import (
    AssetCheckKey,
    AssetCheckSeverity,
    AssetKey,
    DagsterInstance,
    DagsterRunStatus,
    DefaultSensorStatus,
    RunsFilter,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    sensor,
)

from leads_pipeline.domain.answer import shown_member
from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.domain.due import Failure
from leads_pipeline.domain.window import RETENTION, today
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.observe.alerts import Alert, Cause, Level, Memory
from leads_pipeline.observe.channels import Channel, beat
from leads_pipeline.observe.doctor import MOST_NAMED, Light, examine_backup, examine_space
from leads_pipeline.orchestration.dagster_compat import last_evaluation
from leads_pipeline.orchestration.partitions import Partitions
from leads_pipeline.orchestration.pulling import LIVE
from leads_pipeline.orchestration.resources import AlertService
from leads_pipeline.orchestration.service_note import note_service
from leads_pipeline.settings import Settings
from leads_pipeline.storage.branches import readable_branches
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.landing import members_beside
from leads_pipeline.storage.publications import Publications
from leads_pipeline.storage.windows import WindowRow, WindowState, known_windows, list_days
from leads_pipeline.transform.reading import LeadsFile

WATCH_INTERVAL_SECONDS = 300

# A day is pulled on the three days after it.
_ANSWERS_DAYS = 4

# What can pass is asked for again by itself several times within the hour.
PATIENCE = timedelta(hours=1)

OLDEST_PUBLICATION = timedelta(hours=27)

# What the nightly pull's runs are told from others by.
_NIGHTLY = {"dagster/schedule_name": "pull_daily"}

# In Dagster's storage: what each channel was told, and the last heartbeat.
_TOLD = "leads_pipeline/told"

# Told in better words by the windows themselves, and field by field.
_TOLD_OTHERWISE = {"windows", "contract_knows_what_comes"}

# Beginnings of the keys of causes that are hidden while a run works: what it makes is neither failed nor made then.
_WINDOWS, _MAKING = "windows ", "making "

# Assets of which the last run tells whether they work, and what follows where it failed.
_MADE = {
    "raw_inventory": "Today's inventory can be had today alone.",
    "applicant_leads": "What was published before stays as it is; newer leads wait in raw.",
    "leads_report": "leads.duckdb has what the report is made from.",
}


def alert_sensor(
    settings: Settings,
    partitions: Partitions,
    nightly: Mapping[str, str] = _NIGHTLY,
    *,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> SensorDefinition:
    """Tells each channel of causes, and the heartbeat of the newest run that has the tags `nightly`."""

    @sensor(
        name="tell_people",
        minimum_interval_seconds=WATCH_INTERVAL_SECONDS,
        default_status=DefaultSensorStatus.RUNNING,
        description="Sends alerts: what went wrong once it lasts, daily while it does, and once when it is over.",
        required_resource_keys={"data", "alerts"},
    )
    def tell_people(context: SensorEvaluationContext) -> SensorResult:
        instance, alerts, now = context.instance, context.resources.alerts, clock()
        note_service(instance, context.repository_def, context.resources.data.state, now)
        storage = instance.daemon_cursor_storage
        # The sensor's own cursor is where it stood in earlier versions.
        state = _read_state(storage.get_cursor_values({_TOLD}).get(_TOLD) or context.cursor)
        failures = _beat(instance, alerts, nightly, state)
        memories = [(channel, _read_memory(state, channel.name)) for channel in alerts.channels()]

        def remember() -> None:
            state["channels"] |= {channel.name: memory.pack() for channel, memory in memories}
            storage.set_cursor_values({_TOLD: json.dumps(state)})

        sent = 0
        if memories:
            checks = context.repository_def.asset_graph.asset_check_keys if context.repository_def else set()
            causes = list(find_causes(instance, settings, partitions.first_day, context.resources.data, checks, now))
            unsure = (_WINDOWS, _MAKING) if instance.get_runs(RunsFilter(statuses=LIVE), limit=1) else ()
            for channel, memory in memories:
                due = memory.notice(causes, now, lambda key: key.startswith(unsure))
                told, failed = _tell(channel, memory, due, remember)
                sent += told
                failures += failed
        for failure in failures:
            context.log.warning(failure)
        remember()
        return SensorResult(skip_reason=" ".join([f"Sent {sent} alerts.", *failures]))

    return tell_people


def _tell(
    channel: Channel, memory: Memory, alerts: Sequence[Alert], remember: Callable[[], None]
) -> tuple[int, list[str]]:
    """Send the alerts in turn: how many were sent, and what kept one, and those after it, from being sent.

    Each is remembered at once, as the daemon takes no cursor of a tick that takes longer than a minute; and before as
    well, as somebody may have been told by a process that was killed since.
    """
    for sent, alert in enumerate(alerts):
        memory.note_may_be_told(alert, may_be=True)
        remember()
        try:
            channel.send(alert)
        except LeadsPipelineError as error:
            memory.note_may_be_told(alert, may_be=False)
            return sent, [str(error)]  # the others would wait for the same dead server
        memory.note_told(alert)
        remember()
    return len(alerts), []


def _read_state(text: str | None) -> dict[str, Any]:
    """What was told. What can't be read counts as nothing: causes are then told once more."""
    try:
        state = json.loads(text or "")
        return {"beat": list(state["beat"]), "channels": dict(state["channels"])}
    except (ValueError, KeyError, TypeError):
        return {"beat": [], "channels": {}}


def _read_memory(state: Mapping[str, Any], channel: str) -> Memory:
    try:
        return Memory.unpack(state["channels"].get(channel, {}))
    except (ValueError, TypeError, AttributeError):
        return Memory()


# --- the heartbeat ----------------------------------------------------------------------------------------------------

_PATHS = {DagsterRunStatus.SUCCESS: "", DagsterRunStatus.FAILURE: "/fail", DagsterRunStatus.CANCELED: "/fail"}


def _beat(
    instance: DagsterInstance, alerts: AlertService, nightly: Mapping[str, str], state: dict[str, Any]
) -> list[str]:
    """Call the heartbeat where the nightly pull has begun or ended since; what went wrong with that."""
    url = alerts.heartbeat()
    runs = instance.get_runs(RunsFilter(tags=nightly), limit=1) if url else []
    for run in runs:
        path = "/start" if run.status in LIVE else _PATHS.get(run.status)
        if url is not None and path is not None and state["beat"] != [run.run_id, path]:
            try:
                beat("LEADS_HEARTBEAT_URL", url, path)
            except LeadsPipelineError as error:
                return [str(error)]
            state["beat"] = [run.run_id, path]
    return []


# --- causes -----------------------------------------------------------------------------------------------------------


def find_causes(
    instance: DagsterInstance,
    settings: Settings,
    first_day: date,
    data: DataFolder,
    checks: Set[AssetCheckKey],
    now: datetime,
) -> Iterator[Cause]:
    """Everything that somebody should know of now."""
    finders: dict[str, Callable[[], Iterator[Cause]]] = {
        "windows": partial(_failures, settings, first_day, data, now),
        "runs": partial(_failed_runs, instance),
        "the publication's age": partial(_old_publication, data, now),
        "checks": partial(_failed_checks, instance, checks),
        "the disk": partial(_full_disk, data),
        "backups": partial(_old_backup, data, now),
        "the drift": partial(_drift, LeadsFile(data)),
        "the portal's answers": partial(_new_members, data, today(settings.zone, now), now),
    }
    for what, find in finders.items():
        try:
            yield from find()
        except LeadsPipelineError as error:
            yield Cause(f"watch {what}", f"{what} can't be watched", str(error), patience=PATIENCE)


def _failures(settings: Settings, first_day: date, data: DataFolder, now: datetime) -> Iterator[Cause]:
    """A cause for each reason for which windows fail that the portal still has."""
    by_reason: defaultdict[tuple[bool, str], list[tuple[WindowRow, Failure]]] = defaultdict(list)
    for kind in LEAD_KINDS:
        for row in known_windows(data.store, kind, settings.scopes, settings.zone, first_day, now):
            if row.failure is not None and row.state is WindowState.FAILED:
                by_reason[row.failure.verdict == "refused", row.reason].append((row, row.failure))
    shown = readable_branches(settings.branches_file).shown_window
    for (is_refused, reason), cases in by_reason.items():
        cases.sort(key=lambda case: (case[0].window, case[0].kind))
        (first, failure), *_ = cases
        named = "\n".join(f"- {row.kind} {shown(row.window.partition_key)}" for row, _ in cases[:MOST_NAMED])
        more = f"\nand {len(cases) - MOST_NAMED} more" if len(cases) > MOST_NAMED else ""
        asked_again = "once a day, and at once after a start of the service" if is_refused else "by itself"
        yield Cause(
            f"{_WINDOWS}{'refused' if is_refused else 'failing'}: {reason}",
            f"{len(cases)} {'window' if len(cases) == 1 else 'windows'} can't be pulled: {reason}",
            f"{failure.message or failure.reason}\n\n{named}{more}\n\nThe portal begins to delete the first of them on "
            f"{first.window.start + RETENTION:%Y-%m-%d %H:%M} UTC. Until then they are asked for again {asked_again}. "
            "`leads-pipeline coverage` shows where they stand.",
            patience=timedelta(0) if is_refused else PATIENCE,
            # An outage shows itself as this error and that: it lasts for as long as nothing has landed.
            since=min(failed.first_failed_at for _, failed in cases),
        )


def _failed_runs(instance: DagsterInstance) -> Iterator[Cause]:
    records = instance.get_asset_records([AssetKey(asset) for asset in _MADE])
    last_runs = {record.asset_entry.asset_key.to_user_string(): record.asset_entry.last_run_id for record in records}
    alerted = set()
    for asset, consequence in _MADE.items():
        run = instance.get_run_by_id(run_id) if (run_id := last_runs.get(asset)) else None
        if run is not None and run.status is DagsterRunStatus.FAILURE and run_id not in alerted:
            alerted.add(run_id)  # the report that follows a publication fails with it
            yield Cause(
                f"{_MAKING}{asset}",
                f"the last run that was to make {asset} failed",
                f"{consequence} The failed run {run.run_id} in the Dagster UI says what is wrong; it is tried again "
                "each hour, each night or with what comes next.",
                patience=PATIENCE,
            )


def _old_publication(data: DataFolder, now: datetime) -> Iterator[Cause]:
    published_at = Publications.read(data.state.path).published_at
    if published_at is not None and now - published_at > OLDEST_PUBLICATION:
        yield Cause(
            "publication",
            "nothing has been published for more than a day",
            f"The last publication was at {published_at:%Y-%m-%d %H:%M} UTC, and one is due each night even where "
            "nothing came. Analysts see old figures, and the checks that look after windows don't run. See in the "
            "Dagster UI whether the daemon runs, and what the last runs say.",
        )


def _failed_checks(instance: DagsterInstance, checks: Set[AssetCheckKey]) -> Iterator[Cause]:
    for check in sorted(checks, key=lambda check: (check.asset_key, check.name)):
        evaluation = None if check.name in _TOLD_OTHERWISE else last_evaluation(instance, check)
        if evaluation is not None and not evaluation.passed:
            what = f"{check.asset_key.to_user_string()}: {check.name}"
            yield Cause(
                f"check {what}",
                f"check failed: {what.replace('_', ' ')}",
                evaluation.description or "The check's page in the Dagster UI has its figures.",
                Level.ERROR if evaluation.severity is AssetCheckSeverity.ERROR else Level.WARNING,
            )


def _full_disk(data: DataFolder) -> Iterator[Cause]:
    if not data.folder.exists():
        return
    finding = examine_space(data)
    if finding.light is not Light.GREEN:
        level = Level.ERROR if finding.light is Light.RED else Level.WARNING
        yield Cause("disk", "the disk gets full", finding.message, level)


def _old_backup(data: DataFolder, now: datetime) -> Iterator[Cause]:
    finding = examine_backup(data, now)
    if finding.light is not Light.GREEN:
        yield Cause("backup", "no backup has been made for more than two days", finding.message)


def _drift(warehouse: LeadsFile) -> Iterator[Cause]:
    """News for each field, value and type that the contract doesn't know; their names are those that may be shown."""
    if not warehouse.path.exists():
        return
    _, rows = warehouse.query("select kind, change, field, value from drift")
    for kind, change, field, value in rows:
        what = f"{kind} {field}" + (f" = {value}" if value is not None else "")
        yield Cause(
            f"drift {change} {what}",
            f"{change} from the portal: {what}",
            f"{change[0].upper()}{change[1:]}: {what}. Nothing is lost: raw files and leads have it. "
            "A line in domain/contract.py makes a column of it.",
            Level.WARNING,
            is_news=True,
        )


def _new_members(data: DataFolder, to_day: date, now: datetime) -> Iterator[Cause]:
    """News for each member beside the list of leads, in the answers for the last days."""
    last = [to_day - timedelta(days=ago) for ago in range(_ANSWERS_DAYS)]
    for kind in LEAD_KINDS:
        beside = members_beside(data.store, list_days(data.store, kind, last, now).values())
        for name, type_ in sorted({(shown_member(name), type_) for name, type_ in beside.items()}):
            yield Cause(
                f"member {kind.name} {name} {type_}",
                f"new member of the portal's answers: {kind.name} {name}",
                f"The portal's answers with {kind.name} leads have a new member beside the list: {name} ({type_}). No "
                "lead is lost by it. If the portal begins to answer in pages, a newer version of this pipeline is "
                "needed: ask the portal's technical contact what the member means. A name that could be a person's is "
                "shown as …; the footers of the newest raw files have it.",
                Level.WARNING,
                is_news=True,
            )
