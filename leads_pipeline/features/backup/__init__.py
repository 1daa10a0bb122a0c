"""Backups: snapshots of the data folder in a folder on another disk, and the way back."""

from typing import Final

from leads_pipeline.features.feature import Command, Feature

FEATURE: Final = Feature(
    name="backup",
    commands={
        "backup": Command(
            "leads_pipeline.features.backup.command:backup",
            "Back up everything that can't be downloaded again.",
        ),
        "restore": Command(
            "leads_pipeline.features.backup.command:restore",
            "Restore a backup into an empty folder.",
        ),
    },
    finders="leads_pipeline.features.backup.findings",
)
