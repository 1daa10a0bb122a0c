"""The gate of raw windows: who is kept out, set aside, cleared or made anonymous as rows land."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from leads_pipeline.domain.contract import APPLICANT, ReceivedLead
from leads_pipeline.features.privacy.gatekeeper import gate_of, list_of
from leads_pipeline.features.privacy.suppression import Action
from leads_pipeline.raw.names import RESTRICTED, Place
from leads_pipeline.raw.rows import Row, merged, newest_payloads
from leads_pipeline_tests.support.house import DAY, House
from leads_pipeline_tests.support.people import EMAIL, lead, listed

PLACE = Place(APPLICANT, DAY, "branch-101")
ASIDE = PLACE._replace(root=RESTRICTED)
BEFORE = "2026-11-19T10:00:00Z"
HERS = lead("hers", email=EMAIL, name="Jane Roe", createdAt=BEFORE, message="call me")
OTHERS = lead("others", email="john@people.example", createdAt=BEFORE)


def leads(house: House, place: Place = PLACE) -> dict[str, dict[str, Any]]:
    """The newest text of each lead that lies there."""
    rows = merged(house.data.raw.read(place).rows)
    return {id_: json.loads(text) for id_, text in newest_payloads(rows).items()}


def test_rows_of_a_restricted_lead_are_durable_in_their_other_place_before_they_leave_raw(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.land("applicant", [HERS, OTHERS])
    data = house.data
    listed(list_of(data), Action.RESTRICT)
    create = data.store.create
    created: list[str] = []

    def noting(key: str, content: bytes) -> None:
        created.append(key.partition("/")[0])
        create(key, content)

    monkeypatch.setattr(data.store, "create", noting)
    data.raw.rewrite(PLACE)

    assert created == ["restricted", "raw"]
    assert leads(house) == {"others": OTHERS}
    assert leads(house, ASIDE) == {"hers": HERS}


def test_an_objection_knows_the_id_of_a_lead_whose_corrected_contact_is_the_person_s(
    house: House,
) -> None:
    listed(list_of(house.data), Action.OBJECT)
    house.land("applicant", [lead("hers", createdAt=BEFORE)])

    house.correct("applicant/hers", email=EMAIL)

    assert list_of(house.data).read().objecting.is_known("applicant", "hers")


# --- rows that are set aside ----------------------------------------------------------------------


def test_a_message_that_is_emptied_is_so_in_rows_that_are_set_aside_too(house: House) -> None:
    """Those that are there already, and those that come later."""
    list_ = list_of(house.data)
    listed(list_, Action.RESTRICT)
    house.land("applicant", [HERS | {"message": "For John"}])
    hers = list_.read().hashed_lead("applicant", "hers")
    listed(list_, emails=["john@people.example"], cleared=(hers,))

    gate_of(house.data).sweep_restricted()
    assert leads(house, ASIDE) == {"hers": HERS | {"message": ""}}

    house.land("applicant", [HERS | {"message": "For John Roe"}])
    assert leads(house, ASIDE) == {"hers": HERS | {"message": ""}}


@pytest.mark.parametrize(
    "when", ["before they land", "after they landed", "as their file is deleted"]
)
def test_who_is_restricted_again_while_a_restriction_is_lifted_loses_no_row(
    house: House, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    data = house.data
    list_ = list_of(data)
    restriction = listed(list_, Action.RESTRICT)
    house.land("applicant", [HERS, OTHERS])
    listed(list_, Action.LIFT, emails=(), of=restriction.number)
    merge: Callable[[Place, list[Row]], object] = gate_of(data).raw.merge
    delete = data.store.delete
    moments = [when]

    def restrict_again(moment: str) -> None:
        if moment in moments:
            moments.remove(moment)
            listed(list_, Action.RESTRICT)
            house.data.raw.rewrite(PLACE)

    def merging(place: Place, rows: list[Row]) -> None:
        restrict_again("before they land")
        merge(place, rows)
        restrict_again("after they landed")

    def deleting(keys: Sequence[str]) -> None:
        if any(key.startswith("restricted/") for key in keys):
            restrict_again("as their file is deleted")
        delete(keys)

    monkeypatch.setattr(gate_of(data).raw, "merge", merging)
    monkeypatch.setattr(data.store, "delete", deleting)
    gate_of(data).sweep_restricted()

    assert moments == []
    assert leads(house) == {"others": OTHERS}
    assert leads(house, ASIDE) == {"hers": HERS}


# --- anonymous days -------------------------------------------------------------------------------


@pytest.fixture
def anonymous(house: House) -> House:
    """The day of `others` has become anonymous."""
    house.land("applicant", [OTHERS])
    house.later(days=50)
    house.cut(35)
    return house


def push(house: House, one: dict[str, Any]) -> None:
    """Push a lead into that day, although the portal has deleted it since."""
    received = ReceivedLead(one["id"], json.dumps(one))
    house.data.raw.add(PLACE, [received], house.now)


def test_a_push_into_an_anonymous_day_is_cut_as_it_lands(anonymous: House) -> None:
    push(anonymous, HERS)

    cut = leads(anonymous)["hers"]
    assert cut.keys() == {"id", "createdAt", "contact"}
    assert cut["contact"].keys() == {"email"}
    assert cut["contact"]["email"].endswith("@removed.invalid")


def test_a_cut_lead_stays_as_it_is_whatever_is_pushed_later(anonymous: House) -> None:
    """The key of the day is forgotten, so each later lead gets another one."""
    before = leads(anonymous)

    push(anonymous, HERS)

    assert leads(anonymous)["others"] == before["others"]
