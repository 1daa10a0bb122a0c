"""A portal that gives fixed answers. It speaks the specification and imports nothing of the product.

Belongs here: the token endpoints and the paths of data. Doesn't: what an answer holds, which is the caller's.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import parse_qsl, urlsplit

from leads_pipeline_tests.support.serving import QuietHandler, serving

# Gives the status and the body for a path and its parameters.
Answers = Callable[[str, Mapping[str, str]], tuple[int, bytes]]

_TOKEN = json.dumps({"access_token": "a-token", "expires_in": 3600, "token_type": "Bearer"}).encode()
_REFUSED = json.dumps({"errors": [{"code": "unauthorized", "message": "No token.", "links": []}]}).encode()


@contextmanager
def portal(answers: Answers) -> Iterator[str]:
    """Serve the answers on this machine while the block runs. Give the address."""

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(200, _TOKEN)

        def do_GET(self) -> None:
            if self.headers["Authorization"] != "Bearer a-token":
                self.answer(401, _REFUSED)
                return
            parts = urlsplit(self.path)
            self.answer(*answers(parts.path, dict(parse_qsl(parts.query))))

    with serving(Handler) as address:
        yield address


def variables(address: str, data: str) -> dict[str, str]:
    """The variables that point the pipeline at the portal and at a data folder."""
    return {
        "LEADS_BASE_URL": address,
        "LEADS_AUTH_URL": address,
        "LEADS_CLIENT_ID": "client",
        "LEADS_CLIENT_SECRET": "made-up-secret",
        "INVENTORY_BASE_URL": address,
        "INVENTORY_CLIENT_ID": "client",
        "INVENTORY_CLIENT_SECRET": "made-up-secret",
        "INVENTORY_AGENCY_REF": "agency",
        "LEADS_DATA_DIR": data,
    }
