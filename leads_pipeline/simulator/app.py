"""The portal as an ASGI application: its endpoints, and control endpoints of the simulator's own.

Belongs here: what a request spells and what an answer looks like in HTTP. Doesn't: what is in an answer (book.py,
inventory.py, tokens.py), or faults (faults.py, broken.py).

The endpoints below /_simulator/ are no part of the portal's contract: they set faults, read the counters and tell
which leads an answer should hold.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from leads_pipeline.simulator.book import LeadBook
from leads_pipeline.simulator.broken import Counters, FaultyPortal
from leads_pipeline.simulator.faults import FaultError, Faults, Rule, read_rules, write_rules
from leads_pipeline.simulator.inventory import AGENCY_REF, Inventory, SearchError
from leads_pipeline.simulator.leads import KINDS, Kind, LeadFactory
from leads_pipeline.simulator.organisation import SCOPE_KINDS, Branch, Organisation
from leads_pipeline.simulator.stock import Stock
from leads_pipeline.simulator.tokens import Service, TokenError, TokenRequest, Tokens

_MOMENT: Final = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z", re.ASCII)
# Specification, "Limits": the default window of lead retrieval.
_DEFAULT_WINDOW_SECONDS: Final = 86_400


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What differs between simulators.

    `leads_per_day` is the mean of applicant leads of a branch and day; appraisal leads come to a quarter of it.
    `clock` gives the portal's moment in UTC: leads later than it aren't there yet, those 30 days older are deleted.
    """

    seed: int = 1
    branches: int = 3
    leads_per_day: float = 20
    latency_ms: int = 0
    token_lifetime_seconds: int = 3600
    faults: tuple[Rule, ...] = ()
    clock: Callable[[], datetime] = _utc_now


class Refusal(Exception):  # noqa: N818 - an answer rather than an error of ours
    """A request to the leads service that is refused with a status and one element of `errors[]`."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


class Simulator:
    """The portal: an ASGI application, with the counters, faults and truth that tests and demos ask for."""

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or Config()
        seed, stock = self.config.seed, Stock(self.config.seed)
        self.organisation = Organisation(seed, self.config.branches)
        self._book = LeadBook(LeadFactory(seed, self.config.leads_per_day, stock))
        self._inventory = Inventory(stock, self.organisation.branches)
        self._tokens = Tokens(self.config.token_lifetime_seconds, self.config.clock)
        self._portal = FaultyPortal(
            self._starlette(), Faults(self.config.faults, seed), self._tokens.revoke, self.config.latency_ms
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request (ASGI)."""
        await self._portal(scope, receive, send)

    def counters(self) -> Counters:
        """What has been asked since the start or the last reset; it goes on counting."""
        return self._portal.counters

    def reset_counters(self) -> None:
        """Count from zero; what fault rules have counted stays."""
        self._portal.counters = Counters()

    def set_faults(self, rules: Sequence[Rule] | str) -> None:
        """Replace all fault rules, given as such or as JSON text; none clears them. Raises FaultError."""
        parsed = read_rules(rules) if isinstance(rules, str) else rules
        self._portal.faults = Faults(parsed, self.config.seed)

    def truth(self, kind: Kind, scope: str, start: datetime | None = None, end: datetime | None = None) -> list[str]:
        """Ids of all leads that an answer would hold now, for `branch-101` or `all` and both ends included.

        Without a start or an end it is bounded by retention and the clock alone.
        """
        return self._book.ids(kind, self.organisation.branches_of(scope), start, end, self.config.clock())

    def _starlette(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/oauth2/token", self._token(Service.LEADS), methods=["POST"]),
                Route("/token", self._token(Service.INVENTORY), methods=["POST"]),
                *(Route(f"/{kind}-leads", self._leads(kind), methods=["GET"]) for kind in KINDS),
                Route("/inventory", self._search, methods=["GET"]),
                Route("/_simulator/faults", self._control_faults, methods=["GET", "PUT", "DELETE"]),
                Route("/_simulator/counters", self._control_counters, methods=["GET", "DELETE"]),
                Route("/_simulator/truth", self._control_truth, methods=["GET"]),
            ],
            exception_handlers={Refusal: _refused, HTTPException: _not_routed},
        )

    # --- the portal ----------------------------------------------------------------------------------------------

    def _token(self, service: Service) -> Callable[[Request], object]:
        async def endpoint(request: Request) -> Response:
            headers = request.headers
            sent = TokenRequest(
                content_type=headers.get("content-type", ""),
                authorization=headers.get("authorization"),
                body=await request.body(),
                host=headers.get("host", ""),
            )
            # RFC 6749 section 5.1: nobody on the way may keep it.
            unkept = {"cache-control": "no-store", "pragma": "no-cache"}
            try:
                token = self._tokens.issue(service, sent)
            except TokenError as error:
                body = {"error": error.code, "error_description": error.description}
                if error.code != "invalid_client":
                    return _json(body, 400, unkept)
                return _json(body, 401, {**unkept, "www-authenticate": 'Basic realm="simulator"'})
            lifetime = self.config.token_lifetime_seconds
            return _json({"access_token": token, "expires_in": lifetime, "token_type": "Bearer"}, 200, unkept)

        return endpoint

    def _leads(self, kind: Kind) -> Callable[[Request], object]:
        async def endpoint(request: Request) -> Response:
            if not self._tokens.is_good(Service.LEADS, request.headers.get("authorization")):
                raise Refusal(401, "unauthorized", "The access token is missing, invalid or expired.")
            query, now = request.query_params, self.config.clock()
            start, end = _window(query, now)
            branches = self._asked_branches(query)
            return Response(self._book.answer(kind, branches, start, end, now), media_type="application/json")

        return endpoint

    def _asked_branches(self, query: QueryParams) -> Sequence[Branch]:
        given = [f"{kind}-{id_}" for kind in SCOPE_KINDS for id_ in query.getlist(f"{kind}-id")]
        if len(given) > 1:
            raise Refusal(400, "too_many_filters", "Filter on one group, company, brand or branch id alone.")
        if not given:
            if len(self.organisation.branches) > 1:
                raise Refusal(400, "filter_required", "Filter on one group, company, brand or branch id.")
            return self.organisation.branches
        if not (branches := self.organisation.branches_of(given[0])):
            raise Refusal(403, "forbidden", "The id isn't one of yours.")
        return branches

    async def _search(self, request: Request) -> Response:
        if not self._tokens.is_good(Service.INVENTORY, request.headers.get("authorization")):
            return Response(status_code=401, headers={"www-authenticate": "Bearer"})
        if request.headers.get("agencyref") != AGENCY_REF:
            return Response(status_code=403)
        query = request.query_params
        if len(query) < len(query.multi_items()):
            return _problem(400, "A parameter stands twice.")
        try:
            return Response(self._inventory.page(query), media_type="application/json")
        except SearchError as error:
            return _problem(400, str(error))

    # --- the simulator's own -------------------------------------------------------------------------------------

    async def _control_faults(self, request: Request) -> Response:
        if request.method == "PUT":
            try:
                self.set_faults(read_rules(await request.body()))
            except FaultError as error:
                return _problem(400, str(error))
        elif request.method == "DELETE":
            self.set_faults([])
        return Response(write_rules(self._portal.faults.rules), media_type="application/json")

    async def _control_counters(self, request: Request) -> Response:
        counters = self.counters()
        if request.method == "DELETE":
            self.reset_counters()
        return _json(
            {
                "requests": counters.requests,
                "token_requests": counters.token_requests,
                "statuses": {str(status): count for status, count in sorted(counters.statuses.items())},
                "faults": counters.faults,
                "windows": [
                    {"kind": kind, "scope": scope, "from_time": from_time, "requests": count}
                    for (kind, scope, from_time), count in sorted(counters.windows.items())
                ],
            }
        )

    async def _control_truth(self, request: Request) -> Response:
        query = request.query_params
        kind: Kind | None = next((one for one in KINDS if one == query.get("kind")), None)
        scope = query.get("scope", "")
        if kind is None or not self.organisation.branches_of(scope):
            return _problem(400, f"kind must be one of {', '.join(KINDS)}, scope like branch-101 or all.")
        start, end = _moment(query, "from-time"), _moment(query, "to-time")
        ids = self.truth(kind, scope, start, end)
        return _json({"count": len(ids), "ids": ids})


def _window(query: QueryParams, now: datetime) -> tuple[datetime | None, datetime | None]:
    start, end = _moment(query, "from-time"), _moment(query, "to-time")
    if start is None and end is None:
        start = datetime.fromtimestamp(now.timestamp() - _DEFAULT_WINDOW_SECONDS, UTC)
    if start is not None and end is not None and end < start:
        raise Refusal(400, "invalid_time_range", "to-time lies before from-time.")
    return start, end


def _moment(query: QueryParams, name: str) -> datetime | None:
    values = query.getlist(name)
    if not values:
        return None
    try:
        if len(values) == 1 and _MOMENT.fullmatch(values[0]):
            return datetime.fromisoformat(values[0])
    except ValueError:
        pass
    raise Refusal(400, "invalid_time", f"{name} must be one moment as YYYY-MM-DDThh:mm:ssZ.")


def _json(body: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, media_type="application/json")


def _problem(status: int, detail: str) -> Response:
    return _json({"type": "about:blank", "title": "Bad request", "status": status, "detail": detail}, status)


def _errors(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Response:
    return _json({"errors": [{"message": message, "code": code, "links": []}]}, status, headers)


async def _refused(_: Request, error: Exception) -> Response:
    if not isinstance(error, Refusal):
        raise error
    return _errors(error.status, error.code, error.message)


async def _not_routed(_: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    return _errors(error.status_code, "not_found_or_not_allowed", error.detail, dict(error.headers or {}))
