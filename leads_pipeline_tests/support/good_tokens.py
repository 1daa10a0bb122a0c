"""An access token that a made-up portal accepts.

Belongs here: that token, and failures before it. Doesn't: token servers (small_portal.py).
"""

from pathlib import Path

from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.portal import ClientCredentials, Tokens
from leads_pipeline.portal.tokens import Token
from leads_pipeline.settings import AuthMethod, Secret

BASE_URL = "http://portal.example"
TOKEN = "t0ken-t0ken"
CREDENTIALS = ClientCredentials(
    token_url=f"{BASE_URL}/oauth2/token",
    client_id="me",
    secret=Secret("A_SECRET", "s3cret"),
    method=AuthMethod.BODY,
)


class GoodTokens(Tokens):
    """Always the same token, too young to be replaced. `failures` come first."""

    def __init__(self, *failures: LeadsPipelineError) -> None:
        super().__init__(CREDENTIALS, Path("/nowhere"))
        self.failures = list(failures)
        self.asked = 0

    def get(self, refused: Token | None = None) -> Token:  # noqa: ARG002 - see the class
        self.asked += 1
        if self.failures:
            raise self.failures.pop(0)
        return Token(TOKEN, 0.0, 3600.0)
