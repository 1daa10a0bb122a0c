"""`privacy object`, `restrict` and `lift`: who isn't marketed to, whose leads are set aside, until when."""

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from leads_pipeline.contract import APPLICANT, APPRAISAL
from leads_pipeline.errors import QuestionError
from leads_pipeline.lake import Lake
from leads_pipeline.person.matching import Group, Sought
from leads_pipeline.privacy.erase import Wish, add_to_list
from leads_pipeline.privacy.objecting import add_lift, close, liftable_numbered, liftable_of, marketed
from leads_pipeline.privacy.requests import open_entries
from leads_pipeline.privacy.search import search
from leads_pipeline.suppression import Action
from leads_pipeline.warehouse import Grid, Publication, Warehouse
from leads_pipeline.window import Scope
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.people import EMAIL, PHONE, lead, listed
from leads_pipeline_tests.support.staging import DAY, LONDON, NEXT_DAY, installed, land, stage, staged_leads
from leads_pipeline_tests.support.staging import publish as publish_it

BEFORE, AFTER = "2026-11-19T10:00:00Z", "2026-11-20T13:00:00Z"
NOW = datetime(2026, 11, 20, 9, tzinfo=UTC)
GRID = Grid(scopes=(Scope.parse("branch-101"),), first_day=DAY, zone=LONDON)
OWNER = {"consumerSituation": "CONSUMER_SITUATION_PROPERTY_TO_SELL"}
GMAIL = "Jane.Roe+homes@googlemail.com"


def owner(lead_id: str, moment: str = BEFORE, **more: Any) -> dict[str, Any]:
    return lead(lead_id, createdAt=moment, **OWNER, **more)


JANE, JOHN = owner("jane", email=EMAIL), owner("john", email="john@people.example")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "data", tmp_path / "list")


def publish(lake: Lake, *leads: dict[str, Any], day: date = DAY) -> None:
    land(lake, APPLICANT, leads, day=day)
    stage(lake, APPLICANT, day)
    follow(lake)


def follow(lake: Lake) -> Publication:
    return publish_it(lake, GRID, NOW)


def ask(lake: Lake, action: Action, *emails: str, phones: tuple[str, ...] = ()) -> int:
    sought = Sought.of(emails, phones)
    found = search(lake, lake.folder / "home", sought, may_be_shared=True)
    chosen = [lead for lead in found.leads if lead.group is Group.GIVEN]
    return add_to_list(lake, sought, chosen, Wish(action=action, received=DAY), NOW).number


def called(lake: Lake) -> list[str]:
    return [row[0] for row in Warehouse(lake).query("select lead_id from mart_hidden_valuations order by 1")[1]]


def leads(lake: Lake) -> list[str]:
    return [row[0] for row in Warehouse(lake).query("select lead_id from applicant_leads order by 1")[1]]


def test_who_objects_is_not_marketed_to_in_any_spelling_and_keeps_their_leads(lake: Lake) -> None:
    publish(lake, owner("1", email="janeroe@gmail.com"), owner("2", email=GMAIL), owner("3", phone=PHONE), JOHN)
    assert called(lake) == ["1", "2", "3", "john"]
    ask(lake, Action.OBJECT, "j.ane.roe@gmail.com", phones=("+44 7700 900123",))
    publication = follow(lake)
    assert (called(lake), leads(lake)) == (["john"], ["1", "2", "3", "john"])
    assert not publication.is_rebuilt
    assert not follow(lake).is_changed


@pytest.mark.slow
def test_an_objection_holds_for_leads_that_come_later_until_it_is_lifted(lake: Lake) -> None:
    publish(lake, JOHN)
    number = ask(lake, Action.OBJECT, EMAIL)
    follow(lake)
    publish(lake, owner("new", AFTER, email=EMAIL.upper()), day=NEXT_DAY)
    assert (called(lake), leads(lake)) == (["john"], ["john", "new"])
    assert not follow(lake).is_changed
    [entry] = liftable_numbered(lake.suppression.read(), [number])
    add_lift(lake, entry, "", DAY, NOW)
    follow(lake)
    assert called(lake) == ["john", "new"]


def test_an_objection_that_is_lifted_together_with_a_lead_of_today_brings_back_what_was_before(lake: Lake) -> None:
    publish(lake, owner("old", email=EMAIL), *(owner(str(n), email=f"{n}@people.example") for n in range(20)))
    number = ask(lake, Action.OBJECT, EMAIL)
    follow(lake)
    assert "old" not in called(lake)
    [entry] = liftable_numbered(lake.suppression.read(), [number])
    add_lift(lake, entry, "", DAY, NOW)

    publish(lake, owner("of john", AFTER, email="john@people.example"), day=NEXT_DAY)

    assert {"old", "of john"} <= set(called(lake))


def test_a_file_that_is_built_anew_leaves_out_who_objected(lake: Lake) -> None:
    publish(lake, JANE, JOHN)
    ask(lake, Action.OBJECT, EMAIL)
    follow(lake)
    Warehouse(lake).path.unlink()
    follow(lake)
    assert called(lake) == ["john"]


@pytest.mark.slow
def test_an_objection_holds_while_another_lead_asks_for_an_appraisal(lake: Lake) -> None:
    land(lake, APPRAISAL, [lead("asks", email=EMAIL, createdAt=BEFORE)])
    stage(lake, APPRAISAL)
    publish(lake, JANE, JOHN)
    ask(lake, Action.OBJECT, EMAIL)
    follow(lake)
    land(lake, APPRAISAL, [lead("asks", email="mary@people.example", createdAt=BEFORE)], sequence=2 * 10**15)
    stage(lake, APPRAISAL)
    follow(lake)
    assert (called(lake), marketed(lake)) == (["john"], 0)


@pytest.mark.slow
def test_a_restriction_sets_known_and_later_leads_aside_until_it_is_lifted(lake: Lake) -> None:
    publish(lake, JANE, JOHN)
    number = ask(lake, Action.RESTRICT, EMAIL)
    follow(lake)
    publish(lake, owner("new", AFTER, email=EMAIL), day=NEXT_DAY)
    assert leads(lake) == ["john"]
    assert lake.lead_ids(APPLICANT, DAY) | lake.lead_ids(APPLICANT, NEXT_DAY) == {"john"}
    assert close(lake) == []
    assert open_entries(lake.suppression.read()) == []

    [entry] = liftable_of(lake.suppression.read(), Sought.of([EMAIL.upper()]))
    assert entry.number == number
    add_lift(lake, entry, "", DAY, NOW)
    assert [one.action for one in open_entries(lake.suppression.read())] == [Action.LIFT]
    assert close(lake) != []
    follow(lake)
    assert close(lake) == []
    assert leads(lake) == ["jane", "john", "new"]
    assert staged_leads(lake, APPLICANT).keys() == {"jane", "john"}


def test_an_erasure_is_never_lifted_nor_what_others_share_by_half_a_name(lake: Lake) -> None:
    erasure = listed(lake.suppression)
    ask(lake, Action.OBJECT, EMAIL, phones=(PHONE,))
    suppressed = lake.suppression.read()
    with pytest.raises(QuestionError, match="erasure"):
        liftable_numbered(suppressed, [erasure.number])
    with pytest.raises(QuestionError, match="no objection"):
        liftable_numbered(suppressed, [99])
    with pytest.raises(QuestionError, match="number"):
        liftable_of(suppressed, Sought.of(phones=[PHONE]))
    assert [one.number for one in liftable_of(suppressed, Sought.of([EMAIL], [PHONE]))] == [2]
    assert leads_meant_by_erasures(lake) == 1


def leads_meant_by_erasures(lake: Lake) -> int:
    return sum(entry.action is Action.ERASE for entry in lake.suppression.read().active)


@pytest.mark.slow
def test_each_request_is_carried_out_told_and_lifted_by_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = installed(tmp_path, monkeypatch)
    publish(lake, JANE, JOHN)
    who = ("--email", EMAIL)

    assert run("privacy", "object", "--lead", "jane").exit_code == 2
    assert run("privacy", "restrict", "--lead", "nobody's").exit_code == 2
    assert run("privacy", "object", *who, "--dry-run").exit_code == 0
    assert not lake.suppression.read()
    told = run("privacy", "object", *who, "--case", "DSR-8")
    assert (told.exit_code, "DSR-8" in told.stdout) == (0, True), told.output + told.stderr
    assert EMAIL not in told.output + told.stderr
    assert (called(lake), leads(lake)) == (["john"], ["jane", "john"])
    assert "object 1 holds for 1" in run("privacy", "find", *who).stdout

    told = run("privacy", "restrict", *who)
    assert told.exit_code == 0, told.output + told.stderr
    assert leads(lake) == ["john"]
    assert "analysts" in told.stdout
    assert "marketing" not in told.stdout
    told = run("privacy", "export", *who, "--to", str(tmp_path / "answer"))
    assert (told.exit_code, "restrict" in told.stdout) == (0, True), told.output
    assert "jane.roe" in (tmp_path / "answer" / "person.json").read_text().lower()
    log = run("privacy", "log", "--json")
    assert [row["action"] for row in json.loads(log.stdout)["entries"]] == ["object", "restrict"]
    assert log.exit_code == 0

    assert run("privacy", "lift", "7").exit_code == 2
    told = run("privacy", "lift", *who)
    assert told.exit_code == 0, told.output + told.stderr
    assert (called(lake), leads(lake)) == (["jane", "john"], ["jane", "john"])
    rows = json.loads(run("privacy", "log", "--json").stdout)["entries"]
    assert all(row["lifted"] for row in rows[:2])
