"""The suppression list: who was erased, objected or is restricted, as keyed hashes that outlive the data.

Belongs here: its files, its key, its seal, and which leads an entry means. Doesn't: keeping them out (lake/gate.py),
going through a folder (privacy/sweeping.py), finding a person (privacy/), spelling (person/).
"""

from leads_pipeline.suppression.entries import NOBODY, Action, Entry, Meant, Suppressed, hashes
from leads_pipeline.suppression.files import KEY_FILE, SuppressionList

__all__ = [
    "KEY_FILE",
    "NOBODY",
    "Action",
    "Entry",
    "Meant",
    "Suppressed",
    "SuppressionList",
    "hashes",
]
