"""Each lead once, in the version that was received last; every version is in raw as it came."""

import json
import random
from collections import defaultdict
from datetime import date, timedelta

import pytest

from leads_pipeline.warehouse.flatten import PART_LEADS
from leads_pipeline_tests.support.house import DAY, NEXT_DAY, House


@pytest.mark.parametrize("seed", range(2))
def test_after_any_answers_every_version_is_in_raw_and_the_last_of_each_lead_is_published(
    house: House, seed: int
) -> None:
    rng = random.Random(seed)  # noqa: S311 - the same each time
    served: set[tuple[str, str]] = set()
    versions: dict[str, dict[tuple[date, str], tuple[int, str]]] = defaultdict(dict)
    listed: dict[tuple[date, str], set[str]] = defaultdict(set)
    for number in range(30):
        place = rng.choice([DAY, NEXT_DAY]), rng.choice(house.scopes)
        leads = {
            id_: rng.choice([f"version {number}", versions[id_].get(place, (0, "first"))[1]])
            for id_ in rng.sample([f"lead-{number}" for number in range(6)], rng.randrange(5))
        }
        texts = {id_: json.dumps({"id": id_, "message": text}) for id_, text in leads.items()}
        house.land("applicant", texts.values(), *place)
        served |= set(texts.items())
        for id_, text in leads.items():
            # A version that its window still has counts from when it first came.
            if id_ not in listed[place] or versions[id_][place][1] != text:
                versions[id_][place] = (number, text)
        listed[place] = set(leads)
        house.later(hours=rng.choice([0, 1]))

    assert set(house.raw("applicant")) == served
    house.publish()
    newest = {id_: max(of_windows.values())[1] for id_, of_windows in versions.items()}
    assert {id_: lead["message"] for id_, lead in house.leads("applicant").items()} == newest


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
    house: House,
) -> None:
    each = PART_LEADS // 4
    for number in range(6):
        leads = [{"id": f"{number} {n}", "viewingTimes": [{}, {"new": n}]} for n in range(each)]
        house.land("applicant", leads, DAY - timedelta(days=number))

    house.publish()

    leads_once = house.query("select count(*), count(distinct lead_id) from applicant_leads")
    assert leads_once == [(each * 6, each * 6)]
    times = house.query(
        """
        select position, count(*)
        from applicant_leads join applicant_viewing_times as times using (lead_id)
        where coalesce(times._extra->>'new' = split_part(lead_id, ' ', 2), true)
        group by position order by position
        """
    )
    assert times == [(0, each * 6), (1, each * 6)]
