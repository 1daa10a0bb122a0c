"""A suppression list for tests of raw windows: the leads that it keeps out, in a file that
processes share.

Belongs here: the least that landing asks of a list. Doesn't: the real one (features/privacy/).
"""

from collections.abc import Callable, Collection
from pathlib import Path

from leads_pipeline.domain.contract import LeadKind
from leads_pipeline.raw.gatekeeper import OpenGate
from leads_pipeline.raw.names import Place
from leads_pipeline.raw.rows import Row


class KeptOut(OpenGate):
    """Each line of the file is the id of a lead that is kept out.

    The number of lines is the list's number.

    `while_admitting` is called each time that rows are asked about, before the answer.
    """

    def __init__(self, path: Path, while_admitting: Callable[[], None] = lambda: None) -> None:
        super().__init__(path.parent)
        self._path = path
        self._while_admitting = while_admitting

    @property
    def newest_entry(self) -> int:
        return len(self._ids())

    def knows(self, kind: LeadKind, lead_ids: Collection[str]) -> bool:
        assert kind
        return not set(self._ids()).isdisjoint(lead_ids)

    def admit(self, place: Place, rows: list[Row]) -> list[Row]:
        assert place.key
        out = self._ids()
        self._while_admitting()
        return [row for row in rows if row.lead_id not in out]

    def keep_out(self, lead_id: str) -> None:
        with self._path.open("a") as file:
            file.write(f"{lead_id}\n")

    def _ids(self) -> list[str]:
        return self._path.read_text().split() if self._path.exists() else []
