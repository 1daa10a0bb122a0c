"""Every version of every lead that was served or delivered is in raw, exactly as it came, and the
last one counts.
"""

import json
import random
from collections import defaultdict
from datetime import date

import pytest

from leads_pipeline_tests.support.house import DAY, NEXT_DAY, House


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
