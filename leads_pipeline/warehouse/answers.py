"""The agency's own answers to leads, from an export of its CRM: answers.csv or answers.parquet in the data folder.

Belongs here: reading what somebody else wrote, whatever it is. Doesn't: which rows count (sql/answers.sql). Nothing in
the file holds a publication back: what can't be read is a row that says so.
"""

import csv
from collections.abc import Iterator
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

import duckdb

from leads_pipeline.lake import Lake
from leads_pipeline.warehouse.schema import fill

_NAMES: Final = ("answers.csv", "answers.parquet")
_COLUMNS: Final = ("lead_id", "answered_at")


class _Answer(NamedTuple):
    """A row of the file: its number, from 1 below the header, and what it holds; or what is wrong with all of it."""

    number: int | None
    lead_id: str | None = None
    answered_at: datetime | None = None
    problem: str | None = None


def answers_fingerprint(lake: Lake) -> tuple[object, ...]:
    """Changes whenever one of the files is written or removed."""
    stats = [path.stat() for path in _files(lake)]
    return tuple((stat.st_size, stat.st_mtime_ns, stat.st_ino) for stat in stats)


def set_answers(db: duckdb.DuckDBPyConnection, lake: Lake, zone: ZoneInfo) -> None:
    """Make the temporary table answers_written. A moment without an offset is in that zone."""
    answers = [answer for path in _files(lake) for answer in _read(path, zone)]
    db.execute(
        "create temp table answers_written (number bigint, lead_id varchar, answered_at timestamptz, problem varchar)"
    )
    fill(
        db,
        "answers_written",
        {
            "number bigint": [answer.number for answer in answers],
            "lead_id varchar": [answer.lead_id for answer in answers],
            "answered_at timestamptz": [answer.answered_at for answer in answers],
            "problem varchar": [answer.problem for answer in answers],
        },
    )


def _files(lake: Lake) -> list[Path]:
    return [path for name in _NAMES if (path := lake.folder / name).exists()]


def _read(path: Path, zone: ZoneInfo) -> Iterator[_Answer]:
    number = None
    try:
        rows = _parquet_rows(path) if path.suffix == ".parquet" else _csv_rows(path)
        for number, (lead_id, written) in enumerate(rows, start=1):
            yield _Answer(number, (lead_id or "").strip() or None, _moment(written or "", zone))
    except OSError as error:
        yield _Answer(number, problem=f"{path.name} can't be read: {error.strerror}")
    except (csv.Error, UnicodeDecodeError, duckdb.Error):
        yield _Answer(number, problem=f"{path.name} is no CSV in UTF-8, or no Parquet file, from here on")
    except KeyError:
        yield _Answer(number, problem=f"{path.name} has no column lead_id, or none answered_at")


def _csv_rows(path: Path) -> Iterator[tuple[str, str]]:
    rows = csv.reader(StringIO(path.read_bytes().decode("utf-8-sig"), newline=""))
    header = [column.strip().lower() for column in next(rows, [])]
    if missing := set(_COLUMNS) - set(header):
        raise KeyError(*missing)
    at = [header.index(column) for column in _COLUMNS]
    for row in rows:
        if row:
            cells = [*row, *[""] * len(header)]
            yield cells[at[0]], cells[at[1]]


def _parquet_rows(path: Path) -> Iterator[tuple[str, str]]:
    # A connection of its own, as an error would end the publication's transaction.
    with duckdb.connect() as db:
        db.execute("set TimeZone = 'UTC'")
        columns_present = {
            name for name, *_ in db.execute("describe from read_parquet($path)", {"path": str(path)}).fetchall()
        }
        if missing := set(_COLUMNS) - columns_present:
            raise KeyError(*missing)
        yield from db.execute(
            "select lead_id::varchar, answered_at::varchar from read_parquet($path)", {"path": str(path)}
        ).fetchall()


def _moment(written: str, zone: ZoneInfo) -> datetime | None:
    """2026-11-19T10:40:00Z, or 2026-11-19 10:40 in the agency's zone; None for anything else, and a mere day."""
    text = written.strip()
    try:
        moment = datetime.fromisoformat(text)
        return None if ":" not in text else (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
