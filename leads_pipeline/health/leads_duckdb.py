"""Queries on leads.duckdb by findings, which go on if it is missing or damaged.

Belongs here: whether it was ever published and can be read. Doesn't: the finding about it
(findings.py), reading it (warehouse/published.py).
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from leads_pipeline.errors import LeadsPipelineError, StorageError
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.publications import Publications
from leads_pipeline.warehouse.duck import WAREHOUSE_FILE
from leads_pipeline.warehouse.editions import Editions
from leads_pipeline.warehouse.published import LeadsFile


class UnreadableFileError(StorageError):
    """leads.duckdb is missing or damaged, which is a finding of its own."""


class LeadsDuckdb:
    """leads.duckdb of a data folder. Before the first publication it has no rows."""

    def __init__(self, data: DataFolder, publications: Publications) -> None:
        self._data = data
        self._publications = publications

    @cached_property
    def was_published(self) -> bool:
        """Whether leads.duckdb was ever published here. It may be gone."""
        is_there = Editions(self._data.folder).current() is not None
        return is_there or self._publications.published_at is not None

    @cached_property
    def trouble(self) -> str:
        """Why leads.duckdb can't be read, empty if it can.

        Before the first publication there is no such file, which is no trouble.
        """
        if not self.was_published:
            return ""
        if not (self._data.folder / WAREHOUSE_FILE).exists():
            return "leads.duckdb is missing."

        try:
            self.query("from landed_windows limit 1")
        except LeadsPipelineError:
            return "leads.duckdb is damaged: it can't be opened."

        return ""

    def rows(
        self, statement: str, parameters: Mapping[str, object] | None = None, *, table: str = ""
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a query (see `query`).

        Empty before the first publication, or if that had no such table.
        """
        # An earlier release may have published the file.
        there = "select 1 from duckdb_tables() where table_name = $name"
        if not self.was_published or (table and not self.query(there, {"name": table})[1]):
            return []
        return self.query(statement, parameters)[1]

    def query(
        self, statement: str, parameters: Mapping[str, object] | None = None
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return the column names and rows of a query on leads.duckdb.

        Raises UnreadableFileError, and BugError.
        """
        try:
            return LeadsFile(self._data).query(statement, parameters)
        except StorageError as error:
            raise UnreadableFileError(str(error)) from None
