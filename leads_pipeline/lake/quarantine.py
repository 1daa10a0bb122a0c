"""Raw files that can't be read are set aside, so that they stop no other and their windows are pulled again.

Belongs here: reading a raw file or moving it to quarantine/, under the lock of what lies there. Doesn't: what the rows
say (raw.py, inventory.py).
"""

import logging
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final, TypeVar

from leads_pipeline.contract import LeadKind
from leads_pipeline.durable import make_folder, reading, replace_file, storing, sync
from leads_pipeline.lake.sealed import UnreadableError
from leads_pipeline.lake.state import FolderState
from leads_pipeline.window import Window

RAW: Final = "raw"
RESTRICTED: Final = "restricted"
INVENTORY: Final = "inventory"
QUARANTINE: Final = "quarantine"
# Below quarantine/: answers of the portal that were none, as received.
ANSWERS: Final = "answers"

_T = TypeVar("_T")

# Behind the name of a file that was set aside: the moment, UTC.
_MOMENT: Final = re.compile(r"\.\d{8}T\d{6}\.\d{6}Z$")

logger = logging.getLogger(__name__)


class Quarantine(FolderState):
    """The folder of what was set aside."""

    def quarantined(self) -> list[Path]:
        """Every file that was set aside because it couldn't be read, sorted; each name ends with the moment, UTC."""
        folder = self._folder / QUARANTINE
        with reading(folder):
            answers = folder / ANSWERS
            return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_relative_to(answers))

    def keep_answer(self, kind: LeadKind, window: Window, body: bytes) -> None:
        """Keep an answer that couldn't be read, as received, in place of the window's earlier one."""
        path = self._folder / QUARANTINE / ANSWERS / kind.table / f"day={window.day}" / f"scope={window.scope.key}"
        replace_file(path, body)

    def kept_answers(self) -> list[Path]:
        """Every answer that is kept because it couldn't be read, sorted."""
        folder = self._folder / QUARANTINE / ANSWERS
        with reading(folder):
            return sorted(path for path in folder.rglob("*") if path.is_file())

    def forget_answers(self, before: datetime) -> None:
        """Delete the answers that were kept before that moment."""
        for path in self.kept_answers():
            with storing(path), suppress(FileNotFoundError):
                if path.stat().st_mtime < before.timestamp():
                    path.unlink()

    def unreplaced(self, kind: LeadKind | None = None, day: date | None = None) -> list[Path]:
        """Those that nothing whole has replaced: all, or the raw files of a kind's day.

        A window that was landed again has replaced its own. What was pushed may be nowhere else.
        """
        folder = self._folder / QUARANTINE
        of_day = folder / RAW / kind.table / f"day={day}" if kind else folder
        return [
            path
            for path in self.quarantined()
            if path.is_relative_to(of_day) and (path.name.startswith("pushed.") or not self.origin_of(path).exists())
        ]

    def origin_of(self, aside: Path) -> Path:
        """Return the path that the file had before it was set aside."""
        path = self._folder / aside.relative_to(self._folder / QUARANTINE)
        return path.with_name(_MOMENT.sub("", path.name))

    def _relative(self, path: Path) -> str:
        return path.relative_to(self._folder).as_posix()

    def _inspect(self, path: Path, read: Callable[[Path], _T]) -> _T | None:
        """What `read` makes of the file; None where it is missing or had to be set aside. No lock is held."""
        try:
            return read(path)
        except FileNotFoundError:
            return None
        except UnreadableError:
            with self.lock(raw_lock(path)):
                return self._read_or_quarantine(path, read)

    def _read_or_quarantine(self, path: Path, read: Callable[[Path], _T]) -> _T | None:
        """Like _inspect, with the file's lock held."""
        try:
            return read(path)
        except FileNotFoundError:
            return None
        except UnreadableError as error:
            self._quarantine(path, str(error))
            return None

    def _quarantine(self, path: Path, why: str) -> None:
        # The moment comes last, so that no glob for *.parquet finds the file any more.
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        aside = self._folder / QUARANTINE / f"{self._relative(path)}.{moment}"
        with storing(aside):
            make_folder(aside.parent)
            path.replace(aside)
            sync(aside.parent)
            sync(path.parent)
        logger.warning(
            "%s can't be used: %s. It was moved to %s and counts as never fetched: pull its partition again while "
            "the portal still has it. The other files are untouched.",
            path,
            why,
            aside,
        )


def raw_lock(path: Path) -> str:
    """One lock per kind and scope (one for the inventory) over all days: as many files as scopes, for ever."""
    folder = path.parent
    if folder.parent.name == INVENTORY:
        return INVENTORY
    return f"{folder.parent.parent.name}-{folder.name.removeprefix('scope=')}"
