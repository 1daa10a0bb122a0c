"""Parquet files that show each flipped bit, and say where they belong.

Belongs here: writing one to memory, sealing it, opening it. Doesn't: what its rows are (rows.py), where it lies.
"""

import hashlib
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from leads_pipeline.durable import not_read
from leads_pipeline.errors import StorageError
from leads_pipeline.lake.arrays import array_of, rows_in
from leads_pipeline.lake.rows import Row, sequence_of

# Raised when an older version of the pipeline could no longer read what is written. Files of 1 have no `sequence`, nor
# what the last answer held where it changed nothing; they are read as they are, for ever.
SCHEMA_VERSION: Final = "2"

# Columns with few values; the others would only pay for a dictionary.
_DICTIONARY_COLUMNS: Final = ("kind", "scope", "address", "run_id", "source", "oddity")

_SEAL_BYTES: Final = hashlib.sha256().digest_size


class UnreadableError(Exception):
    """The file's content isn't what was written there. Its text says why in a few words and quotes nothing."""


def parquet(rows: Sequence[Row], schema: pa.Schema, facts: Mapping[str, str]) -> bytes:
    """The rows as a Parquet file with the facts in its footer, sealed."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        schema,
        # Each column that is compressed takes a compressor of its own, which for the short ones costs more than all of
        # the payloads, and saves a tenth of the file.
        compression={name: "zstd" if name == "payload" else "none" for name in schema.names},
        compression_level={"payload": 3},
        use_dictionary=[name for name in schema.names if name in _DICTIONARY_COLUMNS],  # type: ignore[arg-type]  # the stubs know only bool
        # Neither is read by anybody here, and with 20 leads a file they would be a third of it.
        write_statistics=False,
        store_schema=False,
    ) as writer:
        writer.write_table(_table(rows, schema))
        writer.add_key_value_metadata({**facts, "schema_version": SCHEMA_VERSION})
    return seal(sink.getvalue().to_pybytes())


def _table(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    columns = zip(*map(itemgetter(*schema.names), rows), strict=True) if rows else ((),) * len(schema)
    arrays = [array_of(values, type_) for values, type_ in zip(columns, schema.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def seal(content: bytes) -> bytes:
    """The Parquet file with the SHA-256 of all of it in the gap before its footer.

    Parquet's own checksums cover pages and not the footer, where a flipped bit can hide all rows without an error or
    stop DuckDB in a file that pyarrow reads. Readers find pages by their offsets and never look into the gap.
    """
    at = _footer_start(content)
    return content[:at] + hashlib.sha256(content).digest() + content[at:]


def is_intact(content: bytes) -> bool:
    """Whether a sealed file is what was written, to the last bit."""
    at = _footer_start(content)
    if at < _SEAL_BYTES:
        return False
    return hashlib.sha256(content[: at - _SEAL_BYTES] + content[at:]).digest() == content[at - _SEAL_BYTES : at]


def seal_of(content: bytes) -> bytes:
    """The SHA-256 that a sealed file has in its gap."""
    at = _footer_start(content)
    return content[max(at - _SEAL_BYTES, 0) : max(at, 0)]


def _footer_start(content: bytes) -> int:
    # A Parquet file ends with its footer, the footer's length in 4 bytes, and "PAR1".
    return len(content) - 8 - int.from_bytes(content[-8:-4], "little")


def open_parquet(path: Path, schema: pa.Schema, relative: str) -> tuple[pq.ParquetFile, dict[str, str]]:
    """The file, opened in memory, and the facts of its footer.

    Raises UnreadableError for content that isn't what was written there; FileNotFoundError where there is none;
    StorageError where the disk or the permissions are at fault.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise not_read(path, error) from error
    return opened(content, schema, relative, str(path))


def opened(content: bytes, schema: pa.Schema, relative: str, where: str) -> tuple[pq.ParquetFile, dict[str, str]]:
    """The same of a file's content, which lies at `where` and belongs at `relative`."""
    if not is_intact(content):
        raise UnreadableError("it is damaged, or no file of this pipeline")
    file = pq.ParquetFile(pa.BufferReader(content))
    facts = {key.decode(): value.decode() for key, value in (file.metadata.metadata or {}).items()}
    version = facts["schema_version"]
    if version == "1":
        schema = schema.remove(schema.get_field_index("sequence"))
    elif version != SCHEMA_VERSION:
        raise StorageError(
            f"{where} has format {version}, and this version of leads-pipeline reads up to {SCHEMA_VERSION}. "
            "Update leads-pipeline; the file is untouched."
        )
    if facts["path"] != relative or not file.schema_arrow.equals(schema):
        raise UnreadableError("it was written for another place than this one")
    return file, facts


def rows_of(file: pq.ParquetFile, columns: list[str] | None = None) -> list[Row]:
    """The file's rows, whole or of those columns and `sequence`."""
    return [
        row if "sequence" in row else row | {"sequence": sequence_of(None, row["fetched_at"])}
        for row in rows_in(file.read(columns, use_threads=False))
    ]
