"""Each answer in the wild gets its verdict, with few requests, over real sockets."""

from contextlib import closing
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from leads_pipeline.domain.contract import APPLICANT
from leads_pipeline.domain.window import Scope, Window
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.portal import ClientCredentials, LeadsClient, Service, Tokens
from leads_pipeline.settings import AuthMethod, Secret
from leads_pipeline_tests.portal.answers_in_the_wild import ANSWERS, LEADS, PLAIN, TOKENS, Wild
from leads_pipeline_tests.support.fake_timing import FakeTiming
from leads_pipeline_tests.support.raw_server import RawServer, respond, unknown_authority

DATA = "/applicant-leads"
TOKEN = "/oauth2/token"
A_DAY = Window.of(date(2026, 11, 19), Scope.parse("branch-101"), ZoneInfo("UTC"))
# So short that nobody asks for less.
MINUTE = replace(A_DAY, end=A_DAY.start + timedelta(minutes=1))


def pull(
    data: RawServer,
    tokens: RawServer,
    folder: Path,
    *,
    data_seconds: float = 30,
    token_seconds: float = 30,
) -> tuple[LeadsPipelineError | None, list[str]]:
    """Pull one window from these servers.

    Give the reason why it failed, and the ids of the leads that came.
    """
    credentials = ClientCredentials(
        token_url=f"{tokens.url}{TOKEN}",
        client_id="agency",
        secret=Secret("A_SECRET", "s3cret"),
        method=AuthMethod.BODY,
    )
    service = Service(
        base_url=data.url,
        tokens=Tokens(credentials, folder / "tokens", deadline_seconds=token_seconds),
        timing=FakeTiming().as_timing(),  # nobody sleeps
        deadline_seconds=data_seconds,
    )
    client = LeadsClient(service, max_concurrency=1)
    [(_, outcome)] = client.fetch_windows(APPLICANT, [MINUTE], lambda answer: answer)
    if isinstance(outcome, LeadsPipelineError):
        return outcome, []
    return outcome.failure, [lead.lead_id for lead in outcome.leads]


@pytest.mark.parametrize("wild", ANSWERS, ids=lambda wild: wild.name)
def test_each_answer_of_a_leads_service_gets_its_verdict(wild: Wild, tmp_path: Path) -> None:
    with closing(RawServer()) as server:
        server.scripts = {TOKEN: PLAIN, DATA: wild.script}

        error, leads = pull(server, server, tmp_path, data_seconds=wild.seconds)

        assert (type(error) if error else None) == wild.error, error
        assert leads == ([] if wild.error else ["a", "b"])
        assert wild.says in str(error)
        assert 1 <= server.asked_for(DATA) <= wild.most_requests
        assert server.asked_for(TOKEN) == 1


@pytest.mark.parametrize("wild", TOKENS, ids=lambda wild: wild.name)
def test_each_answer_of_a_token_endpoint_gets_its_verdict(wild: Wild, tmp_path: Path) -> None:
    authority = unknown_authority(tmp_path) if wild.has_unknown_authority else None
    with closing(RawServer()) as data, closing(RawServer(authority)) as tokens:
        data.script = respond(LEADS)
        tokens.script = wild.script

        error, _ = pull(data, tokens, tmp_path, token_seconds=wild.seconds)

        assert (type(error) if error else None) == wild.error, error
        assert wild.says in str(error)
        asked = tokens.connections if authority else tokens.asked_for(TOKEN)
        assert 1 <= asked <= wild.most_requests
        assert data.asked_for(DATA) == (0 if wild.error else 1)
