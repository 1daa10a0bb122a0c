import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from dagster import materialize

from leads_pipeline.assets.report import report_asset
from leads_pipeline.contract import APPLICANT, APPRAISAL
from leads_pipeline.lake import Lake
from leads_pipeline.report.page import write_report
from leads_pipeline.resources import DataFolder
from leads_pipeline.warehouse import Grid, Warehouse
from leads_pipeline.window import Scope
from leads_pipeline_tests.staging import DAY, LONDON, land, stage

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


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
        "listingDetails": {"id": HOSTILE, "pricing": {"price": 250000}, "address": {"townOrCity": HOSTILE}},
    }
    selling = {"consumerSituation": "CONSUMER_SITUATION_PROPERTY_TO_SELL"}
    leads = [{"id": "1", **lead}, {"id": "2", **lead}, {"id": "3", **lead, **selling, "contact": {"email": "b@b.org"}}]
    land(lake, APPLICANT, leads)
    land(lake, APPRAISAL, [{"id": "9", "createdAt": "2026-11-19T10:00:00Z"}])
    for kind in (APPLICANT, APPRAISAL):
        stage(lake, kind)
    Warehouse(lake).publish(Grid((Scope.parse("branch-101"),), DAY, LONDON), NOW)
    return lake


@pytest.fixture(scope="module")
def page(lake: Lake) -> str:
    return write_report(Warehouse(lake), lake).path.read_text(encoding="utf-8")


def own(page: str) -> str:
    """The page without plotly's own script."""
    return "".join(part for part in re.split(r"(?s)(<script.*?</script>)", page) if len(part) < 1_000_000)


def test_the_headline_figures_are_the_marts(lake: Lake) -> None:
    assert write_report(Warehouse(lake), lake).figures == {
        "applicant_leads": 3,
        "appraisal_leads": 1,
        "people": 2,
        "returning_people": 1,
        "hidden_valuations": 1,
        "windows_not_landed": 2,
        "contract_changes": 1,
    }


def test_what_somebody_typed_is_text_and_never_markup(page: str) -> None:
    assert "<script>alert" not in page.lower()
    assert "<img" not in own(page).lower()
    assert "&lt;/script&gt;" in own(page)  # it is there: as a listing's id, and as a situation


def test_the_page_asks_for_nothing_and_says_so_to_the_browser(page: str) -> None:
    assert not re.findall(r"""(?:src|href|action)\s*=\s*["']?(?:https?:)?//""", own(page))
    assert "default-src 'none'" in page
    assert "@import" not in own(page)
    assert "https://cdn" not in own(page)


def test_the_page_holds_no_personal_data(page: str) -> None:
    assert not [text for text in ("annabel", "b@b.org", "07700", "call me") if text in own(page).lower()]


def test_every_chart_is_drawn_from_the_leads(page: str) -> None:
    assert re.findall(r'id="chart-(\w+)"', page) == ["daily", "hourly", "mix", "bands"]
    assert "branch-101" in own(page)
    assert "200,000 to 299,999" in own(page)


def test_a_warehouse_without_leads_gives_a_page_that_says_so(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "data")
    Warehouse(lake).publish(Grid((Scope.parse("branch-101"),), DAY, LONDON), NOW)

    page = write_report(Warehouse(lake), lake).path.read_text(encoding="utf-8")

    assert page.count('class="none"') == 6
    assert "chart-" not in own(page)


def test_only_the_last_30_days_are_shown_as_days(lake: Lake) -> None:
    Warehouse(lake).publish(Grid((Scope.parse("branch-101"),), DAY, LONDON), NOW + timedelta(days=40))

    report = write_report(Warehouse(lake), lake)

    assert (report.figures["applicant_leads"], report.figures["people"]) == (0, 0)
    Warehouse(lake).publish(Grid((Scope.parse("branch-101"),), DAY, LONDON), NOW)


def test_the_asset_says_the_same_figures(lake: Lake) -> None:
    done = materialize([report_asset()], resources={"data": DataFolder(path=str(lake.folder))})

    (event,) = done.asset_materializations_for_node("leads_report")
    figures = write_report(Warehouse(lake), lake).figures
    assert {name: value.value for name, value in event.metadata.items() if name in figures} == figures
