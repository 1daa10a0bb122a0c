"""Leads of a property portal, pulled day by day and branch by branch into Parquet and DuckDB with Dagster."""
