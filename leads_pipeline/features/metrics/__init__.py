"""Metrics: the figures of `status`, for Prometheus."""

from typing import Final

from leads_pipeline.features.feature import Command, Feature

FEATURE: Final = Feature(
    name="metrics",
    commands={
        "metrics": Command(
            "leads_pipeline.features.metrics.command:metrics",
            "Print or serve the figures for Prometheus.",
        )
    },
)
