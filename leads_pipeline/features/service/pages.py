"""Dagster's web pages behind a guard, so that they obey only their own pages and programs.

A browser sends what any page tells it to send: also to this machine, and from inside of a network.
Dagster obeys all of it, and its pages have no login. The guard refuses requests that another
website causes.

Belongs here: which requests reach Dagster. Doesn't: a login, which is for a proxy, and the other
processes (processes.py).
"""

import ipaddress
import os
import re
import socket
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self

import click
import uvicorn
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from leads_pipeline.cli.output import listening, plain_errors
from leads_pipeline.features.service.dagster_compat import run_webserver
from leads_pipeline.features.service.settings import ServiceSettings
from leads_pipeline.settings import Settings

# Probes ask for it under any name. It tells the versions of Dagster, and nothing else.
_PROBED: Final = "/server_info"

# HTTP's methods that change nothing. Dagster keeps to that, except that /graphql obeys a query in
# the address.
_READING: Final = ("GET", "HEAD", "OPTIONS")

_JSON: Final = "application/json"

# A name, an IPv4 address or an IPv6 address in brackets, with or without a port.
_HOST: Final = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[\w.-]+)(:(?P<port>\d{1,5}))?", re.ASCII)
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}


@dataclass(frozen=True, slots=True)
class PageRefusal:
    """The status and the sentence that a refused request is answered with.

    It repeats nothing of the request.
    """

    status: int
    sentence: str


UNKNOWN_HOST: Final = PageRefusal(
    421,
    "The pages are not known under this name. If it is yours, for example that of a proxy, add it "
    "to LEADS_UI_HOSTS and restart leads-pipeline. Otherwise open them by address, or as "
    "localhost.",
)
QUERY_BY_GET: Final = PageRefusal(
    405,
    "Send GraphQL by POST, as application/json. A query in the address is refused, because a link "
    "or an image on any website could hold it.",
)
OTHER_ORIGIN: Final = PageRefusal(
    403,
    "This request comes from another website: its Origin isn't its Host. If the pages themselves "
    "have sent it, a proxy has changed the Host. Have the proxy pass it as it arrived, with its "
    "port. In nginx: proxy_set_header Host $http_host;",
)
NOT_JSON: Final = PageRefusal(
    415,
    "Send this with the header Content-Type: application/json. Other types are refused, because "
    "any website can have a browser send them.",
)


@click.command()
@click.option("--host", required=True)
@click.option("--port", type=int, required=True)
@click.option("--workspace", required=True)
@click.option("--log-level", required=True)
def main(host: str, port: int, workspace: str, log_level: str) -> None:
    """Serve the pages of the code locations of a workspace file, until a signal comes."""
    with plain_errors():
        settings = Settings.from_variables(os.environ)
        names = known_names(host, settings.of(ServiceSettings).ui_hosts)

        # Nobody else can listen there from here on: not even a later Dagster that serves its pages
        # in another way.
        with listening(host, port) as door:
            run_webserver(host, port, workspace, log_level, serve=partial(_serve, names, door))


def known_names(host: str, ui_hosts: Collection[str]) -> frozenset[str]:
    """Return the pages' known names, beside addresses and names like pages.localhost."""
    machine = socket.gethostname().lower()
    short = machine.partition(".")[0]
    return frozenset({"localhost", machine, short, host.lower(), *ui_hosts})


def _serve(names: Collection[str], door: socket.socket, app: ASGIApp, **options: Any) -> None:
    config = uvicorn.Config(Guard(app, names), **options)
    uvicorn.Server(config).run(sockets=[door])


class Guard:
    """An ASGI application that hands on to another one the requests that aren't refused."""

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app = app
        self._names = names
        self._logged: set[PageRefusal] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or open a websocket."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return

        refused = refusal(scope, self._names)
        if refused is None:
            await self._app(scope, receive, _unframed(send))
            return

        self._log(refused)
        if scope["type"] == "websocket":
            # uvicorn answers 403. For an answer with a text, it would log an error each time.
            await send({"type": "websocket.close"})
            return

        answer = PlainTextResponse(
            f"{refused.sentence}\n", refused.status, {"X-Content-Type-Options": "nosniff"}
        )
        await answer(scope, receive, send)

    def _log(self, refused: PageRefusal) -> None:
        """Print it the first time. Another website could fill the log."""
        if refused not in self._logged:
            click.echo(
                f"The Dagster UI refused a request ({refused.status}). {refused.sentence}", err=True
            )
            self._logged.add(refused)


def _unframed(send: Send) -> Send:
    """Forbid other websites to show the answer in a frame.

    There they could have a person click on it unknowingly.
    """

    async def send_with_header(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message)["X-Frame-Options"] = "SAMEORIGIN"
        await send(message)

    return send_with_header


def refusal(scope: Scope, names: Collection[str]) -> PageRefusal | None:
    """Return why Dagster mustn't get this request or websocket, None if it may."""
    headers = Headers(scope=scope)
    is_websocket = scope["type"] == "websocket"

    if scope["path"] == _PROBED and not is_websocket:
        return None

    # A website can point its own name at this machine. The browser then takes the pages for the
    # website's own.
    host = _Host.parse(headers.getlist("host"))
    if host is None or not host.is_known(names):
        return UNKNOWN_HOST

    if not is_websocket and scope["method"] in _READING:
        # Starlette also takes a line break at the end for this path.
        is_graphql = scope["path"].rstrip().endswith("/graphql")
        return QUERY_BY_GET if is_graphql and scope["query_string"] else None

    # Browsers send an Origin with all others. Programs send none.
    origins = headers.getlist("origin")
    if origins and not host.is_origin(origins):
        return OTHER_ORIGIN

    # A browser asks before it sends JSON to another website, and Dagster doesn't agree.
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if not is_websocket and content_type != _JSON:
        return NOT_JSON

    return None


@dataclass(frozen=True, slots=True)
class _Host:
    """The name or address, and the port if it was given, that a browser has in its address bar."""

    name: str
    port: str | None

    @classmethod
    def parse(cls, headers: Collection[str]) -> Self | None:
        """Read the header Host. None unless there is exactly one, with a host."""
        if len(headers) != 1:
            return None
        [header] = headers
        found = _HOST.fullmatch(header.lower())
        return cls(found["name"].removesuffix("."), found["port"]) if found else None

    def is_known(self, names: Collection[str]) -> bool:
        """Whether it is an address, a name of the loopback, or one of these names.

        Nobody can point an address elsewhere.
        """
        try:
            ipaddress.ip_address(self.name.strip("[]"))
        except ValueError:
            return self.name in names or self.name.endswith(".localhost")
        return True

    def is_origin(self, headers: Collection[str]) -> bool:
        """Whether the header Origin names it too.

        A proxy with TLS hides the scheme, so the scheme isn't compared.
        """
        if len(headers) != 1:
            return False
        [header] = headers
        scheme, _, rest = header.lower().partition("://")
        other = self.parse([rest])
        if other is None or scheme not in _DEFAULT_PORTS:
            return False

        # Browsers leave the default port out. A proxy may add it.
        default = _DEFAULT_PORTS[scheme]
        return other.name == self.name and (other.port or default) == (self.port or default)


if __name__ == "__main__":
    main()
