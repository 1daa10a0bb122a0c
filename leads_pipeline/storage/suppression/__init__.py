"""The suppression list: who was erased, objected or is restricted, as keyed hashes that outlive the data.

Belongs here: its files, its key, its seal, which leads an entry means, and keeping them out of raw windows (gate.py).
Doesn't: going through a folder (privacy/sweeping.py), finding a person (privacy/), who counts as the person
(domain/identity.py).
"""

from leads_pipeline.storage.suppression.entries import IDENTITY, Action, Entry, Meant, Suppressed
from leads_pipeline.storage.suppression.files import SuppressionList
from leads_pipeline.storage.suppression.gate import Gate

__all__ = ["IDENTITY", "Action", "Entry", "Gate", "Meant", "Suppressed", "SuppressionList"]
