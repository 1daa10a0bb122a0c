"""A data folder whose raw windows are in memory, and what is published from it.

Belongs here: what the tests of the publication and of what follows it share. Doesn't: real raw
files (house.py).
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb

from leads_pipeline.domain.contract import LeadKind, lead_kind
from leads_pipeline.raw.rows import Row as RawRow
from leads_pipeline.raw.rows import landed_versions
from leads_pipeline.warehouse.current_leads import WindowKey, WindowLeads
from leads_pipeline.warehouse.load_leads import CheckLeads, LoadLeads, former_of
from leads_pipeline.warehouse.publication import publish
from leads_pipeline.warehouse.step import Publication, Step
from leads_pipeline.warehouse.tables import lead_tables
from leads_pipeline_tests.support.analyst import query
from leads_pipeline_tests.support.house import DAY, LONDON, NOW, Row

TABLES = [table.name for table in lead_tables()]
OLD_DAY = DAY - timedelta(days=90)

# An address that no file may hold once its person is refused.
SECRET = "jane.roe@people.example"


@dataclass
class Windows:
    """Raw windows in memory. `refused` are ids of the suppression list."""

    refused: set[str] = field(default_factory=set)
    versions: dict[WindowKey, list[tuple[int, Row]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    were_read: set[WindowKey] = field(default_factory=set)
    number: int = 0

    def land(
        self, *leads: Row, kind: str = "applicant", day: date = DAY, scope: str = "branch-101"
    ) -> WindowKey:
        """Add versions of leads with the next number."""
        self.number += 1
        self.versions[kind, day, scope] += [(self.number, lead) for lead in leads]
        return kind, day, scope

    def hashes(self, *, of_all_days: bool) -> dict[WindowKey, str]:
        return {
            key: hashlib.sha256(repr(leads).encode()).hexdigest()
            for key, leads in self.versions.items()
            if of_all_days or key[1] > OLD_DAY
        }

    def read(self, windows: Collection[WindowKey]) -> Iterable[WindowLeads]:
        self.were_read = set(windows)
        hashes = self.hashes(of_all_days=True)
        for kind, day, scope in sorted(windows):
            rows = [
                RawRow(lead["id"], number, json.dumps(lead))
                for number, lead in self.versions[kind, day, scope]
                if lead["id"] not in self.refused
            ]
            yield WindowLeads(
                lead_kind(kind), day, scope, landed_versions(rows), hashes[kind, day, scope]
            )


@dataclass
class Refuse(Step):
    """Takes out leads by their ids, as the suppression list does."""

    ids: set[str]
    rewriting: str

    def forgets_if(self) -> str:
        return f"{len(self.ids)} {self.rewriting}"

    def admit_former(self, db: duckdb.DuckDBPyConnection, kind: LeadKind) -> None:
        for table in kind.tables:
            former = former_of(table)
            db.execute(
                f"delete from {former} where lead_id in (select unnest($ids))",  # noqa: S608
                {"ids": [*self.ids]},
            )


@dataclass
class Folder:
    """A data folder and what its leads.duckdb is made from.

    The step `first` comes before leads are loaded, and `others` stands for all that is made of
    them. `rewriting` is a mark of the last rewriting of raw.
    """

    path: Path
    raw: Windows = field(default_factory=Windows)
    zone: ZoneInfo = LONDON
    rewriting: str = ""
    first: Step = field(default_factory=Step)
    others: Step = field(default_factory=Step)

    @property
    def file(self) -> Path:
        return self.path / "leads.duckdb"

    def publish(self, *, is_first_of_day: bool = False) -> Publication:
        gate = Refuse(self.raw.refused, self.rewriting)
        loading = LoadLeads(self.raw, [gate], self.zone, b"key")
        steps = [self.first, loading, CheckLeads(), self.others, gate]
        return publish(
            self.path, self.raw, steps, NOW, lock=nullcontext(), is_first_of_day=is_first_of_day
        )

    def query(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        return query(self.file, sql, *parameters)

    def tables(self) -> dict[str, list[tuple[Any, ...]]]:
        select = "select columns(lambda name: name <> 'published_in')"
        return {table: sorted(self.query(f"{select} from {table}"), key=repr) for table in TABLES}

    def messages(self) -> dict[str, str]:
        return dict(self.query("select lead_id, message from applicant_leads"))

    def versions(self) -> list[Path]:
        """The published files that are there."""
        return [*(self.path / ".versions").glob("leads-*.duckdb")]
