"""Windows that can't be had in one: how they are cut, and put together again."""

import itertools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta

from leads_pipeline.contract import ReceivedLead
from leads_pipeline.window import Window

# A window whose answer is too large, or takes the service too long, is asked for in pieces: none shorter than this and
# no more of them, since their leads are held together until they are landed.
SHORTEST_PIECE = timedelta(minutes=1)
MAX_PIECES = 64
# So many pieces may be hopeless, too large for example, before any is answered.
MAX_HOPELESS_PIECES = 3


def halves(piece: Window) -> tuple[Window, Window]:
    """Both hold the moment of the cut, since both ends are included at the service: no lead falls between them."""
    half = (piece.end - piece.start) / 2
    cut = piece.start + max(SHORTEST_PIECE, half // SHORTEST_PIECE * SHORTEST_PIECE)
    return replace(piece, end=cut), replace(piece, start=cut)


def stretches(pieces: Iterable[Window]) -> str:
    """The times of pieces, those beside each other as one."""
    runs: list[Window] = []
    for piece in sorted(pieces):
        if runs and runs[-1].end == piece.start:
            runs[-1] = replace(runs[-1], end=piece.end)
        else:
            runs.append(piece)
    return " and ".join(f"{stretch.start:%H:%M} to {stretch.end:%H:%M}" for stretch in runs)


def joined(pieces: Sequence[Collection[ReceivedLead]]) -> Collection[ReceivedLead]:
    """The leads of pieces that were asked for one after the other.

    A lead that is in two of them, as one at the cut is, stands where the later one has it: of the versions that one
    answer holds, the last is taken for the newest.
    """
    if len(pieces) == 1:
        return pieces[0]
    joined: dict[tuple[str, str], ReceivedLead] = {}
    for lead in itertools.chain.from_iterable(pieces):
        version = lead.lead_id, lead.payload
        joined.pop(version, None)
        joined[version] = lead
    return tuple(joined.values())
