from dataclasses import fields
from datetime import date
from pathlib import Path
from traceback import format_exception
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from leads_pipeline.errors import SettingsError
from leads_pipeline.settings import GONE, AuthMethod, Settings
from leads_pipeline.window import Scope, ScopeKind

DEFAULTS = {
    "base_url": None,
    "auth_url": None,
    "client_id": None,
    "auth_method": AuthMethod.BODY,
    "audience": None,
    "token_scope": "api/api_access",
    "scopes": (),
    "branches_file": None,
    "zone": ZoneInfo("UTC"),
    "start_date": None,
    "max_concurrency": 8,
    "max_body_mb": 64,
    "keep_runs_days": 90,
    "data_dir": Path.cwd() / "data",
    "store": None,
    "plain_http": False,
    "privacy_dir": None,
    "keep_personal_days": None,
    "has_delta": False,
    "inventory_base_url": None,
    "inventory_client_id": None,
    "inventory_agency_ref": None,
    "inventory_addresses": (),
    "inventory_from_leads_days": 0,
}

# variable, value, the setting that it becomes, what it is read as
READ = [
    ("LEADS_BASE_URL", "https://leads.example", "base_url", "https://leads.example"),
    ("LEADS_BASE_URL", "http://127.0.0.1:8099/", "base_url", "http://127.0.0.1:8099"),
    ("LEADS_BASE_URL", "https://[::1]:8099/v1//", "base_url", "https://[::1]:8099/v1"),
    ("LEADS_AUTH_URL", "https://auth.example/tenant/", "auth_url", "https://auth.example/tenant"),
    ("LEADS_CLIENT_ID", "b:%+ c", "client_id", "b:%+ c"),
    ("LEADS_AUTH_METHOD", "body", "auth_method", AuthMethod.BODY),
    ("LEADS_AUTH_METHOD", "basic", "auth_method", AuthMethod.BASIC),
    ("LEADS_AUDIENCE", "https://audience.example/", "audience", "https://audience.example/"),
    ("LEADS_TOKEN_SCOPE", "api/other", "token_scope", "api/other"),
    ("LEADS_BRANCH_IDS", "101", "scopes", (Scope(ScopeKind.BRANCH, "101"),)),
    ("LEADS_BRANCH_IDS", " 102 ,101,,102,", "scopes", (Scope(ScopeKind.BRANCH, "102"), Scope(ScopeKind.BRANCH, "101"))),
    (
        "LEADS_SCOPES",
        "branch-101, company-7,brand-3,group-1,brand-3",
        "scopes",
        (
            Scope(ScopeKind.BRANCH, "101"),
            Scope(ScopeKind.COMPANY, "7"),
            Scope(ScopeKind.BRAND, "3"),
            Scope(ScopeKind.GROUP, "1"),
        ),
    ),
    ("LEADS_SCOPES", "all", "scopes", (Scope(ScopeKind.ALL),)),
    ("LEADS_BRANCHES_FILE", "branches.csv", "branches_file", Path.cwd() / "branches.csv"),
    ("LEADS_TIMEZONE", "Europe/London", "zone", ZoneInfo("Europe/London")),
    ("LEADS_START_DATE", "2024-02-29", "start_date", date(2024, 2, 29)),
    ("LEADS_START_DATE", "2000-01-01", "start_date", date(2000, 1, 1)),
    ("LEADS_MAX_CONCURRENCY", "1", "max_concurrency", 1),
    ("LEADS_MAX_CONCURRENCY", "256", "max_concurrency", 256),
    ("LEADS_MAX_BODY_MB", "1", "max_body_mb", 1),
    ("LEADS_MAX_BODY_MB", "4096", "max_body_mb", 4096),
    ("LEADS_KEEP_RUNS_DAYS", "35", "keep_runs_days", 35),
    ("LEADS_DATA_DIR", "elsewhere", "data_dir", Path.cwd() / "elsewhere"),
    ("LEADS_DATA_DIR", "/srv/leads", "data_dir", Path("/srv/leads")),
    ("LEADS_DATA_DIR", "~/leads", "data_dir", Path.home() / "leads"),
    ("LEADS_PRIVACY_DIR", "/srv/list", "privacy_dir", Path("/srv/list")),
    ("LEADS_KEEP_PERSONAL_DAYS", "35", "keep_personal_days", 35),
    ("LEADS_KEEP_PERSONAL_DAYS", "3650", "keep_personal_days", 3650),
    ("LEADS_TABLES", "delta", "has_delta", True),
    ("INVENTORY_BASE_URL", "https://inventory.example/", "inventory_base_url", "https://inventory.example"),
    ("INVENTORY_CLIENT_ID", "me", "inventory_client_id", "me"),
    ("INVENTORY_AGENCY_REF", "AB12", "inventory_agency_ref", "AB12"),
    ("INVENTORY_ADDRESSES", "York; Leeds, LS1 ;;", "inventory_addresses", ("York", "Leeds, LS1")),
    ("INVENTORY_FROM_LEADS_DAYS", "7", "inventory_from_leads_days", 7),
    ("INVENTORY_FROM_LEADS_DAYS", "90", "inventory_from_leads_days", 90),
]
VARIABLES = sorted({variable for variable, *_ in READ})


def read(**variables: str) -> dict[str, Any]:
    settings = Settings.from_variables(variables)
    return {field.name: getattr(settings, field.name) for field in fields(settings)}


def test_nothing_set_gives_the_defaults() -> None:
    assert read() == DEFAULTS


@pytest.mark.parametrize("variable", VARIABLES)
@pytest.mark.parametrize("value", ["", " ", "\t\n"])
def test_an_empty_variable_counts_as_missing(variable: str, value: str) -> None:
    assert read(**{variable: value}) == DEFAULTS


@pytest.mark.parametrize(("variable", "value", "setting", "expected"), READ)
@pytest.mark.parametrize("padding", ["", " ", "\n"])
def test_a_variable_is_read_without_what_stands_around_it(
    variable: str, value: str, setting: str, expected: object, padding: str
) -> None:
    found = read(**{variable: f"{padding}{value}{padding}"})
    implied = {"audience": found["base_url"]} if setting == "base_url" else {}
    assert found == {**DEFAULTS, setting: expected, **implied}


def test_other_tables_than_delta_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"^LEADS_TABLES is 'iceberg'. Write delta"):
        read(LEADS_TABLES="iceberg")


def test_every_setting_can_be_set() -> None:
    with_a_store = {"store", "plain_http"}
    assert {setting for _, _, setting, _ in READ} | with_a_store == DEFAULTS.keys()


def test_the_audience_is_the_leads_service_where_nothing_else_is_set() -> None:
    assert read(LEADS_BASE_URL="https://leads.example/")["audience"] == "https://leads.example"
    assert read(LEADS_BASE_URL="https://leads.example", LEADS_AUDIENCE="urn:leads")["audience"] == "urn:leads"


@pytest.mark.parametrize("name", sorted(GONE))
def test_a_variable_that_no_longer_exists_is_an_error_that_says_what_to_do(name: str) -> None:
    with pytest.raises(SettingsError) as raised:
        read(**{name: "7"})
    assert str(raised.value) == f"{name} no longer exists. {GONE[name]}"
    read(**{name: ""})  # an empty line in an old .env does no harm


def test_other_variables_are_none_of_our_business() -> None:
    assert read(PATH="/bin", LEADS="1", leads_base_url="nonsense") == DEFAULTS


@pytest.mark.parametrize("variable", ["LEADS_BASE_URL", "LEADS_AUTH_URL", "INVENTORY_BASE_URL"])
@pytest.mark.parametrize(
    "value",
    [
        *("leads.example", "//leads.example", "ftp://leads.example", "https://", "https:///leads", "https://:443"),
        *("https://x?a=1", "https://x?", "https://x#top", "https://x#", "https://me:pw@x", "https://:pw@x"),
        *(
            "https://a b",
            "https://a\nb",
            "https://a\\b",
            "https://[::1",
            "https://x:99999",
            "https://x:port",
            "http://x:0",
        ),
    ],
)
def test_what_is_no_address_is_refused(variable: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"^{variable} is not an address"):
        read(**{variable: value})


@pytest.mark.parametrize("value", ["https://me:hunter2@x", "https://:hunter2@x", "https://x:hunter2", "[hunter2"])
def test_a_refused_address_is_not_quoted_because_it_can_hold_a_password(value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(LEADS_BASE_URL=value)
    assert "hunter2" not in "".join(format_exception(caught.value))


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        *[("LEADS_AUTH_METHOD", value) for value in ("both", "BODY", "body,basic")],
        *[
            ("LEADS_TIMEZONE", value)
            for value in (
                "Europe",
                "Mars/Olympus",
                "../etc/passwd",
                "/etc/localtime",
                "GMT+25",
                "localtime",
                "posixrules",
            )
        ],
        *[("LEADS_TIMEZONE", value) for value in ("Factory", "posix/Europe/London", "right/Europe/London")],
        *[
            ("LEADS_START_DATE", value)
            for value in ("19.11.2026", "20261119", "2026-11-31", "2026-W47-4", "２０２６-11-19")
        ],
        *[("LEADS_START_DATE", value) for value in ("0226-11-19", "1999-12-31", "2026-11-19T00:00", "today")],
        *[("INVENTORY_FROM_LEADS_DAYS", value) for value in ("-1", "91", "7.0", "a week", "²")],
        *[("LEADS_MAX_CONCURRENCY", value) for value in ("0", "-1", "257", "8.0", "+8", "1e2", "٨", "²", "9" * 5000)],
        *[("LEADS_KEEP_PERSONAL_DAYS", value) for value in ("0", "34", "3651", "365 days", "-35")],
        *[("LEADS_MAX_BODY_MB", value) for value in ("0", "-1", "4097", "64.0", "64 MB", "1e2", "²", "9" * 5000)],
        *[("LEADS_KEEP_RUNS_DAYS", value) for value in ("34", "3651", "x")],
        *[("LEADS_BRANCH_IDS", value) for value in ("..", "101,a/b", "a|b", "x" * 65, "101;102", "١٠١")],
        *[("LEADS_SCOPES", value) for value in ("101", "branch-", "branch-101,office-1", "all,branch-101", "ALL")],
        ("LEADS_SCOPES", "branch-a,branch-A"),
        ("LEADS_BRANCH_IDS", "a,A"),
    ],
)
def test_a_value_that_cant_be_right_is_refused_with_its_variables_name(variable: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"^{variable}\\b"):
        read(**{variable: value})


ADDRESSES = ("LEADS_BASE_URL", "LEADS_AUTH_URL", "INVENTORY_BASE_URL")


@pytest.mark.parametrize("variable", ADDRESSES)
@pytest.mark.parametrize(
    "address",
    [
        *("http://portal.example", "HTTP://portal.example:443/https://x", "http://10.0.0.1", "http://0.0.0.0"),
        *("http://127.0.0.1.example", "http://localhost.example", "http://[::]", "http://2130706433"),
    ],
)
@pytest.mark.parametrize("setting", [{}, {"LEADS_ALLOW_PLAIN_HTTP": "no"}])
def test_an_address_beyond_this_machine_must_be_https(variable: str, address: str, setting: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=rf"^{variable} begins with http://.*LEADS_ALLOW_PLAIN_HTTP=yes"):
        read(**{variable: address}, **setting)


@pytest.mark.parametrize("variable", ADDRESSES)
@pytest.mark.parametrize(
    "address",
    [
        *("http://127.0.0.1:8099", "http://127.8.9.10", "http://[::1]:8099", "http://localhost", "http://LocalHost:1"),
        "https://portal.example",
    ],
)
def test_this_machine_and_https_need_no_leave(variable: str, address: str) -> None:
    assert read(**{variable: address})[variable.removeprefix("LEADS_").lower()] == address


@pytest.mark.parametrize("variable", ADDRESSES)
def test_plain_http_is_allowed_in_so_many_words(variable: str) -> None:
    found = read(**{variable: "http://portal.example"}, LEADS_ALLOW_PLAIN_HTTP="yes")
    assert found[variable.removeprefix("LEADS_").lower()] == "http://portal.example"


@pytest.mark.parametrize("value", ["true", "1", "Yes", "YES", "on", "yes please"])
@pytest.mark.parametrize("address", ["https://portal.example", "http://portal.example"])
def test_any_other_word_does_not_allow_it(value: str, address: str) -> None:
    with pytest.raises(SettingsError, match=r"^LEADS_ALLOW_PLAIN_HTTP is"):
        read(LEADS_BASE_URL=address, LEADS_ALLOW_PLAIN_HTTP=value)


def test_a_bad_scope_is_named() -> None:
    with pytest.raises(SettingsError, match=r"^LEADS_SCOPES: 'office-1' is not a scope"):
        read(LEADS_SCOPES="branch-101,office-1")


def test_branches_and_scopes_together_are_refused() -> None:
    with pytest.raises(SettingsError, match="LEADS_BRANCH_IDS and LEADS_SCOPES are both set"):
        read(LEADS_BRANCH_IDS="101", LEADS_SCOPES="branch-101")
    assert read(LEADS_BRANCH_IDS="101", LEADS_SCOPES=" ")["scopes"] == (Scope(ScopeKind.BRANCH, "101"),)


def test_an_id_of_two_kinds_makes_two_scopes() -> None:
    assert len(read(LEADS_SCOPES="branch-1,brand-1")["scopes"]) == 2


# A folder that several machines mount: the scheme and three slashes.
MOUNTED = f"file:{'/' * 3}mnt/leads"


@pytest.mark.parametrize(
    ("value", "work_dir", "store", "folder"),
    [
        ("s3://leads", "", "s3://leads", Path.cwd() / "data"),
        ("s3://my.leads-1/of=us/2/", "/srv/leads", "s3://my.leads-1/of=us/2", Path("/srv/leads")),
        (MOUNTED, "~/leads", MOUNTED, Path("~/leads").expanduser()),
    ],
)
def test_a_store_in_the_data_folders_place_leaves_a_folder_to_work_in(
    value: str, work_dir: str, store: str, folder: Path
) -> None:
    assert read(LEADS_DATA_DIR=value, LEADS_WORK_DIR=work_dir) == DEFAULTS | {"store": store, "data_dir": folder}


@pytest.mark.parametrize(
    "value",
    [
        "s3://",
        "s3://A",
        "s3://ab",
        "s3://leads/a b",
        "gs://leads",
        "file://host/x",
        "s3:/leads/x",
        "s3//leads/x",
        "s3://leads/?x=1",
    ],
)
def test_what_is_no_store_is_refused(value: str) -> None:
    with pytest.raises(
        SettingsError, match=r"LEADS_DATA_DIR is neither a folder nor a store\. Write s3://bucket/prefix"
    ):
        read(LEADS_DATA_DIR=value)


def test_a_folder_to_work_in_is_for_stores_alone() -> None:
    with pytest.raises(SettingsError, match="LEADS_WORK_DIR is set, and LEADS_DATA_DIR is no bucket"):
        read(LEADS_WORK_DIR="data")


def test_an_endpoint_without_https_is_for_this_machine_alone() -> None:
    bucket = {"LEADS_DATA_DIR": "s3://leads"}
    assert read(**bucket, AWS_ENDPOINT_URL="http://127.0.0.1:9000")["plain_http"]
    assert not read(**bucket, AWS_ENDPOINT_URL="https://objects.example")["plain_http"]
    assert read(**bucket, AWS_ENDPOINT_URL="http://objects.example", LEADS_ALLOW_PLAIN_HTTP="yes")["plain_http"]
    with pytest.raises(SettingsError, match="AWS_ENDPOINT_URL begins with http://"):
        read(**bucket, AWS_ENDPOINT_URL="http://objects.example")
