"""The contents of a raw file: versions of leads, and how versions merge.

Belongs here: a row, numbers, merging, the bytes of a file. Pure functions. Doesn't: names, stores.
"""

import hashlib
import json
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from leads_pipeline.domain.contract import ReceivedLead
from leads_pipeline.errors import StorageError

PULL: Final = "pull"
PUSH: Final = "push"
# Its payload is a JSON merge patch (RFC 7396). Readers lay it over the lead's newest version.
CORRECTION: Final = "correction"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Row(NamedTuple):
    """A version of a lead.

    `number` is the moment of its request in microseconds since 1970: the highest counts.
    """

    lead_id: str
    number: int
    payload: str
    source: str = PULL


class LandedVersion(NamedTuple):
    """A version of a lead, with the texts of the lead's corrections in its window, oldest first.

    `corrected_at` is the number of the newest of them.
    """

    lead_id: str
    number: int
    payload: str
    source: str
    corrections: Sequence[str] = ()
    corrected_at: int = 0


# No column has the name of a key in the path (kind, day, scope): readers of a hive would refuse the
# file.
_COLUMNS: Final[dict[str, pa.DataType]] = {
    "lead_id": pa.string(),
    "number": pa.int64(),
    "payload": pa.string(),
    "source": pa.string(),
}
SCHEMA: Final = pa.schema(_COLUMNS)

# The format of raw files and of a data folder. Raised if the version before can't work with what
# this one writes. 1 and 2 had one file for each window.
FORMAT: Final = 3

_HASH_DIGITS: Final = 16

_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])

# The footer's mark of an anonymous file.
_PERSONAL: Final = "personal_fields"


@dataclass(frozen=True, slots=True)
class Footer:
    """How a file came to be.

    `run_id`: the run of its newest whole fetch. `body_hash`: SHA-256 of its answer, empty if the
    rows are no longer exactly those that it left. `newest_entry`: that of the suppression list by
    which the rows were filtered. `is_anonymous`: nobody is named in the payloads. `gone`: leads
    that the answer no longer held, by id.
    """

    run_id: str = ""
    body_hash: str = ""
    newest_entry: int = 0
    is_anonymous: bool = False
    gone: frozenset[str] = frozenset()


def microseconds(moment: datetime) -> int:
    """Return the moment in microseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def moment_of(number: int) -> datetime:
    """Return the UTC moment of a number."""
    return _EPOCH + timedelta(microseconds=number)


def received_rows(
    leads: Iterable[ReceivedLead],
    moment: datetime,
    before: Sequence[Row],
    now: datetime,
    source: str = PULL,
) -> list[Row]:
    """Return a row for each lead received at that moment. `before` are the window's rows.

    Of a lead that came twice, the later one counts. An answer may have the same two texts of a lead
    each time. Only the first such answer brings both.
    """
    rows = _numbered(leads, _number_after(before, moment, now), source)
    last_rows = {row.lead_id: row for row in rows}
    texts_before = newest_payloads(merged(before))
    versions_before = {(row.lead_id, row.payload) for row in before}

    kept = []
    for row in rows:
        last = last_rows[row.lead_id]
        is_new_text = (row.lead_id, row.payload) not in versions_before
        has_lead_changed = last.payload != texts_before.get(row.lead_id)
        if row is last or is_new_text or has_lead_changed:
            kept.append(row)
    return kept


def _number_after(before: Sequence[Row], moment: datetime, now: datetime) -> int:
    """Return the number of what is received at that moment.

    If a row has a number of the future, the clock was set back. What is received later has to
    count, so numbers go on from the highest.
    """
    number = microseconds(moment)
    highest = max((row.number for row in before), default=0)
    return max(number, highest + 1) if highest > microseconds(now) else number


def _numbered(leads: Iterable[ReceivedLead], number: int, source: str) -> list[Row]:
    """Return a row for each lead, of one that comes again with the next number."""
    rows = []
    next_numbers = dict[str, int]()
    for lead in leads:
        number_of_row = next_numbers.get(lead.lead_id, number)
        next_numbers[lead.lead_id] = number_of_row + 1
        rows.append(Row(lead.lead_id, number_of_row, lead.payload, source))
    return rows


def merged(rows: Iterable[Row]) -> list[Row]:
    """Return each version that differs from the version before it, sorted by lead and number.

    If the portal says A, then B, then A again, all three stay, and the last counts. Corrections are
    no versions: they are compared among themselves.
    """
    kept = []
    newest = dict[tuple[str, bool], str]()
    for row in sorted(rows):
        key = row.lead_id, row.source == CORRECTION
        if newest.get(key) != row.payload:
            newest[key] = row.payload
            kept.append(row)
    return kept


def without_returned(
    rows: Iterable[Row], received: Iterable[Row], gone: Collection[str]
) -> list[Row]:
    """Leave out rows of leads that were gone and are received again with the same text.

    They count from now on. Otherwise a lead that goes to another window and comes back would stay
    published in the other one.
    """
    returned = {(row.lead_id, row.payload) for row in received if row.lead_id in gone}
    return [row for row in rows if (row.lead_id, row.payload) not in returned]


def newest_payloads(rows: Iterable[Row]) -> dict[str, str]:
    """Return the text that counts for each lead. `rows` are merged."""
    return {row.lead_id: row.payload for row in rows if row.source != CORRECTION}


def landed_versions(rows: Sequence[Row]) -> list[LandedVersion]:
    """Return the versions among the merged rows of a window, in their order."""
    corrections: dict[str, tuple[list[str], int]] = {}
    for row in rows:
        if row.source == CORRECTION:
            before, _ = corrections.get(row.lead_id, ([], 0))
            corrections[row.lead_id] = ([*before, row.payload], row.number)
    return [
        LandedVersion(*row, *corrections.get(row.lead_id, ()))
        for row in rows
        if row.source != CORRECTION
    ]


def corrected(text: str | bytes, patch: str) -> bytes:
    """Lay a correction over a lead's text. All else stays as it was written.

    Raises ValueError if the text is no object, or too deeply nested.
    """
    try:
        return _patched(text, msgspec.json.decode(patch))
    except RecursionError as error:
        raise ValueError(*error.args) from None


def _patched(text: str | bytes, patch: Mapping[str, Any]) -> bytes:
    members = _MEMBERS.decode(text)
    for name, value in patch.items():
        if value is None:
            members.pop(name, None)
        elif isinstance(value, dict):
            inner = bytes(members.get(name, b""))
            members[name] = msgspec.Raw(_patched(inner if inner.startswith(b"{") else b"{}", value))
        else:
            members[name] = msgspec.Raw(msgspec.json.encode(value))

    return msgspec.json.encode(members)


def hash_of(content: bytes) -> str:
    """Return the hash that a file's name has."""
    return hashlib.sha256(content).hexdigest()[:_HASH_DIGITS]


def arrow_table(rows: Sequence[Row]) -> pa.Table:
    """Return the rows as an Arrow table."""
    ids, numbers, payloads, sources = zip(*rows, strict=True) if rows else [()] * len(SCHEMA)
    columns = [_texts(ids), _integers(numbers), _texts(payloads), _texts(sources)]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _texts(texts: Sequence[str]) -> pa.StringArray:
    # `pa.array` of a list imports pandas, if that is installed: 0.15 s in each process that lands
    # something (measured).
    encoded = [text.encode() for text in texts]
    ends = array("i", [0, *accumulate(map(len, encoded))])
    return pa.StringArray.from_buffers(
        len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))
    )


def _integers(numbers: Sequence[int]) -> "pa.Array[Any]":
    # Without `pa.array`, as in _texts.
    return pa.Array.from_buffers(
        pa.int64(), len(numbers), [None, pa.py_buffer(array("q", numbers))]
    )


def to_parquet(rows: Sequence[Row], footer: Footer) -> bytes:
    """Return the rows as a Parquet file. The same rows and footer give the same bytes."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        SCHEMA,
        # Only payloads are worth a compressor. Statistics and dictionaries would be a third of a
        # file of 20 leads.
        compression={name: "zstd" if name == "payload" else "none" for name in SCHEMA.names},
        compression_level={"payload": 1},
        use_dictionary=["source"],  # type: ignore[arg-type]  # the stubs know only bool
        write_statistics=False,
        store_schema=False,
    ) as writer:
        if rows:
            writer.write_table(arrow_table(rows))
        facts = {
            "format": str(FORMAT),
            "run_id": footer.run_id,
            "body_hash": footer.body_hash,
            "list_number": str(footer.newest_entry),
        }
        if footer.is_anonymous:
            facts[_PERSONAL] = "anonymous"
        if footer.gone:
            facts["gone"] = json.dumps(sorted(footer.gone))
        writer.add_key_value_metadata(facts)

    return sink.getvalue().to_pybytes()


@dataclass(frozen=True, slots=True)
class Opened:
    """A file's footer, and its rows when they are asked for."""

    file: pq.ParquetFile
    footer: Footer

    @property
    def rows(self) -> list[Row]:
        """The file's rows. They are read anew each time."""
        table = self.file.read(use_threads=False)
        return list(map(Row, *(table[name].to_pylist() for name in Row._fields)))


def parquet_of(content: bytes) -> pq.ParquetFile:
    """Open a Parquet file that is in memory. Read it with `use_threads=False`.

    If a thread of Arrow's lets go of `content` while Python ends, the process is aborted
    (apache/arrow#34314). Reading ahead has such threads too.
    """
    return pq.ParquetFile(pa.BufferReader(content), pre_buffer=False)  # noqa: TID251 - the one place


def open_raw(content: bytes) -> Opened | None:
    """Open a raw file, None if the bytes are no raw file.

    Raises StorageError if a newer pipeline wrote it.
    """
    try:
        file = parquet_of(content)
    except pa.ArrowInvalid:
        return None

    facts = {key.decode(): value.decode() for key, value in (file.metadata.metadata or {}).items()}
    format_there = int(facts.get("format", "0"))

    if format_there > FORMAT:
        raise StorageError(
            f"A raw file has format {format_there}, and this version of leads-pipeline reads "
            f"format {FORMAT}. Install the newer version again. The file is untouched."
        )
    if format_there < FORMAT or not file.schema_arrow.equals(SCHEMA):
        return None

    footer = Footer(
        run_id=facts["run_id"],
        body_hash=facts["body_hash"],
        newest_entry=int(facts["list_number"]),
        is_anonymous=_PERSONAL in facts,
        gone=frozenset(json.loads(facts.get("gone", "[]"))),
    )
    return Opened(file, footer)
