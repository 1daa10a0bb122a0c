"""Names of branches: reads and checks the CSV of LEADS_BRANCHES_FILE.

Belongs here: what the file may hold, and a scope's name. Doesn't: the table `branches`
(warehouse/branch_names.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from leads_pipeline.domain.window import Scope
from leads_pipeline.errors import SettingsError
from leads_pipeline.raw.csv_rows import csv_rows

# Columns of the table `branches` that aren't the file's to give.
_TAKEN = {"scope", "branch_id"}


@dataclass(frozen=True, slots=True)
class Branches:
    """Names by scope key, and in `more` the values of the file's other `columns`."""

    names: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    more: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)

    def shown(self, scope: str) -> str:
        """Return the scope for people: `branch-101 (York)`, or its key alone if it has no name."""
        name = self.names.get(scope, scope)
        return scope if name == scope else f"{scope} ({name})"

    def shown_window(self, key: str) -> str:
        """Return the key's window for people to read: `2026-11-19|branch-101 (York)`."""
        day, separator, scope = key.rpartition("|")
        return f"{day}{separator}{self.shown(scope)}"


def read_branches(path: Path | None) -> Branches:
    """Read the names in the file. There are none without a file.

    Raises SettingsError that names the row at fault.
    """
    if path is None:
        return Branches()

    header, *rows = csv_rows(path, f"LEADS_BRANCHES_FILE: {path}")
    id_at, name_at = _positions(path, header)
    more_at = [at for at in range(len(header)) if at not in (id_at, name_at)]
    names: dict[str, str] = {}
    more: dict[str, tuple[str | None, ...]] = {}

    for line, values in enumerate(rows, start=2):  # as a spreadsheet counts
        if not any(values):
            continue
        if len(values) > len(header):
            raise _wrong(
                path,
                f"has {len(values)} values in row {line}, for {len(header)} columns. Quote commas.",
            )
        cells = [*values, *[""] * (len(header) - len(values))]
        scope = _scope(path, cells[id_at], line)
        name = cells[name_at]
        if not name:
            raise _wrong(
                path,
                f"has no name for {cells[id_at]} in row {line}. Write one, or take the row out.",
            )
        if scope in names:
            raise _wrong(path, f"has {cells[id_at]} a second time in row {line}. Keep one of them.")
        if name in names.values():
            raise _wrong(
                path,
                f"has the name {name} a second time in row {line}. Figures go by name: tell them "
                "apart.",
            )
        names[scope] = name
        more[scope] = tuple(cells[at] or None for at in more_at)

    return Branches(names, tuple(header[at] for at in more_at), more)


def readable_branches(path: Path | None) -> Branches:
    """Read the names for a message. There are none if the file can't be read. A finding says so."""
    try:
        return read_branches(path)
    except SettingsError:
        return Branches()


def _positions(path: Path, header: list[str]) -> tuple[int, int]:
    """Return the places of id and name in a row."""
    columns = [column.lower() for column in header]
    if missing := [column for column in ("id", "name") if column not in columns]:
        there = ", ".join(header) or "nothing"
        raise _wrong(
            path,
            f"has no column {' and no '.join(missing)}. Its first row holds {there}. Begin with "
            "id,name.",
        )

    if wrong := [
        column for column in columns if not column or columns.count(column) > 1 or column in _TAKEN
    ]:
        what = (
            f"the column {wrong[0]!r}, which is there already"
            if wrong[0]
            else "a column without a name"
        )
        raise _wrong(
            path, f"has {what}. Give each column a name of its own, other than scope and branch_id."
        )

    return columns.index("id"), columns.index("name")


def _scope(path: Path, text: str, line: int) -> str:
    try:
        return Scope.parse_loosely(text).key
    except SettingsError:
        raise _wrong(
            path,
            f"has {text!r} for an id in row {line}. Write the portal's id of a branch, such as "
            "101.",
        ) from None


def _wrong(path: Path, what: str) -> SettingsError:
    return SettingsError(f"LEADS_BRANCHES_FILE: {path} {what}")
