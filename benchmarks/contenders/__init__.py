"""Scripts that run side by side: each pulls the environment's windows into Parquet and DuckDB."""
