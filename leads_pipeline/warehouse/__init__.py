"""leads.duckdb: changed days in, each lead once, marts rebuilt, and the whole file swapped in at once.

Belongs here: what is loaded when, which of a lead's versions counts, publication. Doesn't: how a payload becomes
columns (flatten/), what a mart holds (sql/), when to publish (assets/).

This is the door: whoever uses the warehouse imports from here, and the rooms from each other, downwards: publication,
reading, loading, winners, pieces, state, sql_marts and people, grid and answers, schema.
"""

from leads_pipeline.warehouse.grid import Grid
from leads_pipeline.warehouse.people import set_person_key
from leads_pipeline.warehouse.publication import Publication, Warehouse
from leads_pipeline.warehouse.reading import Reader, Version, holding_version
from leads_pipeline.warehouse.reading import reading as version_of
from leads_pipeline.warehouse.schema import Table, comment, tables
from leads_pipeline.warehouse.sql_marts import Mart, marts, read_statement

__all__ = [
    "Grid",
    "Mart",
    "Publication",
    "Reader",
    "Table",
    "Version",
    "Warehouse",
    "comment",
    "holding_version",
    "marts",
    "read_statement",
    "set_person_key",
    "tables",
    "version_of",
]
