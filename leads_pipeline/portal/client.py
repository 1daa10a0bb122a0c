"""The leads client: fetches windows. The result of each is an answer or an error."""

import hashlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeVar

from leads_pipeline.domain.bodies import CutAnswer, cut_leads
from leads_pipeline.domain.contract import Answer, LeadKind, ReceivedLead, window_parameters
from leads_pipeline.domain.window import RETENTION, ScopeKind, Window
from leads_pipeline.errors import (
    InvalidAnswerError,
    LeadsPipelineError,
    RetentionError,
    StorageError,
    UnreachableError,
)
from leads_pipeline.portal.run import Fetched, Requests, RequestSpec, Service
from leads_pipeline.portal.verdicts import CHECK_ACCESS, DEADLINE_PASSED, LATER, is_too_much

# A window that is too large or too slow is asked for in parts of this length.
PIECE: Final = timedelta(hours=1)
# After so many failed hours in a row the others wait for the next run.
MAX_FAILED_HOURS: Final = 3
# More threads than requests at once: they land answers meanwhile.
LANDING_THREADS: Final = 4
# How long a run that ends waits for landings under way. It doesn't wait for requests.
STOP_SECONDS: Final = 5.0
# For longer, no window of a run takes to come or to fail, by hours and with all its waits. Only
# headers that arrive byte by byte can hold a request for longer than its deadline.
STANDSTILL_SECONDS: Final = 6 * 3600.0

_LEADS_401 = f"If it stays so for an hour: {CHECK_ACCESS}"
_LEADS_413 = "The service refuses even one hour as too large. Tell the portal's technical contact."

T = TypeVar("T")


class LeadsClient:
    """Fetches windows of leads.

    `keep_unreadable` takes an answer that can't be read, with its window. Proxies come from the
    environment (HTTPS_PROXY, NO_PROXY).
    """

    def __init__(
        self,
        service: Service,
        *,
        max_concurrency: int,
        keep_unreadable: Callable[[LeadKind, Window, bytes], None] | None = None,
        standstill_seconds: float = STANDSTILL_SECONDS,
    ) -> None:
        self._service = service
        self._max_concurrency = max_concurrency
        self._turn = threading.Lock()
        self._keep_unreadable = keep_unreadable
        self._standstill_seconds = standstill_seconds

    @property
    def requests_made(self) -> int:
        """The requests since the client was made, without those for tokens."""
        return self._service.requests_made

    def fetch_windows(
        self, kind: LeadKind, windows: Sequence[Window], then: Callable[[Answer], T]
    ) -> Iterator[tuple[Window, T | LeadsPipelineError]]:
        """Fetch windows in parallel, and yield each when it is done.

        With it comes the result of `then` on its answer, or the error. The thread that fetches a
        window also calls `then`, which may wait for a disk. At most `max_concurrency` requests are
        under way. An answer with a `failure` holds only a part of the window's leads.

        Windows start in the given order. Closing the iterator ends the run, and waits some seconds
        for a `then` that has begun. Raises UnreachableError if the service keeps all connections
        busy for hours with nothing.
        """
        run = Requests(
            self._service,
            at_once=self._max_concurrency,
            scopes=len({window.scope for window in windows}),
        )
        left: queue.SimpleQueue[Window] = queue.SimpleQueue()
        done: queue.SimpleQueue[tuple[Window, T | BaseException]] = queue.SimpleQueue()

        for window in windows:
            left.put(window)

        threads = [
            threading.Thread(
                target=self._work, args=(run, kind, left, then, done), name="portal", daemon=True
            )
            for _ in range(min(self._max_concurrency + LANDING_THREADS, len(windows)))
        ]
        try:
            for thread in threads:
                thread.start()
            for _ in windows:
                try:
                    window, outcome = done.get(timeout=self._standstill_seconds)
                except queue.Empty:
                    raise UnreachableError(
                        f"The run stood still for {self._standstill_seconds / 3600:g} hours: "
                        f"answers began and didn't go on. {LATER} If it stays so, check the proxy, "
                        "or tell the portal's technical contact.",
                        reason=DEADLINE_PASSED,
                    ) from None
                if isinstance(outcome, BaseException) and not isinstance(
                    outcome, LeadsPipelineError
                ):
                    raise outcome
                yield window, outcome
        finally:
            run.stop()
            until = time.monotonic() + STOP_SECONDS
            for thread in threads:
                thread.join(max(0.0, until - time.monotonic()))

    def _work(
        self,
        run: Requests,
        kind: LeadKind,
        left: "queue.SimpleQueue[Window]",
        then: Callable[[Answer], T],
        done: "queue.SimpleQueue[tuple[Window, T | BaseException]]",
    ) -> None:
        """Fetch one window after the other, until none is left or the run ends."""
        with closing(run), suppress(queue.Empty):
            while not run.is_stopped:
                # One after the other, so that of a lead in two windows the version counts that was
                # asked for later.
                with self._turn:
                    window = left.get_nowait()
                    asked_at = self._service.timing.now()
                try:
                    answer = self._fetch(run, kind, window, asked_at)
                    if not run.is_stopped:
                        done.put((window, then(answer)))
                except LeadsPipelineError as error:
                    done.put((window, error.with_traceback(None)))
                except BaseException as error:  # noqa: BLE001 - raised where the outcome is read
                    done.put((window, error))

    def _fetch(self, run: Requests, kind: LeadKind, window: Window, asked_at: datetime) -> Answer:
        """Return the window's answer. If the whole is too large or too slow, ask hour by hour."""
        timing = self._service.timing
        began = timing.monotonic()

        if window.is_deleted(timing.now()):
            raise RetentionError(
                f"The window {window.partition_key} was not asked for: it is over {RETENTION.days} "
                "days old, so the portal has deleted it. What was landed of it stays."
            )

        attempts = 0
        failed_hours: list[tuple[Window, LeadsPipelineError]] = []

        try:
            parts = [self._ask(run, kind, window, window, asked_at)]
        except LeadsPipelineError as error:
            if not is_too_much(error):
                raise
            parts, failed_hours = self._ask_by_hours(run, kind, window)
            if not parts:
                verdicts = [error] + [verdict for _, verdict in failed_hours]
                raise next((one for one in verdicts if one.is_transient), error) from None
            attempts = error.attempts + sum(verdict.attempts for _, verdict in failed_hours)

        attempts += sum(part.attempts for part in parts)
        leads = _joined(parts)
        failure = _failure(window, len(leads), failed_hours) if failed_hours else None
        unknown_members = frozenset[str]()
        digest = hashlib.sha256()

        for part in parts:
            digest.update(part.body)
            unknown_members |= part.value.unknown_members

        return Answer(
            window=window,
            leads=leads,
            fetched_at=parts[0].fetched_at,  # a lead of a later part may be missing in the first
            body_sha256=digest.hexdigest(),
            body_bytes=sum(len(part.body) for part in parts),
            attempts=attempts,
            duration_seconds=timing.monotonic() - began,
            failure=failure,
            unknown_members=unknown_members,
        )

    def _ask_by_hours(
        self, run: Requests, kind: LeadKind, window: Window
    ) -> tuple[list[Fetched[CutAnswer]], list[tuple[Window, LeadsPipelineError]]]:
        """Return the hours that were answered, and the errors of those that failed.

        After MAX_FAILED_HOURS failures in a row, the rest isn't asked for.
        """
        parts: list[Fetched[CutAnswer]] = []
        failed_hours: list[tuple[Window, LeadsPipelineError]] = []
        failures_in_a_row = 0

        for hour in _hours(window):
            try:
                parts.append(self._ask(run, kind, window, hour))
                failures_in_a_row = 0
            except LeadsPipelineError as error:
                failed_hours.append((hour, error))
                failures_in_a_row += 1
                if failures_in_a_row == MAX_FAILED_HOURS:
                    break  # it isn't these hours' fault

        return parts, failed_hours

    def _ask(
        self,
        run: Requests,
        kind: LeadKind,
        window: Window,
        piece: Window,
        asked_at: datetime | None = None,
    ) -> Fetched[CutAnswer]:
        about = f"the window {window.partition_key}"
        if piece != window:
            about += f", {piece.start:%Y-%m-%dT%H:%M:%SZ} to {piece.end:%Y-%m-%dT%H:%M:%SZ} of it"

        spec = RequestSpec(
            path=kind.path,
            parameters=window_parameters(piece),
            about=about,
            scope=window.scope.key,
            advice={401: _LEADS_401, 403: _scope_advice(window), 413: _LEADS_413},
        )
        return run.fetch(spec, partial(self._read, kind, window), asked_at)

    def _read(self, kind: LeadKind, window: Window, body: bytes) -> CutAnswer:
        try:
            return cut_leads(kind, body)
        except InvalidAnswerError:
            if self._keep_unreadable is not None:
                with suppress(StorageError):  # the answer's verdict says more
                    self._keep_unreadable(kind, window, body)
            raise


def _failure(
    window: Window, came: int, failed_hours: Sequence[tuple[Window, LeadsPipelineError]]
) -> LeadsPipelineError:
    """Return why hours of the window are missing.

    Temporary failures come first, because they are retried sooner.
    """
    hour, verdict = next((one for one in failed_hours if one[1].is_transient), failed_hours[0])
    message = (
        f"The window {window.partition_key} is too large or too slow for one answer, so it was "
        f"asked for hour by hour. {came} leads came and are kept. The window stays failed until "
        f"the rest has come. For {hour.start:%H:%M} to {hour.end:%H:%M} UTC: {verdict.args[0]}"
    )
    return verdict.reworded(message, attempts=verdict.attempts)


def _joined(parts: Sequence[Fetched[CutAnswer]]) -> tuple[ReceivedLead, ...]:
    """Return the leads of all parts.

    A lead at the turn of an hour is in two parts: the later one counts.
    """
    if len(parts) == 1:
        return parts[0].value.leads
    leads = {
        (lead.lead_id, lead.payload): lead
        for part in reversed(parts)
        for lead in reversed(part.value.leads)
    }
    return tuple(reversed(leads.values()))


def _hours(window: Window) -> list[Window]:
    """Cut the interval into hours. The service includes both ends, so no lead falls between two."""
    count = -(-(window.end - window.start) // PIECE)
    starts = [window.start + number * PIECE for number in range(count)]
    return [replace(window, start=start, end=min(start + PIECE, window.end)) for start in starts]


def _scope_advice(window: Window) -> str:
    if window.scope.kind is ScopeKind.ALL:
        return (
            "LEADS_SCOPES=all asks without a filter, which only a set-up with a single branch "
            "allows. Name the branches, or ask the portal's technical contact."
        )
    return (
        f"Check that {window.scope.key} is an internal id of the portal, not your own, and that "
        "these credentials may read it; the portal's technical contact knows."
    )
