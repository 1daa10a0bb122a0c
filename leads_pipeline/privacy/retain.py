"""The agency's own retention: a day becomes anonymous after so many days. Its rows stay and are counted.

Belongs here: which days are due, what is done to each in which order, the random ids in place of people. Doesn't: what
stays of a lead's text (cutting.py), rewriting a raw file (lake/), when it runs (assets/, cli/privacy.py).
"""

import hmac
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import UUID
from zoneinfo import ZoneInfo

import duckdb
import pyarrow.parquet as pq

from leads_pipeline.contract import LEAD_KINDS, LeadKind
from leads_pipeline.domain.cutting import cut_payload
from leads_pipeline.domain.person import email_keys, phone_keys, texts_of
from leads_pipeline.duck import connection, glob_literal, quoted
from leads_pipeline.durable import replace_file, storing
from leads_pipeline.errors import LeadsPipelineError, StorageError
from leads_pipeline.flatten.batches import STAGED_FORMAT, flatten_day
from leads_pipeline.flatten.columns import staged_columns
from leads_pipeline.flatten.lost import LostRawError
from leads_pipeline.lake import Lake
from leads_pipeline.warehouse import set_person_key
from leads_pipeline.window import today

# The folder that DuckDB spills to.
SCRATCH: Final = "retention"

_EMAIL: Final = "contact_email"


@dataclass(frozen=True, slots=True)
class CutDay:
    """A day of a kind that is made anonymous. `files` counts its raw files that weren't yet, `leads` its leads."""

    kind: LeadKind
    day: date
    files: int
    leads: int
    error: LeadsPipelineError | None = None


def due_before(now: datetime, zone: ZoneInfo, keep_days: int) -> date:
    """Leads of windows before this day are due: so many whole local days have passed since the end of each."""
    return today(zone, now) - timedelta(days=keep_days)


def cut_days(lake: Lake, before: date, zone: ZoneInfo, *, is_dry: bool = False) -> Iterator[CutDay]:
    """Make every day before that one anonymous, in raw, then staged. Give each day as it is done.

    The publication that has to follow writes `leads.duckdb` anew. A day that fails stays as it is and the others go
    on. A day that a killed process left, or that a push or a restore has filled again, is due again. A dry run only
    counts.
    """
    with lake.retaining():
        is_wanted = False
        for day in _days_before(lake, before):
            people, failed = _People(lake, day), False
            for kind in LEAD_KINDS:
                try:
                    files = [path for path in lake.raw_files(kind, day) if not lake.is_anonymous(path)]
                    leads = _named_leads(lake, kind, day)
                    if not files and not leads:
                        continue
                    if not is_dry:
                        if not is_wanted:
                            # First: a process that is killed after this leaves the request for a rebuild.
                            lake.want_rebuild()
                            is_wanted = True
                        leads = max(leads, _cut(lake, kind, day, files, people, zone))
                    yield CutDay(kind, day, len(files), leads)
                except LeadsPipelineError as error:
                    failed = True
                    yield CutDay(kind, day, 0, 0, error)
            if not is_dry and not failed:
                people.forget()


def _days_before(lake: Lake, before: date) -> list[date]:
    days = {
        day
        for kind in LEAD_KINDS
        for day in (*lake.landed_days(kind), *(file.day for file in lake.staged_files(kind.table)))
    }
    return sorted(day for day in days if day < before)


class _People:
    """Random ids in place of people, the same within a day and nowhere else.

    They are hashes under a key of the day. The key outlives a kill, and is deleted when the day is done.
    """

    def __init__(self, lake: Lake, day: date) -> None:
        self._path = lake.folder / ".state" / "anonymous" / day.isoformat()
        self._key = b""

    def address_of(self, email: str, phone: str) -> str | None:
        """The address that stands for the person of a lead from now on. None if it shows nobody."""
        keys = sorted(email_keys(email)) or sorted(phone_keys(phone))
        if not keys:
            return None
        if not self._key:
            self._key = self._made_key()
        person = UUID(bytes=hmac.digest(self._key, keys[0].encode(), "sha256")[:16])
        return f"{person}@removed.invalid"

    def address_in(self, payload: str) -> str | None:
        """The same of a lead's text."""
        texts = dict(texts_of(payload))
        return self.address_of(texts.get("contact.email", ""), texts.get("contact.phoneNumber", ""))

    def _made_key(self) -> bytes:
        with storing(self._path):
            if not self._path.exists():
                replace_file(self._path, secrets.token_bytes(32))
            return self._path.read_bytes()

    def forget(self) -> None:
        """Nobody can tell any more whose id it was."""
        self._path.unlink(missing_ok=True)


def _cut(lake: Lake, kind: LeadKind, day: date, files: list[Path], people: _People, zone: ZoneInfo) -> int:
    """Make the day anonymous. Return how many staged leads it has."""
    for path in files:
        lake.make_anonymous(path, lambda payload: cut_payload(kind, payload, people.address_in(payload)))
    try:
        return flatten_day(lake, kind, day, zone).rows[kind.table]
    except LostRawError:
        return _cut_staged(lake, kind, day, people)


def _staged(lake: Lake, table: str, day: date) -> Path | None:
    """The day's staged file of the table; None where there is none. Raises StorageError where it is damaged."""
    if not lake.staged_path(table, day).exists():
        return None
    path = lake.whole_staged(table, day)
    if path is None:
        raise StorageError(
            f"{table} of {day} is damaged in staged/, so nothing is cut out of it. Run `leads-pipeline backfill` "
            "twice: the first run notices it, the second stages the day anew."
        )
    return path


def _named_leads(lake: Lake, kind: LeadKind, day: date) -> int:
    """How many staged rows of the day's leads still have a personal or unknown field, in any of its tables."""
    ids: set[str] = set()
    with connection(lake, SCRATCH) as db:
        for table in kind.tables:
            if path := _staged(lake, table, day):
                columns_present = _columns(db, path)
                conditions = [
                    f"{quoted(name)} is not null"
                    for name in (*_personal(kind, table), "_extra")
                    if name in columns_present and name != _EMAIL
                ]
                conditions += ["len(_problems) > 0"] if "_problems" in columns_present else []
                conditions += (
                    [f"removed_person_of({_EMAIL}) is null and {_EMAIL} is not null"]
                    if _EMAIL in columns_present
                    else []
                )
                set_person_key(db, lake.person_key())
                sql = f"select lead_id from read_parquet($path) where {' or '.join(conditions)}"  # noqa: S608 - our own
                ids |= {lead_id for (lead_id,) in db.execute(sql, {"path": glob_literal(path)}).fetchall()}
    return len(ids)


def _cut_staged(lake: Lake, kind: LeadKind, day: date, people: _People) -> int:
    """Make staged leads anonymous that raw has lost. Return how many there are."""
    path = _staged(lake, kind.table, day)
    addresses: dict[str, str | None] = {}
    if path is not None:
        columns = ["lead_id", "contact_email", "contact_phone_number"]
        for row in pq.ParquetFile(path).read(columns, use_threads=False).to_pylist():
            addresses[row["lead_id"]] = people.address_of(row["contact_email"] or "", row["contact_phone_number"] or "")
    tables = [table for table in kind.tables if lake.staged_path(table, day).exists()]
    with lake.replacing_staged(tables, day) as targets, connection(lake, SCRATCH) as db:
        db.execute(
            "create table people as "
            "select unnest($ids::varchar[]) as lead_id, unnest($addresses::varchar[]) as address",
            {"ids": [*addresses], "addresses": [*addresses.values()]},
        )
        for table in tables:
            path = _staged(lake, table, day)
            personal = set(_personal(kind, table))
            columns_present = _columns(db, path) if path else {}
            selected = []
            for column in staged_columns(kind)[table]:
                name = quoted(column.name)
                if column.name not in columns_present:
                    continue
                if column.name == _EMAIL:
                    # One that was staged this moment is of the next run.
                    selected.append(f"if(people.lead_id is null, {name}, people.address) as {name}")
                elif column.name in personal or column.name == "_extra":
                    selected.append(f"if(people.lead_id is null, {name}, null) as {name}")
                elif column.name == "_problems":
                    selected.append(f"if(people.lead_id is null, {name}, []::varchar[]) as {name}")
                else:
                    selected.append(f"staged.{name}")
            order = "lead_id" if table == kind.table else "lead_id, position"
            db.execute(
                f"create or replace temp table cut as select {', '.join(selected)} "  # noqa: S608 - our own names
                f"from read_parquet($path, hive_partitioning = false) as staged left join people using (lead_id) "
                f"order by {order}",
                {"path": glob_literal(path) if path else ""},
            )
            db.execute(f"copy cut to $target {STAGED_FORMAT}", {"target": str(targets[table])})
    return len(addresses)


def _personal(kind: LeadKind, table: str) -> list[str]:
    """The columns of the table that identify a person."""
    fields = {kind.table: kind.fields} | {child.name: child.fields for child in kind.children}
    return [field.column for field in fields[table] if field.is_personal]


def _columns(db: duckdb.DuckDBPyConnection, path: Path) -> dict[str, str]:
    described = db.execute("describe select * from read_parquet($path)", {"path": glob_literal(path)}).fetchall()
    return {name: type_ for name, type_, *_ in described}
