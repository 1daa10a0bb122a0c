"""Who has got this week's mail.

Belongs here: the file that remembers it. Doesn't: sending (mailing.py).
"""

from datetime import date, datetime, timedelta
from typing import Final, Self

from pydantic import BaseModel

from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.durable import replace_file

_NAME: Final = "report_mail.json"


class Memory(BaseModel):
    """The content of `.state/report_mail.json`: the keys of those who got a week's mail.

    `failed` holds when a mail last wasn't sent, by the recipient's key. `trouble` says why.
    """

    monday: date = date.min
    sent: set[str] = set()
    failed: dict[str, datetime] = {}
    trouble: str | None = None

    @classmethod
    def read(cls, data: DataFolder) -> Self:
        """Return the content of the file. One that can't be read counts as none."""
        try:
            return cls.model_validate_json((data.state.path / _NAME).read_bytes())
        except (OSError, ValueError):
            return cls()

    @classmethod
    def of_week(cls, data: DataFolder, day: date) -> Self:
        """Return the content for the week of that day, empty if the file is of another week."""
        monday = day - timedelta(days=day.weekday())
        memory = cls.read(data)
        return memory if memory.monday == monday else cls(monday=monday)

    def note_sending(self, key: str) -> None:
        """Note that a recipient is about to get the mail."""
        self.sent.add(key)

    def note_sent(self, key: str) -> None:
        """Note that the recipient has got it."""
        self.failed.pop(key, None)

    def note_failed(self, key: str, trouble: str | None, now: datetime) -> None:
        """Note that the recipient hasn't got it, and why."""
        self.sent.discard(key)
        self.failed[key] = now
        self.trouble = trouble

    def write(self, data: DataFolder) -> None:
        """Replace the file. Raises StorageError."""
        replace_file(data.state.path / _NAME, self.model_dump_json().encode())
