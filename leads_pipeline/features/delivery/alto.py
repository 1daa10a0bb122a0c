"""Asks Alto what came of leads.

By the public description of its API, `GET /leads` returns the leads of a status that were modified
within an interval, in pages. Of each lead, id, status and moment alone are read.

Belongs here: requests, and the meaning of an answer. Doesn't: when Alto is asked, and what is done
with outcomes (outcomes.py).
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import msgspec

from leads_pipeline.errors import InvalidAnswerError, LeadsPipelineError, SettingsError
from leads_pipeline.features.delivery.form import HttpRequest
from leads_pipeline.portal.http import ADDRESS_HINT, make_client, read_body
from leads_pipeline.portal.http_library import httpx
from leads_pipeline.portal.tokens import Token, Tokens
from leads_pipeline.portal.verdicts import UNUSABLE_ADDRESS, broken_off, verdict_on

_OUTCOMES: Final = {"Accepted": "accepted", "Rejected": "rejected"}

_LEADS_OF_PAGE: Final = 250
_PAGES_MAX: Final = 1000
_PAGE_BYTES_MAX: Final = 16 * 2**20
_PAGE_SECONDS: Final = 60.0

_ADVICE: Final = {
    400: "Alto may have changed its API: look for a new release.",
    403: "Check AgencyRef, and that the integration has the scope alto/read:leads.",
}


class LeadOutcome(NamedTuple):
    """What came of a lead: its id there, the outcome, and when, in seconds since 1970."""

    id_there: str
    outcome: str
    at: float


class _Lead(msgspec.Struct, rename="camel"):
    id: Any = None
    lead_status: Any = None
    modified_date: Any = None


class _Meta(msgspec.Struct, rename="camel"):
    next_token: str | None = None


class _Page(msgspec.Struct):
    items: list[_Lead] | None
    meta: _Meta | None = None


@dataclass(frozen=True, slots=True)
class Alto:
    """Asks Alto for the outcomes of leads, by this request and with these access tokens."""

    request: HttpRequest
    tokens: Tokens | None

    def outcomes(self, interval: Mapping[str, str]) -> list[LeadOutcome]:
        """Return what came of the leads of an interval. Raises LeadsPipelineError."""
        outcomes = []
        with make_client(headers=self.request.headers) as http:
            for status in _OUTCOMES:
                parameters = {**interval, "lead-status": status, "max-results": str(_LEADS_OF_PAGE)}
                for page in self._pages(http, parameters):
                    outcomes += [_outcome_of(lead) for lead in page.items or ()]
        return [one for one in outcomes if one is not None]

    def _pages(self, http: httpx.Client, parameters: dict[str, str]) -> Iterator[_Page]:
        tokens_seen: set[str] = set()
        while True:
            page = self._page(http, parameters)
            yield page

            next_token = page.meta.next_token if page.meta else None
            if not next_token:
                return
            if next_token in tokens_seen or len(tokens_seen) == _PAGES_MAX:
                raise InvalidAnswerError(
                    f"{self._request_in_words} was answered with pages without an end."
                )
            tokens_seen.add(next_token)
            parameters["next-token"] = next_token

    def _page(self, http: httpx.Client, parameters: Mapping[str, str]) -> _Page:
        token = self.tokens.get() if self.tokens else None
        answer, body = self._answer(http, parameters, token)
        if answer.status_code == HTTPStatus.UNAUTHORIZED and self.tokens:
            answer, body = self._answer(http, parameters, self.tokens.get(token))

        if answer.status_code != HTTPStatus.OK:
            raise verdict_on(self._request_in_words, answer, b"", _ADVICE, datetime.now(UTC))
        try:
            return msgspec.json.decode(body, type=_Page)
        except (ValueError, RecursionError):
            raise InvalidAnswerError(
                f"{self._request_in_words} was answered with no page of leads."
            ) from None

    def _answer(
        self, http: httpx.Client, parameters: Mapping[str, str], token: Token | None
    ) -> tuple[httpx.Response, bytes]:
        headers = {"accept": "application/json", "accept-encoding": "identity"}
        if token is not None:
            headers["authorization"] = f"Bearer {token.access_token}"

        failure: LeadsPipelineError
        until = time.monotonic() + _PAGE_SECONDS
        try:
            with http.stream("GET", self.request.url, params=parameters, headers=headers) as answer:
                return answer, read_body(answer, _PAGE_BYTES_MAX, until)
        except httpx.TransportError as error:
            failure = broken_off(self._request_in_words, error)
        except UNUSABLE_ADDRESS:
            failure = SettingsError(f"{self._request_in_words} can't be sent. {ADDRESS_HINT}")
        # Outside of the except blocks: their errors hold the request, and with it the token.
        raise failure

    @property
    def _request_in_words(self) -> str:
        return f"The request for outcomes to {httpx.URL(self.request.url).host}"


def _outcome_of(lead: _Lead) -> LeadOutcome | None:
    """Return what an answer says of a lead. None if it isn't an outcome, or can't be read."""
    outcome = _OUTCOMES.get(str(lead.lead_status))
    if outcome is None or type(lead.id) not in (int, str):
        return None
    try:
        at = datetime.fromisoformat(lead.modified_date)
        in_utc = at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except (TypeError, ValueError, OverflowError):
        return None
    return LeadOutcome(str(lead.id), outcome, in_utc.timestamp())
