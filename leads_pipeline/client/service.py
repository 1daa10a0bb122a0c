"""What a client asks of which service, and how: addresses, deadlines, bounds, clocks, and what it counts."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import httpx

from leads_pipeline.retry import RetryPolicy
from leads_pipeline.settings import DEFAULT_MAX_BODY_MB, MEBIBYTE

# A whole request, token and body included. A read timeout alone lets a body that comes drop by drop go on for ever.
DEADLINE_SECONDS = 120.0
CONNECT_TIMEOUT_SECONDS = 10.0
# The longest silence within a request: a busy day of a large group takes the service a while to gather.
READ_TIMEOUT_SECONDS = 60.0
# Shorter than the 5 seconds after which common servers close a connection that is idle.
KEEPALIVE_SECONDS = 4.0
# A lead is 2 to 4 kB, so this is some 20,000 of them in one answer. Holds for the body as received and as decoded.
MAX_BODY_BYTES = DEFAULT_MAX_BODY_MB * MEBIBYTE


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The clocks, the sleep and the dice of a client; tests bring their own.

    `now` is the moment in UTC, `monotonic` counts seconds from anywhere.
    """

    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    rng: random.Random = field(default_factory=random.Random)


@dataclass(slots=True)
class FetchStats:
    """What a client has done since it was made. Holds no personal data, so it can go into metadata.

    `requests` and `statuses` count data requests, not those for tokens; a request that broke has no status.
    """

    requests: int = 0
    retries: int = 0
    statuses: Counter[int] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service to be asked, and how."""

    base_url: str
    auth: httpx.Auth
    policy: RetryPolicy
    timing: Timing
    transport: httpx.AsyncBaseTransport | None
    max_concurrency: int
    deadline_seconds: float
    max_body_bytes: int
    next_sequence: Callable[[], int] | None = None
    stats: FetchStats = field(default_factory=FetchStats)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSpec:
    """A request to be made. Its text names path and subject, never host, query or headers."""

    path: str
    parameters: Mapping[str, str]
    about: str
    hints: Mapping[int, str]
    headers: Mapping[str, str] = field(default_factory=dict)
    is_divisible: bool = False

    def __str__(self) -> str:
        return f"GET {self.path} for {self.about}"
