"""A portal that keeps a ledger: what it ever listed and when, and what it handed over in which
version.

Belongs here: leads with their whole history, the portal's answers and its moods, the ledger.
Doesn't: anything of the pipeline, so that what must hold can be judged without asking the pipeline.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from email.utils import format_datetime
from typing import Final
from urllib.parse import parse_qs, parse_qsl, urlsplit
from zoneinfo import ZoneInfo

from leads_pipeline_tests.support.serving import QuietHandler, serving

KINDS: Final = ("applicant", "appraisal")
KEEPS: Final = timedelta(days=30)

# What the portal answers instead of leads: refusals, and troubles that pass.
REFUSALS: Final = ("308", "400", "401", "403", "404")
PASSING: Final = ("429", "503", "down", "nonsense", "cut off", "error object")


def day_interval(day: date, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """When the day begins and ends, in UTC."""
    begin, end = (
        datetime.combine(one, time(), zone).astimezone(UTC)
        for one in (day, day + timedelta(days=1))
    )
    return begin, end


@dataclass(frozen=True, slots=True)
class Version:
    """A lead from a moment on."""

    since: datetime
    branch: str
    created_at: datetime
    text: str

    @property
    def shown(self) -> tuple[str, str, datetime]:
        """The columns that tell versions apart."""
        return self.text, self.branch, self.created_at


@dataclass(frozen=True, slots=True)
class Lead:
    """A lead with its whole history. It is listed from its first version on."""

    id: str
    kind: str
    versions: tuple[Version, ...]
    # When the portal delivers it by itself, in the version of that moment; also before it is
    # listed.
    pushed_at: tuple[datetime, ...] = ()

    def at(self, moment: datetime) -> Version | None:
        """The version that is listed then; None before it is listed and once the portal has deleted
        it.
        """
        current = next(
            (version for version in reversed(self.versions) if version.since <= moment), None
        )
        return current if current is not None and moment < current.created_at + KEEPS else None

    def payload(self, version: Version) -> str:
        """The lead's text in that version. Versions differ in their number of images, too."""
        return json.dumps(
            {
                "id": self.id,
                "createdAt": version.created_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
                "portalBranchId": version.branch,
                "message": version.text,
                "contact": {"email": f"{self.id[-2:]}@people.example"},
                "listingDetails": {
                    "id": version.branch,
                    "images": [{"filename": version.text}] * (len(version.text) % 3),
                },
            }
        )


@dataclass(frozen=True, slots=True)
class Handed:
    """A version that left the portal and was received, by a pull or by a push."""

    lead: Lead
    version: Version


@dataclass(frozen=True, slots=True)
class Answered:
    """A window that was answered with leads or with none."""

    kind: str
    branch: str
    start: datetime
    end: datetime
    moment: datetime


@dataclass(slots=True)
class Portal:
    """The service and its token server. `now` gives the true time."""

    leads: Sequence[Lead]
    now: Callable[[], datetime]
    secret: str = "secret-0"
    mood: str | None = None
    # The status that the portal answers to requests for a branch instead of leads.
    refused: dict[str, int] = field(default_factory=dict)
    handed: list[Handed] = field(default_factory=list)
    answered: list[Answered] = field(default_factory=list)
    # Called when data is asked for.
    on_request: Callable[[], None] = lambda: None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def push(self, lead: Lead, deliver: Callable[[bytes], int]) -> None:
        """Deliver the lead as it is now. It counts as received if the answer is 200."""
        version = lead.at(self.now()) or lead.versions[0]
        if deliver(f'{{"{lead.kind}": {lead.payload(version)}}}'.encode()) == 200:
            self.handed.append(Handed(lead, version))

    def received(self, kind: str) -> dict[str, tuple[str, str, datetime]]:
        """Each lead that was received, by its id, as it was received last."""
        return {one.lead.id: one.version.shown for one in self.handed if one.lead.kind == kind}

    def token(self, form: str) -> tuple[int, str]:
        """The status and the body of an answer of the token server."""
        sent = parse_qs(form).get("client_secret", [""])[0]
        if sent != self.secret:
            return 401, '{"error": "invalid_client"}'
        return 200, json.dumps(
            {"access_token": f"token-of-{sent}", "expires_in": 3600, "token_type": "Bearer"}
        )

    def data(
        self, authorization: str | None, path: str, parameters: Mapping[str, str]
    ) -> tuple[int, str]:
        """The status and the body of an answer of the service."""
        if authorization != f"Bearer token-of-{self.secret}":
            return 401, '{"errors": [{"code": "unauthorized", "message": "no", "links": []}]}'
        if status := self.refused.get(parameters["branch-id"]):
            return status, '{"errors": [{"code": "no"}]}'
        if self.mood is None:
            return 200, self._leads(path, parameters)
        if self.mood == "nonsense":
            return 200, "<h1>Back soon</h1>"
        if self.mood == "error object":
            return 200, '{"errors": [{"code": "internal"}]}'
        if self.mood == "cut off":
            return 200, '{"applicants":[{"id":"1"'
        return int(self.mood), '{"errors": [{"code": "no"}]}'

    def _leads(self, path: str, parameters: Mapping[str, str]) -> str:
        kind = next(kind for kind in KINDS if path == f"/{kind}-leads")
        start, end = (datetime.fromisoformat(parameters[name]) for name in ("from-time", "to-time"))
        branch = parameters["branch-id"]
        with self._lock:
            now = self.now()
            found = [
                (lead, version)
                for lead in self.leads
                if lead.kind == kind
                and (version := lead.at(now)) is not None
                and version.branch == branch
                and start <= version.created_at <= end
            ]
            self.answered.append(Answered(kind, branch, start, end, now))
            self.handed += [Handed(lead, version) for lead, version in found]
        return f'{{"{kind}s":[{",".join(lead.payload(version) for lead, version in found)}]}}'


@contextmanager
def served(portal: Portal) -> Iterator[str]:
    """Serve the portal on this machine while the block runs. Give the address."""

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            if portal.mood != "down":
                self._send(*portal.token(form))
            self._break_connection()

        def do_GET(self) -> None:
            portal.on_request()
            if portal.mood != "down":
                parts = urlsplit(self.path)
                self._send(
                    *portal.data(
                        self.headers["Authorization"], parts.path, dict(parse_qsl(parts.query))
                    )
                )
            self._break_connection()

        def _break_connection(self) -> None:
            """End the connection without an answer, or with half of one, if the portal is in that
            mood.
            """
            self.close_connection = portal.mood in ("down", "cut off")

        def _send(self, status: int, body: str) -> None:
            headers = {"Retry_After": "600"} if status in (429, 503) else {}
            if status == 308:
                headers["Location"] = "http://elsewhere.example/"
            cut_off = 9 if portal.mood == "cut off" else 0
            self.answer(status, body.encode(), cut_off, **headers)

        def date_time_string(self, timestamp: float | None = None) -> str:
            return format_datetime(
                datetime.fromtimestamp(timestamp, UTC) if timestamp else portal.now(), usegmt=True
            )

    with serving(Handler) as address:
        yield address
