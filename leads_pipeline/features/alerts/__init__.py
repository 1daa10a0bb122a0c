"""Alerts: a digest of problems for each channel, and a heartbeat for an outside monitor."""

from typing import Final

from leads_pipeline.features.feature import Command, Feature

FEATURE: Final = Feature(
    name="alerts",
    settings="leads_pipeline.features.alerts.settings:AlertSettings",
    commands={
        "alert": Command(
            "leads_pipeline.features.alerts.command:alert",
            "Send a test message to the alert channels.",
        )
    },
    definitions="leads_pipeline.features.alerts.sensor:definitions",
    needed="leads_pipeline.features.alerts.sensor:needed",
    finders="leads_pipeline.features.alerts.findings",
)
