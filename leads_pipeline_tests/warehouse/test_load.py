"""Each lead once, in the version that was received last; every version is in raw as it came."""

import json
import random
from datetime import date, timedelta
from typing import Any

import pytest

from leads_pipeline.warehouse.flatten import PART_LEADS
from leads_pipeline_tests.support.house import DAY, NEXT_DAY, House
from leads_pipeline_tests.support.publications import Folder

DAYS = (DAY, NEXT_DAY)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_after_any_answers_every_version_is_in_raw_and_the_last_of_each_lead_is_published(
    house: House, seed: int
) -> None:
    rng = random.Random(seed)  # noqa: S311 - the same each time
    versions: set[tuple[str, str]] = set()
    newest: dict[str, str] = {}
    for number in range(30):
        leads = {f"lead-{n}": f"version {number}" for n in rng.sample(range(6), rng.randrange(5))}
        texts = {id_: json.dumps({"id": id_, "message": text}) for id_, text in leads.items()}
        house.land("applicant", texts.values(), rng.choice(DAYS), rng.choice(house.scopes))
        versions |= set(texts.items())
        newest |= leads

    house.publish()

    assert set(house.raw("applicant")) == versions
    assert {id_: lead["message"] for id_, lead in house.leads("applicant").items()} == newest


def test_a_window_that_still_has_an_older_version_does_not_bring_it_back(house: House) -> None:
    older = {"id": "a", "message": "older"}
    house.land("applicant", [older], scope="branch-101")
    house.land("applicant", [{"id": "a", "message": "newer"}], scope="branch-102")
    house.land("applicant", [older], scope="branch-101")

    house.publish()

    assert house.query("select message from applicant_leads") == [("newer",)]


def test_of_a_lead_that_is_twice_in_an_answer_the_last_counts_with_how_it_was_received(
    house: House,
) -> None:
    asked_at = house.now
    house.land("applicant", [{"id": "a", "message": "first"}, {"id": "a", "message": "last"}])
    house.push("applicant", {"id": "pushed"})

    house.publish()

    columns = "lead_id, message, source, date_trunc('minute', fetched_at)"
    assert house.query(f"select {columns} from applicant_leads order by all") == [  # noqa: S608
        ("a", "last", "pull", asked_at),
        ("pushed", None, "push", asked_at + timedelta(minutes=1)),
    ]


def test_thousands_of_leads_of_many_windows_are_each_there_once_with_their_lists(
    folder: Folder,
) -> None:
    each = PART_LEADS // 4
    for number in range(6):
        leads = [{"id": f"{number} {n}", "viewingTimes": [{}, {"new": n}]} for n in range(each)]
        folder.raw.land(*leads, day=DAY - timedelta(days=number))

    folder.publish()

    leads_once = folder.query("select count(*), count(distinct lead_id) from applicant_leads")
    assert leads_once == [(each * 6, each * 6)]
    times = folder.query(
        """
        select position, count(*)
        from applicant_leads join applicant_viewing_times as times using (lead_id)
        where coalesce(times._extra->>'new' = split_part(lead_id, ' ', 2), true)
        group by position order by position
        """
    )
    assert times == [(0, each * 6), (1, each * 6)]


WITH_CONTACT = {"contact": {"email": "ann@people.example"}}


def test_what_the_portal_emptied_is_noted_whatever_is_loaded_together(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each lead is in two windows, which are loaded one after the other."""
    monkeypatch.setattr("leads_pipeline.warehouse.flatten.PART_LEADS", 1)

    def land(id_: str, *versions: tuple[date, dict[str, Any]]) -> None:
        for day, contact in versions:
            folder.raw.land({"id": id_, "day": str(day), **contact}, day=day)

    land("back", (DAY, WITH_CONTACT), (DAY, {}), (NEXT_DAY, WITH_CONTACT))
    land("back early", (NEXT_DAY, WITH_CONTACT), (NEXT_DAY, {}), (DAY, WITH_CONTACT))
    land("emptied twice", (DAY, WITH_CONTACT), (DAY, {}), (NEXT_DAY, {}))
    land("emptied on moving", (DAY, WITH_CONTACT), (NEXT_DAY, {}))
    land("emptied later", (DAY, WITH_CONTACT))
    land("back later", (DAY, WITH_CONTACT), (DAY, {}))
    folder.publish()

    land("emptied later", (NEXT_DAY, {}))
    land("back later", (NEXT_DAY, WITH_CONTACT))
    folder.publish()

    noted = folder.query("select lead_id, window_day, email from pipeline.emptied_contacts")
    assert sorted(noted) == [
        ("emptied later", NEXT_DAY, True),
        ("emptied on moving", NEXT_DAY, True),
        ("emptied twice", NEXT_DAY, True),
    ]
