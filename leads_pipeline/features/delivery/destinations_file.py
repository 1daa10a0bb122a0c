"""Reads LEADS_DESTINATIONS_FILE: a TOML file with a table `[[destination]]` for each.

Belongs here: what the file may hold, and clear words if it holds something else. No message repeats
a secret.
"""

import re
import tomllib
from collections.abc import Mapping
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from jinja2 import Template

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.domain.window import Scope
from leads_pipeline.errors import SettingsError
from leads_pipeline.features.delivery.destinations import Destination, Filter
from leads_pipeline.features.delivery.form import ID_THERE, EventType, Form, HttpRequest
from leads_pipeline.features.delivery.message import MARKETS
from leads_pipeline.features.delivery.request_form import (
    JSON,
    RequestForm,
    RequestTemplate,
    address_template,
    body_template,
)
from leads_pipeline.features.delivery.webhook import StandardWebhook, signer
from leads_pipeline.portal.credentials import read_secret
from leads_pipeline.portal.http import checked_address, checked_header
from leads_pipeline.portal.tokens import ClientCredentials
from leads_pipeline.settings import AuthMethod, Secret

# A name is a part of the name of a ledger's file, and of a finding's key.
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")

_METHODS: Final = ("POST", "PUT", "PATCH", "DELETE")
_HEADER: Final = re.compile(r"[A-Za-z0-9-]+")
_SECRET_HEADER: Final = re.compile("auth|key|token|secret|cookie|password|signature", re.IGNORECASE)
_WITH_PASSWORD: Final = re.compile(r"\s*https?://[^/]*@")
# What the HTTP library sets.
_OURS: Final = {"host", "content-length", "transfer-encoding", "connection"}


def read_destinations(path: Path, variables: Mapping[str, str]) -> list[Destination]:
    """Read the destinations.

    `variables` has the values of `{env = …}`. Raises SettingsError and CredentialsError.
    """
    whole = TomlTable(f"LEADS_DESTINATIONS_FILE: {path}", _content(path), path.parent, variables)
    tables = whole.tables("destination")
    whole.want_no_more()
    if not tables:
        raise whole.error("has no [[destination]]. Add one, or unset the variable.")

    found: dict[str, Destination] = {}
    for table in tables:
        destination = _destination(table)
        if destination.name in found:
            raise whole.error(
                f"has the destination {destination.name} twice. Give each a name of its own."
            )
        found[destination.name] = destination
    return [*found.values()]


def _content(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        why = f"can't be read: {error.strerror}. Put it there, or correct the path."
    except UnicodeDecodeError:
        why = "isn't UTF-8. Save it as UTF-8."
    except tomllib.TOMLDecodeError as error:
        where = re.search(r"\(at .*\)$", str(error))  # the words before it can quote the file
        why = (
            f"is no TOML {where[0] if where else ''}. Compare it with the examples in "
            "examples/destinations/."
        )
    raise SettingsError(f"LEADS_DESTINATIONS_FILE: {path} {why}")


class TomlTable:
    """A table of the file. Whoever has read all keys asks if there are others."""

    def __init__(
        self, where: str, values: Mapping[str, Any], folder: Path, variables: Mapping[str, str]
    ) -> None:
        self.where = where
        self._values = values
        self._folder = folder
        self._variables = variables
        self._known: set[str] = set()

    def error(self, what: str) -> SettingsError:
        """Return an error that names the place in the file."""
        return SettingsError(f"{self.where} {what}")

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def get(self, key: str, kind: type, what: str) -> Any:
        """Return a value of that type, None if there is none."""
        self._known.add(key)
        value = self._values.get(key)
        if value is not None and type(value) is not kind:
            raise self.error(f"has a `{key}` that is no {what}.")
        return value

    def texts(self, key: str) -> list[str]:
        """Return the texts of a list."""
        values = self.get(key, list, "list") or []
        if not all(isinstance(value, str) for value in values):
            raise self.error(f'has other things than texts in `{key}`. Write {key} = ["…", "…"].')
        if key in self and not values:
            raise self.error(
                f"has an empty `{key}`. Leave it out to send all. To send nothing, take the "
                "destination out."
            )
        return [*values]

    def statuses(self, key: str) -> frozenset[int]:
        """Return the statuses of a list."""
        values = self.get(key, list, "list") or []
        if not all(type(value) is int and 200 <= value < 600 for value in values):
            raise self.error(f"has other things than statuses in `{key}`. Write {key} = [409].")
        return frozenset(values)

    def table(self, key: str) -> "TomlTable | None":
        """Return the table of that name."""
        values = self.get(key, dict, "table")
        return None if values is None else self._inner(f"{self.where}, {key},", values)

    def tables(self, key: str) -> list["TomlTable"]:
        """Return the tables of that name, each called by its own `name`."""
        values = self.get(key, list, "list of tables") or []
        if not all(isinstance(value, dict) for value in values):
            raise self.error(f"has no table [[{key}]].")
        found = []
        for number, value in enumerate(values, start=1):
            found.append(self._inner(f"{self.where}, {key} {value.get('name', number)}", value))
        return found

    def _inner(self, where: str, values: Mapping[str, Any]) -> "TomlTable":
        return TomlTable(where, values, self._folder, self._variables)

    def secret(self, key: str) -> Secret | None:
        """Return the secret that a variable or a file holds. It can't stand in this file itself."""
        self._known.add(key)
        value = self._values.get(key)
        if value is None:
            return None
        match value:
            case {"env": str(variable)} if len(value) == 1:
                if not self._variables.get(variable, "").strip():
                    raise self.error(
                        f"takes its `{key}` from the variable {variable}, which isn't set."
                    )
                return Secret(variable, self._variables[variable].strip())
            case {"file": str(name)} if len(value) == 1:
                return Secret(key, file=self._folder / Path(name).expanduser())
        raise self.error(
            f'has its `{key}` in the file itself. Write {key} = {{env = "…"}} or {{file = "…"}}.'
        )

    def text_or_secret(self, key: str) -> str:
        """Return a text that may be a secret, as the addresses of many webhooks are.

        Raises CredentialsError too.
        """
        value = self._values.get(key)
        if isinstance(value, str):
            self._known.add(key)
            if _WITH_PASSWORD.match(value):
                raise self.error(
                    f'has a password in `{key}`. Write {key} = {{env = "…"}} or {{file = "…"}}.'
                )
            return value.strip()
        secret = self.secret(key)
        if secret is None:
            raise self.error(f"has no `{key}`.")
        return read_secret(secret).strip()

    def names(self) -> list[str]:
        """Return all keys."""
        self._known.update(self._values)
        return [*self._values]

    def want_no_more(self) -> None:
        """Raise SettingsError if there is a key that nobody has read."""
        for key in sorted(self._values.keys() - self._known):
            guess = get_close_matches(key, self._known, 1)
            hint = (
                f"did you mean `{guess[0]}`?"
                if guess
                else f"it knows {', '.join(sorted(self._known))}."
            )
            raise self.error(f"has the unknown key `{key}`: {hint}")


def _destination(table: TomlTable) -> Destination:
    name = table.get("name", str, "text")
    if name is None or not _NAME.fullmatch(name):
        raise table.error(
            "has no usable `name`. Write one of small letters, digits and hyphens, such as "
            "crm-north."
        )

    first_day = table.get("from", date, "day. Write from = 2026-11-19, without quotation marks")
    destination = Destination(
        name, _form(table), _filter(table), first_day, outcomes=_outcomes(table)
    )
    table.want_no_more()
    return destination


def _filter(table: TomlTable) -> Filter:
    kinds = _some_of(table, "kinds", [kind.name for kind in LEAD_KINDS])
    markets = _some_of(table, "markets", MARKETS)
    scopes = frozenset(_scope(table, text) for text in table.texts("branches"))
    return Filter(kinds, scopes, markets)


def _some_of(table: TomlTable, key: str, choices: list[str] | tuple[str, ...]) -> frozenset[str]:
    texts = table.texts(key)
    for text in texts:
        if text not in choices:
            raise table.error(f"has {text!r} in `{key}`. It knows {', '.join(choices)}.")
    return frozenset(texts)


def _scope(table: TomlTable, text: str) -> str:
    try:
        return Scope.parse_loosely(text).key
    except SettingsError:
        raise table.error(
            f'has {text!r} in `branches`. Write the portal\'s ids: branches = ["101", "102"].'
        ) from None


def _outcomes(table: TomlTable) -> HttpRequest | None:
    """Return the request for outcomes: to where leads are created. None if nobody asks."""
    system = table.get("outcomes", str, "text")
    if system is None:
        return None
    if system != "alto":
        raise table.error(f"has the `outcomes` {system!r}. It knows alto.")

    created = table.table("created")
    if created is None or ID_THERE not in created:
        raise table.error(
            f'has `outcomes`, which need ids. Write {ID_THERE} = "id" in [destination.created].'
        )
    url = created.text_or_secret("url")
    if "{" in url:
        raise created.error("has a template in `url`, so outcomes can't be asked for there.")
    return HttpRequest("GET", url, _headers(table), b"")


def _form(table: TomlTable) -> Form:
    return _requests(table) if "created" in table else _webhook(table)


def _webhook(table: TomlTable) -> StandardWebhook:
    secret = table.secret("secret")
    authorization = table.secret("authorization")
    if secret is None:
        raise table.error(
            "has no `secret`. A webhook is signed with one. For another form, add "
            "[destination.created]."
        )

    address = table.text_or_secret("url")
    host = checked_address(f"{table.where}: `url`", address).hostname or ""
    key = read_secret(secret)
    signer(key, f"{table.where}: `secret`")
    header = None
    if authorization:
        header = checked_header(f"{table.where}: `authorization`", read_secret(authorization))
    return StandardWebhook(address, key, header, host)


def _requests(table: TomlTable) -> RequestForm:
    headers = _headers(table)
    templates = {}
    hosts = []
    addresses = []
    for event_type in EventType:
        inner = table.table(event_type)
        if inner is None:
            continue
        url = inner.text_or_secret("url")
        address, host = address_template(inner.where, url, event_type)
        checked_address(f"{inner.where}: `url`", url.partition("{")[0])
        body = _body(inner, headers, event_type)
        done = inner.statuses("done")
        final = inner.statuses("final")
        templates[event_type] = RequestTemplate(
            _method(inner), address, body, done, final, _id_path(inner, event_type)
        )
        inner.want_no_more()
        hosts.append(host)
        addresses.append(url)
    if len(set(hosts)) > 1:  # the host is what receipts name
        raise table.error("has requests to several hosts. Make a destination of each.")
    return RequestForm(
        templates,
        headers,
        address="\n".join(addresses),
        host=hosts[0],
        credentials=_credentials(table),
    )


def _method(table: TomlTable) -> str:
    method: str = table.get("method", str, "text") or "POST"
    if method not in _METHODS:
        raise table.error(f"has the method {method!r}. It knows {', '.join(_METHODS)}.")
    return method


def _body(table: TomlTable, headers: Mapping[str, str], event_type: EventType) -> Template | None:
    text = table.get("body", str, "text")
    if text is None:
        return None
    return body_template(table.where, text, headers["content-type"], event_type)


def _id_path(table: TomlTable, event_type: EventType) -> tuple[str, ...]:
    """Return where the lead's id is in an answer. Empty if the file doesn't say."""
    path = table.get(ID_THERE, str, "text") if event_type is EventType.CREATED else None
    if path is None:
        return ()
    members = tuple(path.split("."))
    if not all(members):
        raise table.error(
            f'has an `{ID_THERE}` that is no path. Write {ID_THERE} = "id", or "lead.id".'
        )
    return members


def _headers(table: TomlTable) -> dict[str, str]:
    """Return the headers by their names in small letters.

    One that looks like a secret can't stand in the file.
    """
    headers = {"content-type": JSON}
    given = table.table("headers")
    if given is None:
        return headers

    for name in given.names():
        where = f"{given.where} {name}"
        if not _HEADER.fullmatch(name) or name.lower() in _OURS:
            raise given.error(f"has {name!r}, which can't be set.")
        if _SECRET_HEADER.search(name):
            secret = given.secret(name)
            value = read_secret(secret) if secret else ""
        else:
            value = given.text_or_secret(name)
        headers[name.lower()] = checked_header(where, value)
    return headers


def _credentials(table: TomlTable) -> ClientCredentials | None:
    token = table.table("token")
    if token is None:
        return None

    secret = token.secret("client_secret")
    method = token.get("method", str, "text") or AuthMethod.BASIC
    if secret is None:
        raise token.error("has no `client_secret`.")
    if method not in [*AuthMethod]:
        raise token.error(f"has the method {method!r}. It knows {', '.join(AuthMethod)}.")
    url = token.text_or_secret("url")
    checked_address(f"{token.where}: `url`", url)
    credentials = ClientCredentials(
        token_url=url,
        client_id=token.text_or_secret("client_id"),
        secret=secret,
        method=AuthMethod(method),
        audience=token.get("audience", str, "text"),
        scope=token.get("scope", str, "text"),
    )
    token.want_no_more()
    return credentials
