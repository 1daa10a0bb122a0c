"""One run's pull of one kind of leads: the windows, the landing, and what Dagster shows of it.

Belongs here: from partition keys to records of Dagster, and the run's own failure. Doesn't: the
asset (raw_leads.py), HTTP (portal/), files (raw/), when a run starts (asking.py).
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Self
from urllib.parse import urlencode

from dagster import (
    AssetExecutionContext,
    AssetMaterialization,
    AssetObservation,
    DagsterExecutionInterruptedError,
    Failure,
    MetadataValue,
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
from leads_pipeline.health.finding import explanation
from leads_pipeline.health.window_findings import what_comes_next
from leads_pipeline.orchestration.asking import PullConfig, due_windows
from leads_pipeline.orchestration.dagster_compat import show_as_planned
from leads_pipeline.orchestration.partitions import Partitions, requested_keys
from leads_pipeline.portal import LeadsClient
from leads_pipeline.portal.verdicts import verdict_on_refused_token
from leads_pipeline.raw.branches import readable_branches
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.landing import Landed
from leads_pipeline.raw.names import place_of, state_of
from leads_pipeline.raw.rows import PULL
from leads_pipeline.raw.windows import WindowRow, WindowState, window_table, windows_at_portal
from leads_pipeline.settings import Settings
from leads_pipeline.words import counted, some

Record = AssetMaterialization | AssetObservation


# --- which windows --------------------------------------------------------------------------------


class Plan(NamedTuple):
    """The windows of a run.

    `windows` are asked for, in this order. `rows` has what is known of them, and of all others if a
    schedule or a sensor started the run. `always_shown` are windows that Dagster is to show even if
    they have nothing new.
    """

    windows: list[Window]
    rows: dict[Window, WindowRow]
    always_shown: set[Window]

    @classmethod
    def of(
        cls,
        context: AssetExecutionContext,
        config: PullConfig,
        data: DataFolder,
        kind: LeadKind,
        settings: Settings,
        partitions: Partitions,
        now: datetime,
    ) -> Self:
        """Return the run's plan.

        The lock of pulls is held, so nobody else lands meanwhile. Raises StorageError.
        """
        keys = requested_keys(context, partitions.windows, config.partition_keys)
        windows = [Window.from_partition_key(key, settings.zone) for key in keys]
        configured = frozenset(settings.scopes)  # a scope may be gone since the run was queued
        windows = [window for window in windows if window.scope in configured]

        if config.requested_at is None:  # a person asks for exactly these
            rows = window_table(data.store, kind, windows, now)
            return cls(windows, _by_window(rows), always_shown=set(windows))

        rows = windows_at_portal(
            data.store, kind, settings.scopes, settings.zone, partitions.first_day, now
        )
        # Another run may have pulled some meanwhile. The day under way is never due. A refused
        # window that was due when the run was asked for still is, so the moment of the request
        # stands for the start of the service.
        asked_for_at = datetime.fromisoformat(config.requested_at)
        due = set(due_windows(rows, started_at=asked_for_at, now=now))
        windows = [window for window in windows if window in due or not window.is_closed(now)]
        return cls(windows, _by_window(rows), always_shown=_not_shown(context, rows, partitions))


def _by_window(rows: Sequence[WindowRow]) -> dict[Window, WindowRow]:
    return {row.window: row for row in rows}


def _not_shown(
    context: AssetExecutionContext, rows: Sequence[WindowRow], partitions: Partitions
) -> set[Window]:
    """Return the windows that Dagster doesn't show as landed."""
    keys = [row.window.partition_key for row in rows]
    statuses = (
        context.instance.get_status_by_partition(context.asset_key, keys, partitions.windows) or {}
    )
    shown = {
        key for key, status in statuses.items() if status is not None and status.value != "FAILED"
    }
    return {row.window for row in rows if row.window.partition_key not in shown}


# --- the pull -------------------------------------------------------------------------------------


class LandedAnswer(NamedTuple):
    """An answer of the portal, and what landing it did."""

    answer: Answer
    landed: Landed

    @property
    def metadata(self) -> dict[str, str | int | float]:
        """What Dagster shows of it."""
        answer = self.answer
        window = self.answer.window
        return {
            "dagster/partition_row_count": self.landed.leads,
            "new": self.landed.new,
            "changed": self.landed.changed,
            "refused": self.landed.refused,
            "bytes": answer.body_bytes,
            "window": f"{window.start:%Y-%m-%dT%H:%MZ}/{window.end:%Y-%m-%dT%H:%MZ}",
            "requests": answer.attempts,
            "duration_seconds": round(answer.duration_seconds, 3),
            "state": state_of(window, answer.fetched_at),
        }


@dataclass(slots=True, kw_only=True)
class Pull:
    """A pull under way. The lock of pulls is held.

    `failures` has the verdict on each window that failed. `not_asked` counts windows that wait as
    before, because the run ended early.
    """

    context: AssetExecutionContext
    config: PullConfig
    plan: Plan
    data: DataFolder
    kind: LeadKind
    settings: Settings
    clock: Callable[[], datetime]
    failures: dict[Window, LeadsPipelineError] = field(default_factory=dict)
    not_asked: int = 0
    _landed: list[Landed] = field(default_factory=list)
    _accepted_scopes: set[Scope] = field(default_factory=set)

    def records(self, client_of: Callable[[], LeadsClient]) -> Iterator[Record]:
        """Pull, and yield what Dagster is to show."""
        began = time.monotonic()
        self._log_beginning()

        has_shown = False
        try:
            for record in self._all_records(client_of):
                has_shown = True
                yield record
        except DagsterExecutionInterruptedError:
            landed = counted(len(self._landed), "window")
            self.context.log.warning(
                "Cancelled. %s of %s leads landed and stay.", landed, self.kind.name
            )
            raise

        # Dagster calls a run without any materialization failed.
        landed_before = self._landed_before()
        if not has_shown and not self.failures and landed_before:
            yield self._as_landed_before(landed_before[0])
        self._log_end(time.monotonic() - began)

    def _all_records(self, client_of: Callable[[], LeadsClient]) -> Iterator[Record]:
        # A killed run may have landed them, or a person's run may have failed for windows that had
        # landed before.
        now = self.clock()
        not_asked_for = self.plan.always_shown.difference(self.plan.windows)
        for row in self.plan.rows.values():
            if row.window in not_asked_for and row.has_its_fetches(now):
                yield self._as_landed_before(row)

        yield from self._pulled(client_of)

    def _pulled(self, client_of: Callable[[], LeadsClient]) -> Iterator[Record]:
        """Ask for each window, and yield a record if there is something to show."""
        left = dict.fromkeys(self.plan.windows)
        token_refused: dict[Window, TokenRefusedError] = {}

        try:
            for window, outcome in client_of().fetch_windows(
                self.kind, self.plan.windows, self._land
            ):
                del left[window]
                if isinstance(outcome, TokenRefusedError):
                    token_refused[window] = outcome  # the end of the run shows what that means
                elif isinstance(outcome, LeadsPipelineError):
                    yield from self._records_of_error(window, outcome)
                else:
                    yield from self._records_of_landed(outcome)
        except LeadsPipelineError as error:  # the run can't go on, and what is left isn't asked for
            for window in left:
                yield from self._records_of_error(window, error)

        for window, verdict in self._verdicts_on_refused_tokens(token_refused).items():
            yield from self._records_of_error(window, verdict)

    # --- an answer --------------------------------------------------------------------------------

    def _land(self, answer: Answer) -> LandedAnswer:
        """Land an answer.

        The thread that fetched it calls this. Raises the failure of an answer that isn't whole.
        """
        self._accepted_scopes.add(answer.window.scope)
        members = [f"{self.kind.name}/{member}" for member in answer.unknown_members]
        self.data.state.note_unknown_members(members)

        run_id = self.context.run.run_id

        if answer.failure is not None:
            self.data.raw.add(
                place_of(self.kind, answer.window), answer.leads, answer.fetched_at, PULL, run_id
            )
            answer.failure.attempts = answer.attempts
            raise answer.failure

        row = self.plan.rows[answer.window]
        landed = self.data.raw.land(
            self.kind,
            answer.window,
            answer.leads,
            answer.fetched_at,
            answer.body_sha256,
            run_id,
            is_fresh=row.fetched_at is None and not row.leads and row.failure is None,
        )
        return LandedAnswer(answer, landed)

    def _records_of_landed(self, outcome: LandedAnswer) -> Iterator[Record]:
        """Count it, and show it if Dagster doesn't show it yet."""
        self._landed.append(outcome.landed)
        if self._is_news(outcome):
            yield self._materialization(outcome.answer.window, outcome.metadata)

    def _is_news(self, outcome: LandedAnswer) -> bool:
        window = outcome.answer.window
        fetched_at = self.plan.rows[window].fetched_at
        if window in self.plan.always_shown or fetched_at is None:
            return True
        if outcome.landed.new or outcome.landed.changed:
            return True
        # The first fetch after its end: the window is closed now.
        return fetched_at < window.end <= outcome.answer.fetched_at

    # --- a failure --------------------------------------------------------------------------------

    def _verdicts_on_refused_tokens(
        self, token_refused: Mapping[Window, TokenRefusedError]
    ) -> dict[Window, LeadsPipelineError]:
        """Decide what the answers of 401 mean, now that the run is over."""
        asked_scopes = {window.scope for window, error in token_refused.items() if error.attempts}
        refused_since = tokens_refused_since(self.plan.rows.values())

        verdicts: dict[Window, LeadsPipelineError] = {}

        for window, error in token_refused.items():
            scope = window.scope
            verdicts[window] = error
            if scope in asked_scopes:  # else the run ended before
                verdicts[window] = verdict_on_refused_token(
                    error,
                    f"{self.kind.name} leads of {scope.key}",
                    was_accepted=scope in self._accepted_scopes,
                    refused_since=refused_since.get(scope),
                )

        return verdicts

    def _records_of_error(self, window: Window, error: LeadsPipelineError) -> Iterator[Record]:
        """Note the error in the window's folder as its failure, and show it in Dagster.

        A window that landed before the portal deleted it is shown as landed. One that wasn't asked
        for is counted, and waits as before.
        """
        row = self.plan.rows[window]
        is_deleted_there = isinstance(error, RetentionError)
        if is_deleted_there and row.state in (WindowState.LANDED, WindowState.EMPTY):
            yield self._as_landed_before(row)
            return

        # A refused credential is a verdict on each window, asked for or not: it would be refused
        # again.
        if not error.attempts and not isinstance(error, StorageError | PermanentError):
            self.not_asked += 1
            return

        self.failures[window] = error
        if not is_deleted_there:
            with suppress(StorageError):  # on a full disk. The run's own failure says so
                place = place_of(self.kind, window)
                self.data.raw.fail(
                    place, error.reason, str(error), is_permanent=not error.is_transient
                )
        if self.config.partition_keys:
            show_as_planned(self.context, window.partition_key)
        verdict = "temporary" if error.is_transient else "refused"
        metadata = {"verdict": verdict, "reason": error.reason, "error": str(error)}
        yield AssetObservation(
            self.context.asset_key, partition=window.partition_key, metadata=metadata
        )

    # --- what Dagster shows -----------------------------------------------------------------------

    def _materialization(
        self, window: Window, metadata: dict[str, str | int | float]
    ) -> AssetMaterialization:
        return AssetMaterialization(
            self.context.asset_key, partition=window.partition_key, metadata=metadata
        )

    def _as_landed_before(self, row: WindowRow) -> AssetMaterialization:
        return self._materialization(row.window, {"dagster/partition_row_count": row.leads})

    def _landed_before(self) -> list[WindowRow]:
        """Return the windows that had landed when the run began."""
        return [
            row
            for row in self.plan.rows.values()
            if row.fetched_at is not None and row.failure is None
        ]

    def _log_beginning(self) -> None:
        windows = self.plan.windows
        days = f", {windows[0].day} to {windows[-1].day}" if windows else ""
        self.context.log.info(
            "Pulling %s windows of %s leads%s.", len(windows), self.kind.name, days
        )

    def _log_end(self, seconds: float) -> None:
        self.context.log.info(
            "Landed %s windows of %s leads, %s new and %s changed, in %.1f s. Failed: %s. Not "
            "asked for: %s.",
            len(self._landed),
            self.kind.name,
            sum(landed.new for landed in self._landed),
            sum(landed.changed for landed in self._landed),
            seconds,
            len(self.failures),
            self.not_asked,
        )

    def failure(self) -> Failure:
        """Say how many windows failed and why, by reason.

        The first few are named, the first one is linked.
        """
        lines = [f"{len(self.failures)} of {len(self.plan.windows)} windows failed."]
        if self.not_asked:
            lines.append(
                f"The run ended early. {self.not_asked} windows were not asked for, and are as "
                "before."
            )
        lines += self._reasons()

        is_temporary = all(error.is_transient for error in self.failures.values())
        runbook = f"`{explanation('windows-failing' if is_temporary else 'windows-refused')}`"
        now = self.clock()
        with suppress(StorageError):
            lines += what_comes_next(
                window_table(self.data.store, self.kind, self.failures, now), now
            )
        lines.append(f"What to do: {runbook}")

        metadata: dict[str, MetadataValue] = {"runbook": MetadataValue.md(runbook)}
        if self.failures:
            page = urlencode({"partition": min(self.failures).partition_key})
            metadata["partition"] = MetadataValue.url(
                f"/assets/{self.context.asset_key.to_user_string()}?{page}"
            )
        return Failure("\n".join(lines), metadata=metadata, allow_retries=False)

    def _reasons(self) -> list[str]:
        """Return a line for each reason, most frequent first, with its first window's message."""
        branches = readable_branches(self.settings.branches_file)
        named: dict[str, list[str]] = defaultdict(list)
        messages: dict[str, str] = {}
        for window, error in sorted(self.failures.items()):
            named[error.reason].append(branches.shown_window(window.partition_key))
            messages.setdefault(error.reason, str(error))

        most_frequent_first = sorted(named, key=lambda reason: -len(named[reason]))
        return [
            f"{reason}: {len(named[reason])} ({some(named[reason])}). {messages[reason]}"
            for reason in most_frequent_first
        ]


def tokens_refused_since(rows: Iterable[WindowRow]) -> dict[Scope, datetime]:
    """Return one kind's scopes that answered windows with 401 and have landed none since.

    Only the last failure of a window is known. The value is the moment in UTC of the earliest one
    with 401. Failures of other kinds don't count.
    """
    rows = list(rows)
    last_fetches = _last_fetches(rows)

    refused_since: dict[Scope, datetime] = {}
    for row in rows:
        if row.failure is None or row.failure.reason != TokenRefusedError.default_reason:
            continue

        scope = row.window.scope
        failed_at = row.failure.failed_at
        has_landed_since = scope in last_fetches and last_fetches[scope] >= failed_at
        if not has_landed_since:
            refused_since[scope] = min(failed_at, refused_since.get(scope, failed_at))

    return refused_since


def _last_fetches(rows: Iterable[WindowRow]) -> dict[Scope, datetime]:
    last_fetches: dict[Scope, datetime] = {}
    for row in rows:
        if row.fetched_at is not None:
            scope = row.window.scope
            last_fetches[scope] = max(row.fetched_at, last_fetches.get(scope, row.fetched_at))
    return last_fetches
