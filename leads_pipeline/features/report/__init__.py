"""The report: one page of figures for any browser, written after each publication."""

from typing import Final

from leads_pipeline.features.feature import Feature

FEATURE: Final = Feature(
    name="report",
    published_asset="leads_pipeline.features.report.asset:report_asset",
)
