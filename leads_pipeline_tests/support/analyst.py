"""What an analyst finds in a published file, by a connection of their own."""

from pathlib import Path
from typing import Any

import duckdb


def query(file: Path, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
    """The rows of a query, with moments in UTC."""
    with duckdb.connect(str(file), read_only=True) as db:
        db.execute("set TimeZone = 'UTC'")
        return db.execute(sql, parameters).fetchall()
