"""Addresses: the origin that a token is for, and what is told of one that can't be used."""

from collections.abc import Callable
from typing import TypeVar

import httpx

from leads_pipeline.errors import (
    SettingsError,
)

T = TypeVar("T")

# What httpx raises while it sends to an address, or through a proxy's, that is none: a text that quotes it, a host with
# too long a part, a port beyond 65535 (in a group where several addresses of a host are tried).
UNUSABLE_ADDRESS = (httpx.InvalidURL, UnicodeError, OverflowError, ExceptionGroup)
ADDRESS_HINT = (
    "Asking again doesn't help. Check the address in the settings and the proxy in the environment (HTTPS_PROXY, "
    "HTTP_PROXY, ALL_PROXY, NO_PROXY): write one like http://proxy.example:3128, with user and password "
    "percent-encoded, or unset it."
)


def make_client(make: Callable[[], T]) -> T:
    """What `make` makes, an httpx client, whose errors over proxies quote their addresses. Raises SettingsError."""
    try:
        return make()
    except (httpx.InvalidURL, ValueError, ImportError):
        pass
    # Outside of the except block: that error's text can hold the proxy's password.
    raise SettingsError(f"No connection can be made. {ADDRESS_HINT}")


def origin_of(url: str | httpx.URL) -> tuple[str, str, int | None]:
    """Scheme, host and port (RFC 6454); None is the scheme's own port. Raises SettingsError."""
    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL:
        raise SettingsError(f"{url!r} is not an address. Write it like https://portal.example.") from None
    return parts.scheme, parts.host, parts.port  # lower case, and None for the scheme's own port
