"""The page of figures: each figure is right, whoever reads it, and however many branches there are."""

import html
import re
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from leads_pipeline.features.report.page import round_above
from leads_pipeline_tests.support.house import DAY, House
from leads_pipeline_tests.support.portal_leads import Lead, people

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
NAMES = {"branch-101": "York & Sons", "branch-102": "Leeds, Headingley"}
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


def named(folder: Path, *scopes: str) -> House:
    """A house with these branches, of which two have names."""
    house = House(folder / "data")
    house.scopes = scopes
    house.names = "id,name\n" + "".join(f'{scope.partition("-")[2]},"{name}"\n' for scope, name in NAMES.items())
    return house


def report_at(house: House, now: datetime) -> str:
    house.now = now
    house.publish()
    return house.report()


# --- a day of leads -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> House:
    house = named(tmp_path_factory.mktemp("report"), "branch-101")
    contact = {"firstName": "Annabel", "email": "annabel@example.org", "phoneNumber": "07700 900123"}
    lead = {
        "createdAt": "2026-11-19T10:00:00Z",
        "contact": contact,
        "message": f"Call me {HOSTILE}",
        "enquiryType": "ENQUIRY_TYPE_SALES",
        "consumerSituation": HOSTILE,
        "organiseViewing": True,
        "listingDetails": {"id": HOSTILE, "pricing": {"price": 250000}, "address": {"townOrCity": HOSTILE}},
    }
    selling = {"consumerSituation": "CONSUMER_SITUATION_PROPERTY_TO_SELL"}
    leads = [{"id": "1", **lead}, {"id": "2", **lead}, {"id": "3", **lead, **selling, "contact": {"email": "b@b.org"}}]
    house.land("applicant", leads)
    house.land("appraisal", [{"id": "9", "createdAt": "2026-11-19T10:00:00Z"}])
    before = DAY - timedelta(days=21)
    house.land("appraisal", [{"id": f"{n}", "createdAt": f"{before}T10:00:00Z", "mood": n} for n in range(3)], before)
    return house


@pytest.fixture(scope="module")
def page(day: House) -> str:
    return report_at(day, NOW)


def test_the_figures_are_of_the_last_seven_days_and_of_what_is_to_do(page: str) -> None:
    figures = re.findall(r"<div><b>([\d,]+)</b>([a-z ]+[a-z])", page)
    assert figures == [
        ("3", "applicant leads"),
        ("1", "appraisal leads"),
        ("2", "different people"),
        ("3", "viewings asked for"),
        ("1", "owners to call"),
    ]
    assert "2 windows not landed, 1 changes at the portal" in texts("summary", page)[-1]


def test_what_somebody_typed_is_text_and_never_markup(page: str) -> None:
    assert not re.findall(r"(?i)<(?:script|img)", page)
    assert "&lt;/script&gt;" in page  # it is there, as a listing's id


def test_the_page_asks_for_nothing_runs_nothing_and_says_so_to_the_browser(page: str) -> None:
    assert "default-src 'none'; style-src 'unsafe-inline'\"" in page
    assert not re.findall(r"""(?i)<script|@import|url\(|\s(?:src|href|action|on\w+)\s*=""", html_without_text(page))


def html_without_text(page: str) -> str:
    return "".join(re.findall(r"(?s)<[^>]*>|<style>.*?</style>", page))


def test_the_page_holds_no_personal_data(page: str) -> None:
    assert not [text for text in ("annabel", "b@b.org", "07700", "call me") if text in page.lower()]


def test_every_chart_is_drawn_from_the_leads_and_says_in_words_what_it_shows(page: str) -> None:
    assert re.findall(r'id="chart-(\w+)"', page) == ["daily", "hourly", "mix", "bands"]
    assert "200,000 to 299,999" in page
    for drawing in re.findall(r"<svg[^>]*>", page):
        assert 'aria-hidden="true"' in drawing or re.search(r'role="img" aria-label="[^"]{20,}"', drawing), drawing
    assert "Most leads come on Thursdays, and between 10:00 and 11:00." in page


def test_headings_are_in_order_and_every_column_has_one(page: str) -> None:
    levels = [1, *map(int, re.findall(r"<h(\d)", page))]
    assert levels[:3] == [1, 1, 2]
    assert all(level <= before + 1 for before, level in pairwise(levels))
    assert page.count("<th ") == page.count('<th scope="')


def test_a_phone_reads_rows_as_cards_whose_figures_carry_their_names(page: str) -> None:
    cards = re.findall(r'(?s)<table class="cards.*?</table>', page)
    assert len(cards) == 5
    for table in cards:
        _, *headings = texts("th", table.split("</thead>")[0])
        assert headings == re.findall(r'data-label="(\w+)"', table.split("<tr>")[2])


def texts(tag: str, markup: str) -> list[str]:
    """What stands in the elements of that name, without markup."""
    found = re.findall(rf"(?s)<(?:{tag})\b[^>]*>(.*?)</(?:{tag})>", markup)
    return [html.unescape(re.sub("<[^>]*>", "", text)).strip() for text in found]


def section(page: str, heading: str) -> list[list[str]]:
    """The rows of a section's tables."""
    markup = page.split(f"<h2>{heading}</h2>")[1].split("</section>")[0]
    return [texts("t[hd]", row) for row in re.findall(r"(?s)<tr>(.*?)</tr>", markup)]


def test_listings_are_those_of_the_week(page: str, day: House, tmp_path: Path) -> None:
    assert section(page, "Listings most asked about")[1:] == [
        [f"listing, {HOSTILE} {NAMES['branch-101']}, {HOSTILE}", "250,000", "3", "3"]
    ]
    house = day.copied(tmp_path / "data")
    for later, listings in ((6, 1), (7, 0)):
        house.now = NOW + timedelta(days=later)
        house.land("applicant", [], DAY + timedelta(days=later))
        shown = section(report_at(house, NOW + timedelta(days=later)), "Listings most asked about")
        assert len(shown[1:]) == listings


def test_no_leads_at_all_give_a_page_that_says_so(tmp_path: Path) -> None:
    page = report_at(named(tmp_path, "branch-101"), NOW)

    assert page.count('class="none"') == 7
    assert "chart-" not in page
    assert "No day has landed yet." in page


def test_a_week_that_ended_long_ago_is_called_so(page: str, day: House, tmp_path: Path) -> None:
    late = report_at(day.copied(tmp_path / "data"), NOW + timedelta(days=40))

    assert "Nothing newer than" not in page
    assert "Nothing newer than 19 November 2026 has landed" in late
    assert "No leads in these days." in late


# --- two weeks of leads ---------------------------------------------------------------------

TODAY = NOW.date()
LAST_DAY = TODAY - timedelta(days=1)
FIRST_DAY = LAST_DAY - timedelta(days=13)
WEEK_BEFORE = LAST_DAY - timedelta(days=7)
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
    lead("applicant", "branch-102", LAST_DAY, "b@b.org"),
    lead("applicant", "branch-102", FIRST_DAY, "d@d.org", asks_for_viewing=True),
    lead("applicant", "branch-102", WEEK_BEFORE, "d@d.org"),
    lead("applicant", "branch-102", TODAY, "e@e.org"),
    lead("applicant", WITH_A_GAP, LAST_DAY, "f@f.org"),
    lead("applicant", WITH_A_GAP, LAST_DAY, "g@g.org"),
]
SCOPES = ("branch-101", "branch-102", WITH_A_GAP)


@pytest.fixture(scope="module")
def weeks(tmp_path_factory: pytest.TempPathFactory) -> str:
    house = named(tmp_path_factory.mktemp("weeks"), *SCOPES)
    house.first_day = FIRST_DAY
    for day in (FIRST_DAY + timedelta(days=number) for number in range(15)):
        house.now = min(NOW, datetime(day.year, day.month, day.day, 2, tzinfo=UTC) + timedelta(days=1))
        for kind in ("applicant", "appraisal"):
            for scope in SCOPES:
                if (day, scope) != (FIRST_DAY, WITH_A_GAP):
                    found = [lead.content for lead in LEADS if (lead.kind, lead.scope, lead.day) == (kind, scope, day)]
                    house.land(kind, found, day, scope)
    return report_at(house, NOW)


def of_week(ends: date, scope: str = "") -> list[Lead]:
    return [lead for lead in LEADS if lead.scope.startswith(scope) and 0 <= (ends - lead.day).days < 7]


def row_of(scope: str) -> tuple[str, ...]:
    week, before = of_week(LAST_DAY, scope), of_week(WEEK_BEFORE, scope)
    viewings = sum(lead.content["organiseViewing"] for lead in week)
    appraisals = sum(lead.kind == "appraisal" for lead in week)
    change = "–" if scope == WITH_A_GAP else f"{len(week) - len(before):+d}".replace("-", "−")
    return (str(len(week)), change, str(people(week)), str(viewings), str(appraisals))


def test_branches_are_ranked_by_name_and_the_weeks_leads_with_the_change_on_the_week_before(weeks: str) -> None:
    heading, *rows = section(weeks, "Branches")
    assert heading == ["branch", "leads", "change", "people", "viewings", "valuations"]
    ranked = sorted(SCOPES, key=lambda scope: -len(of_week(LAST_DAY, scope)))
    assert rows == [
        [f"{place}. {NAMES.get(scope, scope)}", *row_of(scope)] for place, scope in enumerate(ranked, start=1)
    ]


def test_no_change_of_all_branches_is_told_where_one_has_a_gap(weeks: str) -> None:
    assert "They aren't compared with the seven before, because some days are missing." in weeks
    assert "on the week before)" not in weeks
    assert section(weeks, "Sources") == [["source", "leads"], ["somewhere listing", str(len(of_week(LAST_DAY)))]]


def test_today_is_under_way_and_not_counted(weeks: str) -> None:
    assert "<h1>Leads, 14 to 20 November 2026</h1>" in weeks
    assert "<b>Saturday 21 November is under way</b>, with 1 lead so far, and not counted." in weeks
    assert section(weeks, "Leads per day")[1:3] == [["Sat 21 Nov, under way", "1", "0"], ["Fri 20 Nov", "5", "1"]]
    assert weeks.count('class="under-way"') == 1


def test_a_day_that_has_not_landed_is_marked_in_the_chart(weeks: str) -> None:
    assert re.findall(r"<title>(.*windows not landed)</title>", weeks) == [
        "Sat 07 Nov: 1 applicant, 0 appraisal, 2 windows not landed"
    ]


def test_a_hundred_branches_take_no_more_room_than_ten(tmp_path: Path) -> None:
    scopes = [f"branch-{number}" for number in range(201, 301)]
    house = named(tmp_path, *scopes)
    for scope in scopes:
        house.land("applicant", [lead("applicant", scope, LAST_DAY, f"{scope}@a.org").content], LAST_DAY, scope)

    page = report_at(house, NOW)

    assert len(page) < 200_000
    assert re.findall(r"<summary>(… and .*?)</summary>", page) == ["… and 90 more", "… and 190 more"]
    unfolded = re.sub(r"(?s)<details.*?</details>", "", page)
    assert len(section(unfolded, "Branches")) == 1 + 10
    assert [row[0] for row in section(page, "Branches") if row[0] != "branch"] == [
        f"{place}. {scope}" for place, scope in enumerate(scopes, start=1)
    ]


@pytest.mark.parametrize(
    ("most", "top"), [(1, 2), (2, 2), (3, 4), (9, 10), (10, 10), (11, 20), (75, 80), (101, 200), (2900, 3000)]
)
def test_a_scale_ends_a_little_above_the_highest_column_and_its_half_is_whole(most: int, top: int) -> None:
    assert round_above(most) == top
