"""The step that makes the table `branches`: each scope and the name of its branch.

Belongs here: the table and its rows. Doesn't: reading LEADS_BRANCHES_FILE (raw/branches.py).
"""

from dataclasses import replace
from typing import Final

from leads_pipeline.raw.branches import Branches
from leads_pipeline.warehouse.duck import Column
from leads_pipeline.warehouse.step import Draft, Step
from leads_pipeline.warehouse.tables import Table, create_table, insert

BRANCHES: Final = Table(
    "branches",
    "One row per scope that is configured, has a landed window, or that LEADS_BRANCHES_FILE names",
    (
        Column("scope", "varchar", "Scope as in every other table, e.g. branch-101"),
        Column("branch_id", "varchar", "The portal's id in it, e.g. 101"),
        Column(
            "name",
            "varchar",
            "Name of the branch, from LEADS_BRANCHES_FILE; the scope if the file has no name for "
            "it",
        ),
    ),
)


class MakeBranches(Step):
    """Makes the table, of the scopes in `pipeline.window_states` and of those that have names."""

    def __init__(self, branches: Branches) -> None:
        self._branches = branches

    def rebuilds_if(self) -> str:
        """Marts by day have the names in their rows."""
        return repr((BRANCHES, self._branches))

    def fill(self, draft: Draft) -> None:
        """Make it."""
        names = self._branches.names
        columns = self._branches.columns
        more = [Column(name, "varchar", "From LEADS_BRANCHES_FILE") for name in columns]
        nothing = (None,) * len(columns)

        with draft.transaction():
            rows_of_windows = draft.db.execute(
                "select distinct scope from pipeline.window_states"
            ).fetchall()
            scopes = {scope for (scope,) in rows_of_windows} | names.keys()
            rows = []
            for scope in sorted(scopes):
                branch_id = scope.partition("-")[2] or scope
                others = self._branches.more.get(scope, nothing)
                rows.append((scope, branch_id, names.get(scope, scope), *others))

            draft.db.execute("drop table if exists branches")
            create_table(draft.db, replace(BRANCHES, columns=(*BRANCHES.columns, *more)))
            insert(draft.db, "branches", rows)
