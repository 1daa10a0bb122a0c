"""The columns of every table that a day is staged into, with what an analyst reads of each."""

from collections.abc import Sequence
from typing import Final

from leads_pipeline.contract import INVENTORY_FIELDS, ChildTable, Field, LeadKind
from leads_pipeline.duck import DUCKDB_TYPES, Column, quoted

# A lead's text, beside its columns while a day is flattened; of a plain one NULL where nobody will look into it. No
# field's column can have that name.
BODY: Final = quoted("text of the lead")

# Fields that a lead is worth little without, with their paths: where one is NULL, counts.py looks into the text.
WITNESSES: Final = {
    "created_at": "createdAt",
    "contact_email": "contact.email",
    "contact_phone_number": "contact.phoneNumber",
}

# Of a plain lead, in SQL.
TEXT_IS_READ: Final = " or ".join(f"{column} is null" for column in WITNESSES)


def extras_column(child: ChildTable) -> str:
    """Name of the column with what is new in each element of a plain lead's list, beside its columns as well."""
    return f"extras of {child.name}"


def list_column(child: ChildTable) -> str:
    """Name, quoted, of the column with an odd lead's list as JSON."""
    return quoted(f"list of {child.name}")


def elements_column(child: ChildTable) -> str:
    """Name, quoted, of the column with a plain lead's list."""
    return quoted(f"elements of {child.name}")


def more_columns(kind: LeadKind) -> list[str]:
    """Names, quoted, of all columns that stand beside a lead's own while it is flattened."""
    of_lists = ([list_column(child), elements_column(child), quoted(extras_column(child))] for child in kind.children)
    return [BODY, *(column for columns in of_lists for column in columns)]


def staged_columns(kind: LeadKind) -> dict[str, tuple[Column, ...]]:
    """The columns of every table that a day of the kind is staged into, in order."""
    tables = {kind.table: (*_LEAD_COLUMNS, *_declared(kind.fields), *_DRIFT_COLUMNS)}
    tables |= {child.name: (*_CHILD_COLUMNS, *_declared(child.fields), *_DRIFT_COLUMNS) for child in kind.children}
    return tables | {windows_table(kind): WINDOW_COLUMNS}


def windows_table(kind: LeadKind) -> str:
    """Name of the table with one row per raw file of the kind."""
    return f"{kind.name}_windows"


def staged_tables(kind: LeadKind) -> tuple[str, ...]:
    """Every table that a day of the kind is staged into: the leads, their children, the windows."""
    return (*kind.tables, windows_table(kind))


_LEAD_COLUMNS: Final = (
    Column("lead_id", "varchar", "The lead's own id; sha256: and the hash of its payload where it has none"),
    Column("lead_day", "date", "Local day on which the lead was submitted; the window's day where that is unknown"),
    Column(
        "scope",
        "varchar",
        "Scope whose window held this version, e.g. branch-101; push for a delivery of no configured one",
    ),
    Column("fetched_at", "timestamptz", "When this version of the lead was first received, UTC"),
    Column(
        "sequence",
        "bigint",
        "Number of the last answer or delivery that held this version; of two versions the higher one is the newer",
        stand_in="epoch_us(staged.fetched_at)",
    ),
    Column("source", "varchar", "How this version was received: pull or push"),
    Column("window_day", "date", "Day of the window that held this version; lead_day may be the next at midnight"),
)
_CHILD_COLUMNS: Final = (
    Column("lead_id", "varchar", "The lead that it belongs to"),
    Column("position", "integer", "Place in the lead's list, from 0"),
)
_DRIFT_COLUMNS: Final = (
    Column("_problems", "varchar[]", "Fields whose value fits no column, and what else is odd; raw has the exact text"),
    Column("_extra", "json", "Fields that the contract doesn't know, nested and written as received"),
)
WINDOW_COLUMNS: Final = (
    Column("scope", "varchar", "Scope of the window, e.g. branch-101"),
    Column("window_day", "date", "Day of the window in the pipeline's time zone"),
    Column("window_start", "timestamptz", "First moment of the window, UTC"),
    Column("window_end", "timestamptz", "First moment after the window, UTC"),
    Column("rows", "bigint", "Leads landed for the window; one that several windows hold counts in each"),
    Column("removed", "bigint", "Leads of the window that were erased or set aside, or refused since", stand_in="0"),
    Column("received", "bigint", "Leads that the portal sent for the window: rows and removed", stand_in="staged.rows"),
    Column(
        "looked_at",
        "timestamptz",
        "When the last answer was fetched, whether it changed anything or not, UTC",
        stand_in="staged.fetched_at",
    ),
    Column("fetched_at", "timestamptz", "When the last answer that changed something was fetched, UTC"),
    Column("run_id", "varchar", "Run that landed that answer"),
    Column("attempts", "integer", "Requests that the answer took, retries included"),
    Column("is_closed", "boolean", "Whether an answer from after the window's end was landed"),
    Column("is_partial", "boolean", "Whether the portal had begun to delete the window before it was pulled whole"),
)


def _declared(fields: Sequence[Field]) -> tuple[Column, ...]:
    return tuple(Column(field.column, DUCKDB_TYPES[field.type], field.description) for field in fields)


INVENTORY_COLUMNS: Final = (
    Column("item_id", "varchar", "The item's own id; sha256: and the hash of its payload where it has none"),
    Column("first_seen_day", "date", "First day on which a search found the item"),
    Column("last_seen_day", "date", "Last day on which a search found the item"),
    Column("fetched_at", "timestamptz", "When this version of the item was first received, UTC"),
    Column("searched_address", "varchar", "Place whose search found this version"),
    *_declared(INVENTORY_FIELDS),
    *_DRIFT_COLUMNS,
)
