"""Requests of a destination's own API, made by Jinja templates over the message of a webhook.

What a person wrote can't change the form of a request: in a JSON body each `{{ … }}` becomes a JSON
value, and in an address it is percent-encoded.

Belongs here: templates and the requests that they make. Doesn't: the file that has them
(destinations_file.py), access tokens (posting.py).
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, quote_plus, urlsplit

from jinja2 import (
    StrictUndefined,
    Template,
    TemplateError,
    TemplateSyntaxError,
    Undefined,
    UndefinedError,
    nodes,
)
from jinja2.sandbox import ImmutableSandboxedEnvironment

from leads_pipeline.errors import SettingsError
from leads_pipeline.features.delivery.form import (
    ID_THERE,
    Event,
    EventType,
    HttpRequest,
    UnusableTemplateError,
)
from leads_pipeline.features.delivery.message import DATA_MEMBERS, ERASED_MEMBERS, encoded
from leads_pipeline.portal.tokens import ClientCredentials

JSON: Final = "application/json"

# So a person's words can't choose the host.
_HOST_IS_FIXED: Final = re.compile(r"https?://[^/{}\s?#@]+/")

# Longer whole numbers aren't read as numbers.
_DIGITS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class RequestTemplate:
    """The request for one type of event. Its `repr` shows no address: that can be a secret.

    `done` are statuses besides 2xx that mean: it is there. After `final` ones, the lead is given up
    at once. `id_path` leads to the lead's id in an answer.
    """

    method: str
    address: Template = field(repr=False)
    body: Template | None = field(repr=False)
    done: frozenset[int] = frozenset()
    final: frozenset[int] = frozenset()
    id_path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestForm:
    """A request of its own for each type of event. A type without a template isn't sent."""

    templates: Mapping[EventType, RequestTemplate]
    headers: Mapping[str, str] = field(repr=False)
    address: str = field(repr=False)
    host: str
    credentials: ClientCredentials | None = None

    def sends(self, event_type: EventType) -> bool:
        """Whether there is a template."""
        return event_type in self.templates

    def is_done(self, event_type: EventType, status: int) -> bool:
        """A success, or what the template says.

        207 says that parts failed: of one lead, that is the lead. A lead to erase may be gone.
        """
        is_success = 200 <= status < 300 and status != HTTPStatus.MULTI_STATUS
        is_gone = event_type is EventType.ERASED and status == HTTPStatus.GONE
        return is_success or is_gone or status in self.templates[event_type].done

    def is_final(self, event_type: EventType, status: int) -> bool:
        """What the template says."""
        return status in self.templates[event_type].final

    def id_path(self, event_type: EventType) -> tuple[str, ...]:
        """What the template says."""
        return self.templates[event_type].id_path

    def is_gone(self, event_type: EventType, status: int) -> bool:
        """410 to a new lead. Later requests are of the lead's own address, which can be gone."""
        return event_type is EventType.CREATED and status == HTTPStatus.GONE

    def request(self, event: Event, now: datetime) -> HttpRequest:  # noqa: ARG002 - as any form
        """Fill the templates in. Raises UnusableTemplateError."""
        template = self.templates[event.type]
        try:
            values = _values(event.message)
            if event.id_there is not None:
                values["data"][ID_THERE] = event.id_there
            url = template.address.render(values)
            body = template.body.render(values) if template.body else ""
            if body and _is_json(self.headers["content-type"]):
                json.loads(body)
        except UndefinedError as error:
            why = _missing(str(error), event.message["data"])
        except (
            TemplateError,
            ArithmeticError,
            AttributeError,
            LookupError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            why = type(error).__name__
        else:
            return HttpRequest(template.method, url, self.headers, body.encode(errors="replace"))
        raise UnusableTemplateError(
            f"The template makes no request of this lead ({why}; the message may quote the lead "
            "and is left out)."
        )


def address_template(where: str, text: str, event_type: EventType) -> tuple[Template, str]:
    """Return the template of an address, and its host.

    Raises SettingsError, without the address.
    """
    if not _HOST_IS_FIXED.match(text):
        raise SettingsError(
            f"{where} has a `url` without a fixed host. Begin it like https://crm.example/api/."
        )
    try:
        host = urlsplit(text.partition("{")[0]).hostname or ""
    except ValueError:  # brackets that don't close
        raise SettingsError(f"{where} has a `url` that is no address. Copy it again.") from None
    return _template(f"{where} `url`", text, _in_address, event_type), host


def body_template(where: str, text: str, content_type: str, event_type: EventType) -> Template:
    """Return the template of a body. Raises SettingsError."""
    if _is_json(content_type):
        write = _as_json
    elif content_type == "application/x-www-form-urlencoded":
        write = _in_form
    else:
        raise SettingsError(
            f"{where} has a body of another type than JSON or application/x-www-form-urlencoded."
        )
    return _template(f"{where} `body`", text, write, event_type)


def _template(
    where: str, text: str, write: Callable[[Any], str], event_type: EventType
) -> Template:
    """Return a template that writes each value in that way.

    Raises SettingsError, without the text.
    """
    environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined, finalize=write)
    # So that who writes it has the value written once.
    environment.filters["tojson"] = lambda value: value
    try:
        parsed = environment.parse(text)
        template = environment.from_string(text)
    except TemplateSyntaxError as error:
        raise SettingsError(
            f"{where} is no Jinja template: look at its line {error.lineno}."
        ) from None

    members = _members_of(event_type)
    for asked in parsed.find_all(nodes.Getattr):
        is_of_data = asked.node == nodes.Name("data", "load")
        if is_of_data and asked.attr not in members:
            guess = get_close_matches(asked.attr, members, 1)
            hint = f" Did you mean data.{guess[0]}?" if guess else ""
            raise SettingsError(
                f"{where} asks for data.{asked.attr}, which no message of that type has.{hint}"
            )
    return template


def _members_of(event_type: EventType) -> frozenset[str]:
    """Return the members that `data` can have in messages of that type."""
    match event_type:
        case EventType.CREATED:
            return DATA_MEMBERS
        case EventType.UPDATED:
            return DATA_MEMBERS | {ID_THERE}
        case EventType.ERASED:
            return ERASED_MEMBERS | {ID_THERE}


def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].endswith("json")


def _missing(message: str, data: Mapping[str, Any]) -> str:
    """Return what a template asked for in vain, unless it could be a person's word."""
    wanted = re.findall(r"'([^']*)'", message)[-1:]
    if wanted == [ID_THERE]:
        return f"data.{ID_THERE} isn't known, because no answer had it"
    shown = DATA_MEMBERS | {str(data.get(name)) for name in ("kind", "scope", "market")}
    return f"{wanted[0]} isn't there" if wanted and wanted[0] in shown else "something isn't there"


def _values(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message as templates read it: of texts, numbers, lists and dicts alone."""
    values: dict[str, Any] = json.loads(
        encoded(message), parse_float=_number, parse_int=_whole_number
    )
    return values


def _number(text: str) -> int | float:
    """Prices are whole for people: 250000.00 is 250000."""
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < 10**_DIGITS_MAX else number


def _whole_number(text: str) -> int | str:
    return int(text) if len(text) < _DIGITS_MAX else text


def _as_json(value: Any) -> str:
    return json.dumps(_defined(value))


def _in_form(value: Any) -> str:
    return "" if _defined(value) is None else quote_plus(str(value), errors="replace")


def _in_address(value: Any) -> str:
    text = "" if _defined(value) is None else str(value)
    if not text.strip("."):
        raise ValueError("empty, or a step to another folder")
    return quote(text, safe="", errors="replace")


def _defined(value: Any) -> Any:
    if isinstance(value, Undefined):
        str(value)  # raises UndefinedError
    return value
