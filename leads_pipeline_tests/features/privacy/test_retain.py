"""The agency's own retention: old leads become anonymous, and figures stay."""

import json
import os
import re
import shutil
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leads_pipeline.domain.contract import LEAD_KINDS, FieldType, LeadKind
from leads_pipeline.features.privacy.redact import cut_payload
from leads_pipeline.features.privacy.retain import cut_days
from leads_pipeline.warehouse.marts import marts
from leads_pipeline_tests.support.command_line import NOBODY, run
from leads_pipeline_tests.support.house import DAY, NEXT_DAY, House

KINDS = ("applicant", "appraisal")
PLANTED = "Quenby"
# So long that it stands in a file as it is.
SECRET = "Zyxwvutsrqponmlkjihgfedcba" * 8
ADDRESS = "5b7e2f0a-0000-4000-8000-000000000000@removed.invalid"


def lead(lead_id: str, person: str, day: date = DAY, **more: Any) -> dict[str, Any]:
    contact = {
        "firstName": PLANTED,
        "lastName": person,
        "email": f"{person}.{PLANTED}@people.example" if not person.startswith("phone") else None,
        "phoneNumber": f"07700 90{person[-1] * 4}",
        "preferences": {"method": "CONTACT_METHOD_PHONE", "note": PLANTED},
    }
    return {
        "id": lead_id,
        "createdAt": f"{day}T10:00:00Z",
        "contact": contact,
        "message": PLANTED,
        "leadSource": "APPLICANT_SOURCE_ZOOPLA_WEBSITE",
        "intent": "APPLICANT_INTENT_BUY",
        "nickname": PLANTED,
        "listingDetails": {
            "id": "listing-1",
            "pricing": {"price": 250000.10},
            "images": [{"original": "https://x"}],
        },
        "viewingTimes": [{"earliest": f"{day}T12:00:00Z", "with": PLANTED}],
        **more,
    }


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> House:
    """Two days of two branches, with a midnight lead, a corrected one, a moved one and one that was
    pushed. DAY is due and the next isn't.
    """
    house = House(tmp_path_factory.mktemp("retain") / "data")
    people = ["ann1", "bob2", "ann1", "phone3"]
    for kind in KINDS:
        midnight = lead(f"{kind} midnight", "ann1", NEXT_DAY, createdAt=f"{NEXT_DAY}T00:00:00Z")
        for day in (DAY, NEXT_DAY):
            for scope in house.scopes:
                leads = [
                    lead(f"{kind} {scope} {day} {n}", who, day) for n, who in enumerate(people)
                ]
                house.land(kind, [*leads, midnight], day, scope)
        house.land(kind, [{**midnight, "intent": "corrected"}], NEXT_DAY)
        house.push(kind, lead(f"{kind} pushed", "cat4"))
        house.land(kind, [lead(f"{kind} long", "dan5", message=SECRET)])
    house.now = datetime.combine(NEXT_DAY, house.now.timetz()) + timedelta(days=35)
    house.publish()
    return house


@pytest.fixture
def full(published: House, tmp_path: Path) -> House:
    return published.copied(tmp_path / "data")


FIGURES = [
    mart.name
    for mart in marts()
    # The others follow a person from one day to the next, which nobody can over the edge of an
    # anonymous day.
    if mart.name
    not in ("lead_facts", "mart_lead_properties", "mart_hidden_valuations", "mart_listing_demand")
    and not mart.name.startswith("mart_people")
]


# A person counts once a day after retention, so those of longer times grow.
WITH_PEOPLE_OF_DAYS = {"mart_weekly", "mart_monthly"}


def figures(house: House) -> dict[str, list[tuple[Any, ...]]]:
    found = {}
    for name in FIGURES:
        columns = "* exclude (people)" if name in WITH_PEOPLE_OF_DAYS else "*"
        found[name] = house.query(f"select {columns} from {name} order by all")  # noqa: S608
    return found


def people_in(house: House, kind: str) -> int:
    return len({row["person"] for row in house.leads(kind).values()})


def texts_of(house: House, day: date) -> str:
    """Each row of the day's files, decoded, but for the numbers of publications."""
    paths = [
        *house.folder.glob(f"raw/*/day={day}/**/*.parquet"),
        *house.folder.glob(f"tables/*/lead_day={day}/*"),
    ]
    assert len(paths) >= 5
    texts = []
    for path in sorted(paths):
        rows = pq.ParquetFile(path).read().to_pylist()
        for row in rows:
            row.pop("published_in", None)
        texts.append(f"{pq.read_metadata(path).metadata} {rows}")
    return "".join(texts)


@pytest.mark.slow
def test_old_leads_lose_their_person_everywhere_and_no_figure_changes(full: House) -> None:
    before = figures(full)
    people = {kind: people_in(full, kind) for kind in KINDS}
    untouched = texts_of(full, NEXT_DAY)
    dry = cut_days(full.data, NEXT_DAY, is_dry=True)
    assert [(one.kind.name, one.day, one.leads) for one in dry] == [
        (kind, DAY, 10) for kind in KINDS
    ]
    assert {PLANTED, SECRET} <= {*re.findall(f"{PLANTED}|{SECRET}", texts_of(full, DAY))}

    full.retain(35)

    assert PLANTED.casefold() not in texts_of(full, DAY).casefold()
    assert "07700" not in texts_of(full, DAY)
    assert texts_of(full, NEXT_DAY) == untouched
    assert figures(full) == before
    for path in full.folder.glob(".versions/*.duckdb"):
        assert SECRET.encode() not in path.read_bytes()
    for kind in KINDS:
        old = [row for row in full.leads(kind).values() if row["window_day"] == DAY]
        assert len(old) == 10
        assert PLANTED not in str(old)
        # Whoever asked on both days is two people now.
        assert people_in(full, kind) == people[kind] + 3
    assert list(cut_days(full.data, NEXT_DAY)) == []


@pytest.mark.slow
def test_a_push_or_a_backup_is_cut_at_the_next_run(house: House, tmp_path: Path) -> None:
    for scope in house.scopes:
        house.land("applicant", [lead(scope, "ann1")], scope=scope)
    house.publish()
    shutil.copytree(house.folder / "raw", tmp_path / "backup")
    house.later(days=40)
    house.retain(35)

    shutil.copytree(tmp_path / "backup", house.folder / "raw", dirs_exist_ok=True)
    house.push("applicant", lead("late", "eve6"))
    house.publish()
    house.retain(35)

    assert PLANTED not in texts_of(house, DAY)
    assert house.leads("applicant").keys() == {"late", *house.scopes}


@pytest.mark.slow
def test_leads_that_raw_has_lost_become_anonymous_in_the_published_file(full: House) -> None:
    """And stay who they are: the same person within the day, whatever is published later."""
    of_day = "from applicant_leads where window_day = ?"
    shutil.rmtree(full.folder / "raw")
    full.publish()
    before = figures(full)

    full.retain(35)

    assert PLANTED not in str(full.query(of_day, DAY))
    assert PLANTED in str(full.query(of_day, NEXT_DAY))
    assert figures(full) == before
    lost = full.query(f"select lead_id, person, contact_email {of_day}", DAY)
    full.zone = ZoneInfo("UTC")  # which has it built anew
    full.publish()
    assert full.query(f"select lead_id, person, contact_email {of_day}", DAY) == lost


def test_a_retention_whose_clock_ran_ahead_cuts_nothing_that_lands_later(house: House) -> None:
    house.land("applicant", [lead("old", "ann1")])
    house.later(days=3650)
    house.cut(365)

    house.later(days=-3650)
    house.land("applicant", [lead("new", "bob2", house.today)], house.today)
    house.retain(365)

    assert house.leads("applicant")["new"]["contact_email"] == f"bob2.{PLANTED}@people.example"


def test_without_a_retention_or_the_portal_s_clock_the_command_cuts_nothing(house: House) -> None:
    house.land("applicant", [lead("old", "ann1")])
    before = house.raw("applicant")
    os.environ.update(
        LEADS_DATA_DIR=str(house.folder), LEADS_BRANCH_IDS="101", LEADS_BASE_URL=NOBODY
    )

    assert "kept as they are" in run("privacy", "retain").stderr
    os.environ["LEADS_KEEP_PERSONAL_DAYS"] = "35"
    assert run("privacy", "retain").exit_code != 0

    assert house.raw("applicant") == before


# --- what stays of a lead's text ------------------------------------------------------------------


NAMES = ["id", "contact", "email", "firstName", "message", "viewingTimes", "address", PLANTED]
ANYTHING = st.recursive(
    st.text(max_size=9) | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=80)
@given(st.sampled_from(LEAD_KINDS), ANYTHING)
def test_cutting_again_changes_nothing_and_gives_json(kind: LeadKind, content: Any) -> None:
    whole = json.dumps(content)
    for text in (whole, whole[:-1], f'{{"id": "1", {json.dumps(PLANTED)}: {whole}'):
        once = cut_payload(kind, text, ADDRESS)
        assert cut_payload(kind, once, ADDRESS) == once
        assert json.loads(once)["contact"]["email"] == ADDRESS
        assert PLANTED not in once


@pytest.mark.parametrize("kind", LEAD_KINDS)
def test_each_declared_field_that_names_nobody_stays_as_it_was_received(kind: LeadKind) -> None:
    values = {
        FieldType.TEXT: '"a\\u00e9 \\"b\\""',
        FieldType.INTEGER: "12",
        FieldType.AMOUNT: "250000.10",
        FieldType.NUMBER: "-1.5e3",
        FieldType.BOOLEAN: "true",
        FieldType.MOMENT: '"2026-11-19T10:00:00.123Z"',
    }
    for field in kind.fields:
        text = values[field.type]
        for step in reversed(field.path.split(".")):
            text = f'{{"{step}": {text}}}'
        cut = cut_payload(kind, text, None)
        assert (values[field.type] in cut) == (not field.is_personal), field.path
