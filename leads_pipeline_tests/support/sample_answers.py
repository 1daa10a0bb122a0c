"""Small made-up answers of the portal, for tests that land them, also from processes of their own."""

import json
from datetime import date, timedelta
from zoneinfo import ZoneInfo

from leads_pipeline.domain.contract import ReceivedLead
from leads_pipeline.domain.window import Scope, Window

UTC_ZONE = ZoneInfo("UTC")
DAY = date(2026, 11, 19)
WINDOW = Window.of(DAY, Scope.parse("branch-101"), UTC_ZONE)
CLOSED_AT = WINDOW.end + timedelta(hours=6)
LATER = CLOSED_AT + timedelta(hours=1)


def lead(number: int, text: str = "first") -> ReceivedLead:
    payload = json.dumps(
        {"id": f"lead-{number:02}", "message": text, "listingDetails": {"pricing": {"price": 1.50}}}
    )
    return ReceivedLead(f"lead-{number:02}", payload)


TWENTY = [lead(number) for number in range(20)]
