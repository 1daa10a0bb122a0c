"""One day's raw leads, flattened: declared fields typed into columns, lists into child tables, the rest kept as JSON.

Belongs here: the DuckDB statement that contract.py's declarations become, and what a strict cast is. Doesn't: where
files lie (lake), each lead once over all days (warehouse). `batches` is where it begins.
"""
