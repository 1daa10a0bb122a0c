"""The gate: what the suppression list keeps out of raw files, asked wherever rows are merged into one.

Belongs here: asking the list under a file's lock, rows that are set aside in `restricted/`, rewriting a file that is
there. Doesn't: the list itself (suppression/), landing (raw.py), when a folder is gone through (privacy/sweeping.py).
"""

import hmac
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from leads_pipeline.contract import LEAD_KINDS
from leads_pipeline.domain.cutting import without_message
from leads_pipeline.domain.person import LeadKey, LeadRow
from leads_pipeline.durable import reading, replace_file, sweep
from leads_pipeline.lake.quarantine import RAW, RESTRICTED, raw_lock
from leads_pipeline.lake.rows import RAW_SCHEMA, WHOSE_COLUMNS, Row, merge, sequence_of
from leads_pipeline.lake.sealed import open_parquet, rows_of
from leads_pipeline.lake.shared import SharedFiles
from leads_pipeline.lake.state import found_in
from leads_pipeline.suppression import Action, Entry, Meant, Suppressed

# 64 bits tell the leads of one window apart.
_REMOVED_BYTES: Final = 8

# What the footer of a raw file says once nobody is named in it. A landing writes a footer without it. Earlier versions
# wrote another word: they left a hash by which the person could be found.
CUT: Final = "personal_fields"
ANONYMOUS: Final = "anonymous"

_SWEPT: Final = "swept"
_LOOKED_AT: Final = "looked-at"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the list says of some rows, by their leads. `mark` says which list that was."""

    mark: str = ""
    erased: frozenset[LeadKey] = frozenset()
    restricted: frozenset[LeadKey] = frozenset()
    cleared: frozenset[LeadKey] = frozenset()

    @property
    def out(self) -> set[str]:
        """Ids of the leads that stay out."""
        return {lead_id for _, lead_id in self.erased | self.restricted}

    def passed(self, rows: Iterable[Row]) -> list[Row]:
        """The rows that stay, without the messages that are to go; others as they are."""
        out = self.erased | self.restricted
        return [self._cleared(row) for row in rows if (row["kind"], row["lead_id"]) not in out]

    def _cleared(self, row: Row) -> Row:
        if (row["kind"], row["lead_id"]) not in self.cleared:
            return row
        payload = without_message(row["payload"])
        return row if payload == row["payload"] else row | {"payload": payload}


class Gate(SharedFiles):
    """What raw files do without, and the rows of restricted leads."""

    def asked(self, path: Path, rows: Sequence[Row]) -> Verdict:
        """What the list says of rows that are to lie at that path, whose lock is held.

        Rows of restricted leads are set aside, on the disk, when this returns.
        """
        verdict = self.verdict(map(_lead_row, rows))
        self._set_aside(path, verdict, rows)
        return verdict

    def verdict(self, rows: Iterable[LeadRow]) -> Verdict:
        """What the list says of the leads in these rows, which it knows by their ids from then on."""
        shown: Sequence[LeadRow] | None = None
        while suppressed := self.suppression.read():
            shown = list(rows) if shown is None else shown
            erased = suppressed.erased.leads(shown)
            restricted = suppressed.restricted.leads(shown)
            learned = self._learn(suppressed.erased, erased) + self._learn(suppressed.restricted, restricted)
            # It lands. Marts leave it out by its id, also when the portal corrects its address.
            learned += self._learn(suppressed.objecting, suppressed.objecting.leads(shown))
            if not learned:
                cleared = suppressed.cleared.leads(shown)
                return Verdict(
                    suppressed.mark, frozenset(erased), frozenset(restricted.keys() - erased.keys()), frozenset(cleared)
                )
        return Verdict()

    def _learn(self, meant: Meant, leads: dict[LeadKey, int]) -> int:
        """Have the list know the ids of these leads; how many it didn't."""
        unknown = meant.unknown(leads)
        for of, hashed in unknown.items():

            def entry(_: Suppressed, number: int, of: int = of, hashed: Sequence[str] = hashed) -> Entry:
                leads = tuple(sorted(hashed))
                return Entry(number=number, at=datetime.now(UTC), action=Action.LEARNED, of=of, leads=leads)

            self.suppression.append(entry)
        return len(unknown)

    def has_moved_on(self, verdict: Verdict) -> bool:
        """Whether the list has grown since the verdict: then what was written by it goes through the gate again."""
        return self.suppression.read().mark != verdict.mark

    # --- how far the folder follows the list ------------------------------------------------------------------------

    @property
    def is_behind(self) -> bool:
        """Whether the list has entries that the folder wasn't gone through for."""
        return self.swept_to() != self.suppression.read().mark

    def follows(self, number: int) -> bool:
        """Whether the folder was gone through for the entry of that number."""
        return int(self.swept_to().partition(" ")[0] or 0) >= number

    def swept_to(self) -> str:
        """The mark of the list that the folder was last gone through for."""
        path = self._state / _SWEPT
        with reading(path):
            return path.read_text(encoding="ascii", errors="replace").strip() if path.exists() else ""

    def note_swept(self, mark: str) -> None:
        """Remember that what is published is without whom the list of that mark keeps out."""
        if mark != self.swept_to():
            replace_file(self._state / _SWEPT, f"{mark}\n".encode())

    def looked_at_ns(self) -> int:
        """When somebody last looked for files that appeared by themselves, 0 if nobody did."""
        path = self._state / _LOOKED_AT
        with reading(path):
            text = path.read_text(encoding="ascii", errors="replace").strip() if path.exists() else ""
        return int(text) if text.isdecimal() else 0

    def note_looked_at(self, moment_ns: int) -> None:
        """Remember that."""
        replace_file(self._state / _LOOKED_AT, f"{moment_ns}\n".encode())

    @contextmanager
    def sweeping(self) -> Iterator[None]:
        """Hold the lock by which the folder is gone through for the list once at a time."""
        with self.lock("sweep", timeout_seconds=-1):
            yield

    # --- files that are there ---------------------------------------------------------------------------------------

    def raw_lead_files(self) -> Iterator[Path]:
        """Every raw file of leads, pulled and pushed, as they lie there now."""
        for kind in LEAD_KINDS:
            yield from found_in(self._folder / RAW / kind.table, "day=*/scope=*/*.parquet")

    def restricted_files(self) -> Iterator[Path]:
        """Every file of rows that are set aside."""
        for kind in LEAD_KINDS:
            yield from found_in(self._folder / RESTRICTED / kind.table, "day=*/scope=*/*.parquet")

    def pass_again(
        self, path: Path, about_to_change: Callable[[], None] = lambda: None, *, by_id: bool = False
    ) -> set[str] | None:
        """Have a raw file go through the gate; the ids of leads that are gone then, None if the file is as it was.

        `about_to_change` is called before a file changes. With `by_id` the list has nothing new but ids.
        """
        gone: set[str] | None = None

        def passed(file: pq.ParquetFile, facts: dict[str, str]) -> list[Row] | None:
            nonlocal gone
            if by_id and not self._has_known(file):
                return None
            shown = file.read(WHOSE_COLUMNS, use_threads=False).to_pylist()
            verdict = self.verdict(map(_lead_row, shown))
            if verdict.passed(shown) == shown:
                return None
            about_to_change()
            rows = rows_of(file)
            self._set_aside(path, verdict, rows)
            left = verdict.passed(rows)
            gone = {row["lead_id"] for row in rows} - {row["lead_id"] for row in left}
            facts |= self.removed_fact(facts.get("removed", ""), gone)
            return merge([], left, "lead_id").rows

        with self.lock(raw_lock(path)):
            sweep(path)
            self._rewrite(path, passed)
        return gone

    def _has_known(self, file: pq.ParquetFile) -> bool:
        out = self.suppression.read().out
        rows = file.read(["kind", "lead_id"], use_threads=False).to_pylist()
        return any(out.is_known(row["kind"], row["lead_id"]) for row in rows)

    def sweep_restricted(self, path: Path, about_to_change: Callable[[], None]) -> set[str] | None:
        """Land rows again whose restriction has ended, and remove those of erased leads. The ids of both.

        None if the file stays as it is.
        """
        with self.lock(raw_lock(path)):
            sweep(path)
            file = self._read_or_quarantine(path, lambda one: self._open_leads(one)[0])
            rows = rows_of(file) if file is not None else []
            verdict = self.verdict(map(_lead_row, rows))
            left = [row for row in rows if (row["kind"], row["lead_id"]) in verdict.restricted]
            if len(left) == len(rows):
                return None
            about_to_change()
            if back := verdict.passed(rows):
                self._land_again(self._folder / RAW / path.relative_to(self._folder / RESTRICTED), back)
            if left:
                self.write_raw(path, left, RAW_SCHEMA, {})
            else:
                self.remove_raw(path)
            return {row["lead_id"] for row in rows} - {row["lead_id"] for row in left}

    def _land_again(self, path: Path, back: Sequence[Row]) -> None:
        if not path.exists():  # what pushed leads lie in needs no window
            path = path.with_name("pushed.parquet")
        if not path.exists():
            self.write_raw(path, merge([], back, "lead_id").rows, RAW_SCHEMA, {})
            return

        def merged(file: pq.ParquetFile, facts: dict[str, str]) -> list[Row]:
            facts.pop(CUT, None)
            rows = merge(rows_of(file), back, "lead_id").rows
            facts |= self.removed_fact(facts.get("removed", ""), (), rows)
            return rows

        self._rewrite(path, merged)

    def _set_aside(self, path: Path, verdict: Verdict, rows: Sequence[Row]) -> None:
        """Add the rows of restricted leads to those that are set aside of the raw file at that path."""
        aside = [row for row in rows if (row["kind"], row["lead_id"]) in verdict.restricted]
        if not aside:
            return
        path = self._folder / RESTRICTED / path.relative_to(self._folder / RAW)
        file = self._read_or_quarantine(path, lambda one: self._open_leads(one)[0])
        self.write_raw(path, merge(rows_of(file) if file else [], aside, "lead_id").rows, RAW_SCHEMA, {})

    def removed_fact(self, before: str, lead_ids: Iterable[str], landed: Iterable[Row] = ()) -> dict[str, str]:
        """What a raw file notes of leads that were taken or kept out: a keyed hash of each, so that they count once.

        Those that are landed again, as a restriction was lifted, are no longer among them.
        """
        ids = set(lead_ids)
        if not before and not ids:
            return {}
        key = self.person_key()

        def hashed(lead_ids: Iterable[str]) -> set[str]:
            return {hmac.digest(key, lead_id.encode(), "sha256")[:_REMOVED_BYTES].hex() for lead_id in lead_ids}

        back = hashed({row["lead_id"] for row in landed})
        return {"removed": " ".join(sorted({*before.split(), *hashed(ids)} - back))}

    def sweep_raw_leftovers(self) -> None:
        """Remove what killed writers left in these folders, beside a file or where there is none."""
        for root in (RAW, RESTRICTED):
            for kind in LEAD_KINDS:
                for leftover in found_in(self._folder / root / kind.table, "day=*/scope=*/.*.tmp"):
                    path = leftover.with_name(leftover.name[1:].rsplit(".", 2)[0])
                    with self.lock(raw_lock(path)):
                        sweep(path)

    def _rewrite(self, path: Path, change: Callable[[pq.ParquetFile, dict[str, str]], list[Row] | None]) -> None:
        """Replace a raw file's rows by what `change` makes of it and of its footer's facts, which it may change too.

        Its lock is held. Whole or not at all; None leaves the file. It keeps its time, so that it doesn't look landed
        anew, and all that it says of its window, but for the hash of the answer, which would prove a guess right. A
        missing file is left, a damaged one set aside.
        """
        opened = self._read_or_quarantine(path, self._open_leads)
        if opened is None:
            return
        file, facts = opened
        changed = change(file, facts)
        if changed is None:
            return
        if "window_start" in facts:
            facts["leads"] = str(len({row["lead_id"] for row in changed}))
            facts["body_sha256"] = ""
            facts.setdefault("looked_at", facts["fetched_at"])
            facts.setdefault("sequence", str(sequence_of(None, datetime.fromisoformat(facts["fetched_at"]))))
        facts.pop("ARROW:schema", None)
        with reading(path):
            modified = path.stat().st_mtime_ns
        self.write_raw(path, changed, RAW_SCHEMA, facts, modified_ns=modified)

    def _open_leads(self, path: Path) -> tuple[pq.ParquetFile, dict[str, str]]:
        return open_parquet(path, RAW_SCHEMA, self._relative(path))


def _lead_row(row: Row) -> LeadRow:
    return LeadRow(row["kind"], row["lead_id"], row["day"], row["payload"])
