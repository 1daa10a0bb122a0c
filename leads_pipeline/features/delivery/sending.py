"""Sending due versions to the destinations: one pass, waiting after a failure, its end.

Each destination is sent to in a thread of its own. So one that is dead or slow delays no other.

Belongs here: what is done about each outcome. Doesn't: which versions are due (due.py), requests
(posting.py), the meaning of answers (answers.py), when a pass is made (sensor.py, command.py).
"""

import hashlib
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from leads_pipeline.domain.window import today
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.features.delivery.answers import Outcome
from leads_pipeline.features.delivery.destinations import Destination
from leads_pipeline.features.delivery.due import note_due
from leads_pipeline.features.delivery.events import Events
from leads_pipeline.features.delivery.form import Event, EventType
from leads_pipeline.features.delivery.ledger import (
    DEFAULT,
    Ledger,
    Version,
    copied_ledger,
    lock_name,
    writing_ledger,
)
from leads_pipeline.features.delivery.message import Messages
from leads_pipeline.features.delivery.posting import TIMEOUT_SECONDS, Poster
from leads_pipeline.features.delivery.questions import undelivered
from leads_pipeline.portal.http_library import httpx
from leads_pipeline.portal.tokens import Tokens
from leads_pipeline.raw.branches import readable_branches
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.settings import Settings

# Versions whose texts are read together.
_AT_ONCE: Final = 100

# How long a version is tried.
PATIENCE: Final = timedelta(days=3)
_FIRST_WAIT_SECONDS: Final = 10.0
_LONGEST_WAIT_SECONDS: Final = 3600.0

# After this many failures of the destination in a row, nothing is sent for a while.
_AWAY_AFTER: Final = 5
_LONGEST_PAUSE_SECONDS: Final = 300.0

# The facts of the ledger about a destination that fails.
_FACTS_OF_TROUBLE: Final = ("trouble", "pause_until", "pauses")


@dataclass(slots=True)
class Sent:
    """The result of a pass. `trouble` is the destination's last failure in words.

    `left` versions aren't delivered, held and given up ones among them.
    """

    delivered: int = 0
    failed: int = 0
    left: int = 0
    trouble: str | None = None


def deliver_to_all(
    settings: Settings, data: DataFolder, destinations: Sequence[Destination], **options: Any
) -> dict[str, Sent | LeadsPipelineError]:
    """Deliver to all destinations at once.

    Return what came of each, by name. `options` are those of `deliver`.
    """

    def attempt(destination: Destination) -> Sent | LeadsPipelineError:
        try:
            return deliver(settings, data, destination, **options)
        except LeadsPipelineError as error:
            return error

    with ThreadPoolExecutor(max_workers=max(len(destinations), 1)) as threads:
        results = list(threads.map(attempt, destinations))
    return {
        destination.name: result for destination, result in zip(destinations, results, strict=True)
    }


def deliver(
    settings: Settings,
    data: DataFolder,
    destination: Destination,
    *,
    is_all: bool = False,
    first_day: date | None = None,
    seconds: float = float("inf"),
    patience_seconds: float = 60.0,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    transport: httpx.AsyncBaseTransport | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Sent:
    """Send what is due to a destination, for at most that many seconds.

    With `is_all`, it sends what waits for a later attempt too, each version once. Without a
    `first_day`, leads count from that of the destination on, or from the day of the first delivery.

    Raises StorageError, also if another process delivers for longer than `patience_seconds`. The
    error of a window that can't be read is raised after what is due in the others was sent.
    """
    begun = time.monotonic()
    messages = Messages(
        settings.zone, readable_branches(settings.branches_file), data.state.person_key()
    )
    with (
        data.state.lock(lock_name(destination.name), timeout_seconds=patience_seconds),
        writing_ledger(data.folder, destination.name) as ledger,
    ):
        _note_destination(ledger, destination)
        _postpone_by_days_off(ledger, clock())

        first = first_day or destination.first_day
        # It outlives a ledger that is damaged.
        first = first or data.state.remember_day(
            _first_delivery(destination), today(settings.zone, clock())
        )
        unread = note_due(data, ledger, destination.filter, first, clock(), begun + seconds / 2)
        if is_all:
            ledger.set_fact("pause_until", None)
            ledger.make_all_ready()

        events = Events(data, ledger, messages, clock, unread)
        credentials = destination.form.credentials
        tokens = Tokens(credentials, data.state.path / "tokens") if credentials else None
        poster = Poster(destination.form, clock, tokens, transport, timeout_seconds)
        sending = _Pass(data, ledger, destination, events, poster, clock, until=begun + seconds)
        sent = sending.send()
    if events.error:
        raise events.error
    return sent


def preview(
    settings: Settings, data: DataFolder, destination: Destination, now: datetime
) -> list[tuple[Version, Event]]:
    """Return what a pass would send first, without sending or noting anything.

    Raises StorageError.
    """
    messages = Messages(
        settings.zone, readable_branches(settings.branches_file), data.state.person_key()
    )
    first = destination.first_day or data.state.remembered_day(_first_delivery(destination))
    first = first or today(settings.zone, now)
    with copied_ledger(data.folder, destination.name) as ledger:
        note_due(data, ledger, destination.filter, first, now, until=float("inf"))
        ledger.make_all_ready()
        events = Events(data, ledger, messages, lambda: now).of(
            ledger.ready(now.timestamp(), _AT_ONCE)
        )
    return [(version, event) for version, event in events.items() if destination.wants(event)]


def _note_destination(ledger: Ledger, destination: Destination) -> None:
    """Note if it is told of erasures.

    Forget its trouble if its address has changed, and the ids there if its host has.
    """
    if ledger.fact("host") != destination.form.host:  # a test system has other leads by these ids
        ledger.forget_ids_there()
    ledger.set_fact("tells_erasures", "yes" if destination.form.sends(EventType.ERASED) else "no")
    ledger.set_fact("host", destination.form.host)
    address = hashlib.sha256(destination.form.address.encode()).hexdigest()
    if ledger.fact("address") != address:
        for name in ("gone", *_FACTS_OF_TROUBLE):
            ledger.set_fact(name, None)
        ledger.set_fact("address", address)


def _postpone_by_days_off(ledger: Ledger, now: datetime) -> None:
    """Give waiting versions the days on which nobody sent: each is tried for three days."""
    sent_on = ledger.fact("sent_on")
    day = now.date()
    if sent_on == day.isoformat():
        return

    days_off = (day - date.fromisoformat(sent_on)).days - 1 if sent_on else 0
    ledger.postpone(timedelta(days=max(days_off, 0)), now.timestamp())
    ledger.set_fact("sent_on", day.isoformat())


def _first_delivery(destination: Destination) -> str:
    """Return the name under which the day of the first delivery is remembered."""
    return "delivery_from" if destination.name == DEFAULT else f"delivery_from_{destination.name}"


@dataclass
class _Pass:
    """One pass over the ready versions of a destination.

    It ends `until` then, by time.monotonic.
    """

    data: DataFolder
    ledger: Ledger
    destination: Destination
    events: Events
    poster: Poster
    clock: Callable[[], datetime]
    until: float

    def __post_init__(self) -> None:
        self._sent = Sent()
        self._tried: set[tuple[str, str, str]] = set()
        self._failures_in_a_row = 0
        self._asked_at = 0.0

    def send(self) -> Sent:
        """Send what is ready, each version once."""
        while not self._is_paused() and time.monotonic() < self.until:
            found = self.ledger.ready(self.clock().timestamp(), _AT_ONCE)
            ready = [version for version in found if version.key not in self._tried]
            if not ready:
                break
            self._tried.update(version.key for version in ready)
            if not self._send_these(ready):
                break

        self._sent.left = undelivered(self.ledger)
        self._sent.trouble = self._sent.trouble or self.ledger.fact("trouble")
        return self._sent

    def _is_paused(self) -> bool:
        left = float(self.ledger.fact("pause_until") or 0) - self.clock().timestamp()
        # A longer pause is of a clock that ran ahead.
        return self.ledger.fact("gone") is not None or 0 < left <= 2 * _LONGEST_WAIT_SECONDS

    def _send_these(self, ready: Sequence[Version]) -> bool:
        """Send these versions. Return whether the destination may be sent more.

        If the suppression list grows meanwhile, the rest of these waits for the next pass.
        """
        # Another machine with the same bucket may have erased somebody.
        self.data.gate.exchange_with_bucket()
        newest_entry = self.data.gate.newest_entry
        events = self._wanted(self.events.of(ready))
        self._failures_in_a_row = 0

        for outcomes in self.poster.post(
            events, lambda: self.data.gate.newest_entry == newest_entry
        ):
            for outcome in outcomes:
                self._note(outcome)
            self.ledger.commit()

            is_gone = any(outcome.is_gone for outcome in outcomes)
            if is_gone or self._failures_in_a_row >= _AWAY_AFTER:
                self._note_away(outcomes[-1], is_gone=is_gone)
                return False
            if time.monotonic() > self.until:
                return False
        return True

    def _wanted(self, events: dict[Version, Event]) -> list[tuple[Version, Event]]:
        """Return the events that the destination wants. The others are noted, and never sent."""
        wanted = []
        self._asked_at = self.clock().timestamp()
        for version, event in events.items():
            if self.destination.wants(event):
                wanted.append((version, event))
                if event.type is not EventType.ERASED:
                    self.ledger.note_asking(version, self.destination.form.host, self._asked_at)
            else:
                self.ledger.note_unwanted(version)
        self.ledger.commit()
        return wanted

    def _note(self, outcome: Outcome) -> None:
        self.ledger.note_attempt(
            outcome.version,
            self.clock().timestamp(),
            outcome.status,
            outcome.content_type,
            outcome.code,
            outcome.trouble,
        )
        if not outcome.is_unclear:
            self.ledger.forget_asking(outcome.version, self._asked_at)
        if outcome.trouble is None:
            self._note_delivered(outcome)
            return

        self._sent.failed += 1
        self._sent.trouble = outcome.trouble
        self._note_failure(outcome, outcome.trouble)

    def _note_delivered(self, outcome: Outcome) -> None:
        self._sent.delivered += 1
        self._failures_in_a_row = 0
        if outcome.id_there is not None:
            self.ledger.note_id_there(outcome.version, outcome.id_there)
        self.ledger.note_delivered(
            outcome.version, self.destination.form.host, self.clock().timestamp()
        )

        # It works again, so nothing has to wait for a moment of its own.
        if self.ledger.fact("pauses"):
            self.ledger.make_all_ready()
        for name in _FACTS_OF_TROUBLE:
            self.ledger.set_fact(name, None)

    def _note_failure(self, outcome: Outcome, trouble: str) -> None:
        version = outcome.version
        now = self.clock()
        if version.attempts == 0:
            self.ledger.note_first_attempt(version, now.timestamp())

        is_too_old = (
            version.attempts > 0 and now - datetime.fromtimestamp(version.due_at, UTC) > PATIENCE
        )
        wait = _wait_seconds(version.attempts, _LONGEST_WAIT_SECONDS, outcome.retry_after)
        self.ledger.note_failed(
            version, trouble, now.timestamp() + wait, is_dead=is_too_old or outcome.is_final
        )

        if not outcome.is_of_the_lead:
            self._failures_in_a_row += 1
            self.ledger.set_fact("trouble", trouble)

    def _note_away(self, outcome: Outcome, *, is_gone: bool) -> None:
        """Send nothing for a while, longer each time. After 410, until `deliver retry`."""
        now = self.clock()
        if is_gone:
            self.ledger.set_fact("gone", now.isoformat())
        pauses = int(self.ledger.fact("pauses") or 0)
        pause = _wait_seconds(pauses, _LONGEST_PAUSE_SECONDS, outcome.retry_after)
        self.ledger.set_fact("pause_until", str(now.timestamp() + pause))
        self.ledger.set_fact("pauses", str(pauses + 1))
        self.ledger.commit()


def _wait_seconds(failures: int, longest: float, retry_after: float | None) -> float:
    """Full jitter, at least what the destination asks for, and no more than an hour."""
    jitter = random.uniform(0, min(longest, _FIRST_WAIT_SECONDS * 2**failures))  # noqa: S311 - jitter
    return min(max(jitter, retry_after or 0), _LONGEST_WAIT_SECONDS)
