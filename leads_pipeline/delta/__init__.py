"""The tables of leads.duckdb once more, as Delta tables that other engines read.

Belongs here: writing them below delta/, in the data folder or in its bucket, and removing them. Doesn't: what the
tables hold (warehouse/), when they are written (assets/).

The rooms, downwards: publishing, which alone imports deltalake and so is imported only if tables are wanted; folder.
"""
