"""From configuration to clients: what is missing is named, nothing secret is shown, no portals are
mixed.
"""

from pathlib import Path

import pytest

from leads_pipeline.errors import SettingsError
from leads_pipeline.orchestration.resources import LeadsService
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.settings import Settings
from leads_pipeline_tests.support.small_portal import SmallPortal, served, variables

SECRET = "a-secret-that-nobody-may-see"


def leads(folder: Path, **changes: str) -> LeadsService:
    """The service of these variables."""
    given = variables("https://leads.example", SECRET) | changes
    return LeadsService.of(Settings.from_variables(given), DataFolder.at(folder))


@pytest.mark.parametrize(
    ("variable", "scopes"), [("none", None), ("", ["api/api_access"]), ("a b", ["a b"])]
)
def test_the_token_request_has_the_scope_that_is_set_or_none(
    tmp_path: Path, variable: str, scopes: list[str] | None
) -> None:
    """Fault 89: LEADS_TOKEN_SCOPE couldn't be left out."""
    with served(SmallPortal()) as portal:
        scope = {"LEADS_AUTH_METHOD": "basic", "LEADS_TOKEN_SCOPE": variable}
        leads(tmp_path, **variables(portal.base_url), **scope).tokens().get()

    assert [form.get("scope") for form in portal.token_forms] == [scopes]


@pytest.mark.parametrize("name", ["LEADS_AUTH_URL", "LEADS_CLIENT_SECRET"])
def test_what_the_leads_service_misses_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match=f"^{name} is not set"):
        leads(tmp_path, **{name: ""}).connect()


def test_leads_of_two_portals_do_not_mix(tmp_path: Path) -> None:
    leads(tmp_path).connect()
    said = r"holds leads from leads\.example, and another\.example is another portal"
    with pytest.raises(SettingsError, match=said):
        leads(tmp_path, LEADS_BASE_URL="https://another.example").connect()
    leads(tmp_path, LEADS_BASE_URL="https://leads.example:8443/v2").connect()


def test_a_simulator_may_come_back_on_another_port(tmp_path: Path) -> None:
    leads(tmp_path, LEADS_BASE_URL="http://127.0.0.1:8000").connect()
    leads(tmp_path, LEADS_BASE_URL="http://localhost:9000").connect()
    with pytest.raises(SettingsError, match="holds the demo's leads"):
        leads(tmp_path).connect()
