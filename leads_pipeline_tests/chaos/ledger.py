"""A portal that keeps a ledger: what it ever listed and when, and what it handed to whom in which version.

Belongs here: leads with their whole history, the portal's answers and its moods, the ledger. Doesn't: anything of the
pipeline, so that what must hold can be judged without asking the pipeline.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import parse_qs

import httpx

from leads_pipeline.contract import LEAD_KINDS, LEADS_TOKEN_PATH, LeadKind

KEEPS: Final = timedelta(days=30)

# What the portal answers instead of leads. The statuses that are refusals, and what passes.
REFUSALS: Final = ("308", "400", "401", "403", "404")
PASSING: Final = ("429", "503", "down", "nonsense", "cut off", "error object")


@dataclass(frozen=True, slots=True)
class Version:
    """What a lead is from a moment on."""

    since: datetime
    branch: str
    created_at: datetime
    text: str

    @property
    def shown(self) -> tuple[str, str, datetime]:
        """What a reader of the warehouse can tell versions apart by."""
        return self.text, self.branch, self.created_at


@dataclass(frozen=True, slots=True)
class Lead:
    """A lead with all that will ever become of it. It is listed from its first version on."""

    id: str
    kind: LeadKind
    versions: tuple[Version, ...]
    # When the portal delivers it by itself, in the version of that moment; also before it is listed.
    pushed_at: tuple[datetime, ...] = ()

    def at(self, moment: datetime) -> Version | None:
        """The version that is listed then; None before it is listed and once the portal has deleted it."""
        current = next((version for version in reversed(self.versions) if version.since <= moment), None)
        return current if current is not None and moment < current.created_at + KEEPS else None

    def listed(self, number: int) -> tuple[datetime, datetime]:
        """From when to when the version of that number is listed."""
        version = self.versions[number]
        ends = version.created_at + KEEPS
        if number + 1 < len(self.versions):
            ends = min(ends, self.versions[number + 1].since)
        return version.since, ends

    def payload(self, version: Version) -> str:
        """The lead's text in that version, with as many images as tells versions apart."""
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
    """A version that left the portal and was received. `run` is the run that it was answered to, None for a push."""

    lead: Lead
    version: Version
    moment: datetime
    run: str | None


@dataclass(frozen=True, slots=True)
class Answered:
    """A window that was answered with leads or with none."""

    kind: str
    branch: str
    start: datetime
    end: datetime
    moment: datetime
    run: str


@dataclass(slots=True)
class Portal:
    """The service and its token server, in this process. `now` is the true time."""

    leads: Sequence[Lead]
    now: datetime
    secret: str = "secret-0"
    mood: str | None = None
    run: str = ""
    handed: list[Handed] = field(default_factory=list)
    answered: list[Answered] = field(default_factory=list)
    asked: int = 0

    def push(self, lead: Lead) -> tuple[bytes, Version]:
        """The body of a delivery of that lead now, and the version in it."""
        version = lead.at(self.now) or lead.versions[0]
        return f'{{"{lead.kind.name}": {lead.payload(version)}}}'.encode(), version

    def handle(self, request: httpx.Request) -> httpx.Response:
        """Answer a request."""
        if self.mood == "down":
            raise httpx.ConnectError("connection refused")
        if request.url.path == LEADS_TOKEN_PATH:
            return self._token(request)
        self.asked += 1
        if request.headers.get("authorization") != f"Bearer token-of-{self.secret}":
            return httpx.Response(401, json={"errors": [{"code": "unauthorized", "message": "no", "links": []}]})
        if self.mood is not None:
            return self._moody(self.mood)
        return self._leads(request)

    def _token(self, request: httpx.Request) -> httpx.Response:
        sent = parse_qs(request.content.decode()).get("client_secret", [""])[0]
        if sent != self.secret:
            return httpx.Response(401, json={"error": "invalid_client"})
        return httpx.Response(
            200, json={"access_token": f"token-of-{sent}", "expires_in": 3600, "token_type": "Bearer"}
        )

    def _moody(self, mood: str) -> httpx.Response:
        if mood == "nonsense":
            return httpx.Response(200, html="<h1>Back soon</h1>")
        if mood == "error object":
            return httpx.Response(200, json={"errors": [{"code": "internal"}]})
        if mood == "cut off":
            return httpx.Response(200, content=b'{"applicants":[{"id":"1"')
        headers = {"location": "http://elsewhere.example/"} if mood == "308" else {}
        return httpx.Response(int(mood), headers=headers, json={"errors": [{"code": "no"}]})

    def _leads(self, request: httpx.Request) -> httpx.Response:
        kind = next(kind for kind in LEAD_KINDS if kind.path == request.url.path)
        asked = request.url.params
        start, end = (datetime.fromisoformat(asked[name]) for name in ("from-time", "to-time"))
        branch = asked["branch-id"]
        found = [
            (lead, version)
            for lead in self.leads
            if lead.kind == kind
            and (version := lead.at(self.now)) is not None
            and version.branch == branch
            and start <= version.created_at <= end
        ]
        self.answered.append(Answered(kind.name, branch, start, end, self.now, self.run))
        self.handed += [Handed(lead, version, self.now, self.run) for lead, version in found]
        body = f'{{"{kind.list_key}":[{",".join(lead.payload(version) for lead, version in found)}]}}'
        return httpx.Response(200, content=body.encode(), headers={"content-type": "application/json"})
