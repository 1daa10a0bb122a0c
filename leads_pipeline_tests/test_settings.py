"""What a variable may be, what it is read as, and what is made from the model of all settings."""

import json
from datetime import date
from pathlib import Path
from traceback import format_exception
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner
from dotenv import dotenv_values

from docs.makers import settings_pages
from leads_pipeline.cli import main
from leads_pipeline.cli.settings import described, variables
from leads_pipeline.domain.window import Scope, ScopeKind
from leads_pipeline.errors import SettingsError
from leads_pipeline.extensions import brought
from leads_pipeline.settings import AuthMethod, Secret, Settings

BRANCHES = (Scope(ScopeKind.BRANCH, "102"), Scope(ScopeKind.BRANCH, "101"))
SCOPES = (Scope(ScopeKind.BRAND, "3"), Scope(ScopeKind.GROUP, "1"))

# variable, value, the setting that it becomes, what it is read as
READ = [
    ("LEADS_BASE_URL", "https://[::1]:8099/v1//", "base_url", "https://[::1]:8099/v1"),
    ("LEADS_AUTH_METHOD", "basic", "auth_method", AuthMethod.BASIC),
    ("LEADS_TOKEN_SCOPE", "leads/a leads/b", "token_scope", "leads/a leads/b"),
    ("LEADS_TOKEN_SCOPE", "none", "token_scope", None),  # fault 89: it couldn't be left out
    ("LEADS_BRANCH_IDS", " 102 ,101,,branch-102,", "branch_ids", BRANCHES),
    ("LEADS_SCOPES", "brand-3, group-1,brand-3", "scopes", SCOPES),
    ("LEADS_SCOPES", "all", "scopes", (Scope(ScopeKind.ALL),)),
    ("LEADS_TIMEZONE", "Europe/London", "zone", ZoneInfo("Europe/London")),
    ("LEADS_START_DATE", "2000-01-01", "start_date", date(2000, 1, 1)),
    ("LEADS_MAX_CONCURRENCY", "256", "max_concurrency", 256),
    ("LEADS_DATA_DIR", "~/leads", "data_dir", Path.home() / "leads"),
    ("LEADS_OWNERS", "data, me@agency.example", "owners", ("team:data", "me@agency.example")),
    ("LEADS_UI_HOSTS", "A.Example.,, my_pages", "ui_hosts", ("a.example", "my_pages")),
    ("INVENTORY_ADDRESSES", "York; Leeds, LS1 ;;", "inventory_addresses", ("York", "Leeds, LS1")),
    ("LEADS_PGP_PRIVATE_KEY_FILE", "~/key", "pgp_private_key_file", Path.home() / "key"),
]
# That of the mail server is nothing without an address.
SECRETS = [one.name for one in described() if one.is_secret and one.name != "LEADS_SMTP_URL"]


def read(**given: str) -> dict[str, Any]:
    """Each setting of the core and of the features."""
    settings = Settings.from_variables(given)
    found = {**dict(settings), "data_dir": settings.data_dir}
    for model in brought("settings"):
        found |= dict(settings.of(model))
    return found


def test_an_empty_variable_counts_as_missing() -> None:
    assert read(**{variable: "\t\n" for variable, *_ in READ}) == read()


@pytest.mark.parametrize(("variable", "value", "setting", "expected"), READ)
def test_a_variable_is_read_without_what_stands_around_it(
    variable: str, value: str, setting: str, expected: object
) -> None:
    found = read(**{variable: value})
    assert found[setting] == expected
    assert read(**{variable: f" {value}\n"}) == found


def changed(found: dict[str, Any]) -> list[Any]:
    """The settings that aren't as they are without any variable."""
    without = read()
    return [value for name, value in found.items() if value != without[name]]


@pytest.mark.parametrize("variable", SECRETS)
def test_a_secret_is_in_its_variable_or_in_a_file_and_never_in_both(variable: str) -> None:
    secret = f" {'hunter'}2 "
    found = read(**{variable: secret})
    assert changed(found) == [Secret(variable, secret)]
    assert secret not in repr(found)

    in_file = {f"{variable}_FILE": " ~/secret "}
    of_file = Secret(f"{variable}_FILE", file=Path.home() / "secret")
    assert changed(read(**in_file)) == [of_file]

    said = f"^{variable} and {variable}_FILE are set, and mean the same"
    with pytest.raises(SettingsError, match=said) as caught:
        read(**in_file, **{variable: secret})
    assert secret not in "".join(format_exception(caught.value))


def test_the_client_secret_has_one_source() -> None:
    with pytest.raises(
        SettingsError, match="LEADS_CLIENT_SECRET and LEADS_CLIENT_SECRET_PGP_FILE are set"
    ):
        read(LEADS_CLIENT_SECRET="x", LEADS_CLIENT_SECRET_PGP_FILE="message.asc")


def test_mail_needs_recipients_and_a_server() -> None:
    found = read(LEADS_ALERT_EMAIL="a@b.example, c@d.example,", LEADS_SMTP_URL_FILE="~/secret")
    assert found["alert_email"] == ("a@b.example", "c@d.example")

    with pytest.raises(SettingsError, match=r"^LEADS_ALERT_EMAIL needs LEADS_SMTP_URL"):
        read(LEADS_ALERT_EMAIL="a@b.example")


ADDRESSES = ("LEADS_BASE_URL", "LEADS_AUTH_URL", "INVENTORY_BASE_URL")


@pytest.mark.parametrize("value", ["leads.example", "ftp://leads.example", "https://x?"])
def test_what_is_no_address_is_refused(value: str) -> None:
    for variable in ADDRESSES:
        with pytest.raises(SettingsError, match=f"^{variable} is not an address"):
            read(**{variable: value})


@pytest.mark.parametrize("value", ["https://me:hunter2@x", "https://x:hunter2"])
def test_a_refused_address_is_not_quoted_as_it_can_hold_a_password(value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(LEADS_BASE_URL=value)
    assert "hunter2" not in "".join(format_exception(caught.value))


WRONG = {
    "LEADS_AUTH_METHOD": ["both"],
    "LEADS_TIMEZONE": ["Mars/Olympus", "../etc/passwd"],
    "LEADS_START_DATE": ["19.11.2026", "1999-12-31"],
    "INVENTORY_FROM_LEADS_DAYS": ["91"],
    "LEADS_MAX_CONCURRENCY": ["0", "257"],
    "LEADS_KEEP_PERSONAL_DAYS": ["34"],
    "LEADS_BRANCH_IDS": ["101,a/b", "all", "a,A"],
    "LEADS_SCOPES": ["101", "all,branch-101"],
    "LEADS_TABLES": ["iceberg"],
    "LEADS_UI_HOSTS": ["https://a.example", "*.example"],
}


@pytest.mark.parametrize(
    ("variable", "value"), [(variable, value) for variable in WRONG for value in WRONG[variable]]
)
def test_a_value_that_cant_be_right_is_refused_with_its_variables_name(
    variable: str, value: str
) -> None:
    with pytest.raises(SettingsError, match=f"^{variable}\\b"):
        read(**{variable: value})


@pytest.mark.parametrize("address", ["http://0.0.0.0", "http://127.0.0.1.example"])
def test_an_address_beyond_this_machine_must_be_https(address: str) -> None:
    for variable in ADDRESSES:
        with pytest.raises(SettingsError, match=f"^{variable} begins with http://"):
            read(**{variable: address})


def test_branch_ids_that_are_separated_otherwise_get_an_example_that_works() -> None:
    with pytest.raises(SettingsError, match=r"Write the ids with commas between them: 101,102\.$"):
        read(LEADS_BRANCH_IDS="101;102")
    with pytest.raises(SettingsError, match="Use LEADS_SCOPES instead"):
        read(LEADS_BRANCH_IDS="101,company-7")


def test_all_that_is_wrong_is_named_at_once() -> None:
    with pytest.raises(
        SettingsError,
        match=r"^LEADS_BASE_URL is not.*LEADS_TIMEZONE is 'x'.*LEADS_START_DATE is 'y'",
    ):
        read(LEADS_BASE_URL="leads", LEADS_TIMEZONE="x", LEADS_START_DATE="y")


def test_a_character_that_no_client_id_holds_is_named_by_its_position() -> None:
    with pytest.raises(SettingsError, match="holds a character at position 5 that") as caught:
        read(LEADS_CLIENT_ID="clie\u00a0nt")
    assert "clie\u00a0nt" not in "".join(format_exception(caught.value))


def test_branches_and_scopes_together_are_refused() -> None:
    with pytest.raises(SettingsError, match="LEADS_BRANCH_IDS and LEADS_SCOPES are set"):
        read(LEADS_BRANCH_IDS="101", LEADS_SCOPES="branch-101")


def test_a_folder_to_work_in_is_for_stores_alone() -> None:
    with pytest.raises(SettingsError, match="LEADS_WORK_DIR is for a bucket alone"):
        read(LEADS_WORK_DIR="data")


def test_a_folder_whose_path_a_database_reads_otherwise_is_refused() -> None:
    """Fault 84: the advice was to check the disk."""
    with pytest.raises(SettingsError, match=r"^LEADS_WORK_DIR names .*DuckDB can't use the \?"):
        read(LEADS_DATA_DIR="s3://leads", LEADS_WORK_DIR="/srv/what?")
    with pytest.raises(SettingsError, match=r"^LEADS_DATA_DIR .*\.dagster.*can't use the %20"):
        read(LEADS_DATA_DIR="/srv/a%20b")


def test_the_path_that_links_and_the_working_directory_lead_to_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 84: DuckDB opens the file that the link leads to."""
    (tmp_path / "what?").mkdir()
    (tmp_path / "link").symlink_to("what?")

    with pytest.raises(SettingsError, match=r"what\?, and DuckDB can't use the \?"):
        read(LEADS_DATA_DIR=str(tmp_path / "link"))
    monkeypatch.chdir(tmp_path / "what?")
    with pytest.raises(SettingsError, match=r"what\?/data, and DuckDB can't use the \?"):
        read()


# --- what is made from the model ------------------------------------------------------------------


def test_env_example_and_the_page_of_settings_are_made_from_the_model() -> None:
    """If not: make pages."""
    made = settings_pages.pages()
    assert {path: path.read_text(encoding="utf-8") for path in made} == made


def test_an_untouched_copy_of_env_example_changes_nothing() -> None:
    copied = {
        name: value or "" for name, value in dotenv_values(settings_pages.ENV_EXAMPLE).items()
    }
    assert copied.keys() == variables() - {"DAGSTER_HOME", "LEADS_KEEP_PERSONAL_DAYS"}
    assert Settings.from_variables(copied) == Settings.from_variables({})


def test_env_example_proposes_a_retention_of_a_year() -> None:
    assert "\n# LEADS_KEEP_PERSONAL_DAYS=365\n" in settings_pages.ENV_EXAMPLE.read_text(
        encoding="utf-8"
    )


def settings_command(*options: str, **variables: str) -> Any:
    return CliRunner().invoke(main, ["settings", *options], env=variables)


def test_an_unknown_name_gets_a_hint() -> None:
    result = settings_command(LEADS_BRANCH_ID="1", LEADS_SMTP_URL_FILE="/run/smtp")

    hint = "LEADS_BRANCH_ID isn't known, so it is never read; did you mean LEADS_BRANCH_IDS?\n"
    assert result.stderr == hint


def test_the_command_shows_each_setting_with_its_origin_and_no_secret(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(
        "LEADS_TIMEZONE=Europe/London\nLEADS_MAX_CONCURRENCY=4\nLEADS_RECEIVE_KEY=hunter2\n"
    )
    given = {"LEADS_MAX_CONCURRENCY": " 6 ", "LEADS_HEARTBEAT_URL_FILE": "/run/beat"}

    shown = json.loads(settings_command("--json", **given).stdout)
    text = settings_command(**given).stdout

    told = {name: (one["value"], one["from"]) for name, one in shown.items()}
    assert told["LEADS_TIMEZONE"] == ("Europe/London", ".env")
    assert told["LEADS_MAX_CONCURRENCY"] == ("6", "environment")
    assert told["LEADS_RECEIVE_KEY"] == ("set", ".env")
    assert told["LEADS_HEARTBEAT_URL"] == ("set", "file /run/beat")
    assert told["LEADS_DATA_DIR"] == ("data", "default")
    assert shown.keys() == {one.name for one in described()}
    assert all(name in text for name in shown)
    assert "hunter2" not in text + json.dumps(shown)


def test_the_command_names_a_wrong_value_and_shows_none() -> None:
    result = settings_command(LEADS_BASE_URL="https://me:hunter2@x")
    assert result.exit_code == 2
    assert "LEADS_BASE_URL is not an address" in result.output
    assert "hunter2" not in result.output
