"""All tables and views that the product makes in leads.duckdb."""

from leads_pipeline.extensions import brought
from leads_pipeline.warehouse.branch_names import BRANCHES
from leads_pipeline.warehouse.drift import DRIFT
from leads_pipeline.warehouse.marts import marts
from leads_pipeline.warehouse.tables import Table, lead_tables


def other_tables() -> tuple[Table, ...]:
    """Return the tables that are neither of leads nor marts."""
    return BRANCHES, DRIFT, *brought("table")


def table_names() -> set[str]:
    """Return the names of all, those of marts included."""
    return {table.name for table in (*lead_tables(), *other_tables(), *marts())}
