"""Leads of two people in one window of a data folder, whichever folder that is.

Belongs here: landing them, and which are there. Doesn't: publishing (house.py).
"""

import json
from typing import Any

from leads_pipeline.domain.contract import APPLICANT, ReceivedLead
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.names import place_of
from leads_pipeline.raw.rows import merged, newest_payloads
from leads_pipeline_tests.support.people import EMAIL, lead
from leads_pipeline_tests.support.sample_answers import CLOSED_AT, WINDOW

PLACE = place_of(APPLICANT, WINDOW)
HERS = lead("hers", email=EMAIL, createdAt="2026-11-19T10:00:00Z")
OTHERS = lead("others", email="john@people.example", createdAt="2026-11-19T10:00:00Z")


def received(*leads: dict[str, Any]) -> list[ReceivedLead]:
    """The leads as an answer has them."""
    return [ReceivedLead(str(one["id"]), json.dumps(one)) for one in leads]


def ids(data: DataFolder) -> set[str]:
    """The ids in the window."""
    return set(newest_payloads(merged(data.raw.read(PLACE).rows)))


def land(data: DataFolder, *leads: dict[str, Any]) -> None:
    """Pull the window. The portal answers with these leads."""
    data.raw.land(APPLICANT, WINDOW, received(*leads), CLOSED_AT, json.dumps(leads), "run-1")
