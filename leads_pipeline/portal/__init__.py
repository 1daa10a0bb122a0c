"""The portal's side: access tokens, requests, and what each answer means.

Belongs here: everything that speaks HTTP with the portal. Doesn't: what an answer holds (domain/answer.py), files
(storage/), which windows are asked for (orchestration/).
"""

from leads_pipeline.portal.leads import LeadsClient
from leads_pipeline.portal.pace import RetryPolicy
from leads_pipeline.portal.requests import Timing
from leads_pipeline.portal.tokens import ClientCredentials, Tokens

__all__ = ["ClientCredentials", "LeadsClient", "RetryPolicy", "Timing", "Tokens"]
