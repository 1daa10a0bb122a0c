"""Sends alerts: a digest for each channel, and an hourly heartbeat.

A channel gets a message about new errors and warnings, when an error is over, and once a day while an error is open.
Belongs here: these rules. Doesn't: finding problems (findings.py), words (digest.py), sending (channels.py).
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

from leads_pipeline.errors import StorageError
from leads_pipeline.observe.channels import Channel, Heartbeat, attempt
from leads_pipeline.observe.digest import Digest
from leads_pipeline.observe.findings import Finding, Level
from leads_pipeline.observe.told import Memory, Told

# A finding that often ends by itself is sent only after so long. A machine that was off for days then pulls first.
PATIENCE: Final = timedelta(hours=1)
REPEATED_AFTER: Final = timedelta(days=1)
BEAT_EVERY: Final = timedelta(hours=1)

# Errors of these finders mean that leads are late. The heartbeat says so.
_LATE: Final = ("windows-", "leads-duckdb")


class Alerts:
    """Tells the channels, and remembers it in the `.state` folder.

    Keep one for the life of the process: on a full disk it alone remembers the messages that were sent.
    """

    def __init__(self, state: Path, channels: Sequence[Channel], heartbeat: Heartbeat | None) -> None:
        self._state = state
        self._channels = channels
        self._heartbeat = heartbeat
        self._unsaved: Told | None = None

    def tell(self, findings: Sequence[Finding], failed: Collection[str], now: datetime) -> dict[str, bool]:
        """Send the messages that are due. Return by channel whether that worked.

        `failed` names the finders that couldn't look. Their earlier findings stay as they were.
        """
        told = self._unsaved or Told.read(self._state)
        found = {one.key: one for one in findings if one.level is not Level.HINT}
        kept = {key for key in told.keys() - found.keys() if key.partition("/")[0] in failed}
        told.noticed = {key: told.noticed.get(key, now) for key in found.keys() | kept}
        open_ = [replace(one, since=min(one.since or told.noticed[one.key], now)) for one in found.values()]
        waiting = {one.key for one in open_ if one.may_pass and now - told.noticed[one.key] < PATIENCE}
        told.forget_other_channels({one.name for one in (*self._channels, self._heartbeat) if one})
        results = dict[str, bool]()
        for channel in self._channels:
            memory = told.channels.setdefault(channel.name, Memory())
            counts = [one for one in open_ if one.key in memory.open or one.key not in waiting]
            shown = [one for one in counts if one.key != f"alert-channels/{channel.name}"]
            if digest := due(memory, shown, kept, now):
                # A message may arrive although its answer is lost, or this process is killed. So its end is told too.
                news = {one.key: one for one in digest.new}
                memory.open, memory.unsure = memory.open | news, memory.unsure | news.keys()
                self._save(told)
                is_sent, trouble = attempt(channel.name, partial(channel.send, digest))
                told.note_attempt(channel.name, trouble, now)
                if is_sent:
                    still_kept = {key: one for key, one in memory.open.items() if key in kept}
                    memory.open = still_kept | {one.key: one for one in shown}
                    memory.unsure, memory.told_at = memory.unsure & kept, now
                results[channel.name] = is_sent
                self._save(told)
        if self._heartbeat and (told.beat_at is None or has_passed(BEAT_EVERY, told.beat_at, now)):
            late = [one for one in open_ if one.level is Level.ERROR and one.key.startswith(_LATE)]
            is_well = all(one.key in waiting for one in late)
            results[self._heartbeat.name] = self._beat(self._heartbeat, told, now, is_well=is_well)
        self._save(told)
        return results

    def _beat(self, heartbeat: Heartbeat, told: Told, now: datetime, *, is_well: bool) -> bool:
        is_called, trouble = attempt(heartbeat.name, lambda: heartbeat.beat(is_well=is_well))
        told.note_attempt(heartbeat.name, trouble, now)
        if is_called:
            told.beat_at = now
        return is_called

    def _save(self, told: Told) -> None:
        try:
            told.write(self._state)
            self._unsaved = None
        except StorageError:  # the full disk is a finding itself, and has to be sent
            self._unsaved = told


def has_passed(wait: timedelta, since: datetime, now: datetime) -> bool:
    """Whether the wait has passed. A moment of the future comes from a clock that ran ahead."""
    return not timedelta(0) <= now - since < wait


def due(memory: Memory, shown: Sequence[Finding], kept: Collection[str], now: datetime) -> Digest | None:
    """Return what a channel is to be told now, None if nothing is due.

    `shown` are the open findings that count. `kept` are keys that may be open or not, because their finders failed.
    """
    new = [one for one in shown if _is_news(one, memory)]
    keys = {one.key for one in shown} | {*kept}
    over = [one for key, one in sorted(memory.open.items()) if key not in keys]
    is_over = any(one.level is Level.ERROR or one.key in memory.unsure for one in over)
    is_open = any(one.level is Level.ERROR for one in shown)
    is_repeated = is_open and memory.told_at and has_passed(REPEATED_AFTER, memory.told_at, now)
    if not (new or is_over or is_repeated):
        return None
    return Digest(now, new, over, [one for one in shown if one not in new])


def _is_news(one: Finding, memory: Memory) -> bool:
    before = memory.open.get(one.key)
    return before is None or one.key in memory.unsure or (one.level is Level.ERROR and before.level is not Level.ERROR)
