"""`lead_feed` as a program uses it that remembers the last number: it misses no change and sees none twice."""

import random
import shutil
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline_tests.support.house import DAY, LONDON, NEXT_DAY, House, Row

# What says how a version came isn't a change.
HOW_IT_CAME = {"fetched_at", "sequence", "source", "window_day", "day"}


def leads_of(house: House) -> dict[tuple[str, str], Any]:
    """What the tables say of each lead with its lists, by kind and id."""
    found: dict[tuple[str, str], Any] = {}
    for kind in LEAD_KINDS:
        for row in house.rows(f"from {kind.table}"):
            found[kind.name, row["lead_id"]] = {None: shown(row)}
        for child in kind.children:
            for row in house.rows(f"from {child.name} order by position"):
                found[kind.name, row["lead_id"]][child.name, row["position"]] = shown(row)
    return found


def shown(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in HOW_IT_CAME}


class Follower:
    """A program with a copy of the leads. It reads the feed after each publication, or after some."""

    def __init__(self, *, is_seldom: bool = False) -> None:
        self.number, self.is_seldom = 0, is_seldom
        self.copy: dict[tuple[str, str], Any] = {}
        self.begun = 0

    def follow(self, house: House) -> list[tuple[str, str, str]]:
        """Apply the changes. Each is one: nothing is added twice, and a changed lead differs."""
        [(lowest,)] = house.query("select min(number) from lead_feed")
        if lowest is not None and lowest > self.number:
            self.copy, self.begun = {}, self.begun + 1
        leads = leads_of(house)
        feed = "select number, kind, lead_id, change from lead_feed where number > ? order by number"
        changes = house.query(feed, self.number)
        for number, kind, lead_id, change in changes:
            key = kind, lead_id
            assert number > self.number
            self.number = number
            before, now = self.copy.pop(key, None), leads.get(key)
            if not self.is_seldom:
                assert (before is None) == (change == "added"), (key, change)
                assert change == "removed" or before != now, key
            if change != "removed" and now is not None:  # else it is removed further on
                self.copy[key] = now
        return [(kind, lead_id, change) for _, kind, lead_id, change in changes]


@pytest.fixture
def house(tmp_path: Path) -> House:
    house = House(tmp_path / "data")
    house.tables_as = "none"
    return house


def feed(house: House) -> list[tuple[str, str]]:
    return house.query("select lead_id, change from lead_feed order by number")


# --- what a change is -------------------------------------------------------------------------------------------------


def test_a_lead_is_added_once_and_changed_when_its_fields_or_lists_differ(house: House) -> None:
    for lead in (
        {"id": "a", "message": "first", "viewingTimes": [{}]},
        {"id": "a", "message": "second", "viewingTimes": [{}]},
        {"id": "a", "message": "second", "viewingTimes": [{}, {}]},
        {"id": "a", "message": "second", "viewingTimes": []},
    ):
        house.land("applicant", [lead, {"id": "b"}])
        house.publish()

    assert feed(house) == [("a", "added"), ("b", "added"), *[("a", "changed")] * 3]


def test_the_same_text_again_is_no_change(house: House) -> None:
    midnight = {"id": "midnight", "createdAt": "2026-11-20T00:00:00Z", "portalBranchId": "101"}
    house.land("applicant", [midnight])
    house.publish()

    house.land("applicant", [midnight])  # confirmed
    house.land("applicant", [midnight], NEXT_DAY)  # the next window has it, too
    house.push("applicant", midnight)
    house.publish()
    house.land("applicant", [{"id": "other"}], scope="branch-102")
    house.publish()

    assert feed(house) == [("midnight", "added"), ("other", "added")]


# --- leads that go ----------------------------------------------------------------------------------------------------


def test_an_erased_lead_is_removed_and_the_feed_has_only_its_id(house: House) -> None:
    house.land("applicant", [{"id": "a", "contact": {"email": "jane@people.example"}}, {"id": "b"}])
    house.publish()
    house.erase(email="jane@people.example")

    assert feed(house) == [("a", "added"), ("b", "added"), ("a", "removed")]
    assert [*house.rows("from lead_feed limit 1")[0]] == ["number", "kind", "lead_id", "change", "at"]


def test_a_lead_that_a_new_file_leaves_out_is_removed_though_its_day_is_another_now(house: House) -> None:
    house.land("applicant", [{"id": "a", "createdAt": "2026-11-19T20:00Z"}])
    house.land("applicant", [{"id": "b"}], NEXT_DAY)
    house.publish()
    house.zone = ZoneInfo("Asia/Tokyo")
    house.erase(lead="a")

    assert feed(house) == [("a", "added"), ("b", "added"), ("a", "removed")]


@pytest.mark.slow
def test_a_lead_that_raw_has_lost_is_removed_when_it_is_erased(house: House) -> None:
    house.land("applicant", [{"id": "a"}])
    house.publish()
    shutil.rmtree(house.folder / "raw")
    house.land("applicant", [{"id": "b"}])
    house.publish()
    assert feed(house) == [("a", "added"), ("b", "added")]

    house.erase(lead="a")
    assert feed(house)[2:] == [("a", "removed")]


@pytest.mark.slow
def test_an_anonymous_lead_is_removed_and_what_is_pushed_into_its_day_is_not_added(house: House) -> None:
    of_old = {"id": "old", "createdAt": "2026-11-19T10:00Z", "contact": {"email": "jane@people.example"}}
    house.land("applicant", [of_old, {"id": "of nobody"}])
    house.land("applicant", [{"id": "later"}], NEXT_DAY)
    house.publish()
    house.later(days=37)
    house.retain(38)
    assert sorted(feed(house)[3:]) == [("of nobody", "removed"), ("old", "removed")]

    house.push("applicant", of_old | {"id": "pushed"})
    house.publish()

    assert "pushed" in house.leads("applicant")
    assert len(feed(house)) == 5


# --- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_numbers_go_on_though_the_clock_is_set_back(house: House) -> None:
    follower = Follower()
    for number in range(4):
        house.land("applicant", [{"id": str(number)}], scope=f"branch-{number}")
        house.publish()
        house.later(days=-1)
        assert follower.follow(house) == [("applicant", str(number), "added")]


@pytest.mark.parametrize("change", ["zone", "names", "broken writer"])
def test_a_file_that_is_built_anew_goes_on_with_the_feed(house: House, change: str) -> None:
    house.land("applicant", [{"id": "a", "createdAt": "2026-11-19T10:00Z"}, {"id": "b"}])
    house.publish()
    before = house.query("from lead_feed order by number")
    house.land("applicant", [{"id": "b", "message": "new"}, {"id": "c"}])
    if change == "zone":
        house.zone = ZoneInfo("Asia/Tokyo")
    elif change == "names":
        house.names = "id,name\n101,York\n"
    else:
        house.file.chmod(0o600)
        house.file.touch()
    house.publish()

    rows = house.query("from lead_feed order by number")
    assert rows[:2] == before
    assert [row[2:4] for row in rows[2:]] == [("b", "changed"), ("c", "added")]


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["lost", "damaged", "restored"])
def test_a_feed_whose_file_was_lost_begins_anew_above_all_numbers_that_were_read(
    house: House, tmp_path: Path, loss: str
) -> None:
    follower = Follower()
    house.land("applicant", [{"id": "a"}, {"id": "gone"}])
    house.publish()
    house.back_up(tmp_path / "backup")
    house.land("applicant", [{"id": "b"}], NEXT_DAY)
    house.publish()
    follower.follow(house)
    if loss == "lost":
        house.file.unlink()
        shutil.rmtree(house.folder / ".versions")
    elif loss == "damaged":
        house.file.chmod(0o600)
        house.file.resolve().write_bytes(b"not a database")
    house.later(seconds=1)
    if loss == "restored":
        house = house.restore(tmp_path / "backup", tmp_path / "restored")
    else:
        house.publish()

    said = follower.follow(house)

    assert follower.begun == 2
    assert {change for _, _, change in said} == {"added"}
    assert follower.copy == leads_of(house)


# --- whatever happens -------------------------------------------------------------------------------------------------


def any_lead(rng: random.Random) -> Row:
    return {
        "id": f"lead-{rng.randrange(15)}",
        "createdAt": rng.choice(["2026-11-05T09:00Z", "2026-11-19T10:00Z", "2026-11-20T00:00Z", "0001-01-01T00:00Z"]),
        "contact": {"email": rng.choice(["ann@people.example", "bob@people.example", None])},
        "message": rng.choice(["call me", "write to me"]),
        "viewingTimes": [{}] * rng.randrange(3),
    }


def something_happens(rng: random.Random, house: House, step: int) -> None:
    """Leads come, go to another branch, day or kind, and come back; a person is erased; the file is built anew."""
    for _ in range(rng.randrange(3)):
        kind, leads = rng.choice(LEAD_KINDS).name, [any_lead(rng) for _ in range(rng.randrange(4))]
        if rng.random() < 0.3 and leads:
            house.push(kind, *leads)
        else:
            house.land(kind, leads, rng.choice([DAY, NEXT_DAY]), rng.choice(house.scopes))
    if step % 10 == 5:
        house.zone = LONDON if house.zone != LONDON else ZoneInfo("Asia/Tokyo")
    elif step % 10 == 7:
        house.erase(lead=rng.choice([lead_id for _, lead_id in leads_of(house)] or ["nobody"]))
    elif step % 10 == 8:
        shutil.rmtree(house.folder / "raw" / "applicant_leads" / f"day={DAY}", ignore_errors=True)
    elif step % 10 == 9:
        house.object_(email="bob@people.example")
    house.publish()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_over_50_publications_a_follower_misses_nothing_and_sees_nothing_twice(house: House, seed: int) -> None:
    rng, follower, seldom = random.Random(seed), Follower(), Follower(is_seldom=True)  # noqa: S311 - the same each time
    for step in range(50):
        something_happens(rng, house, step)
        follower.follow(house)
        assert follower.copy == leads_of(house), step
        if step % 7 == 0:
            seldom.follow(house)
    house.later(days=60)
    house.retain(38)
    for one in (follower, seldom):
        one.follow(house)
        assert (one.copy, one.begun) == ({}, 1)
