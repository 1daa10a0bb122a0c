"""The leads and inventory clients. This package is the door to what others use of its rooms.

Belongs here: requests, deadlines, bounds, verdicts on what came back, retrying, concurrency. Doesn't: tokens (auth/),
what a valid body holds (contract.py), how long to wait (retry.py), files.
"""

from leads_pipeline.client.connection import server_time
from leads_pipeline.client.inventory import InventoryClient
from leads_pipeline.client.leads import LeadsClient
from leads_pipeline.client.service import Timing

__all__ = ["InventoryClient", "LeadsClient", "Timing", "server_time"]
