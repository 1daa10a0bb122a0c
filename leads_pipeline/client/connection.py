"""Connections to a service, and its clock."""

import ssl
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from urllib.parse import urlsplit

import httpx

from leads_pipeline.auth.address import ADDRESS_HINT, UNUSABLE_ADDRESS, make_client
from leads_pipeline.client.body import BoundedBody
from leads_pipeline.client.service import CONNECT_TIMEOUT_SECONDS, KEEPALIVE_SECONDS, READ_TIMEOUT_SECONDS, Service
from leads_pipeline.client.verdicts import NO_CONNECTION, why_no_connection
from leads_pipeline.errors import SettingsError, UnreachableError


def http_client(service: Service, tls: ssl.SSLContext) -> httpx.AsyncClient:
    """One connection to the service; what goes over it is counted, and bounded."""
    stats = service.stats

    async def on_request(request: httpx.Request) -> None:
        if request.method == "GET":  # token requests are POST
            stats.requests += 1

    async def on_response(response: httpx.Response) -> None:
        if response.request.method == "GET":
            stats.statuses[response.status_code] += 1
        # A redirect isn't followed, and httpx fails on a broken Location even so.
        response.headers.pop("location", None)
        # Every body goes through here, also those that httpx reads itself during the auth flow.
        if isinstance(response.stream, httpx.AsyncByteStream):
            encoding = response.headers.pop("content-encoding", "")
            response.stream = BoundedBody(response.stream, encoding, service.max_body_bytes)

    return make_client(
        lambda: httpx.AsyncClient(
            transport=service.transport,
            headers={"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": "leads-pipeline"},
            timeout=httpx.Timeout(READ_TIMEOUT_SECONDS, connect=CONNECT_TIMEOUT_SECONDS, pool=None),
            limits=httpx.Limits(max_connections=1, keepalive_expiry=KEEPALIVE_SECONDS),
            verify=tls,
            event_hooks={"request": [on_request], "response": [on_response]},
            follow_redirects=False,
        )
    )


def server_time(base_url: str, *, transport: httpx.BaseTransport | None = None) -> datetime | None:
    """The service's clock by the Date header of whatever it answers to a request without a token; None without one.

    Raises UnreachableError, and SettingsError for an address that is none.
    """
    make = partial(httpx.Client, transport=transport, timeout=CONNECT_TIMEOUT_SECONDS, follow_redirects=False)
    try:
        with make_client(make) as http, http.stream("GET", base_url) as response:  # the body stays unread
            date = response.headers.get("date", "")
    except httpx.TransportError as error:
        why = why_no_connection(error) if isinstance(error, httpx.ConnectError) else type(error).__name__
        raise UnreachableError(
            f"{urlsplit(base_url).hostname} doesn't answer ({why}). Check the network, the proxy and the address.",
            reason=NO_CONNECTION,
        ) from None
    except UNUSABLE_ADDRESS:
        date = None
    if date is None:
        raise SettingsError(f"{urlsplit(base_url).hostname} can't be asked. {ADDRESS_HINT}")
    try:
        moment = parsedate_to_datetime(date)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
