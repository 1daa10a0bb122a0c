"""From configuration to clients: what is missing is named, nothing secret is shown, no portals are mixed."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from leads_pipeline.domain.contract import APPLICANT
from leads_pipeline.domain.window import Window
from leads_pipeline.errors import (
    CredentialsError,
    LeadsPipelineError,
    SettingsError,
)
from leads_pipeline.orchestration.resources import LeadsService
from leads_pipeline.settings import Settings
from leads_pipeline.simulator.server import running
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline_tests.support.sample_answers import UTC_ZONE, WINDOW
from leads_pipeline_tests.support.small_portal import SmallPortal, served

SECRET = "a-secret-that-nobody-may-see"


def leads(folder: Path, **changes: str) -> LeadsService:
    """The service of these variables."""
    variables = {
        "LEADS_BASE_URL": "https://leads.example",
        "LEADS_AUTH_URL": "https://login.example",
        "LEADS_CLIENT_ID": "client",
        "LEADS_CLIENT_SECRET": SECRET,
    }
    return LeadsService.of(Settings.from_variables(variables | changes), DataFolder.at(folder))


@pytest.mark.parametrize(("variable", "scopes"), [("none", None), ("", ["api/api_access"]), ("a b", ["a b"])])
def test_the_token_request_has_the_scope_that_is_set_or_none(
    tmp_path: Path, variable: str, scopes: list[str] | None
) -> None:
    """Fault 89: LEADS_TOKEN_SCOPE couldn't be left out."""
    with served(SmallPortal(SECRET)) as portal:
        variables = {**portal.environment(), "LEADS_AUTH_METHOD": "basic", "LEADS_TOKEN_SCOPE": variable}

        leads(tmp_path, **variables).tokens().get()

    [form] = portal.token_forms
    assert form.get("scope") == scopes


@pytest.mark.parametrize("variable", ["LEADS_BASE_URL", "LEADS_AUTH_URL", "LEADS_CLIENT_ID", "LEADS_CLIENT_SECRET"])
def test_what_the_leads_service_misses_is_named(tmp_path: Path, variable: str) -> None:
    with pytest.raises(SettingsError, match=f"^{variable} is not set") as caught:
        leads(tmp_path, **{variable: ""}).connect()
    assert SECRET not in str(caught.value)


def test_a_client_secret_that_cant_be_right_is_sent_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("secr\u00e8t")
    for service in (
        leads(tmp_path, LEADS_CLIENT_SECRET="secr\u00e8t"),
        leads(tmp_path, LEADS_CLIENT_SECRET_FILE=str(file), LEADS_CLIENT_SECRET=""),
    ):
        with pytest.raises(CredentialsError, match="holds a character at position 5 that") as caught:
            service.tokens().get()
        assert "secr\u00e8t" not in str(caught.value)


def test_leads_of_two_portals_do_not_mix(tmp_path: Path) -> None:
    leads(tmp_path).connect()
    with pytest.raises(SettingsError, match=r"holds leads from leads\.example, and another\.example is another portal"):
        leads(tmp_path, LEADS_BASE_URL="https://another.example").connect()
    leads(tmp_path, LEADS_BASE_URL="https://leads.example:8443/v2").connect()


def test_a_simulator_may_come_back_on_another_port(tmp_path: Path) -> None:
    leads(tmp_path, LEADS_BASE_URL="http://127.0.0.1:8000").connect()
    leads(tmp_path, LEADS_BASE_URL="http://localhost:9000").connect()
    with pytest.raises(SettingsError, match="holds the demo's leads"):
        leads(tmp_path).connect()


def test_a_secret_in_a_file_opens_the_service(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    with running() as simulator:
        environment = simulator.environment()
        file.write_text(environment["LEADS_CLIENT_SECRET"] + "\n")
        file.chmod(0o600)
        client = leads(
            tmp_path,
            LEADS_BASE_URL=simulator.base_url,
            LEADS_AUTH_URL=simulator.base_url,
            LEADS_CLIENT_ID=environment["LEADS_CLIENT_ID"],
            LEADS_CLIENT_SECRET="",
            LEADS_CLIENT_SECRET_FILE=str(file),
            LEADS_AUTH_METHOD="basic",
        ).connect()
        # One that the portal has: the simulator's clock is the machine's.
        recent = Window.of((datetime.now(UTC) - timedelta(days=3)).date(), WINDOW.scope, UTC_ZONE)
        [(window, outcome)] = list(client.fetch_windows(APPLICANT, [recent], lambda answer: answer))
    assert not isinstance(outcome, LeadsPipelineError)
    assert window == recent
