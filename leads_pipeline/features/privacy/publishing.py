"""The steps of a publication by which nobody is shown whom the suppression list keeps out.

Belongs here: sweeping before, the gate for leads that raw has lost, and what is noted after.
Doesn't: going through raw files (sweeping.py), whom an entry means (suppression/).
"""

# ruff: noqa: S608 - only the contract's own names are in the statements

import duckdb

from leads_pipeline.domain.contract import LeadKind
from leads_pipeline.features.privacy.gatekeeper import list_of
from leads_pipeline.features.privacy.retain import anonymise_former
from leads_pipeline.features.privacy.search import learn_lost
from leads_pipeline.features.privacy.sweeping import (
    Swept,
    clear_ledgers,
    learn_lost_again,
    sweep,
)
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.warehouse.duck import quoted
from leads_pipeline.warehouse.load_leads import former_of
from leads_pipeline.warehouse.published import LeadsFile
from leads_pipeline.warehouse.step import Publication, Step


class FollowList(Step):
    """Takes out of raw whom the list keeps out, before anything is read, and notes that in the end.

    It is the last step after the swap: the folder follows the list only if every other step did its
    work.
    """

    name = "suppression list"

    def __init__(self, data: DataFolder) -> None:
        self._data = data
        self._has_swept = False
        self._swept = Swept()

    def before(self) -> None:
        """Sweep, if the list has grown since the last sweep.

        Other publications may go on meanwhile.
        """
        if self._data.is_behind_list:
            self._swept = sweep(self._data)
            self._has_swept = True

    def forgets_if(self) -> str:
        """Return the newest entry that raw follows, and the last rewriting of raw files.

        Another process may have swept further while this one waited for its turn.
        """
        self._swept.newest_entry = max(self._swept.newest_entry, self._data.state.swept_to())
        forgets_if = self._data.forgets_if(self._swept.newest_entry)
        if not self._has_swept:
            self._learn_from_other_file(forgets_if)
        return forgets_if

    def _learn_from_other_file(self, forgets_if: str) -> None:
        """Learn the ids of leads that raw has lost, if somebody may have put an older file back.

        A sweep has done it already.
        """
        if forgets_if != LeadsFile(self._data).forgets_if():
            learn_lost(self._data)

    def after(self, publication: Publication) -> None:
        """Forget deliveries of who is erased, and note how far the folder follows the list."""
        learn_lost_again(self._data, self._swept)
        publication.problems |= self._swept.failed
        if self._has_swept:
            clear_ledgers(self._data)
        if not publication.problems:
            self._data.state.note_swept(max(self._swept.newest_entry, self._data.state.swept_to()))


class GateForFormer:
    """The gate for leads that raw has lost, on their way from the file before into a new one.

    What was read from raw has passed the gate already.
    """

    def __init__(self, data: DataFolder) -> None:
        self._data = data

    def admit_former(self, db: duckdb.DuckDBPyConnection, kind: LeadKind) -> None:
        """Admit the former leads, as warehouse/load_leads.py asks.

        Erased and restricted leads go, and so do cleared messages and the names of old days.
        """
        suppressed = list_of(self._data).read()
        leads = quoted(former_of(kind.table))
        if suppressed:
            ids = [lead_id for (lead_id,) in db.execute(f"select lead_id from {leads}").fetchall()]
            is_named = "lead_id in (select unnest($ids::varchar[]))"

            out = {"ids": sorted(suppressed.out.known_among(kind, ids))}
            for table in kind.tables:
                db.execute(f"delete from {quoted(former_of(table))} where {is_named}", out)

            cleared = {"ids": sorted(suppressed.cleared.known_among(kind, ids))}
            db.execute(
                f"update {leads} set message = '' where message <> '' and {is_named}", cleared
            )

        before = self._data.state.anonymous_before()
        if before is not None:
            anonymise_former(db, kind, before)
