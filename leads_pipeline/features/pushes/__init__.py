"""Pushes: a receiver of leads that the portal sends by itself."""

from typing import Final

from leads_pipeline.features.feature import Command, Feature

FEATURE: Final = Feature(
    name="pushes",
    commands={
        "receive": Command("leads_pipeline.features.pushes.command:receive", "Receive leads that the portal pushes.")
    },
)
