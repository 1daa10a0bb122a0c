"""A portal without limits: the simulator's leads of one day, as other people, listings and days.

Belongs here: answers put together by replacing bytes, counting requests and tokens, latency.
Doesn't: what a portal refuses (the simulator does). The simulator makes 33,000 leads a second, less
than some contenders take; this one answers a window of 20 leads in 0.1 ms.
"""

import argparse
import asyncio
import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from urllib.parse import parse_qs, urlsplit

from leads_pipeline.simulator.leads import DAY_SECONDS, LeadBook
from leads_pipeline.simulator.organisation import Organisation

FIRST_BRANCH = 101
# A Thursday, on which the simulator's branches get as many leads as on average.
_MODEL_DAY = date(2026, 11, 19)
# Branches beyond that many have the leads of one before, of other people and listings.
_MODEL_BRANCHES = 100
_TOKEN = "made-up-token"  # noqa: S105
_ID = b"@bench-id"
_DAY = b"@bench-day"
_WHO = b"@bench-who"
_LISTING = b"@bench-listing"


@dataclass(frozen=True, slots=True)
class Workload:
    """Days x branches, so many leads in each on average."""

    name: str
    first: date
    last: date
    branches: int
    leads: int

    @property
    def days(self) -> list[date]:
        """Every day of it."""
        return [self.first + timedelta(days=n) for n in range((self.last - self.first).days + 1)]

    @property
    def branch_ids(self) -> list[int]:
        """Every branch of it."""
        return list(range(FIRST_BRANCH, FIRST_BRANCH + self.branches))

    @property
    def windows(self) -> int:
        """How many answers hold it."""
        return len(self.days) * self.branches


class Book:
    """What each window's answer holds."""

    def __init__(self, leads_per_day: int) -> None:
        factory = LeadBook(7, leads_per_day)
        number = (_MODEL_DAY - date(1970, 1, 1)).days
        self._models = []
        for branch in Organisation(7, _MODEL_BRANCHES).branches:
            made = list(factory.leads("applicant", branch, number))
            leads = [body for _, body in made]
            # The earliest come first.
            at_midnight = sum(slot.moment == number * DAY_SECONDS for slot, _ in made)
            self._models.append((_parts(leads), _parts(leads[:at_midnight])))

    def answer(self, branch: int, day: date) -> bytes:
        """Every lead of the day and of the next one's start: the service includes both ends."""
        leads, at_midnight = self._models[(branch - FIRST_BRANCH) % _MODEL_BRANCHES]
        filled = [
            _filled(leads, branch, day),
            _filled(at_midnight, branch, day + timedelta(days=1)),
        ]
        return b'{"applicants":[%s]}' % b",".join(filter(None, filled))

    def truth(self, workloads: list[Workload]) -> dict[str, int]:
        """How many different leads and children the workloads hold together."""
        counted = [tuple(map(_counts, model)) for model in self._models]
        found = {}
        for workload in workloads:
            for branch in workload.branch_ids:
                whole_day, midnight = counted[(branch - FIRST_BRANCH) % _MODEL_BRANCHES]
                for day in workload.days:
                    found[branch, day] = whole_day
                    found.setdefault((branch, day + timedelta(days=1)), midnight)
        return {
            name: sum(counts[name] for counts in found.values())
            for name in ("leads", "viewing_times", "images")
        }


class _Portal(asyncio.Protocol):
    """One connection.

    HTTP/1.1 as clients of benchmarks speak it: no pipelining, a body only with a length.
    """

    book: Book
    latency_seconds = 0.0
    counts: dict[str, float]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._received = b""

    def data_received(self, data: bytes) -> None:
        """Answer once the request is whole."""
        self._received += data
        head, ended, body = self._received.partition(b"\r\n\r\n")
        length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
        if not ended or len(body) < int(length[1] if length else 0):
            return
        self._received = b""
        method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
        status, answer = self._answer(method, target, head)
        said = b"HTTP/1.1 %d -\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (
            status,
            len(answer),
        )
        is_control = target.startswith("/_")
        if self.latency_seconds and not is_control:
            loop = asyncio.get_running_loop()
            loop.call_later(self.latency_seconds, self._transport.writelines, [said, answer])
        else:
            self._transport.writelines([said, answer])

    def _answer(self, method: str, target: str, head: bytes) -> tuple[int, bytes]:
        parts = urlsplit(target)
        if parts.path == "/_counts":
            answer = json.dumps(self.counts).encode()
            if method == "DELETE":
                self.counts.update(requests=0, tokens=0, bytes=0, first_at=0)
            return 200, answer
        self.counts["first_at"] = self.counts["first_at"] or time.time()
        if parts.path == "/oauth2/token":
            self.counts["tokens"] += 1
            return 200, json.dumps(
                {"access_token": _TOKEN, "expires_in": 3600, "token_type": "Bearer"}
            ).encode()
        if not re.search(rb"\r\nauthorization: bearer " + _TOKEN.encode(), head, re.IGNORECASE):
            return 401, b"{}"
        self.counts["requests"] += 1
        query = parse_qs(parts.query)
        body = self.book.answer(
            int(query["branch-id"][0]), date.fromisoformat(query["from-time"][0][:10])
        )
        self.counts["bytes"] += len(body)
        return 200, body


class RunningPortal:
    """A portal in a process of its own."""

    def __init__(self, port: int) -> None:
        self.base_url = f"http://127.0.0.1:{port}"

    def environment(self, workload: Workload) -> dict[str, str]:
        """The environment variables that tell a contender what to pull from where."""
        return {
            "LEADS_BASE_URL": self.base_url,
            "LEADS_AUTH_URL": self.base_url,
            "LEADS_CLIENT_ID": "bench",
            "LEADS_CLIENT_SECRET": "made-up-secret",
            "LEADS_BRANCH_IDS": ",".join(map(str, workload.branch_ids)),
            "BENCH_FIRST_DAY": workload.first.isoformat(),
            "BENCH_LAST_DAY": workload.last.isoformat(),
        }

    def counts(self) -> dict[str, float]:
        """Requests, tokens, bytes and the moment of the first request since this was asked last."""
        request = urllib.request.Request(f"{self.base_url}/_counts", method="DELETE")  # noqa: S310 - our own server
        with urllib.request.urlopen(request) as response:  # noqa: S310
            counts: dict[str, float] = json.load(response)
        return counts


@contextmanager
def running(leads: int, latency_ms: int = 0) -> Iterator[RunningPortal]:
    """Serve while the block runs."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.portal",
        "--leads",
        str(leads),
        "--latency-ms",
        str(latency_ms),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield RunningPortal(int(process.stdout.readline()))
        finally:
            process.terminate()


def _parts(leads: list[bytes]) -> list[bytes]:
    """Return the leads as one text, cut at the parts that change.

    They are the end of each lead's id, its day, and the beginnings of its person's and listing's
    ids.
    """
    marked = []
    for lead in leads:
        lead = re.sub(rb'^(\{"id":"[0-9a-f-]{24})[0-9a-f]{12}', rb"\1" + _ID, lead)
        lead = re.sub(rb'"createdAt":"2026-..-..', b'"createdAt":"' + _DAY, lead, count=1)
        lead = lead.replace(b'"email":"', b'"email":"' + _WHO, 1)
        marked.append(
            lead.replace(b'"listingDetails":{"id":"', b'"listingDetails":{"id":"' + _LISTING, 1)
        )
    return re.split(b"(%s)" % b"|".join((_ID, _DAY, _WHO, _LISTING)), b",".join(marked))


def _filled(parts: list[bytes], branch: int, day: date) -> bytes:
    number = day.toordinal()
    values = {
        _ID: b"%07x%05x" % (number, branch),
        _DAY: day.isoformat().encode(),
        _WHO: b"%x." % (number * 100_000 + branch),
        _LISTING: b"%d-" % branch,
    }
    return b"".join([values.get(part, part) for part in parts])


def _counts(parts: list[bytes]) -> dict[str, int]:
    parsed = json.loads(b"[%s]" % b"".join(parts))
    return {
        "leads": len(parsed),
        "viewing_times": sum(len(lead["viewingTimes"] or ()) for lead in parsed),
        "images": sum(len(lead["listingDetails"]["images"] or ()) for lead in parsed),
    }


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--leads", type=int, required=True)
    parser.add_argument("--latency-ms", type=int, default=0)
    given = parser.parse_args()
    _Portal.book = Book(given.leads)
    _Portal.latency_seconds = given.latency_ms / 1000
    _Portal.counts = {"requests": 0, "tokens": 0, "bytes": 0, "first_at": 0}

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(
            _Portal, "127.0.0.1", 0, backlog=512
        )
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    asyncio.run(serve())


if __name__ == "__main__":
    _main()
