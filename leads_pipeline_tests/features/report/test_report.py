"""The weekly page: each figure is right and of the week that it names, whoever reads it, on a
screen and on paper.
"""

import html
import re
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from leads_pipeline_tests.support.house import House
from leads_pipeline_tests.support.people import lead as person
from leads_pipeline_tests.support.portal_leads import Lead

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
NAMES = {"branch-101": "York & Sons", "branch-102": "Leeds, Headingley"}
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


def named(folder: Path, *scopes: str) -> House:
    """A house with these branches, of which two have names."""
    house = House(folder / "data")
    house.scopes = scopes
    house.names = "id,name\n" + "".join(
        f'{scope.partition("-")[2]},"{name}"\n' for scope, name in NAMES.items()
    )
    return house


def report_at(house: House, now: datetime) -> str:
    house.now = now
    house.publish()
    return house.report()


# --- a day of leads -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> House:
    house = named(tmp_path_factory.mktemp("report"), "branch-101")
    listing = {
        "id": HOSTILE,
        "pricing": {"price": 250000, "currencyCode": "gbp"},
        "address": {"townOrCity": HOSTILE},
    }
    asked: dict[str, Any] = {
        "createdAt": "2026-11-19T10:00:00Z",
        "message": f"Call me {HOSTILE}",
        "enquiryType": "ENQUIRY_TYPE_SALES",
        "consumerSituation": HOSTILE,
        "organiseViewing": True,
        "listingDetails": listing,
    }
    jane = {"email": "jane@people.example", "phone": "07700 900123", "name": "Jane Roe"}
    seller = person("3", email="b@b.org", **asked)
    seller["consumerSituation"] = "CONSUMER_SITUATION_PROPERTY_TO_SELL"
    house.land("applicant", [person("1", **jane, **asked), person("2", **jane, **asked), seller])
    house.land("appraisal", [{"id": "9", "createdAt": "2026-11-19T10:00:00Z"}])
    return house


@pytest.fixture(scope="module")
def page(day: House) -> str:
    return report_at(day, NOW)


def test_without_a_whole_week_the_figures_are_of_the_last_seven_days(page: str) -> None:
    assert texts("h1", page) == ["Leads, 13 to 19 November 2026"]
    assert "The last seven days, until a whole week from Monday to Sunday has landed." in page
    figures = re.findall(r"<div>\s*<b>([\d,]+)</b>([a-z ]+[a-z])", page)
    assert figures == [
        ("3", "applicant leads"),
        ("1", "appraisal leads"),
        ("2", "different people"),
        ("3", "viewings asked for"),
        ("1", "owners to call"),
    ]


def test_the_page_says_as_of_when_it_is_and_names_the_currency(page: str) -> None:
    assert re.search(r"As of \w+day \d+ November 2026, \d\d:\d\d\. No personal data\.", page)
    assert section(page, "Demand by price")[1:] == [["£200,000 to 299,999 sales", "", "3"]]


def test_what_somebody_typed_is_text_and_never_markup(page: str) -> None:
    assert not re.findall(r"(?i)<(?:script|img)", page)
    assert "&lt;/script&gt;" in page  # it is there, as a listing's id


def test_the_page_asks_for_nothing_runs_nothing_and_says_so_to_the_browser(page: str) -> None:
    assert "default-src 'none'; style-src 'unsafe-inline'\"" in page
    assert not re.findall(
        r"""(?i)<script|@import|url\(|\s(?:src|href|action|on\w+)\s*=""", html_without_text(page)
    )


def html_without_text(page: str) -> str:
    return "".join(re.findall(r"(?s)<[^>]*>|<style>.*?</style>", page))


def test_the_page_holds_no_personal_data(page: str) -> None:
    assert not re.search("(?i)jane|roe|b@b.org|07700|call me", page)


def texts(tag: str, markup: str) -> list[str]:
    """What stands in the elements of that name, without markup."""
    found = re.findall(rf"(?s)<(?:{tag})\b[^>]*>(.*?)</(?:{tag})>", markup)
    return [html.unescape(re.sub("<[^>]*>", "", text)).strip() for text in found]


def section(page: str, heading: str) -> list[list[str]]:
    """The rows of a section's tables."""
    markup = page.split(f"<h2>{heading}</h2>")[1].split("</section>")[0]
    return [texts("t[hd]", row) for row in re.findall(r"(?s)<tr>(.*?)</tr>", markup)]


def test_listings_are_those_of_the_period(page: str) -> None:
    assert section(page, "Listings most asked about")[1:] == [
        [f"listing, {HOSTILE} {NAMES['branch-101']}, {HOSTILE}", "£250,000", "3", "3"]
    ]


# --- whole weeks of leads -------------------------------------------------------------------------

# A Monday morning.
MONDAY = datetime(2026, 11, 23, 7, tzinfo=UTC)
LAST_DAY = date(2026, 11, 22)
WEEK_BEFORE = LAST_DAY - timedelta(days=7)
LAST_YEAR = LAST_DAY - timedelta(days=364)
# Of which one day of the week before hasn't landed.
WITH_A_GAP = "branch-103"


def lead(kind: str, scope: str, day: date, email: str, *, asks_for_viewing: bool = False) -> Lead:
    content = {
        "id": f"{scope} {day} {email}",
        "createdAt": f"{day}T10:00:00Z",
        "enquiryType": "ENQUIRY_TYPE_SALES",
        "leadSource": "SOMEWHERE",
        "portalSource": "LISTING",
        "contact": {"email": email},
        "organiseViewing": asks_for_viewing,
    }
    return Lead(kind, scope, day, content)


LEADS = [
    lead("applicant", "branch-101", LAST_DAY - timedelta(days=6), "a@a.org", asks_for_viewing=True),
    lead("applicant", "branch-101", LAST_DAY, "a@a.org", asks_for_viewing=True),
    lead("applicant", "branch-101", LAST_DAY, "b@b.org"),
    lead("appraisal", "branch-101", LAST_DAY, "c@c.org"),
    lead("applicant", "branch-101", WEEK_BEFORE, "a@a.org"),
    lead("applicant", "branch-101", LAST_YEAR, "y@y.org"),
    lead("applicant", "branch-101", LAST_YEAR + timedelta(days=1), "next week's"),
    lead("applicant", "branch-102", LAST_DAY, "b@b.org"),
    lead("applicant", "branch-102", WEEK_BEFORE, "d@d.org", asks_for_viewing=True),
    lead("applicant", "branch-102", WEEK_BEFORE - timedelta(days=6), "d@d.org"),
    lead("applicant", "branch-102", LAST_DAY + timedelta(days=1), "e@e.org"),
    lead("applicant", WITH_A_GAP, LAST_DAY, "f@f.org"),
    lead("applicant", WITH_A_GAP, LAST_DAY, "g@g.org"),
]


YEAR = [LAST_YEAR - timedelta(days=number) for number in range(7)]
TWO_WEEKS = [LAST_DAY + timedelta(days=1) - timedelta(days=number) for number in range(15)]


def land(house: House) -> None:
    """Land the two weeks before MONDAY, and the same week of last year."""
    leads: dict[tuple[str, str, date], list[Any]] = defaultdict(list)
    for lead in LEADS:
        leads[lead.kind, lead.scope, lead.day].append(lead.content)

    for day in sorted([*YEAR, *TWO_WEEKS]):
        morning = datetime(day.year, day.month, day.day, 2, tzinfo=UTC) + timedelta(days=1)
        house.now = min(MONDAY, morning)
        for kind, scope in product(("applicant", "appraisal"), house.scopes):
            if (day, scope) != (WEEK_BEFORE, WITH_A_GAP):
                house.land(kind, leads[kind, scope, day], day, scope)


@pytest.fixture(scope="module")
def weeks(tmp_path_factory: pytest.TempPathFactory) -> House:
    house = named(tmp_path_factory.mktemp("weeks"), "branch-101", "branch-102", WITH_A_GAP)
    house.first_day = YEAR[-1]
    land(house)
    first, second, *_ = LEADS
    house.answers(
        [
            (first.content["id"], f"{first.day}T10:12:00Z"),
            (second.content["id"], f"{second.day}T13:20:00Z"),
        ]
    )
    return house


@pytest.fixture(scope="module")
def weekly(weeks: House) -> str:
    return report_at(weeks, MONDAY)


def test_branches_are_ranked_by_the_weeks_leads_with_the_changes_on_two_other_weeks(
    weekly: str,
) -> None:
    heading, *rows = section(weekly, "Branches")
    columns = ["branch", "leads", "change", "last year", "people", "viewings", "valuations"]
    assert heading[:7] == columns
    assert [row[:7] for row in rows] == [
        ["1. York & Sons", "4", "+3", "+3", "3", "2", "1"],
        ["2. branch-103", "2", "–", "+2", "2", "0", "0"],
        ["3. Leeds, Headingley", "1", "−1", "+1", "1", "0", "0"],
    ]


def test_the_ranking_has_the_time_that_branches_take_to_answer(weekly: str) -> None:
    _, *rows = section(weekly, "Branches")
    assert [row[7:] for row in rows] == [
        ["50%", "1 h 46 min"],  # of 12 and 200 minutes
        ["0%", "–"],
        ["0%", "–"],
    ]


def test_no_change_of_all_branches_is_told_if_one_has_a_gap(weekly: str) -> None:
    assert "It isn't compared with the week before, because some days are missing." in weekly
    assert "on the week before</span>" not in weekly
    assert "on the same week of last year</span>" in weekly
    assert section(weekly, "Sources")[1:] == [["somewhere listing", "7", "–"]]


def test_the_page_is_of_the_last_whole_week_until_the_next_one_is_over(
    weeks: House, weekly: str, tmp_path: Path
) -> None:
    on_sunday = report_at(weeks.copied(tmp_path / "data"), MONDAY + timedelta(days=6))

    assert texts("h1", weekly) == texts("h1", on_sunday) == ["Leads, 16 to 22 November 2026"]


def test_the_trend_shows_each_week_and_marks_one_that_is_not_whole(weekly: str) -> None:
    titles = texts("title", weekly.split('id="chart-trend"')[1].split("</svg>")[0])
    assert titles[-2:] == [
        "From 9 November: 3 applicant, 0 appraisal, not all days landed",
        "From 16 November: 6 applicant, 1 appraisal",
    ]
    assert "9 November 3, 16 November 7." in weekly  # for who doesn't see the chart


@pytest.mark.usefixtures("weekly")
def test_the_page_of_one_branch_holds_no_other(weeks: House) -> None:
    page = weeks.report("branch-102")

    assert texts("h1", page) == ["Leads, 16 to 22 November 2026: Leeds, Headingley"]
    assert "<b>1</b>applicant leads" in page
    assert not re.findall("York|branch-101|<h2>Branches", page)
