"""Faults on demand: rules that say which requests go wrong, and how.

Belongs here: the form of a rule, its checks, and which rule a request meets. Doesn't: sending the broken answer
(broken.py). The form, as a file or as the body of PUT /_simulator/faults:

    {"rules": [
      {"name": "busy",
       "when": {"path": "/applicant-leads", "scope": "branch-101", "from": "2026-11-19", "first": 2},
       "then": {"status": 429, "retry_after": 2}}]}

`when` names the requests, all of them where it's empty: `path`, `scope` (branch-101, brand-3, company-7, group-1, all)
and `from`, how from-time begins. Of those requests the rule takes all, or the `nth`, or the `first` N, or each with a
`probability`; with `per_window` they are counted separately for each path, scope and from-time. `then` is what happens:

    latency_ms             the answer comes that much later; goes with any of the others
    status                 this answer instead, with `headers`, `body` (text) and `retry_after`, where given
    shape                  200 with what is no answer: empty_object, null_list, empty, html, error_object;
                           or no_content (204), redirect (302)
    token                  expired (401) or revoked (403): the token that was sent is refused from now on
    drip_bytes_per_second  the right answer, drop by drop
    cut_off                half the right answer: `length` (Content-Length promises all), `chunked` (no last chunk),
                           `reset` (the connection is reset)

The first rule that fires decides; a rule counts a request only when no rule before it has taken it. A probability is
drawn from the seed and how often the same window was asked for, so that the order of parallel requests is nothing to
it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, Final, Literal, get_args

import msgspec
from msgspec import Meta

LEAD_PATHS: Final = ("/applicant-leads", "/appraisal-leads")
TOKEN_PATHS: Final = ("/oauth2/token", "/token")
PORTAL_PATHS: Final = (*LEAD_PATHS, "/inventory", *TOKEN_PATHS)

Shape = Literal["empty_object", "null_list", "empty", "html", "error_object", "no_content", "redirect"]
CutOff = Literal["length", "chunked", "reset"]
SHAPES: Final[tuple[Shape, ...]] = get_args(Shape)
CUT_OFFS: Final[tuple[CutOff, ...]] = get_args(CutOff)

_Count = Annotated[int, Meta(ge=1)]
# Statuses whose answer has no body by definition (RFC 9110).
_BODILESS: Final = (204, 205, 304)


class FaultError(Exception):
    """The rules can't be read; the text says where and why."""


class When(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which requests a rule is about."""

    path: str | None = None
    scope: str | None = None
    from_time: str | None = msgspec.field(default=None, name="from")
    nth: _Count | None = None
    first: _Count | None = None
    probability: Annotated[float, Meta(ge=0, le=1)] | None = None
    per_window: bool = False

    def __post_init__(self) -> None:
        """Refuse what could never match."""
        if self.path is not None and self.path not in PORTAL_PATHS:
            raise ValueError(f"path {self.path!r} is none of {', '.join(PORTAL_PATHS)}")
        if sum(chosen is not None for chosen in (self.nth, self.first, self.probability)) > 1:
            raise ValueError("give one of nth, first and probability")


class Then(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What happens to a request that a rule takes."""

    latency_ms: Annotated[int, Meta(ge=0)] = 0
    status: Annotated[int, Meta(ge=200, le=599)] | None = None
    headers: dict[str, str] = {}
    body: str = ""
    retry_after: str | int | None = None
    shape: Shape | None = None
    token: Literal["expired", "revoked"] | None = None
    drip_bytes_per_second: _Count | None = None
    cut_off: CutOff | None = None

    def __post_init__(self) -> None:
        """Refuse effects that contradict each other, and what HTTP can't carry."""
        effects = (self.status, self.shape, self.token, self.drip_bytes_per_second, self.cut_off)
        chosen = sum(effect is not None for effect in effects)
        if chosen > 1 or (not chosen and not self.latency_ms):
            raise ValueError("give one of status, shape, token, drip_bytes_per_second and cut_off, or latency_ms alone")
        if self.status is None and (self.headers or self.body or self.retry_after is not None):
            raise ValueError("headers, body and retry_after need a status")
        if self.status in _BODILESS and self.body:
            raise ValueError(f"an answer with status {self.status} has no body")
        for text in (*self.headers, *self.headers.values(), str(self.retry_after)):
            if not (text.isascii() and text.isprintable()):
                raise ValueError("headers and retry_after must be printable ASCII")


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One rule. `name` is what the counters call it; where it has none, they use its place: `rule 1`."""

    then: Then
    when: When = When()
    name: str = ""


class _Rules(msgspec.Struct, forbid_unknown_fields=True):
    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """What rules look at. `scope` is None where the request has none or more than one."""

    path: str
    scope: str | None = None
    from_time: str | None = None


def read_rules(text: bytes | str) -> tuple[Rule, ...]:
    """Read rules from JSON text. Raises FaultError."""
    try:
        return msgspec.json.decode(text, type=_Rules).rules
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FaultError(f"The fault rules (JSON) can't be read: {error}.") from None


def write_rules(rules: Sequence[Rule]) -> bytes:
    """The rules as JSON text that read_rules takes."""
    return msgspec.json.encode(_Rules(tuple(rules)))


class Faults:
    """The rules in force, and what each has counted."""

    def __init__(self, rules: Sequence[Rule], seed: int) -> None:
        self.rules = tuple(rules)
        self._seed = seed
        self._seen: Counter[tuple[int, Request | None]] = Counter()

    def meet(self, request: Request) -> tuple[str, Then] | None:
        """Name of the rule that takes this request and what happens; None where it's served as usual. Counts it."""
        for place, rule in enumerate(self.rules, start=1):
            if _is_about(rule.when, request) and self._takes(place, rule.when, request):
                return rule.name or f"rule {place}", rule.then
        return None

    def _takes(self, place: int, when: When, request: Request) -> bool:
        by_window = when.per_window or when.probability is not None
        key = place, request if by_window else None
        self._seen[key] += 1
        seen = self._seen[key]
        if when.nth is not None:
            return seen == when.nth
        if when.first is not None:
            return seen <= when.first
        if when.probability is not None:
            return Random(f"{self._seed}|{place}|{request}|{seen}").random() < when.probability  # noqa: S311 - no secret
        return True


def _is_about(when: When, request: Request) -> bool:
    return (
        when.path in (None, request.path)
        and when.scope in (None, request.scope)
        and (when.from_time is None or (request.from_time or "").startswith(when.from_time))
    )
