"""Findings, figures, alerts, and the questions of `doctor` and `verify`."""

from typing import Final

# The modules of finders, loaded when somebody looks. Features add theirs.
FINDER_MODULES: Final = ["leads_pipeline.observe.findings"]
