"""From raw leads to leads.duckdb.

Belongs here: reading a lead's text (reader.py), the tables of leads (tables.py), filling them (flatten.py), publishing
them as a file (publish.py, versions.py), and what analysts read besides: marts, drift, their own answers (answers.py),
typed Parquet (typed.py), Delta tables (delta.py).
Nothing here knows files, the portal or Dagster. The pipeline doesn't use this folder yet: flatten/ and warehouse/ do
its work, and the tests compare both.
"""
