"""The marts: tables and views of figures that are made of leads alone.

    sql/         a file a mart, macros that they use, and a check of the figures
    verify.py    whether they count each lead once

To add a mart, add a file. `lead_facts` and `mart_coverage`, which marts read, are the core's.
"""

from typing import Final

from leads_pipeline.features.feature import Feature

FEATURE: Final = Feature(
    name="marts",
    has_marts=True,
    verifier="leads_pipeline.features.marts.verify:verify",
)
