"""Sends alerts: a digest for each channel, and an hourly heartbeat.

A channel gets a message about new errors and warnings, when an error is over, and once a day while
an error is open.
Belongs here: these rules, and what each channel was told so far. Doesn't: finding problems
(findings.py), words (digest.py), sending (channels.py).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final, Self

from pydantic import BaseModel

from leads_pipeline.domain.moments import has_passed, not_after
from leads_pipeline.errors import StorageError
from leads_pipeline.features.alerts.channels import Channel, Heartbeat
from leads_pipeline.features.alerts.digest import Digest
from leads_pipeline.health.finding import Finding, Level, finder_of
from leads_pipeline.mail import attempt
from leads_pipeline.raw.durable import replace_file

# A finding that often ends by itself is sent only after so long. A machine that was off for days
# then pulls first.
PATIENCE: Final = timedelta(hours=1)
REPEATED_AFTER: Final = timedelta(days=1)
# A message that doesn't get through may arrive all the same, so it isn't sent at each look.
_LONGEST_PAUSE: Final = timedelta(hours=1)
BEAT_EVERY: Final = timedelta(hours=1)

# Errors of these finders mean that leads are late. The heartbeat says so.
_LATE: Final = ("windows-", "leads-duckdb")

_NAME: Final = "alerts.json"


class ChannelMemory(BaseModel):
    """The messages of one channel so far: open findings by key, and when it got its last message.

    `unsure` has the keys of those whose message may not have arrived, `warned_at` when each warning
    was new.
    """

    open: dict[str, Finding] = {}
    unsure: set[str] = set()
    told_at: datetime | None = None
    warned_at: dict[str, datetime] = {}

    def forget_all_but(self, findings: Sequence[Finding]) -> None:
        """Forget warnings that ended without a message. A day later they are news again."""
        keys = {one.key for one in findings}
        self.open = {key: one for key, one in self.open.items() if key in keys}

    def note_sending(self, digest: Digest) -> None:
        """A message may arrive although its answer is lost, or this process is killed.

        So the end of these findings is told too.
        """
        for one in digest.new:
            self.open[one.key] = one
            self.unsure.add(one.key)

    def note_sent(self, digest: Digest) -> None:
        """Remember what the channel was told, for a day when each warning was new."""
        self.open = {one.key: one for one in (*digest.new, *digest.still_open)}
        self.unsure.clear()
        self.told_at = digest.at
        for one in digest.new:
            self.warned_at[one.key] = digest.at
        self.warned_at = {
            key: at
            for key, at in self.warned_at.items()
            if not has_passed(REPEATED_AFTER, at, digest.at)
        }


class Failure(BaseModel):
    """Since when messages don't get through, when one was tried last, and what was wrong then."""

    since: datetime
    message: str
    tried_at: datetime | None = None

    def is_pause_over(self, now: datetime) -> bool:
        """Whether to try again. The pauses grow with the time that it lasts."""
        tried_at = self.tried_at or self.since
        return has_passed(min(tried_at - self.since, _LONGEST_PAUSE), tried_at, now)


class AlertMemory(BaseModel):
    """The content of `.state/alerts.json`. Channels go by the names of their variables.

    `noticed` holds when each open finding was found first. `beat_at` is the last call of the
    heartbeat.
    """

    noticed: dict[str, datetime] = {}
    channels: dict[str, ChannelMemory] = {}
    failures: dict[str, Failure] = {}
    beat_at: datetime | None = None

    @classmethod
    def read(cls, state: Path) -> Self:
        """Return the content of the file in the `.state` folder.

        A file that can't be read counts as none: open findings are then told once more.
        """
        try:
            return cls.model_validate_json((state / _NAME).read_bytes())
        except (OSError, ValueError):
            return cls()

    def write(self, state: Path) -> None:
        """Replace the file in the `.state` folder. Raises StorageError."""
        replace_file(state / _NAME, self.model_dump_json().encode())

    def note_found(
        self, findings: Sequence[Finding], failed: Collection[str], now: datetime
    ) -> None:
        """Remember when each was found first. While its finder fails, nobody knows it is over."""
        found = {one.key for one in findings}
        unseen = {key for key in self.noticed if finder_of(key) in failed}
        self.noticed = {key: not_after(self.noticed.get(key, now), now) for key in found | unseen}

    def forget_other_channels(self, names: Collection[str]) -> None:
        """Forget channels that aren't set up any more."""
        self.channels = {name: one for name, one in self.channels.items() if name in names}
        self.failures = {name: one for name, one in self.failures.items() if name in names}

    def may_try(self, channel: str, now: datetime) -> bool:
        """Whether the last message got through, or the pause after it is over."""
        failure = self.failures.get(channel)
        return failure is None or failure.is_pause_over(now)

    def note_attempt(self, channel: str, trouble: str | None, now: datetime) -> None:
        """Remember that the channel's last message got through, or what was wrong with it."""
        if trouble is None:
            self.failures.pop(channel, None)
        else:
            before = self.failures.get(channel)
            since = not_after(before.since, now) if before else now
            self.failures[channel] = Failure(since=since, message=trouble, tried_at=now)


@dataclass(frozen=True, slots=True)
class _Look:
    """What was found at a moment, without hints.

    `failed` names the finders that couldn't look. `waiting` are keys of findings that may pass by
    themselves, and aren't told yet.
    """

    findings: Sequence[Finding]
    failed: Collection[str]
    waiting: Collection[str]

    @classmethod
    def of(
        cls,
        findings: Sequence[Finding],
        failed: Collection[str],
        memory: AlertMemory,
        now: datetime,
    ) -> Self:
        """Return the findings with their moments. `memory` has when each was noticed."""
        dated = []
        waiting = set()
        for one in findings:
            noticed_at = memory.noticed[one.key]
            dated.append(replace(one, since=min(one.since or noticed_at, now)))
            if one.may_pass and not has_passed(PATIENCE, noticed_at, now):
                waiting.add(one.key)
        return cls(dated, failed, waiting)

    def open_on(self, channel: str, of_channel: ChannelMemory) -> list[Finding]:
        """Return what is open for a channel. It isn't told that it doesn't work itself.

        While a finder fails, what the channel was told of it is open.
        """
        found = {one.key for one in self.findings}
        counted = [
            one
            for one in self.findings
            if (one.key in of_channel.open or one.key not in self.waiting)
            and one.key != f"alert-channels/{channel}"
        ]
        unseen = [
            one
            for key, one in of_channel.open.items()
            if key not in found and finder_of(key) in self.failed
        ]
        return counted + unseen

    @property
    def is_late(self) -> bool:
        """Whether leads are late, and that didn't pass by itself."""
        return any(
            one.level is Level.ERROR and one.key.startswith(_LATE) and one.key not in self.waiting
            for one in self.findings
        )


class Alerts:
    """Tells the channels, and remembers it in the `.state` folder.

    Keep one for the life of the process: on a full disk it alone remembers the messages that were
    sent.
    """

    def __init__(
        self, state: Path, channels: Sequence[Channel], heartbeat: Heartbeat | None
    ) -> None:
        self._state = state
        self._channels = channels
        self._heartbeat = heartbeat
        self._unsaved: AlertMemory | None = None

    def tell(
        self, findings: Sequence[Finding], failed: Collection[str], now: datetime
    ) -> dict[str, bool]:
        """Send what is due. Return by channel, and for the heartbeat, whether it got through.

        `failed` names the finders that couldn't look. Their earlier findings stay open.
        """
        memory = self._unsaved or AlertMemory.read(self._state)
        memory.forget_other_channels(
            {one.name for one in (*self._channels, self._heartbeat) if one}
        )
        found = [one for one in findings if one.level is not Level.HINT]
        memory.note_found(found, failed, now)
        look = _Look.of(found, failed, memory, now)

        results = dict[str, bool]()
        for channel in self._channels:
            of_channel = memory.channels.setdefault(channel.name, ChannelMemory())
            open_ = look.open_on(channel.name, of_channel)
            digest = due(of_channel, open_, now)
            if digest is None:
                of_channel.forget_all_but(open_)
            elif memory.may_try(channel.name, now):
                results[channel.name] = self._send(channel, digest, memory)

        if self._heartbeat and (
            memory.beat_at is None or has_passed(BEAT_EVERY, memory.beat_at, now)
        ):
            results[self._heartbeat.name] = self._beat(
                self._heartbeat, memory, now, is_well=not look.is_late
            )
        self._save(memory)
        return results

    def _send(self, channel: Channel, digest: Digest, memory: AlertMemory) -> bool:
        of_channel = memory.channels[channel.name]
        of_channel.note_sending(digest)
        self._save(memory)

        is_sent, trouble = attempt(channel.name, partial(channel.send, digest))
        memory.note_attempt(channel.name, trouble, digest.at)
        if is_sent:
            of_channel.note_sent(digest)
        self._save(memory)
        return is_sent

    def _beat(
        self, heartbeat: Heartbeat, memory: AlertMemory, now: datetime, *, is_well: bool
    ) -> bool:
        is_called, trouble = attempt(heartbeat.name, lambda: heartbeat.beat(is_well=is_well))
        memory.note_attempt(heartbeat.name, trouble, now)
        if is_called:
            memory.beat_at = now
        return is_called

    def _save(self, memory: AlertMemory) -> None:
        try:
            memory.write(self._state)
            self._unsaved = None
        except StorageError:  # the full disk is a finding itself, and has to be sent
            self._unsaved = memory


def due(of_channel: ChannelMemory, open_: Sequence[Finding], now: datetime) -> Digest | None:
    """Return what a channel is to be told now of what is open, None if nothing is due."""
    new = [one for one in open_ if _is_new(one, of_channel)]
    still_open = [one for one in open_ if one not in new]
    keys = {one.key for one in open_}
    over = [one for key, one in sorted(of_channel.open.items()) if key not in keys]

    is_news = any(_makes_a_message(one, of_channel, now) for one in new)
    is_end_told = any(one.level is Level.ERROR or one.key in of_channel.unsure for one in over)
    has_error = any(one.level is Level.ERROR for one in open_)
    told_at = of_channel.told_at
    is_day_over = told_at is not None and has_passed(REPEATED_AFTER, told_at, now)
    if is_news or is_end_told or (has_error and is_day_over):
        return Digest(now, new, over, still_open)
    return None


def _is_new(one: Finding, of_channel: ChannelMemory) -> bool:
    """Whether the channel doesn't know that it is open, or knows it as a warning only."""
    before = of_channel.open.get(one.key)
    if before is None or one.key in of_channel.unsure:
        return True
    return one.level is Level.ERROR and before.level is not Level.ERROR


def _makes_a_message(one: Finding, of_channel: ChannelMemory, now: datetime) -> bool:
    """Whether what is new is sent at once. A warning that comes and goes is sent once a day."""
    if one.level is Level.ERROR or one.key in of_channel.unsure:
        return True
    warned_at = of_channel.warned_at.get(one.key)
    return warned_at is None or has_passed(REPEATED_AFTER, warned_at, now)
