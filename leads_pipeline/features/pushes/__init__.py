"""Pushes: a receiver of leads that the portal sends by itself."""

from typing import Final

from leads_pipeline.features.feature import Command, Feature

FEATURE: Final = Feature(
    name="pushes",
    settings="leads_pipeline.features.pushes.settings:PushSettings",
    commands={
        "receive": Command(
            "leads_pipeline.features.pushes.command:receive",
            "Receive leads that the portal pushes.",
        )
    },
    finders="leads_pipeline.features.pushes.findings",
)
