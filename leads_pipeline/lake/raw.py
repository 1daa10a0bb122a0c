"""Raw leads: each version of each lead that any answer or delivery held, a file per window.

Belongs here: landing, and what the files say about themselves. Doesn't: what a row is and how rows merge (rows.py).
"""

import json
import os
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from leads_pipeline.contract import Answer, LeadKind, PushedLead
from leads_pipeline.durable import PRIVATE_FOLDER_MODE, make_folder, reading, sweep, sync
from leads_pipeline.lake.gate import Gate
from leads_pipeline.lake.quarantine import RAW, raw_lock
from leads_pipeline.lake.rows import PUSH, RAW_SCHEMA, lead_rows, merge, pushed_rows, sequence_of
from leads_pipeline.lake.sealed import UnreadableError, open_parquet, rows_of
from leads_pipeline.lake.state import days_in, found_in
from leads_pipeline.window import Scope, Window

# How many raw files a process remembers: 30 days of 500 scopes and both kinds, twice over. They take 40 MB.
_KNOWN_FILES: Final = 65_536

_DAY_SECONDS: Final = 86_400

_LEADS_FILE: Final = "leads.parquet"

# Pushed leads lie in a file of their own beside the window's: what was pushed says nothing of what was pulled.
_PUSHED_FILE: Final = "pushed.parquet"

# Where pushed leads of no configured scope go. No scope of the settings has this key.
PUSH_SCOPE: Final = "push"


@dataclass(frozen=True, slots=True)
class Landing:
    """What landing an answer did, in different lead ids. `leads` counts those that the file has afterwards.

    `unchanged`: answered, and already held like that (or in a newer version). `kept`: held, and no longer answered.
    `refused`: answered, and kept out by the suppression list.
    `is_changed` is False where the answer only confirmed what was there.
    """

    leads: int
    new: int
    changed: int
    unchanged: int
    kept: int
    refused: int
    is_partial: bool
    is_closed: bool
    is_changed: bool
    path: Path


@dataclass(frozen=True, slots=True)
class LandedWindow:
    """What a raw file says about itself.

    `scope` is the scope's key. `leads` counts different lead ids, `rows` older versions of them as well, `removed`
    leads that were taken out since or kept out. `looked_at` and `sequence` are those of the last answer, `fetched_at`,
    `run_id`, `request`, `body_sha256` and `attempts` of the last that changed something. `beside`: members of the last
    answer beside its list, by name, with their JSON type. `is_closed`: an answer from
    after the window's end was merged. `is_partial`: closed, but only by answers from when the portal had begun to
    delete the window.
    """

    kind: str
    day: date
    scope: str
    start: datetime
    end: datetime
    leads: int
    rows: int
    removed: int
    looked_at: datetime
    sequence: int
    fetched_at: datetime
    run_id: str
    request: str
    body_sha256: str
    attempts: int
    is_partial: bool
    is_closed: bool
    beside: Mapping[str, str]
    path: Path

    def is_of(self, window: Window) -> bool:
        """Whether it is that window: after a change of the time zone, the file of a day and scope is another one's."""
        return (self.start, self.end) == (window.start, window.end)

    def has_landed(self, window: Window) -> bool:
        """Whether that window is landed: a whole answer from after its end was merged into the file."""
        return self.is_closed and self.is_of(window)


class RawLeads(Gate):
    """The folder raw/ of pulled and pushed leads."""

    def land(self, answer: Answer, run_id: str) -> Landing:
        """Merge a valid answer into its window's file: every version of every lead that any answer held, once.

        A lead that the answer no longer holds stays. A version that was held keeps its `fetched_at`, which says when it
        was first received, and takes the answer's `sequence`; of a lead's versions the one with the highest counts.
        When this returns, the file is on the disk.
        """
        window = answer.window
        sequence = sequence_of(answer.sequence, answer.fetched_at)
        path = self._raw_path(answer.kind, window)
        with self.lock(raw_lock(path)):
            sweep(path)
            before = self._read_or_quarantine(path, self._read_landed)
            rows_before, answered = rows_of(before.file) if before else [], lead_rows(answer, run_id)
            verdict = self.asked(path, [*rows_before, *answered])
            received = verdict.passed(answered)
            merged = merge(verdict.passed(rows_before), received, "lead_id")
            removed = self.removed_fact(before.facts.get("removed", "") if before else "", verdict.out, merged.rows)
            window_before = before.window if before and before.window.is_of(window) else None
            is_closed, is_partial = _completeness(window_before, answer)
            is_changed = (
                window_before is None
                or merged.has_changed
                or (is_closed, is_partial) != (window_before.is_closed, window_before.is_partial)
            )
            last_change = {
                "fetched_at": answer.fetched_at.isoformat(),
                "run_id": run_id,
                "request": answer.request,
                "body_sha256": answer.body_sha256,
                "attempts": str(answer.attempts),
            }
            if before is not None and not is_changed:
                last_change = {name: before.facts[name] for name in last_change}
            if removed or received != answered:
                last_change["body_sha256"] = ""  # it tells whoever guesses the answer that they are right
            # A slower process may hold an older answer than the file.
            # Of a closed window, one that isn't whole is no look either.
            is_look = answer.failure is None or window_before is None or not window_before.is_closed
            is_last = window_before is None or (is_look and sequence >= window_before.sequence)
            facts = {
                "window_start": window.start.isoformat(),
                "window_end": window.end.isoformat(),
                "leads": str(merged.ids),
                "looked_at": (
                    answer.fetched_at if window_before is None or is_last else window_before.looked_at
                ).isoformat(),
                "sequence": str(sequence if window_before is None or is_last else window_before.sequence),
                "is_closed": str(is_closed),
                "is_partial": str(is_partial),
                **({"beside": json.dumps(dict(answer.beside))} if answer.beside else {}),
                **last_change,
                **removed,
            }
            self.write_raw(path, merged.rows, RAW_SCHEMA, facts)
        if self.has_moved_on(verdict):
            self.pass_again(path)
        self._keep_sequence_above(merged.highest)
        return Landing(
            leads=merged.ids,
            new=merged.new,
            changed=merged.changed,
            unchanged=merged.unchanged,
            kept=merged.kept,
            refused=len(verdict.out & {row["lead_id"] for row in answered}),
            is_partial=is_partial,
            is_closed=is_closed,
            is_changed=is_changed,
            path=path,
        )

    def make_folders(self, kind: LeadKind, windows: Sequence[Window]) -> None:
        """Make the folders that landing these windows takes, and wait for the disk once a day and not once a window.

        Landing makes what is missing by itself, and says what is wrong where it can't; this only saves time.
        """
        by_day: defaultdict[Path, list[Path]] = defaultdict(list)
        for window in windows:
            folder = self._raw_path(kind, window).parent
            by_day[folder.parent].append(folder)
        for day, folders in by_day.items():
            with suppress(OSError):
                if missing := [folder for folder in folders if not folder.is_dir()]:
                    make_folder(day)
                    for folder in missing:
                        folder.mkdir(PRIVATE_FOLDER_MODE, exist_ok=True)
                    sync(day)

    def land_pushed(
        self,
        kind: LeadKind,
        day: date,
        scope: str,
        pushed: Sequence[PushedLead],
        run_id: str,
        source: str = PUSH,
    ) -> tuple[int, int]:
        """Merge leads of that kind that were pushed into the day's file of the scope (its key, or PUSH_SCOPE).

        As with an answer, every version is kept, with the moment of its first delivery and the `sequence` of its last.
        Returns how many leads were new, and how many had changed.
        """
        path = self._raw_folder(kind, day, scope) / _PUSHED_FILE
        with self.lock(raw_lock(path)):
            sweep(path)
            before = self._read_or_quarantine(path, self._read_pushed)
            rows_before = rows_of(before) if before is not None else []
            received = pushed_rows(kind, day, scope, pushed, run_id, source)
            verdict = self.asked(path, [*rows_before, *received])
            received = verdict.passed(received)
            merged = merge(verdict.passed(rows_before), received, "lead_id")
            if before is not None or received:
                self.write_raw(path, merged.rows, RAW_SCHEMA, {})
        if self.has_moved_on(verdict):
            self.pass_again(path)
        self._keep_sequence_above(merged.highest)
        return merged.new, merged.changed

    def pushed_files(self, kind: LeadKind, day: date) -> list[Path]:
        """The day's readable files of pushed leads, one per scope, sorted; unreadable ones are set aside."""
        paths = found_in(self._day_folder(kind, day), f"scope=*/{_PUSHED_FILE}")
        return [path for path in paths if self._inspect(path, self._read_pushed) is not None]

    def pushed_leads(self, kind: LeadKind, day: date) -> dict[str, int]:
        """The highest `sequence` of each lead that the day's files of pushed leads hold."""
        highest: dict[str, int] = {}
        for path in found_in(self._day_folder(kind, day), f"scope=*/{_PUSHED_FILE}"):
            if file := self._inspect(path, self._read_pushed):
                for row in rows_of(file, ["lead_id", "sequence", "fetched_at"]):
                    highest[row["lead_id"]] = max(row["sequence"], highest.get(row["lead_id"], 0))
        return highest

    def lead_ids(self, kind: LeadKind, day: date) -> set[str]:
        """Every lead that the day's raw files hold, pulled or pushed, by its id."""
        files = [self._inspect(path, self._read_pushed) for path in self._raw_paths(kind, day)]
        return {row["lead_id"] for file in files if file for row in file.read(["lead_id"]).to_pylist()} | set(
            self.pushed_leads(kind, day)
        )

    def landed_windows(self, kind: LeadKind, day: date) -> list[LandedWindow]:
        """What the day's raw files say about themselves, by scope.

        Each was compared with its checksum, to the last bit. An unreadable one is set aside with a warning (see
        `quarantined`) and counts as never fetched.
        """
        files = (self._inspect(path, self._read_landed) for path in self._raw_paths(kind, day))
        return [landed.window for landed in files if landed]

    def known_windows(self, kind: LeadKind, day: date) -> list[LandedWindow]:
        """The same as `landed_windows`, for those who ask every minute: a file that was read is only looked at.

        It is read again once it was replaced, copied or touched, and once a day in any case, so that one that rots is
        noticed while the portal still has what it held.
        """
        windows = []
        for path, identity in _identities(self._day_folder(kind, day)):
            try:
                windows.append(_known_window(self._folder, path, identity))
            except FileNotFoundError:
                continue
            except UnreadableError:
                landed = self._inspect(Path(path), self._read_landed)
                windows += [landed.window] if landed else []
        return windows

    def window_path(self, kind: LeadKind, day: date, scope: str) -> Path:
        """Return where the window's file lies once it is landed."""
        return self._raw_folder(kind, day, scope) / _LEADS_FILE

    def landed_days(self, kind: LeadKind, but: Set[date] = frozenset()) -> list[date]:
        """Days with at least one raw file, pulled or pushed, sorted; but for those."""
        days = days_in(self._folder / RAW / kind.table)
        return [day for day in days if day not in but and found_in(self._day_folder(kind, day), "scope=*/*.parquet")]

    def _raw_path(self, kind: LeadKind, window: Window) -> Path:
        return self._raw_folder(kind, window.day, window.scope.key) / _LEADS_FILE

    def _raw_folder(self, kind: LeadKind, day: date, scope: str) -> Path:
        # Scope.parse is the allow-list that keeps an id from leaving the folder; a Scope can be made without it.
        key = scope if scope == PUSH_SCOPE else Scope.parse(scope).key
        return self._day_folder(kind, day) / f"scope={key}"

    def _day_folder(self, kind: LeadKind, day: date) -> Path:
        return self._folder / RAW / kind.table / f"day={day.isoformat()}"

    def _raw_paths(self, kind: LeadKind, day: date) -> list[Path]:
        return found_in(self._day_folder(kind, day), f"scope=*/{_LEADS_FILE}")

    def _read_landed(self, path: Path) -> "_Landed":
        file, facts = open_parquet(path, RAW_SCHEMA, self._relative(path))
        return _Landed(landed_window(path, facts, file), facts, file)

    def _read_pushed(self, path: Path) -> pq.ParquetFile:
        return open_parquet(path, RAW_SCHEMA, self._relative(path))[0]


@dataclass(frozen=True, slots=True)
class _Landed:
    window: LandedWindow
    facts: Mapping[str, str]
    file: pq.ParquetFile


def landed_window(path: Path, facts: Mapping[str, str], file: pq.ParquetFile) -> LandedWindow:
    """What the file at that path says with these facts in its footer."""
    table, day, scope = path.parts[-4:-1]
    fetched_at = datetime.fromisoformat(facts["fetched_at"])
    is_first_format = facts["schema_version"] == "1"
    return LandedWindow(
        kind=table.removesuffix("_leads"),
        day=date.fromisoformat(day.removeprefix("day=")),
        scope=scope.removeprefix("scope="),
        start=datetime.fromisoformat(facts["window_start"]),
        end=datetime.fromisoformat(facts["window_end"]),
        leads=len(file.read(["lead_id"])["lead_id"].unique()) if is_first_format else int(facts["leads"]),
        rows=file.metadata.num_rows,
        removed=len(facts.get("removed", "").split()),
        looked_at=fetched_at if is_first_format else datetime.fromisoformat(facts["looked_at"]),
        sequence=sequence_of(None, fetched_at) if is_first_format else int(facts["sequence"]),
        fetched_at=fetched_at,
        run_id=facts["run_id"],
        request=facts["request"],
        body_sha256=facts["body_sha256"],
        attempts=int(facts["attempts"]),
        is_partial=facts["is_partial"] == "True",
        is_closed=facts["is_closed"] == "True",
        beside=json.loads(facts.get("beside", "{}")),
        path=path,
    )


@lru_cache(maxsize=_KNOWN_FILES)
def _known_window(folder: Path, path: str, _: tuple[int, ...]) -> LandedWindow:
    """What the file says; its identity, which is only a part of the cache's key, says until when that holds."""
    return RawLeads(folder)._read_landed(Path(path)).window  # noqa: SLF001 - this module's own


def _identities(day_folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Each landed file of the day with what changes when it may have another content, sorted.

    A copy that keeps sizes and times has other inodes and ctimes. Each file has a moment of the day of its own at which
    it is to be read again, so that not all of them are at once.
    """
    with reading(day_folder):
        try:
            folders = sorted(entry.path for entry in os.scandir(day_folder) if entry.name.startswith("scope="))
        except FileNotFoundError:
            return
        for folder in folders:
            path = f"{folder}/{_LEADS_FILE}"
            try:
                stat = os.stat(path)  # noqa: PTH116 - 30,000 of them each minute
            except (FileNotFoundError, NotADirectoryError):
                continue
            turn = int(time.time() + zlib.crc32(path.encode(errors="surrogateescape"))) // _DAY_SECONDS
            yield path, (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, turn)


def _completeness(before: LandedWindow | None, answer: Answer) -> tuple[bool, bool]:
    """(is_closed, is_partial) of the window once the answer is merged.

    Closed: any whole answer came from after the window's end; an earlier one that lands later doesn't open it again.
    Partial: closed, but no answer came both after the end and before the portal began to delete the window. So a
    complete window stays complete when a later pull finds half of it gone, and one that was only ever pulled while it
    was still open becomes partial: what was submitted between that pull and midnight may have been deleted unseen.
    """
    is_closed = answer.failure is None and answer.window.is_closed(answer.fetched_at)
    is_complete = is_closed and answer.window.days_left(answer.fetched_at) >= 0
    if before is not None:
        is_complete = is_complete or (before.is_closed and not before.is_partial)
        is_closed = is_closed or before.is_closed
    return is_closed, is_closed and not is_complete
