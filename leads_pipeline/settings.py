"""The settings of an installation, read from a mapping of environment variables and checked.

Belongs here: names, defaults, what a value may be. Doesn't: os.environ itself (definitions.py hands it over), or
reading a secret (credentials.py does, at the moment of use).
"""

import ipaddress
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from leads_pipeline.errors import SettingsError
from leads_pipeline.window import Scope

NO_PORTAL: Final = "LEADS_BASE_URL is not set: there is nothing to pull from."

MEBIBYTE = 1024 * 1024
DEFAULT_MAX_CONCURRENCY = 8
MOST_CONCURRENCY = 256
DEFAULT_MAX_BODY_MB = 64
# An answer is held in memory several times over while it is read and landed.
MOST_MAX_BODY_MB = 4096
# Listings that nobody has asked about for longer are no longer what a lead of today is about.
MAX_FROM_LEADS_DAYS = 90
# What failed is read from as far back as the portal keeps leads.
LEAST_KEEP_RUNS_DAYS, DEFAULT_KEEP_RUNS_DAYS, MOST_KEEP_RUNS_DAYS = 35, 90, 3650
# How long personal fields may be kept: a week that checks compare with four before it, and ten years.
LEAST_KEEP_DAYS = 35
MOST_KEEP_DAYS = 3650
# How long backups may be kept, none at all included.
# No lead is older than the portals that send them; an earlier year is a slip such as 0226, and a partition a day.
EARLIEST_START_DATE = date(2000, 1, 1)
DEFAULT_TOKEN_SCOPE = "api/api_access"  # noqa: S105 - the scope's name, not a secret


# What time zone databases hold beside zones: this machine's own, a rule for unknown ones, none.
_NO_ZONES = {"localtime", "posixrules", "Factory"}


# Where Dagster's own state is kept instead of in sqlite; behind it, with _FILE, where the address is.
POSTGRES_VARIABLE = "LEADS_DAGSTER_POSTGRES_URL"

# What the names of our variables begin with, and all of them, the secrets' too: they are in `.env.example`, explained.
OURS = ("LEADS_", "INVENTORY_", "DAGSTER_HOME")
VARIABLES = frozenset(
    {
        "LEADS_BASE_URL",
        "LEADS_AUTH_URL",
        "LEADS_CLIENT_ID",
        "LEADS_CLIENT_SECRET",
        "LEADS_BRANCH_IDS",
        "LEADS_TIMEZONE",
        "LEADS_CLIENT_SECRET_FILE",
        "LEADS_CLIENT_SECRET_PGP_FILE",
        "LEADS_PGP_PRIVATE_KEY_FILE",
        "LEADS_PGP_PASSPHRASE",
        "LEADS_PGP_PASSPHRASE_FILE",
        "LEADS_AUTH_METHOD",
        "LEADS_AUDIENCE",
        "LEADS_TOKEN_SCOPE",
        "LEADS_SCOPES",
        "LEADS_BRANCHES_FILE",
        "LEADS_START_DATE",
        "LEADS_MAX_CONCURRENCY",
        "LEADS_MAX_BODY_MB",
        "LEADS_KEEP_RUNS_DAYS",
        "LEADS_ALLOW_PLAIN_HTTP",
        "LEADS_DATA_DIR",
        "LEADS_WORK_DIR",
        "LEADS_PRIVACY_DIR",
        "LEADS_KEEP_PERSONAL_DAYS",
        "LEADS_TABLES",
        "INVENTORY_BASE_URL",
        "INVENTORY_CLIENT_ID",
        "INVENTORY_CLIENT_SECRET",
        "INVENTORY_CLIENT_SECRET_FILE",
        "INVENTORY_AGENCY_REF",
        "INVENTORY_ADDRESSES",
        "INVENTORY_FROM_LEADS_DAYS",
        "LEADS_RECEIVE_KEY",
        "LEADS_RECEIVE_KEY_FILE",
        "LEADS_ALERT_WEBHOOK",
        "LEADS_ALERT_WEBHOOK_FILE",
        "LEADS_ALERT_SLACK_WEBHOOK",
        "LEADS_ALERT_SLACK_WEBHOOK_FILE",
        "LEADS_ALERT_EMAIL",
        "LEADS_SMTP_URL",
        "LEADS_SMTP_URL_FILE",
        "LEADS_HEARTBEAT_URL",
        "LEADS_HEARTBEAT_URL_FILE",
        "LEADS_DAGSTER_POSTGRES_URL",
        "LEADS_DAGSTER_POSTGRES_URL_FILE",
        "DAGSTER_HOME",
    }
)

# Variables of earlier versions, and what to do instead. One that is still set is an error, so that nobody believes that
# it has an effect.
GONE: Final[Mapping[str, str]] = {
    "LEADS_RUN_LAUNCHER": (
        "Set run_launcher in your own dagster.yaml: deploy/dagster.docker.yaml and deploy/dagster.kubernetes.yaml are "
        "examples."
    ),
    "LEADS_BACKUP_DAYS": (
        "Remove it. The pipeline never deleted backups by it. The receipt of an erasure says what to do with them."
    ),
    "LEADS_KEEP_DAYS": (
        "Set LEADS_KEEP_PERSONAL_DAYS instead: it makes old leads anonymous, and keeps their rows and their counts."
    ),
}


class AuthMethod(StrEnum):
    """The two forms of the leads service's token request (specification, endpoint 1)."""

    BODY = "body"
    BASIC = "basic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What differs between installations, but for secrets. Missing services are None: the rest still runs."""

    base_url: str | None
    auth_url: str | None
    client_id: str | None
    auth_method: AuthMethod
    audience: str | None
    token_scope: str
    scopes: tuple[Scope, ...]
    branches_file: Path | None
    zone: ZoneInfo
    start_date: date | None
    max_concurrency: int
    max_body_mb: int
    keep_runs_days: int
    data_dir: Path
    store: str | None
    plain_http: bool
    privacy_dir: Path | None
    keep_personal_days: int | None
    has_delta: bool
    inventory_base_url: str | None
    inventory_client_id: str | None
    inventory_agency_ref: str | None
    inventory_addresses: tuple[str, ...]
    inventory_from_leads_days: int

    @property
    def no_inventory(self) -> str | None:
        """Why there is no inventory to pull; None if there is one."""
        if self.inventory_base_url is None:
            return "INVENTORY_BASE_URL is not set: there is no inventory to pull."
        if not self.inventory_addresses and not self.inventory_from_leads_days:
            return "Neither INVENTORY_ADDRESSES nor INVENTORY_FROM_LEADS_DAYS says what to search for."
        return None

    @classmethod
    def from_variables(cls, variables: Mapping[str, str]) -> Self:
        """Read and check. Raises SettingsError naming the variable at fault."""
        values = {name: value.strip() for name, value in filled_in(variables).items()}
        for name in sorted(GONE.keys() & values.keys()):
            raise SettingsError(f"{name} no longer exists. {GONE[name]}")
        plain_http = _allows_plain_http(values)
        base_url = _url(values, "LEADS_BASE_URL", plain_http)
        return cls(
            base_url=base_url,
            auth_url=_url(values, "LEADS_AUTH_URL", plain_http),
            client_id=values.get("LEADS_CLIENT_ID"),
            auth_method=_auth_method(values),
            audience=values.get("LEADS_AUDIENCE", base_url),
            token_scope=values.get("LEADS_TOKEN_SCOPE", DEFAULT_TOKEN_SCOPE),
            scopes=_scopes(values),
            branches_file=path_of(values["LEADS_BRANCHES_FILE"]) if "LEADS_BRANCHES_FILE" in values else None,
            zone=_zone(values),
            start_date=_start_date(values),
            max_concurrency=_whole_number(
                values, "LEADS_MAX_CONCURRENCY", DEFAULT_MAX_CONCURRENCY, 1, MOST_CONCURRENCY
            ),
            keep_runs_days=_whole_number(
                values, "LEADS_KEEP_RUNS_DAYS", DEFAULT_KEEP_RUNS_DAYS, LEAST_KEEP_RUNS_DAYS, MOST_KEEP_RUNS_DAYS
            ),
            max_body_mb=_whole_number(values, "LEADS_MAX_BODY_MB", DEFAULT_MAX_BODY_MB, 1, MOST_MAX_BODY_MB),
            data_dir=_data_dir(values),
            store=_store(values),
            plain_http=plain_http or _is_plain(values),
            privacy_dir=path_of(values["LEADS_PRIVACY_DIR"]) if "LEADS_PRIVACY_DIR" in values else None,
            keep_personal_days=_keep_personal_days(values),
            has_delta=_has_delta(values),
            inventory_base_url=_url(values, "INVENTORY_BASE_URL", plain_http),
            inventory_client_id=values.get("INVENTORY_CLIENT_ID"),
            inventory_agency_ref=values.get("INVENTORY_AGENCY_REF"),
            inventory_addresses=tuple(
                part.strip() for part in values.get("INVENTORY_ADDRESSES", "").split(";") if part.strip()
            ),
            inventory_from_leads_days=_whole_number(values, "INVENTORY_FROM_LEADS_DAYS", 0, 0, MAX_FROM_LEADS_DAYS),
        )


def filled_in(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that are set: an empty one, such as a line of .env that nobody filled in, counts as not set."""
    return {name: value for name, value in variables.items() if value.strip()}


def path_of(value: str) -> Path:
    """The path that a variable names: absolute, so that it stays the same file in a process that works elsewhere."""
    return Path(value.strip()).expanduser().absolute()


def is_loopback(host: str) -> bool:
    """Whether a host's name or number means this machine, whoever answers for names (RFC 6761, section 6.3)."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return host.lower() == "localhost"


def _url(values: Mapping[str, str], name: str, plain_http: bool) -> str | None:
    """An address: https, since it carries a secret or a token and leads, unless it never leaves this machine."""
    value = values.get(name)
    if value is None:
        return None
    try:
        parts = urlsplit(value)
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that don't close, a port that is no number
        is_address = False
    # Looked for in the text, because urlsplit drops line breaks and can't tell an empty query from none.
    if not is_address or re.search(r"[\s?#@\\]", value):
        raise SettingsError(f"{name} is not an address. Write it like https://portal.example, without query or user.")
    if parts.scheme == "http" and not plain_http and not is_loopback(parts.hostname or ""):
        raise SettingsError(
            f"{name} begins with http://, so that anybody on the way could read secrets and leads. Write https://. "
            "Where nobody else can listen, LEADS_ALLOW_PLAIN_HTTP=yes allows it."
        )
    return value.rstrip("/")


def _allows_plain_http(values: Mapping[str, str]) -> bool:
    value = values.get("LEADS_ALLOW_PLAIN_HTTP", "no")
    if value not in {"yes", "no"}:
        raise SettingsError(f"LEADS_ALLOW_PLAIN_HTTP is {value!r}. Write yes or no; no is what you want.")
    return value == "yes"


def _data_dir(values: Mapping[str, str]) -> Path:
    """The folder that is worked in: the data folder itself, unless that is an object store."""
    variable = folder_variable(values)
    if "LEADS_WORK_DIR" in values and variable != "LEADS_WORK_DIR":
        raise SettingsError(
            "LEADS_WORK_DIR is set, and LEADS_DATA_DIR is no bucket: the data folder is worked in itself. Unset it."
        )
    return path_of(values.get(variable, "data"))


def folder_variable(values: Mapping[str, str]) -> str:
    """The variable that names the folder that is worked in."""
    return "LEADS_DATA_DIR" if _store(values) is None else "LEADS_WORK_DIR"


def _store(values: Mapping[str, str]) -> str | None:
    """The object store that LEADS_DATA_DIR names; None where it is a folder."""
    value = values.get("LEADS_DATA_DIR", "").strip()
    if not re.match(r"(s3|gs|az|file|https?)(:|//)", value):  # slips as well: nobody means a folder that is called s3:
        return None
    if re.fullmatch(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[\w.=-]+)*/?|file:/{3}[^?#]+", value, re.ASCII) is None:
        raise SettingsError(
            "LEADS_DATA_DIR is neither a folder nor a store. Write s3://bucket/prefix for a bucket, file:// and "
            "a whole path for a folder that several machines mount, or a path."
        )
    return value.rstrip("/")


def _is_plain(values: Mapping[str, str]) -> bool:
    """Whether the bucket's endpoint goes without https, which only one on this machine does unasked."""
    endpoint = _url(values, "AWS_ENDPOINT_URL", plain_http=False) if _store(values) else None
    return endpoint is not None and endpoint.startswith("http:")


def _has_delta(values: Mapping[str, str]) -> bool:
    """Whether what is published is wanted as Delta tables as well."""
    value = values.get("LEADS_TABLES")
    if value not in {None, "delta"}:
        raise SettingsError(f"LEADS_TABLES is {value!r}. Write delta, or leave it out: leads.duckdb is always made.")
    return value is not None


def _auth_method(values: Mapping[str, str]) -> AuthMethod:
    value = values.get("LEADS_AUTH_METHOD", AuthMethod.BODY)
    try:
        return AuthMethod(value)
    except ValueError:
        raise SettingsError(f"LEADS_AUTH_METHOD is {value!r}. Write body (with audience) or basic.") from None


def _scopes(values: Mapping[str, str]) -> tuple[Scope, ...]:
    branch_ids, scopes = values.get("LEADS_BRANCH_IDS"), values.get("LEADS_SCOPES")
    if branch_ids is not None and scopes is not None:
        raise SettingsError("LEADS_BRANCH_IDS and LEADS_SCOPES are both set. Keep one; LEADS_SCOPES can name branches.")
    name = "LEADS_SCOPES" if scopes is not None else "LEADS_BRANCH_IDS"
    texts = [part.strip() for part in (scopes or branch_ids or "").split(",") if part.strip()]
    if scopes is None:
        texts = [f"branch-{text}" for text in texts]
    parsed: dict[Scope, None] = {}
    for text in texts:
        try:
            parsed[Scope.parse(text)] = None
        except SettingsError as error:
            raise SettingsError(f"{name}: {error}") from None
    keys = {scope.key.casefold() for scope in parsed}
    if len(keys) < len(parsed):
        raise SettingsError(f"{name} holds ids that differ in upper and lower case alone: as folders they'd be one.")
    if len(parsed) > 1 and "all" in keys:
        raise SettingsError(f"{name}: all stands for the only branch of a set-up; don't name others beside it.")
    return tuple(parsed)


def _zone(values: Mapping[str, str]) -> ZoneInfo:
    name = values.get("LEADS_TIMEZONE", "UTC")
    try:
        if name in _NO_ZONES or name.startswith(("posix/", "right/")):
            raise ValueError
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise SettingsError(f"LEADS_TIMEZONE is {name!r}, no time zone's name. Write one like Europe/London.") from None


def _start_date(values: Mapping[str, str]) -> date | None:
    value = values.get("LEADS_START_DATE")
    if value is None:
        return None
    day = None
    with suppress(ValueError):
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", value, re.ASCII):
            day = date.fromisoformat(value)
    if day is None or day < EARLIEST_START_DATE:
        raise SettingsError(f"LEADS_START_DATE is {value!r}. Write a day from {EARLIEST_START_DATE} on as 2026-11-19.")
    return day


def _keep_personal_days(values: Mapping[str, str]) -> int | None:
    """For how many days personal fields are kept; None if it isn't set: they are kept for ever."""
    name = "LEADS_KEEP_PERSONAL_DAYS"
    try:
        return _whole_number(values, name, LEAST_KEEP_DAYS, LEAST_KEEP_DAYS, MOST_KEEP_DAYS) if name in values else None
    except SettingsError as error:
        raise SettingsError(
            f"{error} The portal keeps leads for 30 days and checks compare the last 35, so that less isn't kept."
        ) from None


def _whole_number(values: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    value = values.get(name, str(default))
    number = int(value) if value.isascii() and value.isdigit() and len(value) < 5 else math.nan
    if not least <= number <= most:
        raise SettingsError(f"{name} is {value!r}. Write a whole number from {least} to {most}.")
    return int(number)
