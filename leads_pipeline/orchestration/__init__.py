"""Dagster: assets, schedules, sensors, runs without the UI, and Dagster's own event log.

Belongs here: everything that needs Dagster. Doesn't: which window is due (domain/due.py), raw files
(raw/), requests (portal/). Nothing is decided by Dagster's events: they are for people. A lost
database costs history, no lead.
"""
