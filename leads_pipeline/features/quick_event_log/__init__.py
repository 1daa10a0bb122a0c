"""The quick event log: Dagster's state over connections that stay open, in SQLite or Postgres.

It changes and calls names of Dagster that aren't documented. If a release moves them, or without
this feature, Dagster's own classes do the work. `orchestration/event_log.py` has the class paths
that dagster.yaml files name.

    sqlite.py           the events of many windows at once, in Dagster's own files
    postgres.py         likewise in Postgres, whose address may lie in a file
    dagster_yaml.py     what a new dagster.yaml says of them
"""

from typing import Final

from leads_pipeline.features.feature import Feature

FEATURE: Final = Feature(
    name="quick_event_log",
    settings="leads_pipeline.features.quick_event_log.settings:QuickEventLogSettings",
    dagster_yaml="leads_pipeline.features.quick_event_log.dagster_yaml:section",
)
