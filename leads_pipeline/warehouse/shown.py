"""The steps of a publication that ask the gatekeeper who is shown and who objects to marketing.

Belongs here: what the core asks, whatever the gatekeeper knows. Doesn't: sweeping raw files, and
the gate for leads that raw has lost (features/privacy/).
"""

# ruff: noqa: S608 - only the contract's own names are in the statements

from typing import Final

from leads_pipeline.domain.contract import LEAD_KINDS, LeadKind
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.warehouse.duck import literal, quoted
from leads_pipeline.warehouse.step import Draft, Step

_OBJECTED: Final = "person uuid, kind varchar, lead_id varchar"


class ShowEverybody(Step):
    """Stands in for the step that follows the suppression list, if no feature brings it.

    If there is a list, nothing is published.
    """

    def __init__(self, data: DataFolder) -> None:
        self._data = data

    def forgets_if(self) -> str:
        """Return the last rewriting of raw files. Raises StorageError if there is a list."""
        return self._data.forgets_if(self._data.gate.newest_entry)


class NoteObjections(Step):
    """Notes who objects to marketing.

    These are the people of the objections, and those whom their leads name now.
    """

    def __init__(self, data: DataFolder) -> None:
        self._data = data

    def rebuilds_if(self) -> str:
        """The columns."""
        return _OBJECTED

    def fill(self, draft: Draft) -> None:
        """Note them, of the touched leads or of all.

        Reading windows may have taught the list more leads.
        """
        with draft.transaction():
            draft.db.execute(f"create table if not exists pipeline.objected ({_OBJECTED})")
            is_whole = not draft.db.execute("from pipeline.objected limit 1").fetchall()
            if is_whole:
                self._note_people(draft)
            else:
                draft.db.execute(
                    "delete from pipeline.objected where (kind, lead_id) in (select (kind, "
                    "lead_id) from touched)"
                )

            for kind in LEAD_KINDS:
                of_kind = f"touched where kind = {literal(kind.name)}"
                self._note_leads(draft, kind, quoted(kind.table) if is_whole else of_kind)

    def _note_people(self, draft: Draft) -> None:
        people = sorted(self._data.gate.objecting_people())
        draft.db.execute(
            "insert into pipeline.objected (person) select unnest($people::uuid[])",
            {"people": people},
        )

    def _note_leads(self, draft: Draft, kind: LeadKind, leads: str) -> None:
        """Note the people of those among these leads that object."""
        rows = draft.db.execute(f"select distinct lead_id from {leads}").fetchall()
        objecting = self._data.gate.objecting(kind, [lead_id for (lead_id,) in rows])

        draft.db.execute(
            f"""
            insert into pipeline.objected
            select person, {literal(kind.name)}, lead_id from {quoted(kind.table)}
            where lead_id in (select unnest($ids::varchar[])) and person is not null
            """,
            {"ids": sorted(objecting)},
        )
