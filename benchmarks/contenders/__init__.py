"""What runs side by side: scripts that pull the windows that the environment names into Parquet and DuckDB."""
