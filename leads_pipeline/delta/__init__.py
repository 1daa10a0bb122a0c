"""The tables of leads.duckdb once more, as Delta tables that other engines read.

Belongs here: what of them lies below delta/, how it follows leads.duckdb, which versions belong together. Doesn't: what
the tables hold (warehouse/), when they are made (assets/).

The rooms, downwards: publishing, log, which alone imports deltalake and so is imported where tables are wanted; mirror,
versions, folder; columns.
"""
