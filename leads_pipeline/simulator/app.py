"""The portal as an ASGI application: endpoints with faults, and the simulator's own controls.

Belongs here: reading requests and writing answers in HTTP. Doesn't: what an answer holds (leads.py,
inventory.py, tokens.py), or which requests go wrong (faults.py).

The endpoints below /_simulator/ are no part of the portal's contract. They set faults, tell which
leads an answer should hold, and have leads pushed to a receiver.
"""

import asyncio
import re
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import msgspec
from standardwebhooks import Webhook, WebhookVerificationError
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from leads_pipeline.simulator import tokens
from leads_pipeline.simulator.faults import (
    LEAD_PATHS,
    PORTAL_PATHS,
    TOKEN_PATHS,
    Asked,
    FaultError,
    Faults,
    Rule,
    read_rules,
)
from leads_pipeline.simulator.inventory import AGENCY_REF, Inventory, SearchError
from leads_pipeline.simulator.leads import KINDS, LeadBook
from leads_pipeline.simulator.organisation import SCOPE_KINDS, Branch, Organisation

_MOMENT: Final = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z", re.ASCII)
# Specification, "Limits": the default window of lead retrieval.
_DEFAULT_WINDOW: Final = timedelta(days=1)

# Takes the request and its body.
_Endpoint = Callable[[Request, bytes], Response]


# Of a CRM that takes deliveries. The secret is known to everybody.
CRM_PATH: Final = "/_simulator/crm"
CRM_SECRET: Final = "whsec_bWFkZS11cCBzZWNyZXQgb2YgYSBtYWRlLXVwIENSTQ=="  # noqa: S105


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The settings of a simulator.

    `leads_per_day` is the mean of applicant leads of a branch and day; there are a quarter as many
    appraisal leads. `clock` gives the portal's moment in UTC: leads later than it aren't there yet,
    those 30 days older are deleted.
    """

    seed: int = 1
    branches: int = 3
    leads_per_day: float = 20
    faults: tuple[Rule, ...] = ()
    clock: Callable[[], datetime] = _utc_now


@dataclass(frozen=True, slots=True)
class Counters:
    """Counts of the requests since the start or the last reset. Control requests don't count.

    `requests` and `token_requests` by path, `statuses` by status, `faults` by rule, `windows` by
    (kind, scope, from-time as sent). The scope is `branch-101`, `all` or `several`. A missing
    from-time is an empty text.
    """

    requests: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    windows: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    @property
    def token_requests(self) -> int:
        """Requests to both token endpoints."""
        return sum(self.requests[path] for path in TOKEN_PATHS)


class _RefusalError(Exception):
    """A request that is refused: its arguments are the status, the code and the message."""


class Simulator:
    """The portal as an ASGI application, with counters, faults and truth for tests and demos.

    `base_url` is where it is served.
    """

    base_url = ""

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or Config()
        self.organisation = Organisation(self.config.seed, self.config.branches)
        self._book = LeadBook(self.config.seed, self.config.leads_per_day)
        self._inventory = Inventory(self._book.stock, self.organisation.branches)
        self._tokens = tokens.Tokens(self.config.clock)
        self.set_faults(self.config.faults)
        self.reset_counters()
        self._endpoints: Mapping[str, tuple[str, _Endpoint]] = {
            "/oauth2/token": ("POST", partial(self._token, tokens.LEADS)),
            "/token": ("POST", partial(self._token, tokens.INVENTORY)),
            **{f"/{kind}-leads": ("GET", partial(self._leads, kind)) for kind in KINDS},
            "/inventory": ("GET", self._search),
            "/_simulator/faults": ("PUT", self._put_faults),
            "/_simulator/truth": ("GET", self._tell_truth),
            "/_simulator/push": ("POST", self._push),
            CRM_PATH: ("POST", self._take_delivery),
        }

    def environment(self) -> dict[str, str]:
        """The environment variables that point the pipeline at this simulator."""
        return {
            "LEADS_BASE_URL": self.base_url,
            "LEADS_AUTH_URL": self.base_url,
            "LEADS_CLIENT_ID": tokens.LEADS.id,
            "LEADS_CLIENT_SECRET": tokens.LEADS.secret,
            "LEADS_BRANCH_IDS": ",".join(branch.id for branch in self.organisation.branches),
            "INVENTORY_BASE_URL": self.base_url,
            "INVENTORY_CLIENT_ID": tokens.INVENTORY.id,
            "INVENTORY_CLIENT_SECRET": tokens.INVENTORY.secret,
            "INVENTORY_AGENCY_REF": AGENCY_REF,
            "INVENTORY_ADDRESSES": self.organisation.branches[0].town.name,
        }

    def counters(self) -> Counters:
        """The counts since the start or the last reset. They go on counting."""
        return self._counters

    def reset_counters(self) -> None:
        """Count from zero; what fault rules have counted stays."""
        self._counters = Counters()

    def set_faults(self, rules: Sequence[Rule] | str) -> None:
        """Replace all fault rules.

        They are given as rules or as JSON text. An empty list clears them. Raises FaultError.
        """
        self._faults = Faults(
            read_rules(rules) if isinstance(rules, str) else rules, self.config.seed
        )

    def truth(
        self, kind: str, scope: str, start: datetime | None = None, end: datetime | None = None
    ) -> list[str]:
        """Return the ids of all leads that an answer would hold now, both ends included.

        `scope` reads `branch-101` or `all`. Without a start or an end it is bounded by retention
        and the clock alone.
        """
        return self._book.ids(
            kind, self.organisation.branches_of(scope), start, end, self.config.clock()
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request (ASGI)."""
        request = Request(scope, receive)
        body = await request.body()
        if request.url.path in PORTAL_PATHS:
            response = await self._answer_as_portal(request, body)
        else:
            response = await asyncio.to_thread(self._answer, request, body)
        await response(scope, receive, send)

    async def _answer_as_portal(self, request: Request, body: bytes) -> Response:
        """Count the request, and answer it as the portal does or as a fault rule says."""
        counters = self._counters
        asked = _asked(request)
        counters.requests[asked.path] += 1

        if asked.path in LEAD_PATHS:
            kind = asked.path.strip("/").removesuffix("-leads")
            counters.windows[kind, asked.scope or "several", asked.from_time] += 1

        name, then = self._faults.meet(asked) or ("", None)
        if then is not None:
            counters.faults[name] += 1
            await asyncio.sleep(then.latency_ms / 1000)

        if then is None or then.status is None:
            response = self._answer(request, body)
        else:
            said = {name.lower(): value for name, value in then.headers.items()}
            response = Response(then.body, then.status, {"content-type": "application/json"} | said)

        counters.statuses[response.status_code] += 1
        return response

    def _answer(self, request: Request, body: bytes) -> Response:
        method, endpoint = self._endpoints.get(request.url.path, ("", None))
        if endpoint is None:
            return _errors(404, "not_found", "There is no such path.")
        if request.method != method:
            return _errors(
                405, "method_not_allowed", f"Only {method} is allowed.", {"allow": method}
            )

        try:
            return endpoint(request, body)
        except _RefusalError as refusal:
            return _errors(*refusal.args)
        except (SearchError, FaultError) as error:
            return _problem(str(error))

    # --- the portal -------------------------------------------------------------------------------

    def _token(self, client: tokens.Client, request: Request, body: bytes) -> Response:
        # RFC 6749 section 5.1: nobody on the way may keep it.
        headers = {"cache-control": "no-store", "pragma": "no-cache"}
        try:
            token = self._tokens.issue(client, request.headers, body)
        except tokens.TokenError as error:
            refusal = {"error": error.code, "error_description": str(error)}
            if error.code != "invalid_client":
                return _json(refusal, 400, headers)
            return _json(refusal, 401, headers | {"www-authenticate": 'Basic realm="simulator"'})

        seconds = int(tokens.LIFETIME.total_seconds())
        return _json(
            {"access_token": token, "expires_in": seconds, "token_type": "Bearer"}, headers=headers
        )

    def _leads(self, kind: str, request: Request, _: bytes) -> Response:
        if not self._tokens.is_good(tokens.LEADS, request.headers.get("authorization", "")):
            raise _RefusalError(
                401, "unauthorized", "The access token is missing, invalid or expired."
            )
        query = request.query_params
        now = self.config.clock()
        start, end = _window(query, now - _DEFAULT_WINDOW)
        body = self._book.answer(kind, self._asked_branches(query), start, end, now)
        return Response(body, media_type="application/json")

    def _asked_branches(self, query: QueryParams) -> Sequence[Branch]:
        scopes = _scopes(query)
        if len(scopes) > 1:
            raise _RefusalError(
                400, "too_many_filters", "Filter on one group, company, brand or branch id alone."
            )

        if not scopes:
            if len(self.organisation.branches) > 1:
                raise _RefusalError(
                    400, "filter_required", "Filter on one group, company, brand or branch id."
                )
            return self.organisation.branches

        if not (branches := self.organisation.branches_of(scopes[0])):
            raise _RefusalError(403, "forbidden", "The id isn't one of yours.")

        return branches

    def _search(self, request: Request, _: bytes) -> Response:
        if not self._tokens.is_good(tokens.INVENTORY, request.headers.get("authorization", "")):
            return Response(status_code=401, headers={"www-authenticate": "Bearer"})
        if request.headers.get("agencyref") != AGENCY_REF:
            return Response(status_code=403)
        return Response(self._inventory.page(request.query_params), media_type="application/json")

    # --- the simulator's own ----------------------------------------------------------------------

    def _put_faults(self, _: Request, body: bytes) -> Response:
        self.set_faults(read_rules(body))
        return Response(body, media_type="application/json")

    def _tell_truth(self, request: Request, _: bytes) -> Response:
        kind, scope = self._asked_leads(request.query_params)
        ids = self.truth(kind, scope, *_window(request.query_params, None))
        return _json({"count": len(ids), "ids": ids})

    def _push(self, request: Request, _: bytes) -> Response:
        """Deliver leads to the receiver at `to`, with `key`, and tell its status.

        The leads are as an answer would hold them.
        """
        query = request.query_params
        kind, scope = self._asked_leads(query)
        now = self.config.clock()
        start, end = _window(query, now - _DEFAULT_WINDOW)
        leads = self._book.answer(kind, self.organisation.branches_of(scope), start, end, now)
        headers = {"content-type": "application/json", "authorization": query.get("key", "")}

        try:
            sent = urllib.request.Request(query.get("to", ""), leads, headers)  # noqa: S310 - the user's own address
            with urllib.request.urlopen(sent, timeout=30) as answer:  # noqa: S310 - likewise
                return _json({"status": answer.status})
        except urllib.error.HTTPError as error:
            with error:
                return _json({"status": error.code})
        except (OSError, ValueError) as error:
            return _problem(f"`to` must be the address of a receiver that runs: {error}.")

    @staticmethod
    def _take_delivery(request: Request, body: bytes) -> Response:
        """Take a delivery of the pipeline, as a CRM would.

        It must have a signature of the Standard Webhooks specification.
        """
        try:
            Webhook(CRM_SECRET).verify(body, dict(request.headers), json_parse=False)
        except WebhookVerificationError:
            return _problem("The signature is wrong, or older than five minutes.")
        return Response(status_code=204)

    def _asked_leads(self, query: QueryParams) -> tuple[str, str]:
        kind = query.get("kind", "")
        scope = query.get("scope", "all")
        if kind not in KINDS or not self.organisation.branches_of(scope):
            raise _RefusalError(
                400,
                "invalid_question",
                f"kind must be one of {', '.join(KINDS)}, scope like branch-101 or all.",
            )
        return kind, scope


# --- reading requests -----------------------------------------------------------------------------


def _asked(request: Request) -> Asked:
    """Read a request for rules and counters.

    It is lenient, because they also see requests that the portal refuses.
    """
    query = request.query_params
    path = request.url.path
    scopes = _scopes(query) or ["all"]
    is_one = path in LEAD_PATHS and len(scopes) == 1
    return Asked(path, scopes[0] if is_one else None, query.get("from-time", ""))


def _scopes(query: QueryParams) -> list[str]:
    return [f"{kind}-{id_}" for kind in SCOPE_KINDS for id_ in query.getlist(f"{kind}-id")]


def _window(
    query: QueryParams, default_start: datetime | None
) -> tuple[datetime | None, datetime | None]:
    """From-time and to-time, and the default start if the query has neither."""
    start = _moment(query, "from-time")
    end = _moment(query, "to-time")
    if start is not None and end is not None and end < start:
        raise _RefusalError(400, "invalid_time_range", "to-time lies before from-time.")
    return (default_start, None) if start is None and end is None else (start, end)


def _moment(query: QueryParams, name: str) -> datetime | None:
    values = query.getlist(name)
    if not values:
        return None

    try:
        if len(values) == 1 and _MOMENT.fullmatch(values[0]):
            return datetime.fromisoformat(values[0])
    except ValueError:
        pass

    raise _RefusalError(400, "invalid_time", f"{name} must be one moment as YYYY-MM-DDThh:mm:ssZ.")


# --- writing answers ------------------------------------------------------------------------------


def _json(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, media_type="application/json")


def _problem(detail: str) -> Response:
    return _json(
        {"type": "about:blank", "title": "Bad request", "status": 400, "detail": detail}, 400
    )


def _errors(
    status: int, code: str, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    return _json({"errors": [{"message": message, "code": code, "links": []}]}, status, headers)
