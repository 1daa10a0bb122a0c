"""Fault rules: which requests go wrong, and how.

The form of a fault, as a file or as the body of PUT /_simulator/faults:

    {"rules": [
      {"name": "busy",
       "when": {"path": "/applicant-leads", "scope": "branch-101", "from": "2026-11-19",
                "first": 2},
       "then": {"status": 429, "headers": {"retry-after": "2"}}}]}

`when` names the requests, all of them if it is empty: `path`, `scope` (branch-101, brand-3,
company-7, group-1, all) and `from`, the beginning of from-time. The rule takes all of these
requests, or the `first` N, or each with a `probability`. With `per_window` they are counted
separately for each path, scope and from-time.

`then` is the answer in place of the right one: `status`, and if you like `headers` and `body`
(text). With `latency_ms` the answer is late; alone, the right answer is late.

The first rule that takes a request decides. A probability depends on the seed and on how often the
same window was asked for, not on the order of parallel requests.
"""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

LEAD_PATHS: Final = ("/applicant-leads", "/appraisal-leads")
TOKEN_PATHS: Final = ("/oauth2/token", "/token")
PORTAL_PATHS: Final = (*LEAD_PATHS, "/inventory", *TOKEN_PATHS)


class FaultError(Exception):
    """The rules can't be read; the text says where and why."""


class When(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which requests a rule is about."""

    path: str | None = None
    scope: str | None = None
    from_time: str | None = msgspec.field(default=None, name="from")
    first: Annotated[int, Meta(ge=1)] | None = None
    probability: Annotated[float, Meta(ge=0, le=1)] | None = None
    per_window: bool = False

    def __post_init__(self) -> None:
        """Refuse a rule that could never match."""
        if self.path is not None and self.path not in PORTAL_PATHS:
            raise ValueError(f"path {self.path!r} is none of {', '.join(PORTAL_PATHS)}")
        if self.first is not None and self.probability is not None:
            raise ValueError("give first or probability")


class Then(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answer to a request that a rule takes."""

    latency_ms: Annotated[int, Meta(ge=0)] = 0
    status: Annotated[int, Meta(ge=200, le=599)] | None = None
    headers: dict[str, str] = {}
    body: str = ""

    def __post_init__(self) -> None:
        """Refuse a rule without an effect."""
        if self.status is None and (self.headers or self.body or not self.latency_ms):
            raise ValueError("give a status, or latency_ms alone")


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rule. The counters call it by its name; without one, by its place: `rule 1`."""

    then: Then
    when: When = When()
    name: str = ""


class _Rules(msgspec.Struct, forbid_unknown_fields=True):
    rules: tuple[Rule, ...]


class Asked(NamedTuple):
    """The parts of a request that faults look at.

    `scope` is None without one, or if a request names several.
    """

    path: str
    scope: str | None
    from_time: str


def read_rules(text: bytes | str) -> tuple[Rule, ...]:
    """Read rules from JSON text. Raises FaultError."""
    try:
        return msgspec.json.decode(text, type=_Rules).rules
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FaultError(f"The fault rules (JSON) can't be read: {error}.") from None


class Faults:
    """The rules in force, and how many requests each has seen."""

    def __init__(self, rules: Sequence[Rule], seed: int) -> None:
        self._rules = tuple(rules)
        self._seed = seed
        self._seen: Counter[tuple[int, Asked | None]] = Counter()

    def meet(self, asked: Asked) -> tuple[str, Then] | None:
        """Count the request.

        Return name and effect of the rule that takes it, None if no rule does.
        """
        for place, rule in enumerate(self._rules, start=1):
            if _is_about(rule.when, asked) and self._takes(place, rule.when, asked):
                return rule.name or f"rule {place}", rule.then
        return None

    def _takes(self, place: int, when: When, asked: Asked) -> bool:
        key = place, asked if when.per_window or when.probability is not None else None
        self._seen[key] += 1
        if when.first is not None:
            return self._seen[key] <= when.first
        if when.probability is not None:
            return Random(f"{self._seed}|{key}|{self._seen[key]}").random() < when.probability  # noqa: S311 - no secret
        return True


def _is_about(when: When, asked: Asked) -> bool:
    return (
        when.path in (None, asked.path)
        and when.scope in (None, asked.scope)
        and asked.from_time.startswith(when.from_time or "")
    )
