"""The agency's own retention: old leads become anonymous, and figures stay."""

import json
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
from leads_pipeline.features.privacy.retain import cut_days, due_before
from leads_pipeline.warehouse.marts import marts
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.house import DAY, NEXT_DAY, House
from leads_pipeline_tests.support.serving import free_port

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


@pytest.fixture
def full(house: House) -> House:
    """Two days of two branches, with a midnight lead, a corrected one, a moved one and one that was
    pushed.
    """
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
    house.publish()
    # DAY is due and the next isn't.
    house.now = datetime.combine(NEXT_DAY, house.now.timetz()) + timedelta(days=35)
    return house


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
    for path in paths:
        rows = pq.ParquetFile(path).read().to_pylist()
        for row in rows:
            row.pop("published_in", None)
        texts.append(f"{pq.read_metadata(path).metadata} {rows}")
    return "".join(texts)


def test_old_leads_lose_their_person_everywhere_and_no_figure_changes(full: House) -> None:
    full.publish()
    before = figures(full)
    leads = {kind: len(full.leads(kind)) for kind in KINDS}
    people = {kind: people_in(full, kind) for kind in KINDS}
    assert PLANTED in texts_of(full, DAY)
    assert SECRET in texts_of(full, DAY)
    untouched = texts_of(full, NEXT_DAY)
    dry = cut_days(full.data, NEXT_DAY, is_dry=True)
    assert [(one.kind.name, one.day, one.leads) for one in dry] == [
        (kind, DAY, 10) for kind in KINDS
    ]
    assert PLANTED in texts_of(full, DAY)
    assert any(PLANTED in text for id_, text in full.raw("applicant") if id_ == "applicant pushed")

    full.retain(35)

    assert PLANTED.casefold() not in texts_of(full, DAY).casefold()
    assert "07700" not in texts_of(full, DAY)
    assert texts_of(full, NEXT_DAY) == untouched
    assert figures(full) == before
    assert all(
        SECRET.encode() not in path.read_bytes() for path in full.folder.glob(".versions/*.duckdb")
    )
    for kind in KINDS:
        old = [row for row in full.leads(kind).values() if row["window_day"] == DAY]
        assert len(old) == 10
        assert PLANTED not in str(old)
        assert len(full.leads(kind)) == leads[kind]
        # Whoever asked on both days is two people now.
        assert people_in(full, kind) == people[kind] + 3
    assert list(cut_days(full.data, NEXT_DAY)) == []


@pytest.mark.slow
def test_publications_beside_retention_leave_the_file_that_is_built_anew(
    full: House, tmp_path: Path
) -> None:
    full.now -= timedelta(days=1)
    full.retain(35)  # nothing is due yet
    full.now += timedelta(days=1)
    for _ in cut_days(full.data, due_before(full.now, full.zone, 35)):
        full.publish()
    assert full.tables() == full.built_anew(tmp_path / "anew").tables()


def test_an_unknown_member_of_a_lead_that_raw_has_lost_goes_too(house: House) -> None:
    house.land("applicant", [{"id": "lost", "createdAt": f"{DAY}T10:00:00Z", "nickname": PLANTED}])
    house.publish()
    shutil.rmtree(house.folder / "raw")
    house.later(days=40)
    house.retain(35)
    assert house.leads("applicant")["lost"]["_extra"] is None


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
    assert list(cut_days(house.data, NEXT_DAY)) == []


@pytest.mark.slow
def test_leads_that_raw_has_lost_become_anonymous_in_the_published_file(
    full: House, tmp_path: Path
) -> None:
    """And stay who they are: the same person within the day, whatever is published later."""
    shutil.rmtree(full.folder / "raw")
    full.publish()
    before = figures(full)
    full.retain(35)
    assert PLANTED not in str(full.query("from applicant_leads where window_day = ?", DAY))
    assert PLANTED in str(full.query("from applicant_leads where window_day = ?", NEXT_DAY))
    lost = full.query(
        "select lead_id, person, contact_email from applicant_leads where window_day = ?", DAY
    )
    assert {email for *_, email in lost} == {f"{person}@removed.invalid" for _, person, _ in lost}
    assert figures(full) == before
    full.land("applicant", [lead("today", "ann1", full.today)], full.today)
    full.retain(35)
    anew = full.copied(tmp_path / "anew")
    anew.zone = ZoneInfo("UTC")  # which has it built anew
    anew.publish()
    for house in (full, anew):
        sql = "select lead_id, person, contact_email from applicant_leads where window_day = ?"
        assert house.query(sql, DAY) == lost


def test_a_retention_whose_clock_ran_ahead_cuts_nothing_that_lands_later(house: House) -> None:
    house.land("applicant", [lead("old", "ann1")])
    house.publish()
    right = house.now
    house.later(days=3650)
    house.retain(365)
    house.now = right
    house.land("applicant", [lead("new", "bob2", house.today)], house.today)
    house.retain(365)
    assert house.leads("applicant")["new"]["contact_email"] == f"bob2.{PLANTED}@people.example"


def test_without_the_portal_s_clock_the_command_cuts_nothing(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.land("applicant", [lead("old", "ann1")])
    house.publish()
    for name, value in {
        "LEADS_DATA_DIR": str(house.folder),
        "LEADS_BRANCH_IDS": "101",
        "LEADS_BASE_URL": f"http://127.0.0.1:{free_port()}",
        "LEADS_KEEP_PERSONAL_DAYS": "35",
    }.items():
        monkeypatch.setenv(name, value)
    assert run("privacy", "retain").exit_code != 0
    house.publish()
    assert house.leads("applicant")["old"]["contact_first_name"] == PLANTED


def test_a_person_of_whom_one_lead_was_corrected_stays_one_person(house: House) -> None:
    wrong = {"contact": {"email": "ann@wrong.example", "phoneNumber": "07700 900111"}}
    house.land(
        "applicant",
        [lead("address", "ann1") | wrong, lead("number", "ann1"), lead("neither", "ann1")],
    )
    house.publish()
    house.correct("applicant/address", email=f"ann1.{PLANTED}@people.example")
    house.correct("applicant/number", phone="07700 900333")
    assert people_in(house, "applicant") == 1
    house.later(days=50)
    house.retain(35)
    assert people_in(house, "applicant") == 1
    assert {row["contact_phone_number"] for row in house.leads("applicant").values()} == {None}


def test_who_has_set_no_retention_is_told_so(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.land("applicant", [{"id": "one", "createdAt": f"{DAY}T10:00:00Z"}])
    monkeypatch.setenv("LEADS_DATA_DIR", str(house.folder))
    monkeypatch.setenv("LEADS_BRANCH_IDS", "101")
    told = run("privacy", "retain")
    assert (told.exit_code, "kept as they are" in told.stderr) == (2, True), told.output


@pytest.mark.parametrize(
    ("now", "zone", "before"),
    [
        ("2026-11-22T00:30:00Z", "Europe/London", "2026-10-18"),
        ("2026-07-01T23:30:00Z", "Europe/London", "2026-05-28"),  # 00:30 the next day there
        ("2026-03-29T00:59:00Z", "America/New_York", "2026-02-21"),
    ],
)
def test_days_are_due_by_the_agencys_own_calendar(now: str, zone: str, before: str) -> None:
    found = due_before(datetime.fromisoformat(now), ZoneInfo(zone), 35)
    assert found.isoformat() == before


# --- what stays of a lead's text ------------------------------------------------------------------


@settings(max_examples=80)
@given(
    st.sampled_from(LEAD_KINDS),
    st.recursive(
        st.text(max_size=9) | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "id",
                        "contact",
                        "email",
                        "firstName",
                        "message",
                        "viewingTimes",
                        "address",
                        "postcode",
                        PLANTED,
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    ),
)
def test_cutting_again_changes_nothing_and_gives_json(kind: LeadKind, content: Any) -> None:
    for text in (
        json.dumps(content),
        json.dumps(content)[:-1],
        f'{{"id": "1", {json.dumps(PLANTED)}: {json.dumps(content)}',
    ):
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
        *above, name = field.path.split(".")
        text = (
            "".join(f'{{"{step}": ' for step in above)
            + f'{{"{name}": {values[field.type]}}}'
            + "}" * len(above)
        )
        cut = cut_payload(kind, text, None)
        assert (values[field.type] in cut) == (not field.is_personal), field.path
    assert (
        cut_payload(kind, '{"organiseViewing": "Quenby", "id": "1", "isOverseas": null}', None)
        == '{"id":"1","isOverseas":null}'
    )
