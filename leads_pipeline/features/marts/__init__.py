"""Marts for analysts that nothing else in the package reads.

The marts that features, checks, commands or other marts read lie in `leads_pipeline/sql/`.
"""

from typing import Final

from leads_pipeline.features.feature import Feature

FEATURE: Final = Feature(name="marts", has_marts=True)
