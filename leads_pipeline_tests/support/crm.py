"""An agency's own system, as delivery meets it: it checks signatures and drops repeats."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from standardwebhooks import Webhook

from leads_pipeline.portal.http_library import httpx
from leads_pipeline_tests.support.serving import QuietHandler, serving

SECRET: Final = "whsec_" + "c2VjcmV0IG9mIHRoZSB0ZXN0cywgMzIgYnl0ZXMgbG9uZw=="
VARIABLES: Final = {
    "LEADS_DELIVERY_URL": "https://crm.example/hook?key=in-the-url",
    "LEADS_DELIVERY_SECRET": SECRET,
}


def taken(_: Mapping[str, Any]) -> httpx.Response:
    return httpx.Response(204)


@dataclass
class Crm(httpx.AsyncBaseTransport):
    """Answers each message with `answer`.

    What was answered with 2xx is applied, once for each webhook-id.
    """

    answer: Callable[[Mapping[str, Any]], httpx.Response] = taken
    applied: dict[str, dict[str, Any]] = field(default_factory=dict)
    attempts: list[tuple[str, str, Mapping[str, Any]]] = field(default_factory=list)
    requests: list[httpx.Request] = field(default_factory=list)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = request.read()
        headers = request.headers
        at = datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC)
        assert headers["webhook-signature"] == Webhook(SECRET).sign(
            headers["webhook-id"], at, body.decode()
        )
        message = json.loads(body)
        self.attempts.append((headers["webhook-id"], headers["webhook-timestamp"], message))
        self.requests.append(request)
        response = self.answer(message)
        if response.is_success:
            self.applied.setdefault(headers["webhook-id"], message)
        return response

    @property
    def events(self) -> list[tuple[str, str, str | None]]:
        """Type, lead and text of what was applied, in order."""
        return [
            (one["type"].removeprefix("lead."), one["data"]["lead_id"], one["data"]["message"])
            for one in self.applied.values()
        ]


@contextmanager
def running() -> Iterator[tuple[str, dict[str, Any]]]:
    """An endpoint on a socket: its address, and what it has applied, by webhook-id.

    It takes what the reference library verifies.
    """
    applied: dict[str, Any] = {}

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            message = Webhook(SECRET).verify(body, dict(self.headers))
            applied.setdefault(self.headers["webhook-id"], message)
            self.send_response(204)
            self.end_headers()

    with serving(Handler) as address:
        yield f"{address}/leads", applied
