"""The portal's side: access tokens, requests, and what each answer means.

Belongs here: everything that speaks HTTP with the portal. Doesn't: what an answer holds
(domain/bodies.py), files (raw/), which windows are asked for (orchestration/).
"""

from leads_pipeline.portal.client import LeadsClient
from leads_pipeline.portal.pace import RetryPolicy
from leads_pipeline.portal.run import Service, Timing
from leads_pipeline.portal.tokens import ClientCredentials, Tokens

__all__ = ["ClientCredentials", "LeadsClient", "RetryPolicy", "Service", "Timing", "Tokens"]
