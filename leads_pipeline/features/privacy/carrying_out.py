"""Carrying out what is on the list: publish without the people, look again, write receipts.

Belongs here: what is left of each request, and who writes its receipt. Doesn't: entries
(requests.py), the search (search.py), the words of a receipt (receipt.py), taking leads out
(sweeping.py).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from leads_pipeline.features.privacy.gatekeeper import list_of
from leads_pipeline.features.privacy.receipt import (
    RECEIPTED,
    add_to_receipt,
    forget_deliveries,
    write_receipt,
)
from leads_pipeline.features.privacy.requests import note_done, open_entries
from leads_pipeline.features.privacy.search import left_of, unchanged_by
from leads_pipeline.features.privacy.suppression import Action, Entry
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.people import holders


@dataclass(frozen=True, slots=True)
class CarriedOut:
    """What is left of each request, by its number. `trouble` is why none was carried out."""

    left: Mapping[int, list[str]]
    trouble: str | None = None


_DONE_LATER: Final = "The command was interrupted. A later run has finished the request."


def carry_out(
    data: DataFolder,
    publish: Callable[[], str | None],
    now: datetime,
    *,
    with_earlier_erasures: bool = False,
    done_in_words: Mapping[int, str] | None = None,
) -> CarriedOut:
    """Carry out all open requests.

    Look again, and write the receipt of each. Note a request as done if nothing is left. With
    `with_earlier_erasures`, look for people whose erasure was done before, too. `done_in_words`
    says for a request, by its number, what was done.

    `publish` sweeps and publishes, and returns what went wrong.
    """
    number = data.gate.newest_entry
    trouble = publish()
    if trouble is None and data.state.swept_to() < number:
        trouble = "A file couldn't be read or written. The log of the run names it."
    if trouble is not None:
        return CarriedOut({}, trouble)

    suppressed = list_of(data).read()
    entries = open_entries(suppressed)
    looked_for = suppressed.active if with_earlier_erasures else entries
    erasures = [entry for entry in looked_for if entry.action is Action.ERASE]

    left = left_of(data, erasures) | unchanged_by(data, entries)
    for holder in holders(data):
        for text in holder.left(lambda lead: suppressed.erased.is_known(*lead)):
            for entry in erasures:
                left.setdefault(entry.number, []).append(text)

    for entry in entries:
        _finish(
            data,
            entry,
            (done_in_words or {}).get(entry.number, _DONE_LATER),
            now,
            is_complete=entry.number not in left,
        )
    return CarriedOut(left)


def _finish(data: DataFolder, entry: Entry, done: str, now: datetime, *, is_complete: bool) -> None:
    """Write the receipt, then note the request as done.

    A killed process leaves one that is written again.
    """
    if entry.action in RECEIPTED:
        write_receipt(data, entry, done, is_complete=is_complete)
    if not is_complete:
        return

    note_done(data, entry, now)
    # The receipt has read the ledger of deliveries before that forgets the person.
    if entry.action is Action.ERASE:
        add_to_receipt(data, entry, forget_deliveries(data, [entry]))
