"""The gate of raw windows: who is kept out, set aside, cleared or made anonymous as rows land."""

import json
import secrets
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from leads_pipeline.domain.contract import APPLICANT, ReceivedLead
from leads_pipeline.features.privacy.suppression import Action, Gate, SuppressionList
from leads_pipeline.raw.names import RESTRICTED, Place, list_places, place_of
from leads_pipeline.raw.rows import CORRECTION, Row, merged, newest_payloads
from leads_pipeline.raw.store import FolderStore
from leads_pipeline_tests.support.people import EMAIL, PHONE, lead, listed
from leads_pipeline_tests.support.sample_answers import CLOSED_AT, DAY, LATER, WINDOW

PLACE = place_of(APPLICANT, WINDOW)
ASIDE = PLACE._replace(root=RESTRICTED)
BEFORE = "2026-11-19T10:00:00Z"


class Folder:
    """A data folder with its list, and a clock that the tests set."""

    def __init__(self, folder: Path) -> None:
        self.now = CLOSED_AT + timedelta(days=2)
        self.store = FolderStore(folder)
        self.list = SuppressionList(folder / "privacy", folder / ".state" / "privacy")
        self.anonymous: dict[date, bytes] = {}
        self.gate = self.new_gate()
        self.raw = self.gate.raw

    def new_gate(self) -> Gate:
        return Gate(self.store, self.list, lambda: self.now, lambda day: self.anonymous.get(day))

    def land(self, *leads: dict[str, object], at: datetime = CLOSED_AT) -> None:
        self.raw.land(APPLICANT, WINDOW, list(map(received, leads)), at, json.dumps(leads), "run-1")

    def push(self, *leads: dict[str, object]) -> None:
        self.raw.add(PLACE, list(map(received, leads)), LATER)

    def leads(self, place: Place = PLACE) -> dict[str, dict[str, object]]:
        """The newest text of each lead that lies in the window."""
        return {
            id_: json.loads(text)
            for id_, text in newest_payloads(merged(self.raw.read(place).rows)).items()
        }


def received(one: dict[str, object]) -> ReceivedLead:
    return ReceivedLead(str(one["id"]), json.dumps(one))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


HERS = lead("hers", email=EMAIL, name="Jane Roe", createdAt=BEFORE, message="call me")
OTHERS = lead("others", email="john@people.example", createdAt=BEFORE)


def noting_creates(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    created: list[str] = []
    create = folder.store.create

    def creating(key: str, content: bytes) -> None:
        created.append(key)
        create(key, content)

    monkeypatch.setattr(folder.store, "create", creating)
    return created


def test_rows_of_a_restricted_lead_are_durable_in_their_other_place_before_they_leave_raw(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.land(HERS, OTHERS)
    listed(folder.list, Action.RESTRICT)
    created = noting_creates(folder, monkeypatch)
    folder.raw.rewrite(PLACE)

    assert (folder.leads(), folder.leads(ASIDE)) == ({"others": OTHERS}, {"hers": HERS})
    assert [key.partition("/")[0] for key in created] == ["restricted", "raw"]
    assert list_places(folder.store, RESTRICTED) == [ASIDE]


def test_an_objection_knows_the_id_of_a_lead_whose_corrected_contact_is_the_person_s(
    folder: Folder,
) -> None:
    listed(folder.list, Action.OBJECT)
    folder.land(lead("hers", email="", createdAt=BEFORE))

    correction = ReceivedLead("hers", json.dumps({"contact": {"email": EMAIL}}))
    folder.raw.add(PLACE, [correction], LATER, CORRECTION)

    assert folder.list.read().objecting.is_known("applicant", "hers")


# --- rows that are set aside ----------------------------------------------------------------------


def test_a_message_that_is_emptied_is_so_in_rows_that_are_set_aside_too(folder: Folder) -> None:
    """Those that are there already, and those that come later."""
    listed(folder.list, Action.RESTRICT)
    folder.land({**HERS, "message": "For John"}, OTHERS)
    hers = folder.list.read().hashed_lead("applicant", "hers")
    listed(folder.list, emails=["john@people.example"], cleared=(hers,))

    folder.gate.sweep_restricted()
    assert folder.leads(ASIDE) == {"hers": {**HERS, "message": ""}}
    folder.land({**HERS, "message": "For John Roe"}, at=LATER)
    assert folder.leads(ASIDE) == {"hers": {**HERS, "message": ""}}


@pytest.mark.parametrize(
    "when", ["before they land", "after they landed", "as their file is deleted"]
)
def test_who_is_restricted_again_while_a_restriction_is_lifted_loses_no_row(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    restriction = listed(folder.list, Action.RESTRICT)
    folder.land(HERS, OTHERS)
    listed(folder.list, Action.LIFT, emails=[], of=restriction.number)
    merge: Callable[[Place, list[Row]], object] = folder.raw.merge
    delete = folder.store.delete
    moments = [when]

    def restrict_again(moment: str) -> None:
        if moment in moments:
            moments.remove(moment)
            listed(folder.list, Action.RESTRICT)
            folder.new_gate().raw.rewrite(PLACE)

    def merging(place: Place, rows: list[Row]) -> None:
        restrict_again("before they land")
        merge(place, rows)
        restrict_again("after they landed")

    def deleting(keys: Sequence[str]) -> None:
        if any(key.startswith("restricted/") for key in keys):
            restrict_again("as their file is deleted")
        delete(keys)

    monkeypatch.setattr(folder.raw, "merge", merging)
    monkeypatch.setattr(folder.store, "delete", deleting)
    folder.gate.sweep_restricted()

    assert moments == []
    assert (folder.leads(), folder.leads(ASIDE)) == ({"others": OTHERS}, {"hers": HERS})


# --- anonymous days -------------------------------------------------------------------------------


def test_a_push_into_an_anonymous_day_is_cut_as_it_lands(folder: Folder) -> None:
    folder.anonymous = {DAY: secrets.token_bytes(32)}
    folder.push(HERS, lead("hers-too", phone=PHONE, email=EMAIL, createdAt=BEFORE))

    cut = folder.leads()
    contacts: list[Any] = [cut[id_]["contact"] for id_ in ("hers", "hers-too")]
    assert contacts[0] == contacts[1]
    assert [*contacts[0]] == ["email"]
    assert contacts[0]["email"].endswith("@removed.invalid")
    assert set(cut["hers"]) == {"id", "createdAt", "contact"}
    # Whatever the key of the day is by then, a cut lead stays as it is.
    folder.anonymous = {DAY: secrets.token_bytes(32)}
    folder.push(lead("third", email="x@people.example", createdAt=BEFORE))
    assert folder.leads()["hers"] == cut["hers"]
