"""The marts into the schema leads of a PostgreSQL database where DuckDB may not fetch its extension; all, or none.

    .venv/bin/python examples/sending_on/postgres_by_csv.py data/leads.duckdb

Needs psql on the path, and PGHOST, PGDATABASE, PGUSER and PGPASSWORD as psql does. Columns that are
lists (mart_people.branches) go as text.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb

TYPES = {
    "VARCHAR": "text",
    "DOUBLE": "double precision",
    "TIMESTAMP WITH TIME ZONE": "timestamptz",
    "HUGEINT": "numeric",
}


def main(file: str) -> None:
    """Replace every mart, with its names of columns and types."""
    with duckdb.connect(file, read_only=True) as db, tempfile.TemporaryDirectory() as folder:
        db.execute("set TimeZone = 'UTC'")
        script = ["create schema if not exists leads;"]
        names = "select table_name from duckdb_tables() where table_name = 'branches' or table_name like 'mart_%'"
        for (mart,) in db.sql(names).fetchall():
            path = Path(folder) / f"{mart}.csv"
            # Nothing and an empty text are told apart as PostgreSQL's CSV does: bare, and in quotes.
            db.execute(f"copy {mart} to '{path}' (format csv, header, force_quote *)")
            columns = [
                f'"{name}" {"text" if type_.endswith("[]") else TYPES.get(type_, type_)}'
                for name, type_, *_ in db.execute(f"describe {mart}").fetchall()
            ]
            script += [
                f"drop table if exists leads.{mart};",
                f"create table leads.{mart} ({', '.join(columns)});",
                f"\\copy leads.{mart} from '{path}' (format csv, header)",
            ]
        # One transaction, which the first error ends.
        psql = ["psql", "--quiet", "--no-psqlrc", "--single-transaction", "--set", "ON_ERROR_STOP=1"]
        subprocess.run(psql, input="\n".join(script), text=True, check=True)


main(sys.argv[1])
