"""Connections, bodies within bounds, and the service's clock."""

import asyncio
import gzip
import io
import logging
import os
import re
import ssl
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar, cast
from urllib.parse import SplitResult, urlsplit

from leads_pipeline.errors import InvalidAnswerError, SettingsError, TooLargeError, UnreachableError
from leads_pipeline.portal.http_library import httpx
from leads_pipeline.portal.pace import http_date
from leads_pipeline.portal.proxies import proxies
from leads_pipeline.portal.verdicts import DEADLINE_PASSED, UNUSABLE_ADDRESS, broken_off
from leads_pipeline.settings import address_parts, is_loopback

CONNECT_TIMEOUT_SECONDS = 10.0
# The longest silence within a request. The service needs a while for a busy day of a large group.
READ_TIMEOUT_SECONDS = 60.0
# Common servers close an idle connection after 5 seconds.
KEEPALIVE_SECONDS = 4.0

ADDRESS_HINT = (
    "Check the address in the settings and the proxy in the environment (HTTPS_PROXY, HTTP_PROXY, "
    "ALL_PROXY): write one like http://proxy.example:3128, with user and password percent-encoded, "
    "or unset it."
)

_Client = TypeVar("_Client", httpx.Client, httpx.AsyncClient)


def make_client(
    *,
    headers: Mapping[str, str] | None = None,
    transport: httpx.BaseTransport | None = None,
    tls: ssl.SSLContext | None = None,
) -> httpx.Client:
    """Return a client with one kept connection, for one thread. It follows no redirects.

    Proxies come from the environment. Raises SettingsError if the proxy or the file of certificates
    can't be used.
    """
    hooks = {"response": [_forget_redirect]}
    return _make(
        httpx.Client,
        httpx.HTTPTransport,
        connections=1,
        headers=headers,
        transport=transport,
        tls=tls,
        event_hooks=hooks,
    )


def make_async_client(
    connections: int,
    *,
    transport: httpx.AsyncBaseTransport | None = None,
    tls: ssl.SSLContext | None = None,
) -> httpx.AsyncClient:
    """As `make_client`, with several connections, for one event loop."""

    async def forget_redirect(response: httpx.Response) -> None:
        _forget_redirect(response)

    hooks = {"response": [forget_redirect]}
    return _make(
        httpx.AsyncClient,
        httpx.AsyncHTTPTransport,
        connections=connections,
        transport=transport,
        tls=tls,
        event_hooks=hooks,
    )


def _make(
    client: Callable[..., _Client],
    make_way: Callable[..., Any],
    *,
    connections: int,
    transport: Any = None,
    tls: ssl.SSLContext | None = None,
    **options: Any,
) -> _Client:
    """Make a client. `make_way` makes its way through a proxy, unless a `transport` is given."""
    verify = tls or tls_context()
    limits = httpx.Limits(max_connections=connections, keepalive_expiry=KEEPALIVE_SECONDS)
    ways: dict[str, Any] = {}

    try:
        if transport is None:
            for pattern, proxy in proxies().items():
                ways[pattern] = (
                    make_way(proxy=proxy, verify=verify, limits=limits) if proxy else None
                )
        return client(
            timeout=httpx.Timeout(READ_TIMEOUT_SECONDS, connect=CONNECT_TIMEOUT_SECONDS),
            limits=limits,
            verify=verify,
            transport=transport,
            mounts=ways,
            trust_env=False,  # httpx would read the proxies again
            **options,
        )
    except (httpx.InvalidURL, ValueError, ImportError):
        pass

    # Outside of the except block, because that error can hold the proxy's password.
    raise SettingsError(f"No connection can be made. {ADDRESS_HINT}")


def tls_context() -> ssl.SSLContext:
    """Return the trusted certificates: of SSL_CERT_FILE or SSL_CERT_DIR if set, else certifi's.

    Raises SettingsError if that file or folder can't be used.
    """
    try:
        return httpx.create_ssl_context()
    except OSError:
        name = "SSL_CERT_FILE" if os.environ.get("SSL_CERT_FILE") else "SSL_CERT_DIR"
        raise SettingsError(
            f"{name} is {os.environ.get(name)}, and no certificates can be read there. Correct it, "
            "or unset it to trust the usual authorities."
        ) from None


def _forget_redirect(response: httpx.Response) -> None:
    # httpx fails on a malformed Location, although it follows none.
    response.extensions["location"] = response.headers.pop("location", None)


def checked_address(name: str, url: str, schemes: Sequence[str] = ("https", "http")) -> SplitResult:
    """Return an address's parts.

    Raises SettingsError, without the address, if it isn't one, or if it is http:// to another
    machine.
    """
    parts = address_parts(url, schemes)
    if parts is None:
        raise SettingsError(
            f"{name} isn't an address. It begins with "
            f"{' or '.join(f'{one}://' for one in schemes)}."
        )
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise SettingsError(
            f"{name} begins with http://, so that anybody on the way could read it. Write https://."
        )
    return parts


def _tells_no_address(record: logging.LogRecord) -> bool:
    """Keep the address of each request, which httpx logs as information, out of logs.

    The address of a webhook is a secret, and that of an inventory search holds a lead's home.
    """
    return record.levelno >= logging.WARNING


for _library in ("httpx", "httpx2"):
    logging.getLogger(_library).addFilter(_tells_no_address)


def checked_header(name: str, text: str) -> str:
    """Return a setting that is sent as a header.

    Raises SettingsError, without the text, if it can't be sent.
    """
    if not re.fullmatch(r"[!-~](?:[ -~]*[!-~])?", text):
        raise SettingsError(
            f"{name} can't be sent as a header: write plain ASCII, without line breaks and without "
            "blanks at its ends."
        )
    return text


def read_body(response: httpx.Response, max_bytes: int, until: float) -> bytes:
    """Return the body. Both its received and its decoded size are limited to `max_bytes`.

    `until` is by time.monotonic. Raises TooLargeError, InvalidAnswerError and UnreachableError. It
    decodes gzip itself, because httpx takes a gzip body that is cut off for a whole one.
    """
    pieces = []
    size = 0
    # `iter_raw()` takes a tenth of a request's time more.
    for piece in cast("httpx.SyncByteStream", response.stream):
        pieces.append(piece)
        size += len(piece)
        _check_size(size, max_bytes)
        if time.monotonic() > until:
            raise UnreachableError("The answer wasn't complete in time.", reason=DEADLINE_PASSED)

    body = b"".join(pieces)
    encoding = response.headers.get("content-encoding", "identity").strip().lower()

    if encoding in ("", "identity") or not body:
        return body
    if encoding not in ("gzip", "x-gzip"):
        raise InvalidAnswerError(
            "Its content encoding isn't one that was asked for.", reason="unknown encoding"
        )

    try:
        with gzip.GzipFile(fileobj=io.BytesIO(body)) as file:
            body = file.read(max_bytes + 1)
    except (EOFError, OSError, zlib.error):
        raise InvalidAnswerError(
            "Its gzip body is damaged or cut off.", reason="broken gzip"
        ) from None

    _check_size(len(body), max_bytes)
    return body


def _check_size(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise TooLargeError(
            f"It has more than the {max_bytes / 2**20:g} MiB that an answer may have."
        )


def answer_to(method: str, url: str, seconds: float, **content: Any) -> httpx.Response:
    """Return an answer's status and headers; its body stays unread.

    Status and headers have to come within `seconds`. Raises the errors of httpx.
    """

    async def ask() -> httpx.Response:
        async with (
            asyncio.timeout(seconds),  # httpx has a limit for each byte alone
            make_async_client(1) as http,
            http.stream(method, url, **content) as response,
        ):
            return response

    try:
        return asyncio.run(ask())
    except TimeoutError:
        raise httpx.ReadTimeout("The headers weren't complete in time.") from None


def server_time(base_url: str) -> datetime | None:
    """Return the service's clock, by the Date header of its answer. None without one.

    The request has no token. Raises UnreachableError, and SettingsError if the address isn't one.
    """
    host = urlsplit(base_url).hostname
    try:
        date = answer_to("GET", base_url, CONNECT_TIMEOUT_SECONDS).headers.get("date", "")
    except httpx.TransportError as error:
        raise broken_off(f"Asked {host} for the time: it", error) from None
    except UNUSABLE_ADDRESS:
        raise SettingsError(f"{host} can't be asked. {ADDRESS_HINT}") from None
    return http_date(date)
