"""What each alert channel was told so far, and which channels don't work: the file `.state/alerts.json`.

Belongs here: the file and its form. Doesn't: what is told when (alerts.py).
"""

from collections.abc import Collection
from datetime import datetime
from pathlib import Path
from typing import Final, Self

from pydantic import BaseModel

from leads_pipeline.observe.finding import Finding
from leads_pipeline.storage.durable import replace_file

_NAME: Final = "alerts.json"


class Memory(BaseModel):
    """What one channel was told: open findings by key, and when it got its last message.

    `unsure` has the keys of those whose message may not have arrived.
    """

    open: dict[str, Finding] = {}
    unsure: set[str] = set()
    told_at: datetime | None = None


class Failure(BaseModel):
    """Since when messages don't get through, and what was wrong the last time."""

    since: datetime
    message: str


class Told(BaseModel):
    """The file's content. Channels go by the names of their variables.

    `noticed` holds when each open finding was found first. `beat_at` is the last call of the heartbeat.
    """

    noticed: dict[str, datetime] = {}
    channels: dict[str, Memory] = {}
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

    def keys(self) -> set[str]:
        """Return the keys of all findings that the file knows."""
        return self.noticed.keys() | {key for memory in self.channels.values() for key in memory.open}

    def forget_other_channels(self, names: Collection[str]) -> None:
        """Forget channels that aren't set up any more."""
        self.channels = {name: memory for name, memory in self.channels.items() if name in names}
        self.failures = {name: failure for name, failure in self.failures.items() if name in names}

    def note_attempt(self, channel: str, trouble: str | None, now: datetime) -> None:
        """Remember that the channel's last message got through, or what was wrong with it."""
        if trouble is None:
            self.failures.pop(channel, None)
        else:
            before = self.failures.get(channel)
            self.failures[channel] = Failure(since=before.since if before else now, message=trouble)
