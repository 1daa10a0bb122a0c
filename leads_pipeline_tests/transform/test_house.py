"""From the portal to leads.duckdb and back: each promise holds in this process and by commands alike."""

import json
from pathlib import Path

from leads_pipeline_tests.support.house import House

EMAIL = "jane.roe@people.example"
HERS = {"id": "hers", "contact": {"email": EMAIL, "firstName": "Jane"}, "createdAt": "2026-11-19T10:00:00Z"}
OTHERS = {"id": "others", "contact": {"email": "john@people.example"}, "createdAt": "2026-11-19T11:00:00Z"}


def test_a_lead_that_two_branches_serve_is_published_once_as_last_received(any_house: House) -> None:
    any_house.land("applicant", [{"id": "a", "message": "first"}], scope="branch-102")
    any_house.land("applicant", [{"id": "a", "message": "second"}])
    any_house.land("appraisal", [{"id": "a"}])
    any_house.publish()

    assert any_house.query("select lead_id, message, scope from applicant_leads") == [("a", "second", "branch-101")]
    assert set(any_house.leads("appraisal")) == {"a"}


def test_the_newest_version_counts_raw_keeps_all_and_what_is_no_longer_served_stays(any_house: House) -> None:
    versions = [json.dumps({"id": "a", "message": text}) for text in ("one", "two", "one")]
    any_house.land("applicant", [versions[0], '{"id":"b"}'])
    for version in versions[1:]:
        any_house.land("applicant", [version])
    any_house.publish()

    leads = any_house.leads("applicant")
    assert {id_: lead["message"] for id_, lead in leads.items()} == {"a": "one", "b": None}
    assert set(any_house.raw("applicant")) == {*(("a", version) for version in versions), ("b", '{"id":"b"}')}


def test_a_lead_that_moves_to_another_day_is_there_once(any_house: House) -> None:
    any_house.land("applicant", [{"id": "a", "createdAt": "2026-11-19T10:00:00Z"}])
    any_house.publish()
    any_house.land("applicant", [{"id": "a", "createdAt": "2026-11-20T10:00:00Z"}], any_house.next_day)
    any_house.publish()

    assert any_house.leads("applicant")["a"]["lead_day"] == any_house.next_day
    assert any_house.query("select lead_day, leads from mart_leads_daily where leads > 0") == [(any_house.next_day, 1)]


def test_a_pushed_lead_is_published_once_with_what_is_pulled(any_house: House) -> None:
    pushed = {"id": "a", "createdAt": "2026-11-19T10:00:00Z", "portalBranchId": "102"}
    any_house.land("applicant", [pushed | {"message": "pulled"}], scope="branch-102")
    any_house.push("applicant", pushed | {"message": "pushed"}, {"id": "b", "createdAt": "2026-11-19T10:00:00Z"})
    any_house.publish()

    leads = any_house.leads("applicant")
    assert {id_: (lead["scope"], lead["message"]) for id_, lead in leads.items()} == {
        "a": ("branch-102", "pushed"),
        "b": ("push", None),
    }


def test_a_refused_window_is_failed_until_it_lands(any_house: House) -> None:
    state = "select state from mart_coverage where kind = 'applicant' and day = ? and scope = 'branch-102'"
    any_house.fail("applicant", scope="branch-102")
    any_house.publish()
    assert any_house.query(state, any_house.day) == [("failed",)]

    any_house.land("applicant", [], scope="branch-102")
    any_house.publish()
    assert any_house.query(state, any_house.day) == [("empty",)]


def test_the_inventory_is_published_by_day(any_house: House) -> None:
    any_house.land_inventory({"York": [{"id": 1}, {"id": 2}], "Hull": []})
    any_house.publish()

    day = any_house.today
    assert any_house.query("select last_seen_day, item_id from inventory order by 2") == [(day, "1"), (day, "2")]


def test_an_erased_person_is_gone_and_stays_gone(any_house: House) -> None:
    any_house.land("applicant", [HERS, OTHERS])
    any_house.publish()
    assert any_house.find(email=EMAIL) == [("theirs", "applicant", "hers")]

    any_house.erase(email=EMAIL)
    assert set(any_house.leads("applicant")) == {"others"}
    any_house.land("applicant", [HERS, OTHERS])
    any_house.publish()

    assert set(any_house.leads("applicant")) == {"others"}
    assert {id_ for id_, _ in any_house.raw("applicant")} == {"others"}


def test_a_restored_backup_is_the_same_and_without_an_erased_person(any_house: House, tmp_path: Path) -> None:
    any_house.land("applicant", [HERS, OTHERS])
    any_house.push("applicant", {"id": "pushed", "createdAt": "2026-11-19T10:00:00Z"})
    any_house.publish()
    any_house.erase(email=EMAIL)
    any_house.back_up(tmp_path / "target")

    restored = any_house.restore(tmp_path / "target", tmp_path / "other" / "data")

    assert set(restored.leads("applicant")) == {"others", "pushed"}
    assert restored.tables() == any_house.tables()


def test_old_leads_lose_their_personal_fields_and_are_still_counted(any_house: House) -> None:
    any_house.land("applicant", [HERS])
    any_house.later(days=40)
    any_house.retain(days=35)

    assert any_house.query("select contact_first_name from applicant_leads") == [(None,)]
    assert any_house.query("select sum(leads) from mart_leads_daily") == [(1,)]
    # With a key, the random ids of the people could be computed.
    assert not list(any_house.folder.glob(".state/anonymous/*"))
