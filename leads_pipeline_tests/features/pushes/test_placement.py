"""Which window a pushed lead belongs to."""

import json
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest

from leads_pipeline.domain.contract import APPLICANT, ReceivedLead
from leads_pipeline.domain.window import Scope
from leads_pipeline.features.pushes.placement import Placement
from leads_pipeline.raw.names import PUSH_SCOPE, Place

PLACEMENT = Placement(
    [Scope.parse("branch-101"), Scope.parse("company-7")], ZoneInfo("Europe/London")
)
RECEIVED_AT = datetime(2026, 7, 30, 23, 30, tzinfo=UTC)  # the 31st in London


def place(**members: object) -> Place:
    return PLACEMENT.of(
        APPLICANT, ReceivedLead("a", json.dumps({"id": "a", **members})), RECEIVED_AT
    )


@pytest.mark.parametrize(
    ("created_at", "day"),
    [
        ("2026-07-29T23:30Z", date(2026, 7, 30)),
        ("2026-06-01T12:00Z", date(2026, 6, 1)),
        ("2026-05-31T12:00Z", date(2026, 7, 31)),
        ("2026-08-02T12:00Z", date(2026, 7, 31)),
        ("0001-01-01T00:00Z", date(2026, 7, 31)),
        (None, date(2026, 7, 31)),
    ],
)
def test_the_day_is_the_local_one_of_created_at_within_60_days_and_tomorrow_else_that_of_receipt(
    created_at: str | None, day: date
) -> None:
    assert place(createdAt=created_at).day == day


@pytest.mark.parametrize(
    ("members", "scope"),
    [
        ({"portalBranchId": "101", "portalCompanyId": "7"}, "branch-101"),
        ({"portalBranchId": "102", "portalCompanyId": "7"}, "company-7"),
        ({"portalBranchId": "102"}, PUSH_SCOPE),
    ],
)
def test_the_scope_is_the_first_configured_one_that_the_lead_names(
    members: dict[str, object], scope: str
) -> None:
    assert place(**members).scope == scope
