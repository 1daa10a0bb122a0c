"""Leads that are kept out of raw files: of people who were erased, and of who wants no more enquiries taken.

Belongs here: asking the suppression list under a file's lock, and taking rows out of a file that is there. Doesn't: the
list itself (suppression/), landing (raw.py), when a folder is gone through (privacy/).
"""

import hmac
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from leads_pipeline.contract import LEAD_KINDS
from leads_pipeline.durable import reading, sweep
from leads_pipeline.lake.quarantine import RAW, raw_lock
from leads_pipeline.lake.rows import RAW_SCHEMA, WHOSE_COLUMNS, Row, sequence_of
from leads_pipeline.lake.sealed import open_parquet, rows_of
from leads_pipeline.lake.shared import SharedFiles
from leads_pipeline.lake.state import found_in
from leads_pipeline.person.showing import Shown
from leads_pipeline.suppression import Action, Entry, Suppressed

# 64 bits tell the leads of one window apart.
_REMOVED_BYTES: Final = 8


class Refusing(SharedFiles):
    """What raw files do without."""

    def refused(self, rows: Iterable[Row]) -> set[str]:
        """Ids of the leads among these rows of one kind that mustn't be landed. A lock of what they land in is held.

        The list is read here, so that whoever adds to it and then takes the lock misses nothing. A lead that is refused
        by its contact is known by its id from then on, whatever other versions of it show.
        """
        suppressed = self.suppression.read()
        if not suppressed.refusals:
            return set()
        refused = suppressed.refusals.leads(map(Shown.of_raw, rows))
        self.know_leads(suppressed, refused)
        return {lead_id for _, lead_id in refused}

    def redacted(self, rows: Sequence[Row]) -> list[Row]:
        """The rows without what they say of people who were taken out of them; those that say nothing as they are."""
        suppressed = self.suppression.read()
        if not suppressed.redactions:
            return list(rows)
        changed = [suppressed.redacted(row["kind"], row["lead_id"], row["payload"]) for row in rows]
        return [
            row if payload == row["payload"] else row | {"payload": payload}
            for row, payload in zip(rows, changed, strict=True)
        ]

    def know_leads(self, suppressed: Suppressed, refused: Mapping[tuple[str, str], int]) -> None:
        """Add to the list the ids of leads that an entry refuses, where it lacks them."""
        by_entry: dict[int, list[str]] = {}
        for (kind, lead_id), of in refused.items():
            if not suppressed.knows(of, kind, lead_id):
                by_entry.setdefault(of, []).append(suppressed.hashed_lead(kind, lead_id))
        for of, leads in by_entry.items():

            def entry(_: Suppressed, number: int, of: int = of, leads: Sequence[str] = leads) -> Entry:
                return Entry(number=number, at=datetime.now(UTC), action=Action.MORE, of=of, leads=tuple(sorted(leads)))

            self.suppression.append(entry)

    def removed_fact(self, before: str, lead_ids: Iterable[str], landed: Iterable[Row] = ()) -> dict[str, str]:
        """What a raw file notes of leads that were taken or kept out: a keyed hash of each, so that they count once.

        Those that are landed again, as a refusal was lifted, are no longer among them.
        """
        ids = set(lead_ids)
        if not before and not ids:
            return {}
        key = self.person_key()

        def hashed(lead_ids: Iterable[str]) -> set[str]:
            return {hmac.digest(key, lead_id.encode(), "sha256")[:_REMOVED_BYTES].hex() for lead_id in lead_ids}

        back = hashed({row["lead_id"] for row in landed})
        return {"removed": " ".join(sorted({*before.split(), *hashed(ids)} - back))}

    def raw_lead_files(self) -> Iterator[Path]:
        """Every raw file of leads, pulled and pushed, as they lie there now."""
        for kind in LEAD_KINDS:
            yield from found_in(self._folder / RAW / kind.table, "day=*/scope=*/*.parquet")

    def sweep_raw_leftovers(self) -> None:
        """Remove what killed writers left in raw folders, beside a file or where there is none."""
        for kind in LEAD_KINDS:
            for leftover in found_in(self._folder / RAW / kind.table, "day=*/scope=*/.*.tmp"):
                path = leftover.with_name(leftover.name[1:].rsplit(".", 2)[0])
                with self.lock(raw_lock(path)):
                    sweep(path)

    def rewrite_raw(self, path: Path, change: Callable[[list[Row]], list[Row]]) -> set[str]:
        """Replace the rows of a raw file of leads by what `change` makes of them; the ids of leads that are gone then.

        As `_rewrite` does it. The file counts the leads that are gone as removed. `change` is asked first about the
        columns that say whose a row is, as most files have nobody: all of them take five times as long to read.
        """
        gone: set[str] = set()

        def rewritten(file: pq.ParquetFile, facts: dict[str, str]) -> list[Row] | None:
            shown = file.read(WHOSE_COLUMNS, use_threads=False).to_pylist()
            if change(list(shown)) == shown:
                return None
            rows = rows_of(file)
            changed = change(list(rows))
            gone.update({row["lead_id"] for row in rows} - {row["lead_id"] for row in changed})
            facts |= self.removed_fact(facts.get("removed", ""), gone)
            return changed

        self._rewrite(path, rewritten)
        return gone

    def _rewrite(self, path: Path, change: Callable[[pq.ParquetFile, dict[str, str]], list[Row] | None]) -> None:
        """Replace a raw file's rows by what `change` makes of it and of its footer's facts, which it may change too.

        Under the file's lock, whole or not at all; None leaves the file. It keeps its time, so that it doesn't look
        landed anew, and all that it says of its window, but for the hash of the answer, which would prove a guess
        right. What a killed writer left beside it goes. A missing file is left, a damaged one set aside.
        """
        with self.lock(raw_lock(path)):
            sweep(path)
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
