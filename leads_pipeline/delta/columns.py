"""The published tables as Delta describes them: what becomes of DuckDB's types, and by which column a table has days.

Belongs here: columns, and how they are selected. Doesn't: files and versions.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

from leads_pipeline.duck import quoted
from leads_pipeline.warehouse import Reader, day_column

# What has no type of its own there, such as uuid and json, becomes text.
_TYPES: Final = {
    "BIGINT": "long",
    "BOOLEAN": "boolean",
    "DATE": "date",
    "DOUBLE": "double",
    "INTEGER": "integer",
    "TIMESTAMP WITH TIME ZONE": "timestamp",
}

# The part of a table that has no days.
WHOLE: Final = "whole"


@dataclass(frozen=True, slots=True)
class Shape:
    """A table of leads.duckdb. `schema` is JSON as the Delta protocol has it; `columns` and `select` are in SQL.

    `day` is the column by whose days it is replaced, None where it is replaced whole.
    """

    name: str
    day: str | None
    schema: str
    columns: str
    select: str

    def rows_of(self, part: str) -> str:
        """The statement that selects the rows of a part."""
        where = f" where {quoted(self.day)} = date '{part}'" if self.day else ""
        return f"select {self.select} from {quoted(self.name)}{where}"  # noqa: S608 - names of the file's catalogue


def shapes_of(db: Reader) -> list[Shape]:
    """Every table and mart of the published file. Raises StorageError."""
    _, rows = db.query(
        "select table_name, list(column_name order by column_index), list(data_type order by column_index), "
        "list(comment order by column_index) from duckdb_columns() where not internal and schema_name = 'main' "
        "and database_name = current_database() group by table_name order by table_name"
    )
    return [
        Shape(
            name,
            day_column(name),
            _schema(columns, types, comments),
            ", ".join(map(quoted, columns)),
            ", ".join(map(_selected, columns, types)),
        )
        for name, columns, types, comments in rows
    ]


def _schema(columns: list[str], types: list[str], comments: list[str | None]) -> str:
    fields = [
        {
            "name": column,
            "type": _delta_type(type_),
            "nullable": True,
            "metadata": {"comment": comment} if comment else {},
        }
        for column, type_, comment in zip(columns, types, comments, strict=True)
    ]
    return json.dumps({"type": "struct", "fields": fields})


def _delta_type(type_: str) -> str | dict[str, Any]:
    if type_.endswith("[]"):
        return {"type": "array", "elementType": _delta_type(type_.removesuffix("[]")), "containsNull": True}
    return type_.lower() if type_.startswith("DECIMAL") else _TYPES.get(type_, "string")


def _selected(column: str, type_: str) -> str:
    element = type_.rstrip("[]")
    is_kept = element in _TYPES or element.startswith("DECIMAL")
    as_text = "varchar" + type_[len(element) :]
    return quoted(column) if is_kept else f"{quoted(column)}::{as_text} as {quoted(column)}"
