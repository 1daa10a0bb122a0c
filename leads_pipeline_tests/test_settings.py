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

from leads_pipeline.cli import main
from leads_pipeline.cli.settings import described, unknown, variables
from leads_pipeline.domain.window import Scope, ScopeKind
from leads_pipeline.errors import SettingsError
from leads_pipeline.extensions import brought
from leads_pipeline.settings import AuthMethod, Secret, Settings
from leads_pipeline_tests.docs import settings_pages

BRANCHES = tuple(map(Scope.parse, ("branch-102", "branch-101")))
LEADS_SCOPES = "leads/list:applicant-leads leads/list:appraisal-leads"
SCOPES = tuple(map(Scope.parse, ("branch-101", "company-7", "brand-3", "group-1")))

# variable, value, the setting that it becomes, what it is read as
READ = [
    ("LEADS_BASE_URL", "http://127.0.0.1:8099/", "base_url", "http://127.0.0.1:8099"),
    ("LEADS_BASE_URL", "https://[::1]:8099/v1//", "base_url", "https://[::1]:8099/v1"),
    ("LEADS_AUTH_METHOD", "basic", "auth_method", AuthMethod.BASIC),
    ("LEADS_TOKEN_SCOPE", LEADS_SCOPES, "token_scope", LEADS_SCOPES),
    ("LEADS_TOKEN_SCOPE", "none", "token_scope", None),  # fault 89: it couldn't be left out
    ("LEADS_BRANCH_IDS", " 102 ,101,,branch-102,", "branch_ids", BRANCHES),
    ("LEADS_SCOPES", "branch-101, company-7,brand-3,group-1,brand-3", "scopes", SCOPES),
    ("LEADS_SCOPES", "all", "scopes", (Scope(ScopeKind.ALL),)),
    ("LEADS_BRANCHES_FILE", "branches.csv", "branches_file", Path.cwd() / "branches.csv"),
    ("LEADS_TIMEZONE", "Europe/London", "zone", ZoneInfo("Europe/London")),
    ("LEADS_START_DATE", "2000-01-01", "start_date", date(2000, 1, 1)),
    ("LEADS_MAX_CONCURRENCY", "256", "max_concurrency", 256),
    ("LEADS_DATA_DIR", "~/leads", "data_address", "~/leads"),
    (
        "LEADS_OWNERS",
        "data, team:web,me@agency.example",
        "owners",
        ("team:data", "team:web", "me@agency.example"),
    ),
    (
        "LEADS_UI_HOSTS",
        "Pipeline.agency.example.,, my_pages",
        "ui_hosts",
        ("pipeline.agency.example", "my_pages"),
    ),
    ("INVENTORY_ADDRESSES", "York; Leeds, LS1 ;;", "inventory_addresses", ("York", "Leeds, LS1")),
    (
        "LEADS_CLIENT_SECRET_PGP_FILE",
        "~/message.asc",
        "client_secret_pgp_file",
        Path.home() / "message.asc",
    ),
]
# Each field that holds a secret, by its variable.
SECRET_FIELDS = {
    "LEADS_CLIENT_SECRET": "client_secret",
    "LEADS_PGP_PASSPHRASE": "pgp_passphrase",
    "INVENTORY_CLIENT_SECRET": "inventory_client_secret",
    "LEADS_RECEIVE_KEY": "receive_key",
    "LEADS_DELIVERY_URL": "delivery_url",
    "LEADS_DELIVERY_SECRET": "delivery_secret",
    "LEADS_DELIVERY_AUTHORIZATION": "delivery_authorization",
    "LEADS_ALERT_SLACK_WEBHOOK": "alert_slack_webhook",
    "LEADS_ALERT_WEBHOOK": "alert_webhook",
    "LEADS_HEARTBEAT_URL": "heartbeat_url",
    "LEADS_DAGSTER_POSTGRES_URL": "dagster_postgres",
}
# What another setting becomes where only the first one is set.
IMPLIED = {"base_url": ["audience"], "branch_ids": ["scopes"]}


def read(**given: str) -> dict[str, Any]:
    """Each setting of the core and of the features."""
    settings = Settings.from_variables(given)
    found = {
        name: getattr(settings, name) for name in (*Settings.model_fields, "data_dir", "store")
    }
    for model in brought("settings"):
        found |= dict(settings.of(model))
    return found


DEFAULTS = read()
SECRETS = {one.name for one in described() if one.is_secret}


def test_an_empty_variable_counts_as_missing() -> None:
    assert read(**{variable: "\t\n" for variable, *_ in READ}) == DEFAULTS


@pytest.mark.parametrize(("variable", "value", "setting", "expected"), READ)
def test_a_variable_is_read_without_what_stands_around_it(
    variable: str, value: str, setting: str, expected: object
) -> None:
    assert read(**{variable: f" {value}\n"}) == read(**{variable: value})
    found = read(**{variable: value})
    implied: dict[str, object] = dict.fromkeys(IMPLIED.get(setting, []), expected)
    if setting == "data_address":
        implied["data_dir"] = Path(value).expanduser().absolute()
    assert found == {**DEFAULTS, setting: expected, **implied}


@pytest.mark.parametrize(("variable", "setting"), SECRET_FIELDS.items())
def test_a_secret_is_in_its_variable_or_in_a_file_and_never_in_both(
    variable: str, setting: str
) -> None:
    secret = f" {'hunter'}2 "
    found = read(**{variable: secret})
    assert found == {**DEFAULTS, setting: Secret(variable, secret)}
    assert secret not in repr(found)
    assert read(**{variable: secret, f"{variable}_FILE": " "}) == found
    in_file = {f"{variable}_FILE": " ~/secret "}
    assert read(**in_file) == {
        **DEFAULTS,
        setting: Secret(f"{variable}_FILE", file=Path.home() / "secret"),
    }
    with pytest.raises(
        SettingsError, match=f"^{variable} and {variable}_FILE are set, and mean the same"
    ) as caught:
        read(**in_file, **{variable: secret})
    assert secret not in "".join(format_exception(caught.value))


def test_the_client_secret_has_one_source() -> None:
    with pytest.raises(
        SettingsError, match="LEADS_CLIENT_SECRET and LEADS_CLIENT_SECRET_PGP_FILE are set"
    ):
        read(LEADS_CLIENT_SECRET="x", LEADS_CLIENT_SECRET_PGP_FILE="message.asc")


def test_mail_needs_recipients_and_a_server() -> None:
    server = {"LEADS_SMTP_URL_FILE": " ~/secret "}
    found = read(LEADS_ALERT_EMAIL="a@leads.example, b@leads.example,", **server)
    assert found["alert_email"] == ("a@leads.example", "b@leads.example")
    assert found["smtp_url"] == Secret("LEADS_SMTP_URL_FILE", file=Path.home() / "secret")
    with pytest.raises(
        SettingsError, match=r"^LEADS_ALERT_EMAIL needs LEADS_SMTP_URL\. Set both, or none\.$"
    ):
        read(LEADS_ALERT_EMAIL="a@leads.example")
    assert read(LEADS_REPORT_MAIL="a@leads.example", **server)["report_mail"] == "a@leads.example"


ADDRESSES = ("LEADS_BASE_URL", "LEADS_AUTH_URL", "INVENTORY_BASE_URL")


@pytest.mark.parametrize("value", ["leads.example", "ftp://leads.example", "https://x?"])
def test_what_is_no_address_is_refused(value: str) -> None:
    for variable in ADDRESSES:
        with pytest.raises(SettingsError, match=f"^{variable} is not an address"):
            read(**{variable: value})


@pytest.mark.parametrize("value", ["https://me:hunter2@x", "https://x:hunter2"])
def test_a_refused_address_is_not_quoted_because_it_can_hold_a_password(value: str) -> None:
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
    "LEADS_UI_HOSTS": ["https://a.example", "a.example:443", "*.example"],
}


@pytest.mark.parametrize(
    ("variable", "value"), [(variable, value) for variable in WRONG for value in WRONG[variable]]
)
def test_a_value_that_cant_be_right_is_refused_with_its_variables_name(
    variable: str, value: str
) -> None:
    with pytest.raises(SettingsError, match=f"^{variable}\\b"):
        read(**{variable: value})


@pytest.mark.parametrize(
    "address", ["http://portal.example", "http://0.0.0.0", "http://127.0.0.1.example"]
)
def test_an_address_beyond_this_machine_must_be_https(address: str) -> None:
    for variable in ADDRESSES:
        with pytest.raises(
            SettingsError, match=rf"^{variable} begins with http://.*Write https://"
        ):
            read(**{variable: address})


def test_branch_ids_that_are_separated_otherwise_get_an_example_that_works() -> None:
    with pytest.raises(SettingsError) as caught:
        read(LEADS_BRANCH_IDS="101;102")
    assert (
        str(caught.value)
        == "LEADS_BRANCH_IDS holds '101;102'. Write the ids with commas between them: 101,102."
    )
    with pytest.raises(
        SettingsError, match=r"holds 'company-7', which is no branch. Use LEADS_SCOPES instead"
    ):
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
    assert read(LEADS_BRANCH_IDS="101", LEADS_SCOPES=" ")["scopes"] == (
        Scope(ScopeKind.BRANCH, "101"),
    )


def test_a_folder_to_work_in_is_for_stores_alone() -> None:
    with pytest.raises(SettingsError, match="LEADS_WORK_DIR is for a bucket alone"):
        read(LEADS_WORK_DIR="data")


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        (
            {"LEADS_DATA_DIR": "/srv/what?/data"},
            "LEADS_DATA_DIR names /srv/what?/data, and DuckDB can't use the ?",
        ),
        (
            {"LEADS_DATA_DIR": "s3://leads", "LEADS_WORK_DIR": "/srv/what?"},
            "LEADS_WORK_DIR names /srv/what?, and DuckDB can't use the ?",
        ),
        (
            {"LEADS_DATA_DIR": "/srv/a%20b"},
            "LEADS_DATA_DIR names /srv/a%20b/.dagster, and Dagster can't use the %20 in that path. "
            "Choose another folder, or set DAGSTER_HOME to one.",
        ),
    ],
)
def test_a_folder_whose_path_a_database_reads_otherwise_is_refused(
    variables: dict[str, str], words: str
) -> None:
    """Fault 84: the advice was to check the disk."""
    with pytest.raises(SettingsError) as caught:
        read(**variables)
    assert str(caught.value).startswith(words)


def test_the_path_that_links_and_the_working_directory_lead_to_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 84: DuckDB opens the file that the link leads to."""
    (tmp_path / "what?").mkdir()
    (tmp_path / "link").symlink_to("what?")
    with pytest.raises(
        SettingsError, match=r"LEADS_DATA_DIR names \S+/what\?, and DuckDB can't use the \?"
    ):
        read(LEADS_DATA_DIR=str(tmp_path / "link"))
    monkeypatch.chdir(tmp_path / "what?")
    with pytest.raises(
        SettingsError, match=r"LEADS_DATA_DIR names \S+/what\?/data, and DuckDB can't use the \?"
    ):
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


def test_an_unknown_name_gets_a_hint() -> None:
    assert unknown(
        ["LEADS_BRANCH_ID", "LEADS_X", "PATH", "LEADS_TIMEZONE", "LEADS_SMTP_URL_FILE"]
    ) == [
        "LEADS_BRANCH_ID isn't known, so it is never read; did you mean LEADS_BRANCH_IDS?",
        "LEADS_X isn't known, so it is never read. Remove it.",
    ]


def settings_command(*options: str, **variables: str) -> Any:
    return CliRunner().invoke(main, ["settings", *options], env=variables)


def test_the_command_shows_each_setting_with_its_origin_and_no_secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text(
        "LEADS_TIMEZONE=Europe/London\nLEADS_MAX_CONCURRENCY=4\nLEADS_RECEIVE_KEY=hunter2\n"
    )
    given = {"LEADS_MAX_CONCURRENCY": " 6 ", "LEADS_HEARTBEAT_URL_FILE": "/run/beat"}

    shown = json.loads(settings_command("--json", **given).stdout)
    text = settings_command(**given).stdout

    assert (
        shown.keys()
        == {name for name in variables() if name.removesuffix("_FILE") not in SECRETS} | SECRETS
    )
    told = {name: (one["value"], one["from"]) for name, one in shown.items()}
    assert told["LEADS_TIMEZONE"] == ("Europe/London", ".env")
    assert told["LEADS_MAX_CONCURRENCY"] == ("6", "environment")
    assert told["LEADS_RECEIVE_KEY"] == ("set", ".env")
    assert told["LEADS_HEARTBEAT_URL"] == ("set", "file /run/beat")
    assert told["LEADS_DATA_DIR"] == ("data", "default")
    assert all(name in text for name in shown)
    assert "LEADS_HEARTBEAT_URL: set  (file /run/beat)" in text
    assert "hunter2" not in text + json.dumps(shown)


def test_the_command_names_a_wrong_value_and_shows_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    result = settings_command(LEADS_BASE_URL="https://me:hunter2@x")
    assert (result.exit_code, "hunter2" in result.output) == (2, False)
    assert "LEADS_BASE_URL is not an address" in result.output
