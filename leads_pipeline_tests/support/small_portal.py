"""A portal of a few lines, for what the simulator can't do: replace its client secret, and answer
by hand.

It speaks the specification and imports nothing of the product.

Belongs here: which secrets and tokens are good, and a count of what was asked. Doesn't: what leads
look like, which the test says.
"""

import base64
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from urllib.parse import parse_qs, parse_qsl, unquote_plus, urlsplit

from leads_pipeline_tests.support.serving import QuietHandler, serving

SECRET = "made-up-secret"

# Each token begins with it.
TOKEN = "canaryToken9a21"

# Gives the status and the body for a path and its parameters.
Answers = Callable[[str, Mapping[str, str]], tuple[int, bytes]]


def variables(address: str, secret: str = SECRET) -> dict[str, str]:
    """The variables that lead to a portal."""
    return {
        "LEADS_BASE_URL": address,
        "LEADS_AUTH_URL": address,
        "LEADS_CLIENT_ID": "agency",
        "LEADS_CLIENT_SECRET": secret,
    }


def no_leads(path: str, _: Mapping[str, str]) -> tuple[int, bytes]:
    """An empty answer of either kind."""
    return 200, json.dumps({path.strip("/").removesuffix("-leads") + "s": []}).encode()


class SmallPortal:
    """One client at a time; a token is good while the secret that it was got with is."""

    def __init__(self, answer: Answers = no_leads, secret: str = SECRET) -> None:
        self.secret = secret
        self.answer = answer
        self.token_requests: list[str] = []  # the secrets that were sent
        self.token_forms: list[dict[str, list[str]]] = []
        self.base_url = ""
        self._tokens: dict[str, str] = {}
        self._names = (f"{TOKEN}-{number}" for number in count(1))
        self._guard = threading.Lock()

    def get_token(self, secret: str) -> tuple[int, bytes]:
        with self._guard:
            self.token_requests.append(secret)
            if secret != self.secret:
                error = {"error": "invalid_client", "error_description": secret}
                return 401, json.dumps(error).encode()
            token = next(self._names)
            self._tokens[token] = secret
        answer = {"access_token": token, "expires_in": 3600, "token_type": "Bearer"}
        return 200, json.dumps(answer).encode()

    def get_data(self, token: str, path: str, parameters: Mapping[str, str]) -> tuple[int, bytes]:
        with self._guard:
            if self._tokens.get(token) != self.secret:
                return 401, b'{"errors": [{"code": "unauthorized", "message": "no", "links": []}]}'
        return self.answer(path, parameters)


@contextmanager
def served(portal: SmallPortal) -> Iterator[SmallPortal]:
    """Serve it on a port of loopback while the block runs."""

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            portal.token_forms.append(form)
            pair = base64.b64decode(
                self.headers.get("Authorization", "").removeprefix("Basic ")
            ).decode()
            sent = form.get("client_secret", [unquote_plus(pair.partition(":")[2])])
            self.answer(*portal.get_token(sent[0]))

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            self.answer(*portal.get_data(token, parts.path, dict(parse_qsl(parts.query))))

    with serving(Handler) as portal.base_url:
        yield portal
