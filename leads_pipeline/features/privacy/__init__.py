"""Privacy: the requests of people, the suppression list and its gate, and retention."""

from typing import Final

from leads_pipeline.features.feature import Command, Feature

FEATURE: Final = Feature(
    name="privacy",
    settings="leads_pipeline.features.privacy.settings:PrivacySettings",
    commands={
        "privacy": Command(
            "leads_pipeline.features.privacy.command:privacy", "Find, export, erase or restrict a person's data."
        )
    },
    finders="leads_pipeline.features.privacy.findings",
    gatekeeper="leads_pipeline.features.privacy.gatekeeper:gatekeeper",
    former_gate="leads_pipeline.features.privacy.publishing:GateForFormer",
    follow_list="leads_pipeline.features.privacy.publishing:FollowList",
    night="leads_pipeline.features.privacy.nightly:work_of_night",
)
