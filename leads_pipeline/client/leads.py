"""The leads client: from "this window, please" to an answer or an error of the right kind."""

import asyncio
import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from functools import partial

import httpx

from leads_pipeline.client.background import Outbox, in_background
from leads_pipeline.client.pieces import MAX_HOPELESS_PIECES, MAX_PIECES, SHORTEST_PIECE, halves, joined, stretches
from leads_pipeline.client.run import AskForLessError, Run
from leads_pipeline.client.service import DEADLINE_SECONDS, MAX_BODY_BYTES, FetchStats, RequestSpec, Service, Timing
from leads_pipeline.client.verdicts import turns_away
from leads_pipeline.contract import Answer, LeadKind, ReceivedLead, read_leads, window_parameters
from leads_pipeline.errors import LeadsPipelineError, RetentionError, TooLargeError
from leads_pipeline.retry import RetryPolicy
from leads_pipeline.settings import MEBIBYTE
from leads_pipeline.window import RETENTION, ScopeKind, Window

_LEADS_401 = (
    "The token is refused even after a renewal. Check LEADS_CLIENT_ID and its secret, and LEADS_AUDIENCE or "
    "LEADS_TOKEN_SCOPE; then ask the portal's technical contact whether the credentials are still valid."
)
_LEADS_413 = "The service calls even the shortest piece of a window too large; tell the portal's technical contact."


class LeadsClient:
    """Fetches windows of leads.

    `next_sequence` gives each request its place in the order of receipt (Lake.next_sequence). `transport` stands in for
    the network in tests. Proxies come from the environment as everywhere (HTTPS_PROXY, NO_PROXY); credentials never do.
    """

    def __init__(
        self,
        base_url: str,
        auth: httpx.Auth,
        *,
        max_concurrency: int,
        next_sequence: Callable[[], int] | None = None,
        policy: RetryPolicy = RetryPolicy(),  # noqa: B008 - frozen
        transport: httpx.AsyncBaseTransport | None = None,
        timing: Timing | None = None,
        deadline_seconds: float = DEADLINE_SECONDS,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self._service = Service(
            base_url=base_url.rstrip("/"),
            auth=auth,
            policy=policy,
            timing=timing or Timing(),
            transport=transport,
            max_concurrency=max_concurrency,
            deadline_seconds=deadline_seconds,
            max_body_bytes=max_body_bytes,
            next_sequence=next_sequence,
        )

    @property
    def stats(self) -> FetchStats:
        """Requests, retries, waiting and bytes since the client was made."""
        return self._service.stats

    def fetch_windows(
        self, kind: LeadKind, windows: Sequence[Window]
    ) -> Iterator[tuple[Window, Answer | LeadsPipelineError]]:
        """Fetch windows side by side and yield each as it finishes, with its answer or with why there is none.

        An answer that has a `failure` holds what came of the window, and not all of it.

        Windows start in the given order, at most `max_concurrency` at a time, each over its own kept connection, at one
        pace and with one retry budget. At most twice `max_concurrency` answers are held, so a slow consumer holds the
        fetching back. Closing the iterator cancels what is under way.

        Some failures hold for the whole run: a refused credential, a service that asks for more patience than the
        policy has, a host that can't be reached at all. After one, the windows left get that error unasked.
        """
        return in_background(partial(self._fetch_all, kind, windows), capacity=2 * self._service.max_concurrency)

    async def _fetch_all(
        self, kind: LeadKind, windows: Sequence[Window], outbox: "Outbox[tuple[Window, Answer | LeadsPipelineError]]"
    ) -> None:
        run = Run(self._service)
        left = iter(windows)

        async def work() -> None:
            async with run.connection() as http:
                while True:
                    await outbox.has_room()
                    window = next(left, None)
                    if window is None:
                        return
                    outbox.put((window, await self._fetch(run, http, kind, window)))

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._service.max_concurrency, len(windows))):
                group.create_task(work())

    async def _fetch(
        self, run: "Run", http: httpx.AsyncClient, kind: LeadKind, window: Window
    ) -> Answer | LeadsPipelineError:
        if window.is_deleted(self._service.timing.now()):
            return RetentionError(
                f"The window {window.partition_key} was not asked for: the portal keeps leads for {RETENTION.days} "
                "days, and it is wholly older. What was landed of it stays; there is nothing left to fetch."
            )
        answer = await self._gather(run, http, kind, window)
        return answer.failure if answer.failure and not answer.leads else answer

    async def _gather(self, run: "Run", http: httpx.AsyncClient, kind: LeadKind, window: Window) -> Answer:
        """The window's answer: in one, or put together from pieces of it."""
        began = self._service.timing.monotonic()
        to_ask = [window]  # the earliest last
        missing: list[tuple[Window, LeadsPipelineError]] = []
        leads: list[Collection[ReceivedLead]] = []
        moments: list[datetime] = []
        sequences: list[int] = []
        whole: str | None = None  # the request that was answered with all of it
        digest = hashlib.sha256()
        requests = body_bytes = 0
        failures = 0  # since something was answered
        while to_ask:
            piece = to_ask.pop()
            try:
                fetched = await run.fetch(http, _window_spec(kind, window, piece), partial(read_leads, kind), failures)
            except AskForLessError as less:
                requests += less.attempts
                if len(leads) + len(missing) + len(to_ask) + 2 <= MAX_PIECES:
                    failures = less.failures
                    to_ask += reversed(halves(piece))
                    continue
                error = less.verdict
            except LeadsPipelineError as verdict:
                requests += verdict.attempts
                error = verdict
            else:
                requests += fetched.attempts
                failures = 0
                leads.append(fetched.value)
                moments.append(fetched.fetched_at)
                sequences += [fetched.sequence] if fetched.sequence is not None else []
                whole = fetched.request if piece == window else None
                body_bytes += len(fetched.body)
                digest.update(fetched.body)
                continue
            missing.append((piece, error))
            if turns_away(error) or (not leads and (error.is_transient or len(missing) == MAX_HOPELESS_PIECES)):
                break  # it isn't the piece's fault; else the others are fetched all the same
            failures = self._service.policy.max_attempts - 1 if error.is_transient else 0
        leads_once = joined(leads)
        return Answer(
            kind=kind,
            window=window,
            leads=leads_once,
            fetched_at=min(moments, default=self._service.timing.now()),  # later ones may be missing in earlier pieces
            request=whole or run.address(_window_spec(kind, window, window)).raw_path.decode(),
            body_sha256=digest.hexdigest(),
            body_bytes=body_bytes,
            attempts=requests,
            duration_seconds=self._service.timing.monotonic() - began,
            sequence=min(sequences, default=None),  # like the moment
            failure=self._failure(window, missing, to_ask, len(leads_once), requests) if missing else None,
        )

    def _failure(
        self,
        window: Window,
        missing: Sequence[tuple[Window, LeadsPipelineError]],
        unasked: Sequence[Window],
        leads: int,
        requests: int,
    ) -> LeadsPipelineError:
        """Why these pieces of the window are missing. What can pass comes first: it is asked for again sooner."""
        piece, verdict = next((one for one in missing if one[1].is_transient), missing[0])
        text = verdict.args[0]
        if isinstance(verdict, TooLargeError):
            limit = f"{self._service.max_body_bytes / MEBIBYTE:g}"
            text = (
                f"The window {window.partition_key} holds more than fits: it was asked for in pieces, and the one from "
                f"{piece.start:%H:%M} to {piece.end:%H:%M} UTC still has more than the {limit} MB that an answer may "
                "have. What was landed before stays as it is. Raise LEADS_MAX_BODY_MB; it is then asked for again at "
                "once."
            )
        if leads:
            rest = stretches([*(piece for piece, _ in missing), *unasked])
            text = (
                f"{leads} leads of the window {window.partition_key} came and are kept. It isn't landed before the "
                f"rest has come, of {rest} UTC. {text}"
            )
        return verdict.reworded(text, requests)


def _window_spec(kind: LeadKind, window: Window, piece: Window) -> RequestSpec:
    about = f"the window {window.partition_key}"
    if piece != window:
        about += f", {piece.start:%Y-%m-%dT%H:%M:%SZ} to {piece.end:%Y-%m-%dT%H:%M:%SZ} of it"
    return RequestSpec(
        path=kind.path,
        parameters=window_parameters(piece),
        about=about,
        hints={401: _LEADS_401, 403: _scope_hint(window), 413: _LEADS_413},
        is_divisible=piece.end - piece.start > SHORTEST_PIECE,
    )


def _scope_hint(window: Window) -> str:
    if window.scope.kind is ScopeKind.ALL:
        return (
            "LEADS_SCOPES=all asks without a filter, which only a set-up with a single branch allows. Name the "
            "branches, or ask the portal's technical contact."
        )
    return (
        f"Check that {window.scope.key} is an internal id of the portal, not your own, and that these credentials may "
        "read it; the portal's technical contact knows."
    )
