"""The client credentials grant (RFC 6749, section 4.4) as an httpx.Auth, and the tokens that processes share.

Belongs here: asking for a token, keeping it for its lifetime, renewing it once when it is refused. Doesn't: where
the secret comes from (credentials.py), or what a refused data request means (client/).

This is the door to flow.py, which signs requests; endpoint.py asks for a token, tokens.py keeps it, address.py is about
addresses and proxies that can't be used.
"""

from leads_pipeline.auth.endpoint import ClientCredentials
from leads_pipeline.auth.flow import ClientCredentialsAuth
from leads_pipeline.auth.tokens import TokenStore

__all__ = ["ClientCredentials", "ClientCredentialsAuth", "TokenStore"]
