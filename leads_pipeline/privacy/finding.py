"""Every lead of a person, in each place that holds leads.

The places: raw files, rows that are set aside, deliveries that wait, files in quarantine, and the staged and published
rows of leads that raw has lost. Logs, events, marts and the report hold no personal data, so they are not searched.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from leads_pipeline.contract import LEAD_KINDS, LeadKind
from leads_pipeline.delta.folder import DELTA, every_data_file
from leads_pipeline.domain.person import (
    THEIRS,
    LeadKey,
    LeadRow,
    Person,
    Reason,
    Shown,
    others_have_the_number,
    own_names,
    reasons,
    shown_by,
)
from leads_pipeline.duck import WAREHOUSE_FILE, connection, glob_literal, literal, quoted
from leads_pipeline.flatten.kept_out import ids_out
from leads_pipeline.lake import Lake
from leads_pipeline.spool import Spool
from leads_pipeline.suppression import Entry, Meant

# Where a lead's exact texts lie, by window.
PLACES_OF_RAW: Final = ("raw", "restricted")

_SCRATCH: Final = "find"

# Files between two words of how far the search is.
_TELL_EVERY: Final = 100


@dataclass(frozen=True, slots=True)
class Row:
    """A version of a lead and where it lies. `path` is relative to the data folder.

    `payload` is the exact text that was received. For a row of a table it is the row as JSON, and `is_received` is
    false.
    """

    place: str
    path: str
    kind: str
    lead_id: str
    payload: str
    columns: Mapping[str, Any]
    is_received: bool = True


@dataclass(frozen=True, slots=True)
class FoundLead:
    """A lead with all its versions, and all reasons to show it."""

    kind: str
    lead_id: str
    why: frozenset[Reason]
    rows: Sequence[Row]

    @property
    def is_theirs(self) -> bool:
        """Whether it is the person's. Otherwise somebody has to look at it."""
        return not THEIRS.isdisjoint(self.why)


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found.

    `names` are the person's. `is_shared`: others have the number too. `unread` are files that can't be read, relative
    to the data folder.
    """

    leads: Sequence[FoundLead] = ()
    names: frozenset[str] = frozenset()
    is_shared: bool = False
    unread: Sequence[str] = ()
    files: int = 0

    @property
    def theirs(self) -> list[FoundLead]:
        """The person's leads."""
        return [lead for lead in self.leads if lead.is_theirs]

    @property
    def to_look_at(self) -> list[FoundLead]:
        """Leads that may be the person's, or speak of them."""
        return [lead for lead in self.leads if not lead.is_theirs]

    @property
    def quarantined(self) -> list[str]:
        """Files in quarantine/ that hold the person or can't be read."""
        holding = {row.path for lead in self.leads for row in lead.rows if row.place == "quarantine"}
        return sorted(holding | {path for path in self.unread if path.startswith("quarantine/")})


def find(lake: Lake, person: Person, *, is_shared: bool = False, tell: Callable[[int], None] = lambda _: None) -> Found:
    """Search all places, then once more for every version of the leads that were found.

    `tell` hears how many files were read. Raises QuestionError if many people share what was given, unless `is_shared`.
    """
    first = _Look(lake, tell)
    shown: defaultdict[LeadKey, list[Shown]] = defaultdict(list)
    for row in first.rows(lambda row: row.lead_id in person.lead_ids or person.may_be_in(row.payload)):
        one = shown_by(row.payload)
        if row.lead_id in person.lead_ids or person.sees(one):
            shown[row.kind, row.lead_id].append(one)
    seen = [one for versions in shown.values() for one in versions]
    found = reasons(person, shown, is_shared=is_shared)
    versions: defaultdict[LeadKey, list[Row]] = defaultdict(list)
    second = _Look(lake, tell)
    for row in second.rows(lambda row: (row.kind, row.lead_id) in found) if found else ():
        versions[row.kind, row.lead_id].append(row)
    leads = [FoundLead(*key, why, versions[key]) for key, why in sorted(found.items())]
    names, is_shared = own_names(person, seen), others_have_the_number(person, seen)
    return Found(leads, names, is_shared, sorted({*first.unread, *second.unread}), first.files)


def left_in_quarantine(lake: Lake, erasure: Entry) -> list[str]:
    """The files in quarantine that hold a lead that the erasure means, or that can't be read."""
    look, meant = _Look(lake, lambda _: None), Meant(lake.suppression.read(), [erasure])
    holding = {
        row.path
        for row in look.quarantined()
        if meant.leads([LeadRow(row.kind, row.lead_id, row.columns["day"], row.payload)])
    }
    return sorted({*holding, *look.unread})


def left_in_delta(lake: Lake) -> list[str]:
    """The Delta tables that hold a lead of somebody who is erased or restricted, or that can't be read.

    They may be another machine's, if they lie in a bucket.
    """
    left = []
    with lake.lock(DELTA):
        for kind in LEAD_KINDS:
            for table in kind.tables:
                with every_data_file(lake, table, _SCRATCH) as paths, connection(lake, f"{_SCRATCH}-delta") as db:
                    if not paths:
                        continue
                    db.execute("set variable files = $files", {"files": [glob_literal(path) for path in paths]})
                    if ids_out(
                        db,
                        lake,
                        kind,
                        "read_parquet(getvariable('files'), hive_partitioning = true, union_by_name = true)",
                    ):
                        left.append(f"{DELTA}/{table}")
    return left


class _Look:
    """One pass over all places."""

    def __init__(self, lake: Lake, tell: Callable[[int], None]) -> None:
        self._lake = lake
        self._tell = tell
        self.files = 0
        self.unread: list[str] = []

    def rows(self, is_wanted: Callable[[Row], bool]) -> Iterator[Row]:
        """The rows that are wanted, as they are read."""
        lake = self._lake
        in_raw: dict[str, list[pa.ChunkedArray[Any]]] = {kind.name: [] for kind in LEAD_KINDS}
        for path in [*lake.raw_lead_files(), *lake.restricted_files()]:
            yield from filter(is_wanted, self._raw(path, path.relative_to(lake.folder).parts[0], in_raw))
        for path in Spool(lake).waiting():
            yield from filter(is_wanted, self._delivery(path))
        yield from filter(is_wanted, self.quarantined())
        for kind in LEAD_KINDS:
            yield from filter(is_wanted, self._of_tables(kind, in_raw[kind.name]))

    def quarantined(self) -> Iterator[Row]:
        """The rows of files in quarantine."""
        for path in self._lake.quarantined():
            yield from self._raw(path, "quarantine", None)
        self.unread += map(self._relative, self._lake.kept_answers())

    def _raw(self, path: Path, place: str, ids: "Mapping[str, list[pa.ChunkedArray[Any]]] | None") -> Iterator[Row]:
        try:
            table = pq.read_table(pa.BufferReader(path.read_bytes()), use_threads=False)
            shown: list[list[Any]] = [table[name].to_pylist() for name in ("kind", "lead_id", "payload")]
        except FileNotFoundError:
            return
        except (pa.ArrowException, ValueError, OSError, KeyError):
            self.unread.append(self._relative(path))
            return
        self._count()
        if ids is not None and table.num_rows:
            ids[shown[0][0]].append(table["lead_id"])
        for number, (kind, lead_id, payload) in enumerate(zip(*shown, strict=True)):
            yield Row(place, self._relative(path), kind, lead_id, payload, _Later(table, number))

    def _delivery(self, path: Path) -> Iterator[Row]:
        self._count()
        for line in path.read_bytes().splitlines():
            try:
                record = msgspec.json.decode(line, type=dict[str, Any])
                yield Row("spool", self._relative(path), record["kind"], record["lead_id"], record["payload"], record)
            except (msgspec.DecodeError, msgspec.ValidationError, KeyError):
                continue  # the seal behind the deliveries

    def _of_tables(self, kind: LeadKind, in_raw: "Sequence[pa.ChunkedArray[Any]]") -> Iterator[Row]:
        """The staged and the published rows of leads that raw has lost, as JSON."""
        chunks: list[pa.Array[Any]] = [chunk for one in in_raw for chunk in one.chunks]
        ids = pa.Table.from_arrays([pa.chunked_array(chunks, pa.string())], ["lead_id"])
        sources = []
        published = self._lake.folder / WAREHOUSE_FILE
        staged = [glob_literal(file.path) for file in self._lake.staged_files(kind.table)]
        with connection(self._lake, f"{_SCRATCH}-{kind.name}") as db:
            db.register("in_raw", ids)
            db.execute("set variable files = $files", {"files": staged})
            if published.exists():
                db.execute(f"attach {literal(str(published))} as published (read_only)")
                sources.append((WAREHOUSE_FILE, f"published.{quoted(kind.table)}"))
            if staged:
                files = "read_parquet(getvariable('files'), hive_partitioning = false, union_by_name = true)"
                sources.append(("staged", f"{files}"))
            for place, source in sources:
                cursor = db.execute(
                    f"select lead_id, to_json(lost)::varchar from {source} as lost anti join in_raw using (lead_id)"  # noqa: S608 - our own names
                )
                while rows := cursor.fetchmany(10_000):
                    for lead_id, text in rows:
                        yield Row(place, place, kind.name, lead_id, text, json.loads(text), is_received=False)

    def _count(self) -> None:
        self.files += 1
        if self.files % _TELL_EVERY == 0:
            self._tell(self.files)

    def _relative(self, path: Path) -> str:
        return path.relative_to(self._lake.folder).as_posix()


class _Later(Mapping[str, Any]):
    """A row of a table, read when it is asked for: nearly none is."""

    def __init__(self, table: pa.Table, number: int) -> None:
        self._table, self._number = table, number

    def __getitem__(self, name: str) -> Any:
        return self._table[name][self._number].as_py()

    def __iter__(self) -> Iterator[str]:
        return iter(self._table.column_names)

    def __len__(self) -> int:
        return self._table.num_columns
