"""The suppression list: who was erased, objected or is restricted, as keyed hashes that outlive the data.

Belongs here: its file, its key, its chain, and which leads an entry means. Doesn't: refusing them (lake/, spool.py,
flatten/, warehouse/), finding a person (privacy/), spelling (person/).
"""

from leads_pipeline.suppression.entries import NOBODY, Action, Entry, Meant, Suppressed, hashes
from leads_pipeline.suppression.files import KEY_FILE, LIST_FILE, SuppressionList

__all__ = [
    "KEY_FILE",
    "LIST_FILE",
    "NOBODY",
    "Action",
    "Entry",
    "Meant",
    "Suppressed",
    "SuppressionList",
    "hashes",
]
