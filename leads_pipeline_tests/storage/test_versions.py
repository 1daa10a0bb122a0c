"""Every version of every lead that was served or delivered is in raw, exactly as it came, and the last one counts."""

import json
import random
from collections import defaultdict
from collections.abc import Sequence
from datetime import date

import pytest

from leads_pipeline_tests.support.house import DAY, NEXT_DAY, House


def a(text: str) -> str:
    return json.dumps({"id": "a", "message": text})


B = '{"id":"b"}'
ONE, TWO = a("one"), a("two")

# What each answer of the window holds, and which texts are in raw afterwards.
HISTORIES: dict[str, tuple[Sequence[Sequence[str]], set[str]]] = {
    "the same again": ([[ONE, B], [ONE, B]], {ONE, B}),
    "another version": ([[ONE], [TWO]], {ONE, TWO}),
    "back to the first": ([[ONE], [TWO], [ONE]], {ONE, TWO}),
    "two versions in one answer": ([[ONE, B, TWO]], {ONE, TWO, B}),
    "a lead is no longer served": ([[ONE, B], [B]], {ONE, B}),
    "no lead is served any more": ([[ONE, B], []], {ONE, B}),
    "other spaces are another version": ([['{"id": "b"}'], [B]], {'{"id": "b"}', B}),
    "text that is no JSON": ([['{"id":"a","n":1e400,"nul":"\x00"}']], {'{"id":"a","n":1e400,"nul":"\x00"}'}),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_raw_has_each_version_once_whatever_a_later_answer_holds(house: House, name: str) -> None:
    answers, expected = HISTORIES[name]
    for answer in answers:
        house.land("applicant", answer)

    assert {text for _, text in house.raw("applicant")} == expected


@pytest.mark.slow
def test_a_pull_and_a_push_take_turns_by_what_came_last(house: House) -> None:
    lead = {"id": "a", "createdAt": "2026-11-19T10:00:00Z", "portalBranchId": "101"}
    for way, text in [("pull", "A"), ("push", "B"), ("pull", "A"), ("push", "B"), ("push", "A"), ("pull", "B")]:
        version = lead | {"message": text}
        house.land("applicant", [version]) if way == "pull" else house.push("applicant", version)
        house.publish()
        assert house.leads("applicant")["a"]["message"] == text


@pytest.mark.parametrize("seed", range(3))
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
