"""Each declared field has a column of its own in leads.duckdb, and each element of a list a row."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from leads_pipeline.domain.contract import LEAD_KINDS, LeadKind
from leads_pipeline_tests.support.house import House, Row


def sent_and_expected(type_: str, number: int) -> tuple[Any, Any]:
    """A value of that type that no other field has, as it is sent and as it is published."""
    at = datetime(2026, 11, 19, 10, 0, number % 60, tzinfo=UTC)
    values: dict[str, tuple[Any, Any]] = {
        "text": (f"text {number}", f"text {number}"),
        "boolean": (number % 2 == 0, number % 2 == 0),
        "integer": (2**40 + number, 2**40 + number),
        "number": (number + 0.5, number + 0.5),
        "amount": (number + 0.25, Decimal(f"{number}.25")),
        "moment": (at.isoformat(), at),
    }
    return values[type_]


def full_lead(kind: LeadKind) -> Row:
    """A lead that says every declared field."""
    lead: Row = {"id": "a"}
    for number, field in enumerate(kind.fields):
        *objects, name = field.path.split(".")
        target = lead
        for step in objects:
            target = target.setdefault(step, {})
        target[name], _ = sent_and_expected(field.type.value, number)
    return lead


def test_every_declared_field_reaches_its_own_column(house: House) -> None:
    for kind in LEAD_KINDS:
        house.land(kind.name, [full_lead(kind)])

    house.publish()

    for kind in LEAD_KINDS:
        row = house.leads(kind.name)["a"]
        for number, field in enumerate(kind.fields):
            _, expected = sent_and_expected(field.type.value, number)
            assert row[field.column] == expected, field.path
            assert type(row[field.column]) is type(expected), field.path
        assert row["_problems"] == []
        assert row["_extra"] is None
