"""Publishing: leads.duckdb is made in a draft, step by step, and swapped in whole.

Belongs here: what has changed, the two ways to publish, what the file remembers of them. Doesn't:
what the steps make (step.py says what a step is), files and links (editions.py), when to publish.
"""

# ruff: noqa: S608 - only our own names are in the statements

import hashlib
import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Final, Protocol, Self
from zoneinfo import ZoneInfo

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.domain.window import Scope
from leads_pipeline.errors import BugError, LeadsPipelineError, StorageError
from leads_pipeline.raw.branches import Branches
from leads_pipeline.raw.durable import copy_file, storing
from leads_pipeline.settings import Settings
from leads_pipeline.warehouse.current_leads import WindowKey
from leads_pipeline.warehouse.duck import connection, literal, quoted
from leads_pipeline.warehouse.editions import Editions
from leads_pipeline.warehouse.load_leads import LOADED_WINDOWS, by_window
from leads_pipeline.warehouse.published import attached, is_open_for_writing, is_readable
from leads_pipeline.warehouse.step import FORMER, Base, Changes, Draft, Publication, Step
from leads_pipeline.warehouse.tables import insert, lead_tables

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PublicationSettings:
    """The settings of a publication. `installation` has all others, for steps of features."""

    scopes: Sequence[Scope]
    first_day: date
    zone: ZoneInfo
    branches: Branches = field(default_factory=Branches)
    installation: Settings = field(default_factory=lambda: Settings.from_variables({}))


class WindowHashes(Protocol):
    """The raw windows, as far as a publication looks at them itself."""

    def hashes(self, *, of_all_days: bool) -> dict[WindowKey, str]:
        """Hash the files of each window of the last 60 days, or of all."""


def publish(
    folder: Path,
    windows: WindowHashes,
    steps: Sequence[Step],
    at: datetime,
    *,
    lock: AbstractContextManager[object],
    is_first_of_day: bool = False,
) -> Publication:
    """Bring the data folder's leads.duckdb up to date, under the lock of publications.

    - Update: windows have changed, or what steps read besides. A copy of the file is changed.
    - New file: anything else has changed, or the file is damaged. It is made from raw, and leads
      that raw has lost come from the file before it.
    - Nothing: nothing has changed, and nobody has touched the file.

    In the first two, a step may have a file ready to go on from.

    The first publication of a day looks at the windows of all days, and reads the whole file for
    damage. Raises StorageError and BugError: then the published file is as before.
    """
    for step in steps:
        step.before()

    editions = Editions(folder)
    with lock:
        with editions.drafting():
            edition_number = editions.next_edition_number(at)
            publisher = _Publisher(editions, windows, steps, edition_number, is_first_of_day)
            publication = publisher.publish()

        for step in steps:
            try:
                step.after(publication)
            except LeadsPipelineError as error:
                publication.problems[step.name] = str(error)
                if step.makes:
                    publication.as_before[step.makes] = str(error)
    return publication


@dataclass(frozen=True, slots=True)
class _MadeFrom:
    """What a publication is made from, as its steps say.

    The first two are hashes of the texts of all steps in their order. `forgets_if` is kept as it
    is: an export compares it, too.
    """

    updates_if: str
    rebuilds_if: str
    forgets_if: str

    @classmethod
    def of(cls, steps: Sequence[Step]) -> Self:
        updates_if = [step.updates_if() for step in steps]
        rebuilds_if = [step.rebuilds_if() for step in steps]
        forgets_if = [step.forgets_if() for step in steps]
        return cls(_hash_of(updates_if), _hash_of([*rebuilds_if, _SCHEMA]), "".join(forgets_if))


@dataclass(frozen=True, slots=True)
class _Former:
    """What the published file remembers. `stands_alone`: no edition from before it may stay."""

    made_from: _MadeFrom
    stands_alone: bool
    windows: Mapping[WindowKey, str]


@dataclass(frozen=True, slots=True)
class _Publisher:
    """One publication, which makes the edition of this number."""

    editions: Editions
    windows: WindowHashes
    steps: Sequence[Step]
    edition_number: int
    is_first_of_day: bool

    def publish(self) -> Publication:
        """Publish in the way that is needed, if any."""
        file = self._published_file()
        former = _read_former(self.editions, file) if file else None
        if former and former.stands_alone:
            self.editions.remove_older(count_to_keep=0)  # a killed publication may have left some

        made_from = _MadeFrom.of(self.steps)
        if file is None or former is None or former.made_from.forgets_if != made_from.forgets_if:
            return self._build_anew(file, made_from, forgets=True)
        if former.made_from.rebuilds_if != made_from.rebuilds_if:
            return self._build_anew(file, made_from)

        is_as_published = self.editions.is_as_published()
        is_suspect = self.is_first_of_day or not is_as_published
        if is_suspect and not self.editions.has_its_hash():
            logger.warning("leads.duckdb isn't as it was published, and is built anew.")
            return self._build_anew(file, made_from)

        hashes = self.windows.hashes(of_all_days=self.is_first_of_day)
        changed = _differing(hashes, former.windows)
        is_up_to_date = not changed and former.made_from.updates_if == made_from.updates_if
        if is_up_to_date and is_as_published:
            return Publication()

        return self._update(file, former, made_from, hashes)

    def _published_file(self) -> Path | None:
        file = self.editions.current()
        if file is None or not is_open_for_writing(file):
            return file
        logger.warning(
            "Another program has opened leads.duckdb for writing. Have it open the file read-only."
        )
        return self._copied(file, "borrowed")

    def _copied(self, file: Path, name: str) -> Path:
        draft = self.editions.draft(name)
        with storing(draft):
            copy_file(file, draft)
            draft.chmod(0o600)
        return draft

    # --- the two ways -----------------------------------------------------------------------------

    def _update(
        self, file: Path, former: _Former, made_from: _MadeFrom, hashes: Mapping[WindowKey, str]
    ) -> Publication:
        try:
            base = self._base_of_a_step(file, made_from) or Base(
                self._copied(file, "copy"), former.windows
            )
            to_read = _differing(hashes, base.windows)
            changes = Changes(self.edition_number, to_read, is_first_of_day=self.is_first_of_day)
            leads = self._make(base.file, changes, made_from)
        except StorageError as error:
            # The file may be damaged. If the disk is at fault, building anew says so.
            logger.warning("%s can't be brought up to date and is built anew. %s", file, error)
            return self._build_anew(file, made_from)

        self.editions.swap_in(base.file, self.edition_number)
        return Publication("update", len(_differing(hashes, former.windows)), leads)

    def _build_anew(
        self, file: Path | None, made_from: _MadeFrom, *, forgets: bool = False
    ) -> Publication:
        """Build the file from raw. With `forgets`, no edition from before it stays."""
        # What raw has lost comes from the newest edition that can be read.
        files = [file, *self.editions.older()] if file else []
        former = next((one for one in files if self._has_leads(one)), None)
        is_damaged = former != file

        base = self._base_of_a_step(None, made_from) if file is None else None
        if base is None:
            base = Base(self.editions.draft("anew"), {})

        hashes = self.windows.hashes(of_all_days=True)
        changes = Changes(
            self.edition_number,
            _differing(hashes, base.windows),
            is_new=True,
            has_former=former is not None,
            forgets=forgets,
            is_first_of_day=self.is_first_of_day,
        )
        leads = self._make(base.file, changes, made_from, former=former)

        damaged = self.editions.current() if is_damaged else None
        self.editions.swap_in(base.file, self.edition_number)
        if damaged:  # moved once readers have another one
            aside = self.editions.set_aside(damaged)
            logger.warning(
                "leads.duckdb was damaged. The damaged file is %s, and a new one is published.",
                aside,
            )
        if forgets:
            self.editions.remove_older(count_to_keep=0)
        return Publication("new file", len(hashes), leads)

    def _base_of_a_step(self, file: Path | None, made_from: _MadeFrom) -> Base | None:
        for step in self.steps:
            if base := step.base(file, made_from.forgets_if):
                return base
        return None

    def _has_leads(self, file: Path) -> bool:
        return is_readable(self.editions.folder, file, [table.name for table in lead_tables()])

    # --- the draft --------------------------------------------------------------------------------

    def _make(
        self, file: Path, changes: Changes, made_from: _MadeFrom, former: Path | None = None
    ) -> int:
        """Have the steps make the file, and seal it. Return how many leads were written."""
        folder = self.editions.folder
        with connection(folder, file) as db:
            if former:
                db.execute(f"attach {literal(str(former))} as {FORMER} (read_only)")
            draft = Draft(folder, db, changes)
            _prepare(draft)
            for step in self.steps:
                step.fill(draft)
            leads = _note(draft, made_from)
            db.execute("checkpoint")

        for step in self.steps:
            step.sealed(file, changes)
        return leads


# --- what the file remembers of publications ------------------------------------------------------

_TABLES: Final = {
    "facts": ("name varchar, value varchar", "What this file was made from"),
    "touched_days": (
        "day date, publication bigint",
        "The publication that last touched a day of the tables of leads",
    ),
}
_SCHEMA: Final = repr(_TABLES)
_FACTS: Final = {"updates_if", "rebuilds_if", "forgets_if", "stands_alone"}


def _prepare(draft: Draft) -> None:
    draft.db.execute("create temp table touched (kind varchar, lead_id varchar, lead_day date)")
    if not draft.changes.is_new:
        return
    with draft.transaction():
        draft.db.execute("create schema if not exists pipeline")  # what is loaded ahead has it
        for name, (columns, comment) in _TABLES.items():
            draft.db.execute(f"create table pipeline.{name} ({columns})")
            draft.db.execute(f"comment on table pipeline.{name} is {literal(comment)}")


def _note(draft: Draft, made_from: _MadeFrom) -> int:
    """Note how the file came to be. Return how many leads this publication wrote."""
    db = draft.db
    edition_number = draft.changes.edition_number
    facts = {**asdict(made_from), "stands_alone": str(draft.changes.forgets)}
    days = "select distinct lead_day from touched"
    with draft.transaction():
        db.execute("delete from pipeline.facts")
        insert(db, "pipeline.facts", [*facts.items()])
        db.execute(f"delete from pipeline.touched_days where day in ({days})")
        db.execute(f"insert into pipeline.touched_days select *, {edition_number} from ({days})")

    leads = 0
    for kind in LEAD_KINDS:
        written = f"select count(*) from {quoted(kind.table)} where published_in = {edition_number}"
        [(of_kind,)] = db.execute(written).fetchall()
        leads += of_kind
    return leads


def _read_former(editions: Editions, file: Path) -> _Former | None:
    """Read what the file remembers. None if it can't be read, or is of another release."""
    try:
        with attached(editions.folder, file) as db:
            facts = dict(db.execute("select name, value from pipeline.facts").fetchall())
            windows = by_window(db.execute(LOADED_WINDOWS).fetchall())
    except (StorageError, BugError):
        return None
    if facts.keys() != _FACTS:
        return None

    stands_alone = facts.pop("stands_alone") == "True"
    return _Former(_MadeFrom(**facts), stands_alone, windows)


def _differing(
    hashes: Mapping[WindowKey, str], loaded: Mapping[WindowKey, str]
) -> dict[WindowKey, str]:
    """Return the windows that aren't loaded, or not in this state."""
    return {window: hash_ for window, hash_ in hashes.items() if loaded.get(window) != hash_}


def _hash_of(texts: Sequence[str]) -> str:
    return hashlib.sha256(repr(texts).encode()).hexdigest()
