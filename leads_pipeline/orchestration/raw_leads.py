"""The raw assets: each window of the portal is pulled into Parquet.

Belongs here: keys -> fetch -> land -> what Dagster shows. Doesn't: HTTP (portal/), files (storage/), which keys are
asked for (pulling.py).
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import chain
from typing import Final
from urllib.parse import urlencode

from dagster import (
    AssetCheckResult,
    AssetExecutionContext,
    AssetMaterialization,
    AssetObservation,
    AssetsDefinition,
    BackfillPolicy,
    DagsterExecutionInterruptedError,
    Failure,
    MetadataValue,
    TableColumn,
    TableSchema,
    asset,
)

from leads_pipeline.domain.contract import Answer, LeadKind
from leads_pipeline.domain.window import Scope, Window
from leads_pipeline.errors import (
    LeadsPipelineError,
    PermanentError,
    RetentionError,
    StorageError,
    TokenRefusedError,
)
from leads_pipeline.observe.finding import explanation
from leads_pipeline.observe.window_findings import what_comes_next
from leads_pipeline.orchestration.checks import failure, raw_check_specs, raw_checks
from leads_pipeline.orchestration.dagster_compat import show_as_planned
from leads_pipeline.orchestration.names import PLAIN, Names
from leads_pipeline.orchestration.partitions import Partitions, requested_keys
from leads_pipeline.orchestration.pulling import PullConfig, due_windows, note_home, raw_key, utc_now
from leads_pipeline.orchestration.resources import LeadsService
from leads_pipeline.portal.verdicts import settled
from leads_pipeline.settings import Settings
from leads_pipeline.storage.branches import readable_branches
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.landing import Landed
from leads_pipeline.storage.raw import place_of, state_of
from leads_pipeline.storage.rows import PULL
from leads_pipeline.storage.windows import WindowRow, WindowState, known_windows, window_table
from leads_pipeline.warehouse.loading_ahead import loading_ahead
from leads_pipeline.words import counted, some

# One pull run at a time: two runs don't know when the portal asks the other one to slow down.
PORTAL_POOL: Final = "leads_portal"

_SCHEMA: Final = TableSchema(
    [
        TableColumn("lead_id", "string", "The lead's id"),
        TableColumn("number", "int64", "The moment of the request in microseconds since 1970. A lead's highest counts"),
        TableColumn("payload", "string", "The exact JSON text that was received"),
        TableColumn("source", "string", "pull, push or correction"),
    ]
)

Record = AssetMaterialization | AssetObservation


def raw_leads_asset(
    kind: LeadKind,
    settings: Settings,
    partitions: Partitions,
    names: Names = PLAIN,
    *,
    clock: Callable[[], datetime] = utc_now,
) -> AssetsDefinition:
    """Return `raw_applicant_leads` or `raw_appraisal_leads`, by day and scope."""
    key = raw_key(kind, names)

    @asset(
        key=key,
        required_resource_keys={names.name("leads"), names.name("data")},
        description=(
            f"{kind.description}: one folder of Parquet per day and scope in raw/{kind.table}/, each lead as the exact "
            "JSON text received. Landing merges: what was landed once is never taken away. A backfill in the UI starts "
            "a run for each day or each scope, whichever are fewer. Sensors and `leads-pipeline backfill` start one."
        ),
        partitions_def=partitions.windows,
        backfill_policy=BackfillPolicy.single_run(),
        output_required=False,
        check_specs=raw_check_specs(key),
        group_name=names.name("raw"),
        kinds={"python", "parquet"},
        pool=names.name(PORTAL_POOL),
        metadata={
            "dagster/column_schema": _SCHEMA,
            "dagster/uri": f"{settings.store or settings.data_dir}/raw/{kind.table}",
        },
    )
    def raw_leads(context: AssetExecutionContext, config: PullConfig) -> Iterator[Record | AssetCheckResult]:
        leads: LeadsService = names.resource(context.resources, "leads")
        data: DataFolder = names.resource(context.resources, "data")
        if names.is_guest:  # its sensors may be off
            note_home(context.instance, data.state, names)
        if data.state.is_pulling():
            context.log.info(
                "Another pull is under way: of the other kind of leads in this run, of another run or of a command. "
                "This one begins after it."
            )
        try:
            with data.state.pulling():
                data.gate.entries.refresh()  # another machine with the same bucket may have erased somebody
                pull = _Pull(context, config, data, kind, settings, partitions, clock)
                with loading_ahead(data, settings, pull.size):
                    yield from pull.records(leads)
        except LeadsPipelineError as error:  # nothing can be listed
            raise failure(f"No {kind.name} leads could be pulled", error, "windows-failing") from None
        yield from raw_checks(settings, data, key, kind, clock())
        if pull.failures or pull.not_asked:
            raise pull.failure()

    return raw_leads


class _Pull:
    """One run's pull of one kind. The lock is held. A window that a person asked for is always shown."""

    def __init__(
        self,
        context: AssetExecutionContext,
        config: PullConfig,
        data: DataFolder,
        kind: LeadKind,
        settings: Settings,
        partitions: Partitions,
        clock: Callable[[], datetime],
    ) -> None:
        self._clock, now = clock, clock()
        self._context, self._config, self._data, self._kind, self._settings = context, config, data, kind, settings
        keys = requested_keys(context, partitions.windows, config.partition_keys)
        windows = [Window.from_partition_key(key, settings.zone) for key in keys]
        configured = frozenset(settings.scopes)  # a scope may be gone since the run was queued
        windows = [window for window in windows if window.scope in configured]
        if config.requested_at is None:
            rows = window_table(data.store, kind, windows, now)
        else:
            rows = known_windows(data.store, kind, settings.scopes, settings.zone, partitions.first_day, now)
            # Another run may have pulled some meanwhile. The day under way is never due.
            due = {*due_windows(rows, datetime.fromisoformat(config.requested_at), now)}
            windows = [window for window in windows if window in due or not window.is_closed(now)]
        self._windows, self._rows = windows, {row.window: row for row in rows}
        self._to_be_shown = {*windows} if config.requested_at is None else self._not_shown(partitions)
        self._landed: list[Landed] = []
        self._accepted_scopes: set[Scope] = set()
        self.not_asked = 0
        self.failures: dict[Window, LeadsPipelineError] = {}

    @property
    def size(self) -> int:
        """How many windows are asked for."""
        return len(self._windows)

    def _not_shown(self, partitions: Partitions) -> set[Window]:
        """Return the windows that Dagster doesn't show as landed."""
        context, keys = self._context, {window.partition_key: window for window in self._rows}
        statuses = context.instance.get_status_by_partition(context.asset_key, list(keys), partitions.windows) or {}
        shown = {key for key, status in statuses.items() if status is not None and status.value != "FAILED"}
        return {window for key, window in keys.items() if key not in shown}

    def records(self, leads: LeadsService) -> Iterator[Record]:
        """Pull, and yield what Dagster is to show."""
        log, kind, began, is_silent = self._context.log, self._kind.name, time.monotonic(), True
        days = f", {self._windows[0].day} to {self._windows[-1].day}" if self._windows else ""
        log.info("Pulling %s windows of %s leads%s.", len(self._windows), kind, days)
        now, not_asked_for = self._clock(), self._to_be_shown.difference(self._windows)
        landed_before = [row for row in self._rows.values() if row.looked_at is not None and row.failure is None]
        # A killed run may have landed them, or a person's run may have failed for windows that had landed before.
        shown_wrongly = [row for row in self._rows.values() if row.window in not_asked_for and row.has_its_looks(now)]
        try:
            for record in chain(map(self._landed_before, shown_wrongly), self._pulled(leads)):
                yield record
                is_silent = False
        except DagsterExecutionInterruptedError:
            log.warning("Cancelled. %s of %s leads landed and stay.", counted(len(self._landed), "window"), kind)
            raise
        if is_silent and landed_before and not self.failures:
            yield self._landed_before(landed_before[0])  # Dagster calls a run without any materialization failed
        log.info(
            "Landed %s windows of %s leads, %s new and %s changed, in %.1f s. Failed: %s. Not asked for: %s.",
            *(len(self._landed), kind),
            *(sum(landed.new for landed in self._landed), sum(landed.changed for landed in self._landed)),
            *(time.monotonic() - began, len(self.failures), self.not_asked),
        )

    def _pulled(self, leads: LeadsService) -> Iterator[Record]:
        left = dict.fromkeys(self._windows)
        token_refused: dict[Window, TokenRefusedError] = {}
        try:
            for window, outcome in leads.connect().fetch_windows(self._kind, self._windows, self._land):
                del left[window]
                if isinstance(outcome, TokenRefusedError):
                    token_refused[window] = outcome  # the end of the run shows what that means
                    continue
                if isinstance(outcome, LeadsPipelineError):
                    yield from self._failed(window, outcome)
                    continue
                self._landed.append(outcome[1])
                if self._is_news(*outcome):
                    yield self._materialization(window, _metadata(*outcome))
        except LeadsPipelineError as error:  # nothing can be asked for
            for window in left:
                yield from self._failed(window, error)
        yield from self._settled(token_refused)

    def _settled(self, token_refused: Mapping[Window, TokenRefusedError]) -> Iterator[Record]:
        """Decide what the answers of 401 mean, and note them as failures."""
        asked_scopes = {window.scope for window, error in token_refused.items() if error.attempts}
        refused_since = tokens_refused_since(self._rows.values())
        for window, error in token_refused.items():
            scope = window.scope
            if scope not in asked_scopes:  # the run ended before
                yield from self._failed(window, error)
                continue
            verdict = settled(
                error,
                f"{self._kind.name} leads of {scope.key}",
                was_accepted=scope in self._accepted_scopes,
                refused_since=refused_since.get(scope),
            )
            yield from self._failed(window, verdict)

    def _land(self, answer: Answer) -> tuple[Answer, Landed]:
        window, raw, run_id = answer.window, self._data.raw, self._context.run.run_id
        self._accepted_scopes.add(window.scope)
        members = [f"{self._kind.name}/{member}" for member in answer.unknown_members]
        self._data.state.note_unknown_members(members)
        if answer.failure is not None:
            raw.add(place_of(self._kind, window), answer.leads, answer.fetched_at, PULL, run_id)
            answer.failure.attempts = answer.attempts
            raise answer.failure
        row = self._rows[window]
        landed = raw.land(
            *(self._kind, window, answer.leads, answer.fetched_at, answer.body_sha256, run_id),
            is_fresh=row.looked_at is None and not row.leads and row.failure is None,
        )
        return answer, landed

    def _is_news(self, answer: Answer, landed: Landed) -> bool:
        """Whether the window has something that Dagster doesn't show yet."""
        window, looked_at = answer.window, self._rows[answer.window].looked_at
        if window in self._to_be_shown or looked_at is None or landed.new or landed.changed:
            return True
        return looked_at < window.end <= answer.fetched_at

    def _failed(self, window: Window, error: LeadsPipelineError) -> Iterator[Record]:
        """Note a failure in the window's folder, and show it in Dagster."""
        row = self._rows[window]
        if isinstance(error, RetentionError) and row.state in (WindowState.LANDED, WindowState.EMPTY):
            yield self._landed_before(row)
            return
        # A refused credential is a verdict on each window, asked for or not: it would be refused again.
        if not error.attempts and not isinstance(error, StorageError | PermanentError):
            self.not_asked += 1  # the run ended early, and the window waits as before
            return
        self.failures[window] = error
        if not isinstance(error, RetentionError):
            with suppress(StorageError):  # on a full disk. The run's own failure says so
                place = place_of(self._kind, window)
                self._data.raw.fail(place, error.reason, str(error), is_permanent=not error.is_transient)
        if self._config.partition_keys:
            show_as_planned(self._context, window.partition_key)
        verdict = "temporary" if error.is_transient else "refused"
        metadata = {"verdict": verdict, "reason": error.reason, "error": str(error)}
        yield AssetObservation(self._context.asset_key, partition=window.partition_key, metadata=metadata)

    def _materialization(self, window: Window, metadata: dict[str, str | int | float]) -> AssetMaterialization:
        return AssetMaterialization(self._context.asset_key, partition=window.partition_key, metadata=metadata)

    def _landed_before(self, row: WindowRow) -> AssetMaterialization:
        return self._materialization(row.window, {"dagster/partition_row_count": row.leads})

    def failure(self) -> Failure:
        """Say how many windows failed and why, by reason. The first few are named, the first one is linked."""
        branches = readable_branches(self._settings.branches_file)
        by_reason: dict[str, list[str]] = defaultdict(list)
        messages: dict[str, str] = {}
        for window, error in sorted(self.failures.items()):
            by_reason[error.reason].append(branches.shown_window(window.partition_key))
            messages.setdefault(error.reason, str(error))
        lines = [f"{len(self.failures)} of {len(self._windows)} windows failed."]
        if self.not_asked:
            lines.append(f"The run ended early. {self.not_asked} windows were not asked for, and are as before.")
        for reason, named in sorted(by_reason.items(), key=lambda item: -len(item[1])):
            lines.append(f"{reason}: {len(named)} ({some(named)}). {messages[reason]}")
        is_temporary = all(error.is_transient for error in self.failures.values())
        runbook = f"`{explanation('windows-failing' if is_temporary else 'windows-refused')}`"
        now = self._clock()
        with suppress(StorageError):
            lines += what_comes_next(window_table(self._data.store, self._kind, self.failures, now), now)
        lines.append(f"What to do: {runbook}")
        metadata: dict[str, MetadataValue] = {"runbook": MetadataValue.md(runbook)}
        if self.failures:
            page = urlencode({"partition": min(self.failures).partition_key})
            metadata["partition"] = MetadataValue.url(f"/assets/{self._context.asset_key.to_user_string()}?{page}")
        return Failure("\n".join(lines), metadata=metadata, allow_retries=False)


def tokens_refused_since(rows: Iterable[WindowRow]) -> dict[Scope, datetime]:
    """Return the scopes of one kind whose newest answers are all 401, with the moment in UTC of the first of these."""
    rows = list(rows)
    looked_at: dict[Scope, datetime] = {}
    for row in rows:
        if row.looked_at is not None:
            scope = row.window.scope
            looked_at[scope] = max(row.looked_at, looked_at.get(scope, row.looked_at))

    refused_since: dict[Scope, datetime] = {}
    for row in rows:
        if row.failure is None or row.failure.reason != TokenRefusedError.default_reason:
            continue
        scope, failed_at = row.window.scope, row.failure.failed_at
        is_newest = scope not in looked_at or looked_at[scope] < failed_at
        if is_newest:
            refused_since[scope] = min(failed_at, refused_since.get(scope, failed_at))
    return refused_since


def _metadata(answer: Answer, landed: Landed) -> dict[str, str | int | float]:
    window = answer.window
    return {
        "dagster/partition_row_count": landed.leads,
        "new": landed.new,
        "changed": landed.changed,
        "refused": landed.refused,
        "bytes": answer.body_bytes,
        "window": f"{window.start:%Y-%m-%dT%H:%MZ}/{window.end:%Y-%m-%dT%H:%MZ}",
        "requests": answer.attempts,
        "duration_seconds": round(answer.duration_seconds, 3),
        "state": state_of(window, answer.fetched_at),
    }
