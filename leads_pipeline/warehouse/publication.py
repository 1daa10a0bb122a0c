"""Publication: the published file is copied, the copy brought up to date, and swapped in whole.

Belongs here: when to load, build anew or leave the file; locks and what a killed process left. Doesn't: loading
(loading.py), when to publish (assets/).
"""

import logging
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

from leads_pipeline.contract import LEAD_KINDS
from leads_pipeline.duck import (
    SCRATCH_ROOT,
    WAREHOUSE_FILE,
    connection,
    link_or_copy,
    scratch_folder,
    sweep_readers,
    write_anew,
)
from leads_pipeline.durable import copy_file, publish_file, syncing
from leads_pipeline.errors import StorageError
from leads_pipeline.flatten.batches import sweep_stagings
from leads_pipeline.flatten.columns import staged_tables
from leads_pipeline.lake import Lake
from leads_pipeline.warehouse.grid import Grid
from leads_pipeline.warehouse.loading import forget_publications, load
from leads_pipeline.warehouse.pieces import Pieces, checksums_of
from leads_pipeline.warehouse.reading import Version, reading
from leads_pipeline.warehouse.state import (
    EMPTY,
    SCHEMA_VERSION,
    State,
    WarehouseFile,
    read_state,
    row_counts,
    wanted_state,
)
from leads_pipeline.warehouse.winners import BrokenStagedError

logger = logging.getLogger(__name__)


# Readable by the owner's group, as analysts are; for nobody to write, as one writer would lock out every reader.
_PUBLISHED_MODE: Final = 0o440


@dataclass(frozen=True, slots=True)
class Publication:
    """What publishing did. `rows` counts each table's rows, whether or not anything changed.

    `days_changed` counts days of which at least one staged file was loaded or left out. `is_rebuilt`: the file was
    written anew as a whole, as there was none yet, or none that could be brought up to date, or as leads left it, of
    which nothing is to stay in blocks that nobody has written over. `kept` names kind and day of leads
    whose staged files are damaged or gone: they stay as they were published until they are staged anew.
    """

    is_changed: bool
    is_rebuilt: bool
    days_changed: int
    rows: Mapping[str, int]
    seconds: float
    size_bytes: int
    kept: Sequence[tuple[str, date]]


class Warehouse:
    """The published DuckDB file of a lake. Readers open it at any time; only `publish` replaces it, never writes it."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._pieces = Pieces(lake)

    @property
    def path(self) -> Path:
        """Where the file lies once something was published."""
        return self._lake.folder / WAREHOUSE_FILE

    def publish(self, grid: Grid, now: datetime) -> Publication:
        """Bring the file up to date with the staged files and the grid, and swap it in whole.

        Where nothing changed since the last publication, the file stays untouched. A missing or damaged file, or one of
        another schema, is built anew from the staged files. A day whose staged files are damaged or gone stays as it is
        published, and counts as not staged from then on. Raises StorageError, also if such a day is in the way of
        building anew, and BugError where a statement is wrong; then the published file is as before.
        """
        began = time.monotonic()
        try:
            with self._lake.lock("warehouse"):
                self._sweep()
                self._lake.take_staged_format()
                self._lake.take_format(WAREHOUSE_FILE, SCHEMA_VERSION)
                rebuild = self._lake.rebuild_wanted()
                try:
                    publication = self._published(grid, now, began, is_anew=rebuild is not None)
                except BrokenStagedError as error:
                    logger.warning("%s", error)
                    self._lake.drop_damaged(staged_tables(error.kind), error.day)
                    publication = self._published(grid, now, began, is_anew=rebuild is not None)
                if rebuild is not None:
                    self._lake.rebuilt(rebuild)
                return publication
        except OSError as error:
            raise StorageError(
                f"{self.path} can't be replaced: {error.strerror}. Check the disk and its rights, then run again. The "
                "published file is as it was before."
            ) from error

    def _published(self, grid: Grid, now: datetime, began: float, *, is_anew: bool) -> Publication:
        whole = wanted_state(self._lake, grid, now)
        file = self._published_file(whole)
        wanted, kept = self._keeping(whole, file.state if file else EMPTY)
        if wanted != whole:
            file = self._published_file(wanted)  # which counts the rows of what is wanted alone
        # The file is looked at even if nothing changed: otherwise an analyst would be the first to meet damage.
        is_changed = is_anew or file is None or file.state != wanted or self._pieces.look_at(self.path) is None
        if is_changed:
            file = self._build(wanted, grid, now, kept, is_anew=is_anew)
        assert file is not None  # noqa: S101 - for mypy: where nothing changed, something was published
        return Publication(
            is_changed=is_changed,
            is_rebuilt=file.is_rebuilt,
            days_changed=file.days_changed,
            rows=file.rows,
            seconds=time.monotonic() - began,
            size_bytes=self.path.stat().st_size,
            kept=kept,
        )

    def reading(self) -> AbstractContextManager[Version]:
        """Read one version of the file, however many queries that takes and whatever is published meanwhile."""
        return reading(self._lake, self.path)

    def query(
        self, statement: str, parameters: Mapping[str, object] | None = None
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The same for a single query: column names and rows, as an analyst would see them.

        Raises StorageError where nothing is published yet.
        """
        with self.reading() as db:
            return db.query(statement, parameters)

    def _sweep(self) -> None:
        """Remove what killed publications left beside the file. The lock is held."""
        for leftover in self._lake.folder.glob(f".{WAREHOUSE_FILE}.*"):
            leftover.unlink(missing_ok=True)
        for leftover in (self._lake.folder / SCRATCH_ROOT).glob("warehouse-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        sweep_readers(self._lake)
        sweep_stagings(self._lake)

    def _published_file(self, wanted: "State") -> "WarehouseFile | None":
        """What the published file remembers; None where there is none that can be read.

        Its rows are counted where it is as wanted, and so has all tables.

        It is opened under a second name: beside its own, the write-ahead log of a killed reader would be in the way.
        """
        if not self.path.exists():
            return None
        with scratch_folder(self._lake, "warehouse-held") as folder:
            link = folder / WAREHOUSE_FILE
            link_or_copy(self.path, link)
            try:
                with connection(self._lake, "warehouse", link, read_only=True) as db:
                    state = read_state(db)
                    return WarehouseFile(state, row_counts(db) if state == wanted else {})
            except StorageError:
                return None

    def _keeping(self, wanted: "State", before: "State") -> "tuple[State, list[tuple[str, date]]]":
        """Have days whose staged files are damaged or gone stay as they are published; what is wanted then, and which.

        They count as not staged from then on, so that they are staged anew.
        """
        # A file that was loaded as it is was whole then, and isn't read again.
        loaded = before.files if before.schema == wanted.schema else {}
        files, kept = dict(wanted.files), list[tuple[str, date]]()
        for kind in LEAD_KINDS:
            tables = staged_tables(kind)
            broken = {day for table, day in before.files.keys() - wanted.files.keys() if table in tables}
            broken |= {
                day
                for (table, day), fingerprint in wanted.files.items()
                if table in tables
                and loaded.get((table, day)) != fingerprint
                and self._lake.whole_staged(table, day) is None
            }
            for day in sorted(broken):
                logger.warning("Staged files of the %s leads of %s are damaged or gone.", kind.name, day)
                self._lake.drop_damaged(tables, day)
                published = {(table, day) for table in tables} & before.files.keys()
                files = {key: one for key, one in files.items() if key[1] != day or key[0] not in tables}
                files |= {key: before.files[key] for key in published}
                kept += [(kind.name, day)] if published else []
        return replace(wanted, files=files), kept

    def _build(
        self, wanted: "State", grid: Grid, now: datetime, kept: Sequence[tuple[str, date]], *, is_anew: bool
    ) -> "WarehouseFile":
        """Write the new version beside the published one, then swap it in."""
        draft = self.path.with_name(f".{WAREHOUSE_FILE}.draft")
        try:
            before = self._copied(draft)
            file = self._updated(draft, wanted, grid, now) if before else None
            after = None
            if file and (is_anew or file.leads_gone):
                file = replace(file, is_rebuilt=True) if self._is_written_anew(draft) else None
            elif file and before:
                self._keep_old_blocks(draft)
                if (after := self._pieces.after(draft, self.path, before)) is None:
                    self._tell_of_damage()
                    file = None
            if file is None and kept:
                days = ", ".join(f"{kind} leads of {day}" for kind, day in kept)
                raise StorageError(
                    f"{self.path} has to be built anew, and would lose days whose staged files are damaged or gone: "
                    f"{days}. It stays as it is until they are staged anew, which the pipeline does by itself, as does "
                    "`leads-pipeline backfill`. If that fails, its error says what to do."
                )
            if file is None:
                before, file = None, self._rebuilt(draft, wanted, grid, now)
            draft.chmod(_PUBLISHED_MODE)
            # The old version's checksums as well: if this process is killed now, the old file stays.
            self._pieces.remember(*([before] if before else []), after or checksums_of(draft))
            # Beside the new version, a log of the old one would keep it from being opened.
            self.path.with_name(f"{WAREHOUSE_FILE}.wal").unlink(missing_ok=True)
            publish_file(draft, self.path)
        finally:
            with suppress(OSError):  # what went wrong before says more; the next publication sweeps again
                self._sweep()
        return file

    def _copied(self, draft: Path) -> Sequence[str] | None:
        """Copy the published file, and return its pieces' checksums; None where there is none, or it is damaged."""
        if not self.path.exists():
            return None
        copy_file(self.path, draft)
        draft.chmod(0o600)
        if (checksums := self._pieces.look_at(draft, self.path)) is None:
            self._tell_of_damage()
        return checksums

    def _tell_of_damage(self) -> None:
        logger.warning("%s is damaged: it isn't what was published. It is built anew from the staged files.", self.path)

    def _updated(self, draft: Path, wanted: "State", grid: Grid, now: datetime) -> "WarehouseFile | None":
        """The published file's copy, brought up to date; None where it has to be built anew."""
        try:
            # DuckDB's commit waits for the whole copy to be on the disk, which has begun by then.
            with syncing(draft), connection(self._lake, "warehouse", draft) as db:
                state = read_state(db)
                if state.schema != wanted.schema:
                    return None
                wanted, _ = self._keeping(wanted, state)  # if it couldn't be read before, and can be now
                db.begin()
                return load(db, self._lake, state, wanted, grid, now)
        except BrokenStagedError:
            raise
        except StorageError as error:
            # It may be broken, which building anew mends. Where the disk is at fault, that will say so.
            logger.warning("%s can't be brought up to date and is built anew. %s", self.path, error)
            return None

    def _is_written_anew(self, draft: Path) -> bool:
        """Replace the draft by a file of what it holds, without blocks of what was deleted; whether that could be."""
        anew = draft.with_name(f".{WAREHOUSE_FILE}.anew")
        anew.unlink(missing_ok=True)
        try:
            with connection(self._lake, "warehouse", draft) as db:
                forget_publications(db)
            write_anew(self._lake, draft, anew)
        except StorageError as error:
            # All is read for once, and damage may be where nothing else reads. The disk's own fault will say so.
            logger.warning("%s can't be written anew and is built anew from the staged files. %s", self.path, error)
            return False
        anew.replace(draft)
        return True

    def _keep_old_blocks(self, draft: Path) -> None:
        """Append what the published file has beyond the end of the draft, so that its headers hold for both.

        DuckDB opens a file by its name for the headers and once more for the blocks. A reader between whose steps the
        draft is swapped in must find each block that the old headers lead to. A checkpoint overwrites none of them, so
        that a power cut leaves the old version; but then it cuts free ones off the file's end, which are put back here.
        The next publication writes into them: the file is as long as its longest version, and doesn't grow by this.
        """
        with self.path.open("rb") as old, draft.open("ab") as new:
            old.seek(new.tell())
            shutil.copyfileobj(old, new)

    def _rebuilt(self, draft: Path, wanted: "State", grid: Grid, now: datetime) -> "WarehouseFile":
        self._sweep()
        draft.touch(mode=0o600)
        draft.unlink()
        with connection(self._lake, "warehouse", draft) as db:
            db.begin()
            return replace(load(db, self._lake, EMPTY, wanted, grid, now), is_rebuilt=True)
