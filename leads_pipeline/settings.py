"""The settings of an installation: a field for each variable, with help, default and section.

The core's are here, and each feature's in a model of its own. `Settings.from_variables` reads them
all: each command and each process of Dagster calls it when it begins.

Doesn't belong here: the pages and hints that are made from the models (cli/settings.py), reading a
secret (portal/credentials.py).
"""

import ipaddress
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Self, TypeAlias, TypeVar
from urllib.parse import SplitResult, urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from leads_pipeline.domain.window import Scope, ScopeKind
from leads_pipeline.errors import SettingsError
from leads_pipeline.extensions import brought

NO_PORTAL: Final = "LEADS_BASE_URL is not set: there is nothing to pull from."

# No lead is older than the portals that send them. An earlier year is a slip such as 0226.
EARLIEST_START_DATE: Final = date(2000, 1, 1)


class AuthMethod(StrEnum):
    """The two forms of the leads service's token request (specification, endpoint 1)."""

    BODY = "body"
    BASIC = "basic"


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret's value, or the file that holds it.

    `variable` is the one that is set. The `repr` doesn't show the value.
    """

    variable: str
    value: str | None = field(default=None, repr=False)
    file: Path | None = None


# --- what a value may be --------------------------------------------------------------------------
#
# Each function reads a value, or raises ValueError. Its text follows the variable's name.


def path_of(value: str) -> Path:
    """Return the absolute path that a variable names: the same file in every working directory."""
    return Path(value.strip()).expanduser().absolute()


# DuckDB writes its log beside the part before `?`, and takes `\` for a slash.
_ODD_FOR_DUCKDB: Final = re.compile(r"[?\\]")
# Dagster makes an address of SQLite from its folder, as it is.
_ODD_FOR_DAGSTER: Final = re.compile(r"\?|%[0-9A-Fa-f]{2}")


def _check_path(variable: str, folder: Path, program: str, odd: re.Pattern[str], do: str) -> None:
    """Raise ValueError if the program would misread the folder's path, or that of its link."""
    for path in (str(folder), os.path.realpath(folder)):
        if found := odd.search(path):
            raise ValueError(
                f"{variable} names {path}, and {program} can't use the {found[0]} in that path. "
                f"{do}"
            )


def is_loopback(host: str) -> bool:
    """Whether a host's name or number means this machine (RFC 6761, section 6.3).

    `localhost` does, whatever a name server says.
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return host.lower() == "localhost"


# The origin of the simulator's leads.
THIS_MACHINE = "this machine"


def origin(base_url: str) -> str:
    """Return whose leads they are: the portal's host, or THIS_MACHINE for the simulator.

    The port makes no difference.
    """
    host = urlsplit(base_url).hostname or base_url
    return THIS_MACHINE if is_loopback(host) else host


def odd_character(value: str) -> str | None:
    """Name the first character that no client id and no client secret may have, by its position.

    RFC 6749 (appendix A) allows 0x20 to 0x7E. The text doesn't tell the character itself.
    """
    for position, character in enumerate(value, start=1):
        if not " " <= character <= "~":
            return (
                f"holds a character at position {position} that neither a client id nor a client "
                "secret may have, such as an accented letter, a typographic quotation mark, a "
                "special space or an invisible one"
            )
    return None


def _client_id(value: str) -> str:
    if odd := odd_character(value):
        raise ValueError(f"{odd}. Type it in by hand, or copy it again.")
    return value


def address_parts(value: str, schemes: Collection[str] = ("http", "https")) -> SplitResult | None:
    """Return the parts of an address, None if it isn't one."""
    with suppress(ValueError):  # brackets that don't close, a port that is no number
        parts = urlsplit(value)
        if parts.scheme in schemes and parts.hostname and parts.port != 0:
            return parts
    return None


def https_address(value: str) -> str:
    """Return an address: https, unless it never leaves this machine.

    It carries a secret, or a token and leads.
    """
    parts = address_parts(value)
    # Searched in the text, because urlsplit drops line breaks and can't tell an empty query from
    # none.
    if parts is None or re.search(r"[\s?#@\\]", value):
        raise ValueError(
            "is not an address. Write it like https://portal.example, without query or user."
        )
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise ValueError(
            "begins with http://, so that anybody on the way could read secrets and leads. Write "
            "https://."
        )

    return value.rstrip("/")


def _auth_method(value: str) -> AuthMethod:
    try:
        return AuthMethod(value)
    except ValueError:
        raise ValueError(f"is {value!r}. Write body (with audience) or basic.") from None


def _token_scope(value: str) -> str | None:
    """The scope of the token request, None to send none."""
    return None if value == "none" else value


def _branch_ids(value: str) -> tuple[Scope, ...]:
    return _scopes(value, "Write the ids with commas between them: 101,102", is_branches=True)


def _scope_keys(value: str) -> tuple[Scope, ...]:
    return _scopes(
        value,
        "Write scopes with commas between them: branch-101,company-7,brand-3,group-1; or all alone",
    )


def _scopes(value: str, how: str, *, is_branches: bool = False) -> tuple[Scope, ...]:
    parsed: dict[Scope, None] = {}
    for text in list_of(value):
        try:
            scope = Scope.parse_loosely(text) if is_branches else Scope.parse(text)
        except SettingsError:
            raise ValueError(f"holds {text!r}. {how}.") from None
        if is_branches and scope.kind is not ScopeKind.BRANCH:
            raise ValueError(f"holds {text!r}, which is no branch. Use LEADS_SCOPES instead.")
        parsed[scope] = None

    keys = {scope.key.casefold() for scope in parsed}
    if len(keys) < len(parsed):
        raise ValueError("holds ids that differ only in upper and lower case. Keep one of them.")
    if len(parsed) > 1 and "all" in keys:
        raise ValueError(
            "holds all, for a set-up with a single branch, and other scopes. Keep one of them."
        )

    return tuple(parsed)


def _zone(value: str) -> ZoneInfo:
    # Zone databases also hold this machine's own zone, a rule for unknown ones, and none.
    if value not in {"localtime", "posixrules", "Factory"} and not value.startswith(
        ("posix/", "right/")
    ):
        with suppress(ZoneInfoNotFoundError, ValueError, OSError):
            return ZoneInfo(value)
    raise ValueError(f"is {value!r}, no time zone's name. Write one like Europe/London.")


def day_of(value: str) -> date:
    """Return the day that a variable names. An earlier one than any lead's is a slip."""
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", value, re.ASCII):
        with suppress(ValueError):
            if (day := date.fromisoformat(value)) >= EARLIEST_START_DATE:
                return day
    raise ValueError(f"is {value!r}. Write a day from {EARLIEST_START_DATE} on as 2026-11-19.")


# Slips as well: nobody means a folder that is called `s3:`.
_STORE: Final = re.compile(r"(s3|gs|az|file|https?)(:|//)")


def names_a_store(data_address: str) -> bool:
    """Whether LEADS_DATA_DIR names no folder, but a store."""
    return _STORE.match(data_address) is not None


def _data_address(value: str) -> str:
    """The path of a folder, or the address of a store, whose form a feature checks."""
    if names_a_store(value) and not brought("bucket"):
        raise ValueError(
            "names a store, and this installation keeps data in folders alone, as it lacks the "
            "feature `bucket`: name a folder."
        )
    return value


def list_of(value: str, *, separator: str = ",") -> tuple[str, ...]:
    """Return the parts of a list, without blanks around them and without empty ones."""
    return tuple(part.strip() for part in value.split(separator) if part.strip())


def _owners(value: str) -> tuple[str, ...]:
    """Dagster's form of owners: addresses, and teams with `team:` before their name."""
    owners = tuple(
        part if "@" in part else f"team:{part.removeprefix('team:')}" for part in list_of(value)
    )
    for owner in owners:
        if not re.fullmatch(r"[\w.%+-]+@[\w-]+(\.[\w-]+)+|team:[\w-]+", owner, re.ASCII):
            raise ValueError(
                f"holds {owner!r}. Write teams and e-mail addresses with commas between them: "
                "team:data."
            )
    return owners


def whole_number(least: int, most: int, why: str = "") -> PlainValidator:
    """Return a validator that reads a whole number from `least` to `most`.

    `why` is for those who wrote another one.
    """

    def check(value: str) -> int:
        if not (
            value.isascii() and value.isdigit() and len(value) < 5 and least <= int(value) <= most
        ):
            raise ValueError(f"is {value!r}. Write a whole number from {least} to {most}.{why}")
        return int(value)

    return PlainValidator(check)


Address: TypeAlias = Annotated[str | None, PlainValidator(https_address)]
ClientId: TypeAlias = Annotated[str | None, PlainValidator(_client_id)]
AbsolutePath: TypeAlias = Annotated[Path | None, PlainValidator(path_of)]


def setting(
    variable: str, section: str, default: Any = None, *, link: str = "", proposal: str = ""
) -> Any:
    """A field of Settings, whose docstring is its help.

    A default that is a function gets the fields before it by name. `link` is a place in docs/ that
    says more. `proposal` is a value that .env.example has as a comment.
    """
    kind: Any = {"default_factory": default} if callable(default) else {"default": default}
    more: Any = {"section": section, "link": link, "proposal": proposal}
    return Field(**kind, validation_alias=variable, json_schema_extra=more)


_LEADS = "The leads service"
_SECRET = "The client secret by PGP, instead of LEADS_CLIENT_SECRET"  # noqa: S105 - a title
_TOKEN = "The token request, if the portal wants another form"  # noqa: S105 - a title
_PULL = "Pulling and the data folder"
_MAIL = "The mail server, for alerts and the weekly report"
OF_DAGSTER = "Dagster"

_KEY = "guides/get-a-secret.md"
_BUCKET = "guides/keep-data-in-a-bucket.md"


_CONFIG: Final = ConfigDict(frozen=True, hide_input_in_errors=True, use_attribute_docstrings=True)


class FeatureSettings(BaseModel):
    """The settings of a feature: a field for each variable, made by `setting`.

    `needs` are variables that can't be set without another one.
    """

    model_config = _CONFIG

    needs: ClassVar[Mapping[str, str]] = {}


F = TypeVar("F", bound=FeatureSettings)


class Settings(BaseModel):
    """The settings of an installation. A service that isn't set is None: the rest still runs."""

    model_config = _CONFIG

    _of_features: dict[type[BaseModel], Any] = PrivateAttr(default_factory=dict)
    _given: dict[str, str] = PrivateAttr(default_factory=dict)

    base_url: Address = setting("LEADS_BASE_URL", _LEADS)
    """Address of the leads service: https://services.zoopla.co.uk for Zoopla's Leads API"""
    auth_url: Address = setting("LEADS_AUTH_URL", _LEADS)
    """Address of the leads service's token server: https://services-auth.services.zoopla.co.uk for
    Zoopla's. `/oauth2/token` is appended"""
    client_id: ClientId = setting("LEADS_CLIENT_ID", _LEADS)
    """The client id that the portal issued"""
    client_secret: Secret | None = setting("LEADS_CLIENT_SECRET", _LEADS)
    """The client secret that the portal issued"""
    branch_ids: Annotated[tuple[Scope, ...], PlainValidator(_branch_ids)] = setting(
        "LEADS_BRANCH_IDS", _LEADS, ()
    )
    """The branches to pull: the portal's internal ids, comma-separated, as 101,102"""
    zone: Annotated[ZoneInfo, PlainValidator(_zone)] = setting(
        "LEADS_TIMEZONE", _LEADS, ZoneInfo("UTC")
    )
    """The time zone that defines a day: Europe/London for a British agency. If it is empty, a day
    begins at 00:00 UTC, which is 01:00 in a British summer"""

    client_secret_pgp_file: AbsolutePath = setting("LEADS_CLIENT_SECRET_PGP_FILE", _SECRET)
    """The PGP message with the secret, as the portal delivers it"""
    pgp_private_key_file: AbsolutePath = setting("LEADS_PGP_PRIVATE_KEY_FILE", _SECRET, link=_KEY)
    """The private key that opens it, made with gpg"""
    pgp_passphrase: Secret | None = setting("LEADS_PGP_PASSPHRASE", _SECRET)
    """The passphrase of the private key"""

    auth_method: Annotated[AuthMethod, PlainValidator(_auth_method)] = setting(
        "LEADS_AUTH_METHOD", _TOKEN, AuthMethod.BODY
    )
    """`body` sends the credentials in the body, with an audience. `basic` sends them in a header,
    with a scope"""
    audience: str | None = setting("LEADS_AUDIENCE", _TOKEN, lambda fields: fields.get("base_url"))
    """With `body`: the audience; LEADS_BASE_URL if it is empty"""
    token_scope: Annotated[str | None, PlainValidator(_token_scope)] = setting(
        "LEADS_TOKEN_SCOPE", _TOKEN, "api/api_access"
    )
    """With `basic`: the scopes, with blanks between them. `none` sends no scope. Zoopla's own for
    leads are leads/list:applicant-leads and leads/list:appraisal-leads"""

    scopes: Annotated[tuple[Scope, ...], PlainValidator(_scope_keys)] = setting(
        "LEADS_SCOPES", _PULL, lambda fields: fields.get("branch_ids", ())
    )
    """Instead of LEADS_BRANCH_IDS: branches, companies, brands and groups in any mix, as
    branch-101,company-7,brand-3,group-1; or all, for a set-up with a single branch"""
    branches_file: AbsolutePath = setting(
        "LEADS_BRANCHES_FILE", _PULL, link="guides/add-your-own-data.md#names-of-branches"
    )
    """A CSV with the columns id and name, and any others, such as region. It names your branches in
    tables, report and messages, and is read at each publication"""
    start_date: Annotated[date | None, PlainValidator(day_of)] = setting("LEADS_START_DATE", _PULL)
    """First day to pull, as 2026-11-19; 29 days before the first start if it is empty"""
    max_concurrency: Annotated[int, whole_number(1, 256)] = setting(
        "LEADS_MAX_CONCURRENCY", _PULL, 8
    )
    """Requests at once, from 1 to 256"""
    data_address: Annotated[str, PlainValidator(_data_address)] = setting(
        "LEADS_DATA_DIR", _PULL, "data", link=_BUCKET
    )
    """The data folder; a relative path counts from the working directory. `s3://bucket/prefix`
    keeps the data in a bucket, and this machine works with a copy. It needs the extra `s3`, and the
    usual AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"""
    work_dir: AbsolutePath = setting("LEADS_WORK_DIR", _PULL)
    """With a bucket: the folder of that copy; `data` if it is empty"""
    smtp_url: Secret | None = setting("LEADS_SMTP_URL", _MAIL)
    """The mail server: smtps://user:password@host:465, or smtp://host:587 with STARTTLS.

    In user and password, write %, @ and / as %25, %40 and %2F. `?tls=none` at the end sends
    unencrypted, to a server of your own network
    """
    mail_from: str | None = setting("LEADS_ALERT_FROM", _MAIL)
    """The sender of the mails; if it is empty, the user of LEADS_SMTP_URL if that is an address,
    else the first recipient
    """
    owners: Annotated[tuple[str, ...], PlainValidator(_owners)] = setting(
        "LEADS_OWNERS", OF_DAGSTER, ()
    )
    """Who owns the assets in Dagster's catalog: teams and e-mail addresses, comma-separated, as
    team:data"""
    dagster_home: AbsolutePath = setting("DAGSTER_HOME", OF_DAGSTER)
    """The folder of Dagster's own state; `.dagster` in the data folder if it isn't set. Delete an
    empty line of it in `.env`: it would hide the environment's value. `dagster dev` and `dg dev`
    forget all runs at their end without it"""

    @classmethod
    def from_variables(cls, variables: Mapping[str, str]) -> "Settings":
        """Read and check each model: the core's, then each feature's.

        Raises SettingsError naming each variable at fault, never a secret.
        """
        given = filled_in(variables)
        values: dict[str, Any] = {name: value.strip() for name, value in given.items()}

        for name in secrets():
            file = f"{name}_FILE"
            _want_one(given, name, file)
            if name in given:
                values[name] = Secret(name, given[name])
            elif file in given:
                values[name] = Secret(file, file=path_of(given[file]))

        _want_one(
            given, "LEADS_CLIENT_SECRET", "LEADS_CLIENT_SECRET_FILE", "LEADS_CLIENT_SECRET_PGP_FILE"
        )
        _want_one(given, "LEADS_BRANCH_IDS", "LEADS_SCOPES")

        read: dict[type[BaseModel], Any] = {}
        wrong: list[str] = []
        for model in models():
            try:
                read[model] = model(**values)  # it takes its own variables
            except ValidationError as error:
                wrong += _sentences(error)

        for feature in brought("settings"):
            for name, other in feature.needs.items():
                if name in values and other not in values:
                    wrong.append(f"{name} needs {other}. Set both, or none.")

        # Outside of the except block, because the other error holds the values.
        if wrong:
            raise SettingsError(" ".join(wrong))

        settings: Settings = read.pop(Settings)
        settings._of_features = read
        settings._given = given
        return settings

    @property
    def given(self) -> dict[str, str]:
        """The variables as they were given, secrets among them.

        A process of ours reads them with `from_variables`.
        """
        return dict(self._given)

    def of(self, model: type[F]) -> F:
        """Return the settings of a feature."""
        read: F = self._of_features[model]
        return read

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.work_dir is not None and self.store is None:
            raise ValueError(
                "LEADS_WORK_DIR is for a bucket alone, and LEADS_DATA_DIR names a folder. Unset "
                "LEADS_WORK_DIR."
            )

        self._check_folders()
        return self

    def _check_folders(self) -> None:
        """Raise ValueError if a database would take the path of its folder for another one."""
        of_data = self.folder_variable
        _check_path(of_data, self.data_dir, "DuckDB", _ODD_FOR_DUCKDB, "Choose another folder.")
        of_dagster = "DAGSTER_HOME"
        do = "Choose another folder."
        if self.dagster_home is None:
            of_dagster = of_data
            do = "Choose another folder, or set DAGSTER_HOME to one."
        _check_path(of_dagster, self.dagster_folder, "Dagster", _ODD_FOR_DAGSTER, do)

    @property
    def missing(self) -> list[str]:
        """The variables that every pull needs and that aren't set."""
        needed = {
            "LEADS_BASE_URL": self.base_url,
            "LEADS_AUTH_URL": self.auth_url,
            "LEADS_CLIENT_ID": self.client_id,
            "LEADS_CLIENT_SECRET": self.client_secret or self.client_secret_pgp_file,
            "LEADS_BRANCH_IDS": self.scopes,
        }
        return [name for name, value in needed.items() if not value]

    def want_portal(self) -> None:
        """Raise SettingsError if a variable isn't set that every pull needs."""
        if self.missing:
            raise SettingsError(
                f"Settings are missing: {', '.join(self.missing)}. Put them into .env or the "
                "environment. `leads-pipeline settings` says what each means."
            )

    @property
    def store(self) -> str | None:
        """The address of the object store that has the data; None if a folder has it."""
        return self.data_address.rstrip("/") if names_a_store(self.data_address) else None

    @property
    def data_dir(self) -> Path:
        """The folder that is worked in: the data folder itself, unless that is an object store."""
        if self.store is None:
            return path_of(self.data_address)
        return self.work_dir or path_of("data")

    @property
    def folder_variable(self) -> str:
        """The variable that names that folder."""
        return "LEADS_DATA_DIR" if self.store is None else "LEADS_WORK_DIR"

    @property
    def dagster_folder(self) -> Path:
        """The folder of Dagster's own state: DAGSTER_HOME, else `.dagster` in the data folder."""
        return self.dagster_home or self.data_dir / ".dagster"


def models() -> list[type[BaseModel]]:
    """Return the models of all variables: the core's, then each feature's."""
    return [Settings, *brought("settings")]


def secrets() -> list[str]:
    """Return the variables that hold a secret.

    Each may instead be in the file that the variable with _FILE names.
    """
    fields = chain.from_iterable(model.model_fields.values() for model in models())
    return [str(one.validation_alias) for one in fields if one.annotation == Secret | None]


def filled_in(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are set.

    An empty one, such as a line of .env that nobody filled in, is not.
    """
    return {name: value for name, value in variables.items() if value.strip()}


def _want_one(given: Mapping[str, str], *names: str) -> None:
    """Raise SettingsError if more than one of the variables is set: they mean the same."""
    both = [name for name in names if name in given]
    if len(both) > 1:
        raise SettingsError(f"{' and '.join(both)} are set, and mean the same. Keep one.")


def _sentences(error: ValidationError) -> Iterator[str]:
    """Say of each variable what is wrong with it."""
    for one in error.errors(include_input=False):
        if one["type"] == "value_error":  # the others are of defaults that need a wrong field
            yield " ".join([*map(str, one["loc"]), str(one["ctx"]["error"])])
