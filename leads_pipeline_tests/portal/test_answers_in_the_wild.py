"""Each answer in the wild gets its verdict, with few requests, over real sockets."""

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from leads_pipeline.auth import ClientCredentials, ClientCredentialsAuth, TokenStore, endpoint
from leads_pipeline.client import LeadsClient, Timing
from leads_pipeline.contract import APPLICANT
from leads_pipeline.credentials import StaticSecret
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.settings import AuthMethod
from leads_pipeline.window import Scope, Window
from leads_pipeline_tests.portal.answers_in_the_wild import ANSWERS, LEADS, NOW, PLAIN, TOKENS, Wild
from leads_pipeline_tests.support.fake_timing import FakeTiming
from leads_pipeline_tests.support.raw_server import RawServer, respond, unknown_authority

DATA, TOKEN = "/applicant-leads", "/oauth2/token"
SLOW_SECONDS = 0.2
A_DAY = Window.of(date(2026, 11, 19), Scope.parse("branch-101"), ZoneInfo("UTC"))
# So short that nobody asks for less.
MINUTE = replace(A_DAY, end=A_DAY.start + timedelta(minutes=1))

# What today's client gets wrong.
NOT_YET = {
    "leads: two lists, one with an escaped key": "fault 1: the list whose key is escaped takes the other's place",
    "leads: a total of 3": "fault 2: members beside the list aren't read",
    "leads: a next page": "fault 2: members beside the list aren't read",
    "leads: 304": "fault 58: it counts as a redirect",
    "tokens: 201": "fault 65: only 200 is read",
    "tokens: BearerToken": "fault 55: it counts as another type",
    "tokens: gzip": "fault 56: a packed answer isn't read",
    "tokens: content encoding identity": "fault 56: identity counts as packed",
    "tokens: DPoP": "fault 55: it counts as temporary",
    "tokens: 200 with invalid_client": "fault 55: it counts as temporary",
    "tokens: HTML with 200": "fault 55: it counts as temporary",
    "tokens: a redirect": "fault 55: it counts as temporary",
    "tokens: a token with a line break": "fault 55: it counts as temporary",
    "tokens: an unknown authority": "fault 65: the address is blamed",
}


def ask(data: str, tokens: str, folder: Path, deadline_seconds: float) -> tuple[LeadsPipelineError | None, list[str]]:
    """Pull one window from these servers. Give why it failed, and the ids of the leads that came."""
    credentials = ClientCredentials(
        token_url=f"{tokens}{TOKEN}", client_id="agency", secret=StaticSecret("s3cret"), method=AuthMethod.BODY
    )
    auth = ClientCredentialsAuth(credentials, TokenStore(folder / "tokens"), service_url=data)
    clock = FakeTiming()  # time passes as it does, and nobody sleeps
    timing = Timing(now=lambda: NOW, monotonic=lambda: clock.seconds + time.monotonic(), sleep=clock.sleep)
    client = LeadsClient(data, auth, max_concurrency=1, timing=timing, deadline_seconds=deadline_seconds)
    [(_, outcome)] = client.fetch_windows(APPLICANT, [MINUTE])
    if isinstance(outcome, LeadsPipelineError):
        return outcome, []
    return outcome.failure, [lead.lead_id for lead in outcome.leads]


def cases(table: Sequence[Wild], of: str) -> list[object]:
    """The entries as parameters; those that are wrong today are expected to fail."""

    def marks(name: str) -> list[pytest.MarkDecorator]:
        why = NOT_YET.get(f"{of}: {name}")
        return [pytest.mark.xfail(strict=True, raises=AssertionError, reason=why)] if why else []

    return [pytest.param(wild, id=wild.name, marks=marks(wild.name)) for wild in table]


def assert_verdict(wild: Wild, error: LeadsPipelineError | None, leads: list[str], requests: int) -> None:
    assert (type(error) if error else None, leads) == (wild.error, wild.leads), error
    assert wild.says in str(error or "")
    assert 1 <= requests <= wild.most_requests


@pytest.mark.parametrize("wild", cases(ANSWERS, "leads"))
def test_each_answer_of_a_leads_service_gets_its_verdict(wild: Wild, tmp_path: Path) -> None:
    with closing(RawServer()) as server:
        server.scripts = {TOKEN: PLAIN, DATA: wild.script}
        error, leads = ask(server.url, server.url, tmp_path, SLOW_SECONDS if wild.is_slow else 30)
        assert_verdict(wild, error, leads, server.asked_for(DATA))
        assert server.asked_for(TOKEN) == 1


@pytest.mark.parametrize("wild", cases(TOKENS, "tokens"))
def test_each_answer_of_a_token_endpoint_gets_its_verdict(
    wild: Wild, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if wild.is_slow:
        monkeypatch.setattr(endpoint, "TOKEN_DEADLINE_SECONDS", SLOW_SECONDS)
    authority = unknown_authority(tmp_path) if wild.has_unknown_authority else None
    with closing(RawServer()) as data, closing(RawServer(authority)) as tokens:
        data.script, tokens.script = respond(LEADS), wild.script
        error, leads = ask(data.url, tokens.url, tmp_path, 30)
        assert_verdict(wild, error, leads, tokens.connections if authority else tokens.asked_for(TOKEN))
        assert data.asked_for(DATA) == (0 if wild.error else 1)
        if wild.error is None:
            ask(data.url, tokens.url, tmp_path, 30)
            assert tokens.asked_for(TOKEN) == 1, "the token is kept"
