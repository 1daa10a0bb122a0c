"""What is made at each publication, as steps.

Belongs here: what a step may do, and what it is given. Doesn't: the order of the steps
(features/publication_steps.py), the publication itself (publication.py).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import duckdb

from leads_pipeline.warehouse.current_leads import WindowKey
from leads_pipeline.warehouse.duck import telling_errors

# The file before is attached under this name while a new one is built.
FORMER: Final = "before"


@dataclass(frozen=True, slots=True)
class Changes:
    """How the file differs from the one before.

    `edition_number` is that of the edition that is made. `windows` are those to read, each with the
    hash of its files.

    `is_new`: the file is built anew, and `windows` are all. `has_former`: the file before it is
    attached as FORMER. `forgets`: somebody may have been erased, restricted or made anonymous, so
    of the file before only leads are taken over, through a gate.
    `is_first_of_day`: no other publication was made on this local day.
    """

    edition_number: int
    windows: Mapping[WindowKey, str]
    is_new: bool = False
    has_former: bool = False
    forgets: bool = False
    is_first_of_day: bool = False


class Base(NamedTuple):
    """A file that a publication goes on from, and the windows that are loaded in it."""

    file: Path
    windows: Mapping[WindowKey, str]


@dataclass(frozen=True, slots=True)
class Draft:
    """The file as it is being made, open in DuckDB. `folder` is the data folder.

    The temporary table `touched` (kind, lead_id, lead_day) has each lead that a step has changed,
    with the day that it had and the one that it has.
    """

    folder: Path
    db: duckdb.DuckDBPyConnection
    changes: Changes

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make the block count as a whole or not at all. Raises StorageError and BugError."""
        with telling_errors(self.folder):
            self.db.begin()
            try:
                yield
            except BaseException:
                self.db.rollback()
                raise
            self.db.commit()


@dataclass(slots=True)
class Publication:
    """The result of publishing. `way` is `update`, `new file` or `unchanged`.

    `windows` and `leads` count those that were written. `problems` say what a step couldn't do once
    the file was published, by the step's name. `as_before` says why what a step makes is as before,
    by what that is.
    """

    way: str = "unchanged"
    windows: int = 0
    leads: int = 0
    problems: dict[str, str] = field(default_factory=dict)
    as_before: dict[str, str] = field(default_factory=dict)


class Step:
    """Something that is made at each publication. It overrides the methods that it needs.

    A file that was made by other steps, or in another order, is built anew. If a step needs another
    one's result, it reads it from the draft. All methods may raise StorageError or BugError. Then
    nothing is published, except in `after`.
    """

    # The key of `problems`.
    name = ""
    # What `after` makes, in words: the key of `as_before`.
    makes = ""

    def before(self) -> None:
        """Do what has to be done before anything is looked at."""

    def updates_if(self) -> str:
        """Return a text. If any step's differs from the published file's, all update a copy."""
        return ""

    def rebuilds_if(self) -> str:
        """Return a text. If any step's differs from the published file's, all fill a new one."""
        return ""

    def forgets_if(self) -> str:
        """Return what decides who is shown, as a text.

        If any step's differs from the published file's, all fill a new one, and no file from before
        it stays.
        """
        return ""

    def base(self, published: Path | None, forgets_if: str) -> Base | None:  # noqa: ARG002 - as its signature
        """Return a file to go on from in place of a copy of the published one, if there is any.

        `forgets_if` is the text of all steps together.
        """
        return None

    def fill(self, draft: Draft) -> None:
        """Write to the draft."""

    def sealed(self, file: Path, changes: Changes) -> None:
        """Write to the draft once it is closed, over a connection of one's own."""

    def after(self, publication: Publication) -> None:
        """Do what follows once the file is in its place, also if it was up to date.

        If it raises LeadsPipelineError, that is one of the publication's problems, and the steps
        after it are done.
        """
