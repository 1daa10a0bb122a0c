"""Checks of the published file: each a statement in sql/checks/ that finds problems.

Belongs here: reading and running the files. Doesn't: what is unusual (the statements), who is told.
A check holds no publication back. The statements say from which figure on something is unusual.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path

from leads_pipeline.domain.contract import LEAD_KINDS, LeadKind
from leads_pipeline.extensions import MART_FOLDERS
from leads_pipeline.warehouse.duck import SQL_FOLDER, literal, quoted
from leads_pipeline.warehouse.published import Reader


@dataclass(frozen=True, slots=True)
class Check:
    """A check from one file, for one table.

    `statement` selects a line for each problem. `is_error`: a fault of the program. `what_to_do` is
    empty if another finding says the same in better words.
    """

    name: str
    table: str
    description: str
    is_error: bool
    what_to_do: str
    statement: str


@cache
def checks() -> tuple[Check, ...]:
    """Return the checks of the core and of the features, by name.

    A file whose table is `{table}` is a check of each kind of lead.
    """
    folders = [folder / "checks" for folder in (SQL_FOLDER, *MART_FOLDERS)]
    files = [path for folder in folders for path in folder.glob("*.sql")]
    return tuple(check for path in sorted(files, key=attrgetter("name")) for check in _read(path))


def _read(path: Path) -> Iterator[Check]:
    """Read a file: comments, an empty line, and the statement.

    The first comment says what should hold. Then come `table: `, `is_error: true` and `do: `.
    """
    header, _, statement = path.read_text(encoding="utf-8").partition("\n\n")
    description, *lines = [line.removeprefix("-- ") for line in header.splitlines()]
    facts = dict(line.split(": ", 1) for line in lines)
    kinds = map(_names, LEAD_KINDS) if facts["table"] == "{table}" else [dict[str, str]()]

    for names in kinds:
        table = names.get("{table}", facts["table"])
        is_error = facts.get("is_error") == "true"
        what_to_do = facts.get("do", "")
        filled = statement
        for name, text in names.items():
            filled = filled.replace(name, text)
        yield Check(path.stem, table, description, is_error, what_to_do, filled)


def _names(kind: LeadKind) -> dict[str, str]:
    fields = [
        f"{{'name': {literal(field.column)}, "
        f"'is_empty': coalesce({quoted(field.column)}::varchar, '') = ''}}"
        for field in kind.fields
        if field.is_key
    ]
    return {"{table}": kind.table, "{key_fields}": ", ".join(fields)}


def problems(db: Reader, check: Check) -> list[str]:
    """Return a line for each problem, the worst first. Raises StorageError and BugError."""
    return [line for (line,) in db.query(check.statement)[1]]
