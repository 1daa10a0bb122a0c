import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from leads_pipeline import contract
from leads_pipeline.assets.published import drift_check
from leads_pipeline.contract import APPLICANT, APPRAISAL, LEAD_KINDS, known_members
from leads_pipeline.lake import Lake
from leads_pipeline.warehouse import Grid, Publication, Warehouse, marts
from leads_pipeline.window import Scope
from leads_pipeline_tests.staging import DAY, FETCHED_AT, LONDON, NEXT_DAY, land, stage

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "data")


def publish(lake: Lake) -> Publication:
    return Warehouse(lake).publish(Grid((Scope.parse("branch-101"),), DAY, LONDON), NOW)


def drift(lake: Lake) -> list[tuple[Any, ...]]:
    return Warehouse(lake).query("select * exclude (kind) from drift order by change, field, value")[1]


def test_what_is_new_is_counted_with_its_days_and_the_line_that_takes_it_in(lake: Lake) -> None:
    leads: list[dict[str, Any]] = [
        {"id": "1", "affordability": {"isReady": True, "checkedAt": "2026-11-19T10:00Z", "tags": [1], "sum": 1}},
        {"id": "2", "affordability": {"isReady": False, "sum": 1.5}, "contact": {"age": None}},
        {"id": "3", "consumerSituation": "CONSUMER_SITUATION_MOVING_ABROAD", "intent": "APPLICANT_INTENT_BUY"},
        {"id": "4", "isOverseas": "perhaps", "viewingTimes": [{"note": "a"}, {"note": 2}, {"earliest": "soon"}]},
    ]
    for day in (DAY, NEXT_DAY):
        land(lake, APPLICANT, leads[: 4 if day is DAY else 1], day=day)
        stage(lake, APPLICANT, day)
    publish(lake)

    assert drift(lake) == [
        ("changed type", "isOverseas", None, DAY, DAY, 1, 'Field("isOverseas", _T, "…")'),
        ("changed type", "viewingTimes[].earliest", None, DAY, DAY, 1, 'Field("viewingTimes[].earliest", _T, "…")'),
        ("new field", "affordability.checkedAt", None, DAY, NEXT_DAY, 2, 'Field("affordability.checkedAt", _M, "…")'),
        ("new field", "affordability.isReady", None, DAY, NEXT_DAY, 3, 'Field("affordability.isReady", _B, "…")'),
        ("new field", "affordability.sum", None, DAY, NEXT_DAY, 3, 'Field("affordability.sum", _N, "…")'),
        (
            "new field",
            "affordability.tags",
            None,
            DAY,
            NEXT_DAY,
            2,
            'ChildTable("…", "affordability.tags", fields=(…), description="…")',
        ),
        ("new field", "contact.age", None, DAY, DAY, 1, 'Field("contact.age", _T, "…")'),
        ("new field", "viewingTimes[].note", None, DAY, DAY, 2, 'Field("viewingTimes[].note", _T, "…")'),
        (
            "new value",
            "consumerSituation",
            "CONSUMER_SITUATION_MOVING_ABROAD",
            DAY,
            DAY,
            1,
            '"consumerSituation": {…, "CONSUMER_SITUATION_MOVING_ABROAD"}',
        ),
    ]
    check = drift_check(Warehouse(lake))
    assert (check.passed, check.metadata["changes"].value) == (False, 9)


def test_a_contract_that_knows_everything_passes_the_check(lake: Lake) -> None:
    lead = {"id": "1", "intent": "APPRAISAL_INTENT_SELL", "enquiryType": "", "urgency": None}
    land(lake, APPRAISAL, [lead])
    stage(lake, APPRAISAL)
    publish(lake)

    assert drift(lake) == []
    assert drift_check(Warehouse(lake)).passed


def test_only_changed_days_are_counted_again(lake: Lake) -> None:
    for day in (DAY, NEXT_DAY):
        land(lake, APPLICANT, [{"id": str(day), "new": 1}], day=day)
        stage(lake, APPLICANT, day)
    publish(lake)
    land(lake, APPLICANT, [{"id": "b", "new": 1}], day=NEXT_DAY, fetched_at=FETCHED_AT + timedelta(hours=1))
    stage(lake, APPLICANT, NEXT_DAY)

    publication = publish(lake)

    assert (publication.days_changed, publication.is_rebuilt) == (1, False)
    assert [row[3:6] for row in drift(lake)] == [(DAY, NEXT_DAY, 3)]


def test_what_may_be_a_persons_name_is_not_shown(lake: Lake) -> None:
    person = "Ann Smith, 07700 900123"
    odd: dict[str, Any] = {"intent": person, "consumerSituation": person, "leadSource": person, "urgency": person}
    odd["listingDetails"] = {"id": "1", "propertyType": person, "pricing": {"rentFrequency": person}}
    for kind in LEAD_KINDS:
        land(lake, kind, [{"id": "1", "ann@example.org": 1, **odd}])
        stage(lake, kind)
    publish(lake)

    changes = {row[1] if row[2] is None else (row[1], row[2]) for row in drift(lake)}
    assert {"…", ("intent", "…"), ("consumerSituation", "…"), ("leadSource", "…"), ("urgency", "…")} <= changes
    store = Warehouse(lake)
    for mart in marts():
        shown = str(store.query(f"from {mart.name}")[1]).lower()
        assert "smith" not in shown, mart.name
    assert store.query("select distinct source from mart_leads_daily")[1] == [("…",)]
    assert "ann" not in json.dumps(str(drift_check(Warehouse(lake)))).lower()


def test_a_member_that_the_contract_learns_is_no_drift_any_more(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    land(lake, APPRAISAL, [{"id": "1", "urgency": "URGENCY_YESTERDAY"}])
    stage(lake, APPRAISAL)
    publish(lake)
    assert len(drift(lake)) == 1
    monkeypatch.setitem(contract.ENUMERATIONS, "urgency", {"URGENCY_": "YESTERDAY"})

    assert publish(lake).is_rebuilt

    assert drift(lake) == []


def test_every_enumeration_is_of_a_declared_field() -> None:
    declared = {field.path for kind in LEAD_KINDS for field in kind.fields}
    assert contract.ENUMERATIONS.keys() <= declared
    assert known_members("consumerSituation") is not None
    assert known_members("message") is None


@pytest.mark.parametrize(
    ("value", "change"),
    [
        ("1e400", ("new", 'Field("new", _N, "…")')),
        ("-1.5E+9999999999", ("new", 'Field("new", _N, "…")')),
        ("9" * 5000, ("new", 'Field("new", _I, "…")')),
        ('{"a":' * 490 + "1" + "}" * 490, (f"new.{'a.' * 30}a", f'Field("new.{"a." * 30}a", _T, "…")')),
        ('{"a":' * 900 + "1" + "}" * 900, ("_extra", None)),
    ],
    ids=["1e400", "an endless exponent", "5,000 digits", "490 objects deep", "900 objects deep"],
)
def test_a_value_that_python_can_hardly_hold_costs_no_publication(
    lake: Lake, value: str, change: tuple[str, str | None]
) -> None:
    land(lake, APPLICANT, [f'{{"id": "1", "new": {value}}}'])
    stage(lake, APPLICANT)
    publish(lake)

    assert [(row[1], row[-1]) for row in drift(lake)] == [change]
