"""The memory of a data folder's publications.

Belongs here: how they went, and when the next one is due. Doesn't: asking for one
(orchestration/publish_sensor.py).
"""

from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from leads_pipeline.domain.window import today
from leads_pipeline.raw.durable import replace_file

# Held while a publication is under way whose outcome will be noted.
NOTING: Final = "publication"

# The nightly publication is due this long after midnight, when the daily pull is usually over.
NIGHT: Final = timedelta(hours=2)

# A file system that can't share blocks (ext4) writes the whole file each time, and disks of small
# machines wear out.
_MOST_BYTES_A_DAY: Final = 10e9

_LEAST_SPACING: Final = timedelta(minutes=1)
# For what writes more than a publication of 4 million leads, as the first one may.
_LONGEST_SPACING: Final = timedelta(hours=4)
# After the first failure, the second and so on.
_WAITS: Final = tuple(timedelta(minutes=minutes) for minutes in (10, 20, 40, 60))


class Publications(msgspec.Struct, frozen=True, kw_only=True):
    """How publications went.

    `began_at`: the newest attempt. `failures`: how many have failed since the last success, one
    under way included. `published_at` and `mark`: when the last success began, and what had landed
    by then. `nightly_on`: the day of the last nightly success. `written_bytes`: what the last
    success wrote to disks.
    """

    began_at: datetime | None = None
    failures: int = 0
    published_at: datetime | None = None
    mark: str = ""
    nightly_on: date | None = None
    written_bytes: int = 0

    @classmethod
    def read(cls, state: Path) -> "Publications":
        """Read what the folder remembers. A file that is lost or broken counts as none."""
        try:
            return msgspec.json.decode((state / "publications.json").read_bytes(), type=cls)
        except (OSError, msgspec.DecodeError):
            return cls()

    def write(self, state: Path) -> None:
        """Remember it."""
        replace_file(state / "publications.json", msgspec.json.encode(self))

    def is_night_due(self, zone: ZoneInfo, now: datetime) -> bool:
        """Whether the publication of the night is to be made."""
        return self.nightly_on != today(zone, now - NIGHT)

    def next_at(self, *, is_urgent: bool = False) -> datetime | None:
        """Return the moment before which no other attempt is made, None if there was none yet.

        `is_urgent`: it is the night's, or the file is gone. Then it doesn't matter how much the
        last one wrote.
        """
        if self.began_at is None:
            return None
        if self.failures:
            return self.began_at + _WAITS[min(self.failures, len(_WAITS)) - 1]
        spacing = (
            timedelta() if is_urgent else timedelta(days=self.written_bytes / _MOST_BYTES_A_DAY)
        )
        return self.began_at + min(max(_LEAST_SPACING, spacing), _LONGEST_SPACING)
