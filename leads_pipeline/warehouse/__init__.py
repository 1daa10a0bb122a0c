"""From raw leads to leads.duckdb.

Belongs here: reading a lead's text (typed_rows.py), the tables of leads (tables.py), filling them
(flatten.py), publishing them as a file (publication.py, editions.py), reading that file
(published.py) and checking it (checks.py), and what analysts read besides: marts, drift.
Nothing here knows the portal, people's requests or Dagster. features/publication_steps.py says what
is published, and in which order. What a feature adds is in its folder: features/inventory/table.py
loads the inventory.
"""
