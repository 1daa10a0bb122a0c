"""Export: tables as files for spreadsheets and BI."""

from typing import Final

from leads_pipeline.features.feature import Command, Feature

FEATURE: Final = Feature(
    name="export",
    commands={
        "export": Command(
            "leads_pipeline.features.export.command:export",
            "Write tables as files for spreadsheets and BI.",
        )
    },
)
