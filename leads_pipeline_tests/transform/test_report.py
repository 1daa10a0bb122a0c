"""The page of figures: each figure is right, whoever reads it, and however many branches there are."""

import html
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import duckdb
import pytest

from leads_pipeline.branches import Branches
from leads_pipeline.contract import APPLICANT, APPRAISAL
from leads_pipeline.lake import Lake
from leads_pipeline.report.charts import round_above
from leads_pipeline.report.page import write_report
from leads_pipeline.warehouse import Grid, Warehouse
from leads_pipeline.window import Scope
from leads_pipeline_tests.support.portal_leads import Lead, people
from leads_pipeline_tests.support.staging import DAY, LONDON, land, stage

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
NAMES = {"branch-101": "York & Sons", "branch-102": "Leeds, Headingley"}
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


def grid(*scopes: str, first_day: date = DAY) -> Grid:
    return Grid(tuple(map(Scope.parse, scopes)), first_day, LONDON, branches=Branches(NAMES))


def written(lake: Lake) -> str:
    return write_report(Warehouse(lake), lake).path.read_text(encoding="utf-8")


# --- a day of leads, by the whole way ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(tmp_path_factory.mktemp("report") / "data")
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
    land(lake, APPLICANT, leads)
    land(lake, APPRAISAL, [{"id": "9", "createdAt": "2026-11-19T10:00:00Z"}])
    for kind in (APPLICANT, APPRAISAL):
        stage(lake, kind)
    Warehouse(lake).publish(grid("branch-101"), NOW)
    return lake


@pytest.fixture(scope="module")
def page(lake: Lake) -> str:
    return written(lake)


def test_the_figures_are_of_the_last_seven_days_and_of_what_is_to_do(lake: Lake) -> None:
    assert write_report(Warehouse(lake), lake).figures == {
        "applicant_leads": 3,
        "appraisal_leads": 1,
        "people": 2,
        "viewings": 3,
        "hidden_valuations": 1,
        "windows_not_landed": 2,
        "contract_changes": 1,
    }


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


def test_listings_are_those_of_the_week(page: str, lake: Lake) -> None:
    assert section(page, "Listings most asked about")[1:] == [
        [f"listing, {HOSTILE} {NAMES['branch-101']}, {HOSTILE}", "250,000", "3", "3"]
    ]
    for later, listings in ((6, 1), (7, 0)):
        Warehouse(lake).publish(grid("branch-101"), NOW + timedelta(days=later))
        file = Warehouse(lake).path
        file.chmod(0o600)
        with duckdb.connect(file) as db:
            db.execute("update mart_coverage set state = 'empty' where day = $1", [DAY + timedelta(days=later)])
        assert len(section(written(lake), "Listings most asked about")[1:]) == listings
    Warehouse(lake).publish(grid("branch-101"), NOW)


def test_a_warehouse_without_leads_gives_a_page_that_says_so(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "data")
    Warehouse(lake).publish(grid("branch-101"), NOW)

    page = written(lake)

    assert page.count('class="none"') == 7
    assert "chart-" not in page
    assert "No day has landed yet." in page


def test_a_week_that_ended_long_ago_is_called_so(lake: Lake) -> None:
    Warehouse(lake).publish(grid("branch-101"), NOW + timedelta(days=40))

    page = written(lake)

    assert "Nothing newer than 19 November 2026 has landed" in page
    assert "No leads in these days." in page
    Warehouse(lake).publish(grid("branch-101"), NOW)


# --- two weeks of leads, written into the marts ---------------------------------------------------------------------

TODAY = NOW.date()
LAST_DAY = TODAY - timedelta(days=1)
FIRST_DAY = LAST_DAY - timedelta(days=13)
WEEK_BEFORE = LAST_DAY - timedelta(days=7)
# Of which one day of the week before hasn't landed.
WITH_A_GAP = "branch-103"


def lead(kind: str, scope: str, day: date, email: str, *, asks_for_viewing: bool = False) -> Lead:
    return Lead(kind, scope, day, {"contact": {"email": email}, "organiseViewing": asks_for_viewing})


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


def write_marts(lake: Lake, scopes: Sequence[str], leads: Sequence[Lead]) -> None:
    """Replace what the published marts say: landing and staging four weeks takes seconds."""
    Warehouse(lake).publish(grid(*scopes, first_day=FIRST_DAY), NOW)
    file = Warehouse(lake).path
    file.chmod(0o600)
    with duckdb.connect(file) as db:
        db.execute("update mart_coverage set state = 'landed' where day < $today", {"today": TODAY})
        db.execute("update mart_coverage set state = 'missing' where day = $1 and scope = $2", [FIRST_DAY, WITH_A_GAP])
        for lead in leads:
            db.execute(
                "insert into mart_people_daily by name select $day as lead_day, $scope as scope, $kind as kind, "
                "'sales' as market, 'somewhere' as source, 'listing' as portal_source, "
                "md5_number($person)::uuid as person, 1 as leads",
                {"day": lead.day, "scope": lead.scope, "kind": lead.kind, "person": lead.identity},
            )
        db.execute(
            "insert into mart_leads_daily by name select columns(* exclude (person, branch, situation, leads)), "
            "sum(leads) as leads from mart_people_daily group by all"
        )
        for lead in leads:
            db.execute(
                "insert into mart_enquiry_mix by name select $day as lead_day, $scope as scope, 'sales' as market, "
                "'other' as situation, 1 as leads, $viewings as viewings",
                {"day": lead.day, "scope": lead.scope, "viewings": int(lead.content["organiseViewing"])},
            )


@pytest.fixture(scope="module")
def weeks(tmp_path_factory: pytest.TempPathFactory) -> str:
    lake = Lake(tmp_path_factory.mktemp("weeks") / "data")
    write_marts(lake, SCOPES, LEADS)
    return written(lake)


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
    assert "They aren't compared with the seven before, as not every day of both is here." in weeks
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
    lake = Lake(tmp_path / "data")
    write_marts(lake, scopes, [lead("applicant", scope, LAST_DAY, f"{scope}@a.org") for scope in scopes])

    page = written(lake)

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
