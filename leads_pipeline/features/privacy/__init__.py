"""Privacy: the requests of people, and retention.

    suppression/       the list of people and requests, and the gate of raw windows
    identity.py        who counts as the person; contact_keys.py reads addresses, numbers and names
    search.py          every lead of a person, in each place that holds leads
    requests.py        requests as entries of the list
    carrying_out.py    publish without the people, look again; receipt.py has the words
    sweeping.py        raw files in line with the list; publishing.py has the steps of a publication
    retain.py          old days become anonymous; redact.py says what stays of a lead
    access.py          the answer to an access request

The other files are what the core asks for, and the commands.
"""

from typing import Final

from leads_pipeline.features.feature import Command, Feature

FEATURE: Final = Feature(
    name="privacy",
    settings="leads_pipeline.features.privacy.settings:PrivacySettings",
    commands={
        "privacy": Command(
            "leads_pipeline.features.privacy.command:privacy",
            "Find, export, erase or restrict a person's data.",
        )
    },
    finders="leads_pipeline.features.privacy.findings",
    gatekeeper="leads_pipeline.features.privacy.gatekeeper:gatekeeper",
    former_gate="leads_pipeline.features.privacy.publishing:GateForFormer",
    follow_list="leads_pipeline.features.privacy.publishing:FollowList",
    night="leads_pipeline.features.privacy.nightly:work_of_night",
    inputs="leads_pipeline.features.privacy.gatekeeper:newest_entry",
)
