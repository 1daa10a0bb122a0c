"""Leads of two days and of an unknown one, with lists and an unknown member."""

from leads_pipeline_tests.support.house import Row

LEADS: list[Row] = [
    {
        "id": "a",
        "createdAt": "2026-11-19T10:00Z",
        "contact": {"email": "x"},
        "viewingTimes": [{"earliest": "?"}, {}],
    },
    {
        "id": "b",
        "createdAt": "2026-11-18T10:00Z",
        "new": {"deep": [1]},
        "listingDetails": {"pricing": {"price": 1.5}},
    },
    {"id": "c", "message": "m", "searchCriteria": {"radius": 0.5}},
]
