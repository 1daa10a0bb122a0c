"""The proxies of the environment, as httpx takes them.

Belongs here: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY. Doesn't: the connections (http.py).

httpx reads them itself, but it fails on each entry of NO_PROXY that it can't read. OrbStack, for
example, sets an IPv6 network there.
"""

import ipaddress
import re
from urllib.request import getproxies

from leads_pipeline.portal.http_library import httpx


def proxies() -> dict[str, str | None]:
    """Return the proxy of each pattern of addresses, in httpx's form. None means no proxy.

    Entries of NO_PROXY that httpx can't read are left out.
    """
    given = getproxies()
    found: dict[str, str | None] = {}

    for scheme in ("http", "https", "all"):
        if proxy := given.get(scheme):
            found[f"{scheme}://"] = proxy if "://" in proxy else f"http://{proxy}"

    for entry in given.get("no", "").split(","):
        host = entry.strip()
        if host == "*":
            return {}
        pattern = _pattern(host)
        if _is_readable(pattern):
            found[pattern] = None
    return found


def _pattern(host: str) -> str:
    """Return the pattern of an entry of NO_PROXY. Empty if there is none."""
    if not host or "://" in host:
        return host
    if in_brackets := re.fullmatch(r"\[(.+)\](:\d+)?", host):
        address, port = in_brackets.groups(default="")
        return f"all://[{address}]{port}"
    if host.lower() == "localhost":
        return f"all://{host}"

    try:
        network = ipaddress.ip_interface(host).network
    except ValueError:  # a name, also of all hosts below it
        return f"all://*{host}"
    if network.version == 4:
        return f"all://{host}"
    if network.num_addresses > 1:  # httpx knows no networks
        return ""
    return f"all://[{network.network_address}]"


def _is_readable(pattern: str) -> bool:
    try:
        httpx.URL(pattern)
    except (httpx.InvalidURL, ValueError):
        return False
    return pattern != ""
