"""The suppression list: who was erased, objected or is restricted, as keyed hashes.

The hashes outlive the data.

Belongs here: its files, its key, its seal, which leads an entry means, and keeping them out of raw
windows (gate.py). Doesn't: going through a folder (sweeping.py), finding a person (search.py), who
counts as the person (identity.py).
"""

from leads_pipeline.features.privacy.suppression.entries import (
    IDENTITY,
    Action,
    Entry,
    Meant,
    Suppressed,
)
from leads_pipeline.features.privacy.suppression.files import SuppressionList
from leads_pipeline.features.privacy.suppression.gate import Gate

__all__ = ["IDENTITY", "Action", "Entry", "Gate", "Meant", "Suppressed", "SuppressionList"]
