"""What corrections in raw windows make of the leads that they belong to."""

from collections.abc import Sequence
from contextlib import suppress

from leads_pipeline.raw.rows import CORRECTION, Row, corrected, merged, newest_payloads


def corrected_texts(rows: Sequence[Row]) -> dict[Row, str]:
    """Return what each correction in a window makes of the lead's newest version.

    Alone, a correction shows a number without the name that belongs to it.
    """
    made: dict[Row, str] = {}
    if corrections := sorted(row for row in rows if row.source == CORRECTION):
        texts = newest_payloads(merged(rows))
        for row in corrections:
            with suppress(KeyError, ValueError):  # the version is in another window, or isn't JSON
                text = corrected(texts[row.lead_id], row.payload).decode()
                made[row] = text
                texts[row.lead_id] = text  # the next correction is of this one
    return made
