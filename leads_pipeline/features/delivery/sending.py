"""Sending due versions to the agency's endpoint, and the meaning of its answers.

Belongs here: one pass over the ready versions, waiting after a failure, the end of a pass. Doesn't: which versions are
due (due.py), the message (message.py), when a pass is made.
"""

import asyncio
import hashlib
import random
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from leads_pipeline.domain.window import today
from leads_pipeline.errors import SettingsError, StorageError
from leads_pipeline.features.delivery.due import note_due, read_each, version_of
from leads_pipeline.features.delivery.ledger import Ledger, Version, writing_ledger
from leads_pipeline.features.delivery.message import body_of, headers_of, signer
from leads_pipeline.features.delivery.settings import DeliverySettings
from leads_pipeline.portal.credentials import read_secret
from leads_pipeline.portal.http import checked_address, checked_header, make_async_client, tls_context
from leads_pipeline.portal.http_library import httpx
from leads_pipeline.portal.pace import parse_retry_after
from leads_pipeline.portal.verdicts import UNUSABLE_ADDRESS, why_no_connection
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.names import Place
from leads_pipeline.raw.rows import LandedVersion
from leads_pipeline.settings import Settings
from leads_pipeline.warehouse.current_leads import typed_leads

# Requests at once, and how long each may take as a whole.
CONCURRENCY: Final = 4
TIMEOUT_SECONDS: Final = 15.0
# Versions whose texts are read together.
_AT_ONCE: Final = 100

# How long a version is tried.
PATIENCE: Final = timedelta(days=3)
_FIRST_WAIT_SECONDS: Final = 10.0
_LONGEST_WAIT_SECONDS: Final = 3600.0

# After this many failures of the endpoint in a row, nothing is sent for a while.
_AWAY_AFTER: Final = 5
_LONGEST_PAUSE_SECONDS: Final = 300.0

# Answers that are about the one lead. All other failures are the endpoint's.
_OF_THE_LEAD: Final = {400, 409, 413, 415, 422}

# The facts of the ledger about an endpoint that fails.
_TROUBLE: Final = ("trouble", "pause_until", "pauses")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address that leads are delivered to. Its `repr` shows no secret."""

    url: str = field(repr=False)
    secret: str = field(repr=False)
    authorization: str | None = field(repr=False)
    host: str

    @classmethod
    def of(cls, settings: Settings) -> "Endpoint | None":
        """Return the endpoint of the settings, None if delivery is off. Raises SettingsError and CredentialsError."""
        given = settings.of(DeliverySettings)
        url, secret = given.delivery_url, given.delivery_secret
        if bool(url) != bool(secret):
            raise SettingsError("LEADS_DELIVERY_URL and LEADS_DELIVERY_SECRET go together. Set both, or none.")
        if url is None or secret is None:
            return None
        address = read_secret(url).strip()
        parts = checked_address("LEADS_DELIVERY_URL", address)
        header, key = given.delivery_authorization, read_secret(secret)
        signer(key)
        authorization = checked_header("LEADS_DELIVERY_AUTHORIZATION", read_secret(header)) if header else None
        return cls(address, key, authorization, parts.hostname or "")


@dataclass(slots=True)
class Sent:
    """The result of a pass. `trouble` is the endpoint's last failure in words.

    `left` versions aren't delivered, held and given up ones among them.
    """

    delivered: int = 0
    failed: int = 0
    left: int = 0
    trouble: str | None = None


class _Outcome(NamedTuple):
    version: Version
    status: int | None = None
    trouble: str | None = None
    retry_after: float | None = None

    @property
    def is_of_the_lead(self) -> bool:
        return self.status in _OF_THE_LEAD


def deliver(
    settings: Settings,
    data: DataFolder,
    endpoint: Endpoint,
    *,
    is_all: bool = False,
    first_day: date | None = None,
    seconds: float = float("inf"),
    patience_seconds: float = 60.0,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    transport: httpx.AsyncBaseTransport | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Sent:
    """Send what is due, for at most that many seconds.

    With `is_all`, it sends what waits for a later attempt too, each version once. Without a `first_day`, leads count
    from that of the settings on, or from the day of the first delivery.

    Raises StorageError, also if another process delivers for longer than `patience_seconds`. The error of a window that
    can't be read is raised after what is due in the others was sent.
    """
    begun = time.monotonic()
    with (
        data.state.lock("delivery", timeout_seconds=patience_seconds),
        writing_ledger(data.folder) as ledger,
    ):
        sent, sender = Sent(), _Sender(data, endpoint, settings.zone, clock, transport, timeout_seconds)
        _note_address(ledger, endpoint)
        _note_day(ledger, clock())
        first = first_day or settings.of(DeliverySettings).delivery_from
        first = first or data.state.remember_day("delivery_from", today(settings.zone, clock()))
        sender.error = note_due(data, ledger, first, clock(), begun + seconds / 2)
        if is_all:
            ledger.set_fact("pause_until", None)
            ledger.wake()
        if not _is_paused(ledger, clock()):
            _send(ledger, sender, sent, begun + seconds, clock)
        sent.left = sum(count for state, count in ledger.counts().items() if state != "delivered")
        sent.trouble = sent.trouble or ledger.fact("trouble")
    if sender.error:
        raise sender.error
    return sent


def _note_address(ledger: Ledger, endpoint: Endpoint) -> None:
    """Forget the endpoint's trouble if its address has changed."""
    address = hashlib.sha256(endpoint.url.encode()).hexdigest()
    if ledger.fact("address") != address:
        for name in ("gone", *_TROUBLE):
            ledger.set_fact(name, None)
        ledger.set_fact("address", address)


def _note_day(ledger: Ledger, now: datetime) -> None:
    """Days on which nobody sends don't count among the three for which a version is tried."""
    before, day = ledger.fact("sent_on"), now.date()
    if before != day.isoformat():
        days_off = (day - date.fromisoformat(before)).days - 1 if before else 0
        ledger.postpone(timedelta(days=max(days_off, 0)), now.timestamp())
        ledger.set_fact("sent_on", day.isoformat())


def _is_paused(ledger: Ledger, now: datetime) -> bool:
    left = float(ledger.fact("pause_until") or 0) - now.timestamp()
    # A longer pause is of a clock that ran ahead.
    return ledger.fact("gone") is not None or 0 < left <= 2 * _LONGEST_WAIT_SECONDS


def _send(ledger: Ledger, sender: "_Sender", sent: Sent, until: float, clock: Callable[[], datetime]) -> None:
    tried: set[tuple[str, str, str]] = set()
    while time.monotonic() < until:
        ready = [version for version in ledger.ready(clock().timestamp(), _AT_ONCE) if version[:3] not in tried]
        if not ready:
            return
        sender.data.gate.refresh()  # another machine with the same bucket may have erased somebody
        tried.update(version[:3] for version in ready)
        in_a_row = 0
        for outcomes in sender.send(ledger, ready):
            for outcome in outcomes:
                in_a_row = _note(ledger, outcome, sent, in_a_row, sender.endpoint.host, clock())
            ledger.commit()
            is_gone = any(outcome.status == HTTPStatus.GONE for outcome in outcomes)
            if is_gone or in_a_row >= _AWAY_AFTER:
                _note_away(ledger, outcomes[-1], clock(), is_gone=is_gone)
                return
            if time.monotonic() > until:
                return


def _note(ledger: Ledger, outcome: _Outcome, sent: Sent, in_a_row: int, host: str, now: datetime) -> int:
    """Note an outcome. Return how many failures in a row were the endpoint's own."""
    if outcome.trouble is not None:
        sent.failed += 1
        sent.trouble = outcome.trouble
        _note_failure(ledger, outcome, now)
        return in_a_row if outcome.is_of_the_lead else in_a_row + 1
    sent.delivered += 1
    ledger.delivered(outcome.version, host, now.timestamp())
    if ledger.fact("pauses"):
        ledger.wake()
    for name in _TROUBLE:
        ledger.set_fact(name, None)
    return 0


def _note_failure(ledger: Ledger, outcome: _Outcome, now: datetime) -> None:
    version = outcome.version
    wait = _wait_seconds(version.attempts, _LONGEST_WAIT_SECONDS, outcome.retry_after)
    if version.attempts == 0:
        ledger.tried(version, now.timestamp())
    is_dead = version.attempts > 0 and now - datetime.fromtimestamp(version.due_at, UTC) > PATIENCE
    ledger.failed(version, outcome.trouble or "", now.timestamp() + wait, is_dead=is_dead)
    if not outcome.is_of_the_lead:
        ledger.set_fact("trouble", outcome.trouble)


def _note_away(ledger: Ledger, outcome: _Outcome, now: datetime, *, is_gone: bool) -> None:
    """Send nothing for a while, longer each time. After 410, until `deliver retry`."""
    if is_gone:
        ledger.set_fact("gone", now.isoformat())
    pauses = int(ledger.fact("pauses") or 0)
    pause = _wait_seconds(pauses, _LONGEST_PAUSE_SECONDS, outcome.retry_after)
    ledger.set_fact("pause_until", str(now.timestamp() + pause))
    ledger.set_fact("pauses", str(pauses + 1))
    ledger.commit()


def _wait_seconds(failures: int, longest: float, retry_after: float | None) -> float:
    """Full jitter, at least what the endpoint asks for, and no more than an hour."""
    jitter = random.uniform(0, min(longest, _FIRST_WAIT_SECONDS * 2**failures))  # noqa: S311 - jitter
    return min(max(jitter, retry_after or 0), _LONGEST_WAIT_SECONDS)


@dataclass
class _Sender:
    """Posts versions, several at once. `error` is that of a window that can't be read."""

    data: DataFolder
    endpoint: Endpoint
    zone: ZoneInfo
    clock: Callable[[], datetime]
    transport: httpx.AsyncBaseTransport | None
    timeout_seconds: float
    error: StorageError | None = None

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return tls_context()  # reading the certificates takes as long as twenty messages

    def send(self, ledger: Ledger, versions: Sequence[Version]) -> Iterator[list[_Outcome]]:
        """Post these versions. The ledger drops those that raw no longer has.

        The suppression list is read before each group of messages. If it has grown, the rest waits for the next pass.
        """
        number = self.data.gate.newest_entry
        messages = list(self._bodies(ledger, versions).items())
        with asyncio.Runner() as loop:
            http = make_async_client(CONCURRENCY, transport=self.transport, tls=self._tls)
            try:
                for first in range(0, len(messages), CONCURRENCY):
                    if self.data.gate.newest_entry != number:
                        return
                    yield loop.run(self._post_all(http, messages[first : first + CONCURRENCY]))
            finally:
                loop.run(http.aclose())

    def _bodies(self, ledger: Ledger, versions: Sequence[Version]) -> dict[Version, bytes]:
        wanted = {(one.kind, one.day, one.scope, one.lead_id): one for one in versions}  # one of each lead is ready
        found: dict[Version, bytes] = {}
        for window, read in read_each(self.data, {key[:3] for key in wanted}):
            here = [version for key, version in wanted.items() if key[:3] == window]
            if isinstance(read, StorageError):
                self.error = read
                for unread in here:
                    next_at = self.clock().timestamp() + _FIRST_WAIT_SECONDS
                    ledger.failed(unread, "Its raw file can't be read.", next_at, is_dead=False)
                continue
            texts: dict[Version, LandedVersion] = {}
            for landed in read.versions:
                version = wanted.get((*window, landed.lead_id))
                # A lead that was gone from an answer and came back has a higher number since.
                if (
                    version
                    and landed.number >= version.number
                    and version_of(landed) == version.version.partition("-")[0]
                ):
                    texts.setdefault(version, landed)
            if gone := set(here) - texts.keys():
                damaged = {file.place for file in self.data.quarantine.files()}
                for version in gone:
                    ledger.drop(version, is_damaged=Place(read.kind, read.day, read.scope) in damaged)
            leads: list[Any] = typed_leads(read.kind, texts.values()).to_pylist()
            for (version, landed), lead in zip(texts.items(), leads, strict=True):
                is_update = ledger.has_earlier(version)
                found[version] = body_of(read.kind, version, landed, lead, self.zone, is_update=is_update)
        return {version: found[version] for version in versions if version in found}

    async def _post_all(self, http: httpx.AsyncClient, messages: list[tuple[Version, bytes]]) -> list[_Outcome]:
        return await asyncio.gather(*(self._post(http, version, body) for version, body in messages))

    async def _post(self, http: httpx.AsyncClient, version: Version, body: bytes) -> _Outcome:
        url, headers = self.endpoint.url, headers_of(signer(self.endpoint.secret), version, body, self.clock())
        if self.endpoint.authorization:
            headers["authorization"] = self.endpoint.authorization
        try:
            # The answer's body stays unread: it can repeat what the lead says.
            async with (
                asyncio.timeout(self.timeout_seconds),
                http.stream("POST", url, content=body, headers=headers, timeout=None) as answer,
            ):
                return _outcome(version, answer, self.clock())
        except TimeoutError:
            return _Outcome(version, trouble=f"gave no answer within {self.timeout_seconds:g} seconds")
        except (httpx.ConnectError, httpx.ProxyError) as error:
            return _Outcome(version, trouble=f"can't be reached: {why_no_connection(error)}")
        except httpx.TransportError as error:
            return _Outcome(version, trouble=f"gave no answer ({type(error).__name__})")
        except UNUSABLE_ADDRESS:
            return _Outcome(version, trouble="can't be called: LEADS_DELIVERY_URL isn't an address. Copy it again.")


def _outcome(version: Version, answer: httpx.Response, now: datetime) -> _Outcome:
    status = answer.status_code
    if answer.is_success:
        return _Outcome(version, status)
    patience = parse_retry_after(answer.headers.get("retry-after"), now)
    return _Outcome(version, status, _trouble(answer), patience)


def _trouble(answer: httpx.Response) -> str:
    status = answer.status_code
    if answer.is_redirect:
        where = "?"
        with suppress(ValueError):
            where = urlsplit(str(answer.extensions.get("location") or "")).hostname or where
        return f"answers with a redirect ({status}) to {where}, and none is followed. Correct LEADS_DELIVERY_URL."
    if status == HTTPStatus.GONE:
        return "is gone (410). Nothing more is sent until `leads-pipeline deliver retry`."
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return f"refuses the sender ({status}). Check LEADS_DELIVERY_SECRET and LEADS_DELIVERY_AUTHORIZATION."
    kind = answer.headers.get("content-type", "no content")[:20]
    return f"answered {status} ({kind})"
