"""delta/ in the object store, where one has the truth of the folder: the same as here, and readable at every moment.

Belongs here: what goes there, comes from there and is deleted there, and in which order. Doesn't: what the tables hold
(publishing.py).

The store's logs count. A publication begins with them, whichever machine wrote them, and adds a version to each table
that differs. A commit is created, never replaced, as Delta's protocol has it, and so is the list of versions: of two
machines one is told that it came too late. Deleted is what was found at the beginning and isn't here in the end, once
a new list says so: nobody deletes what another machine has written meanwhile and is about to name.
"""

import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from leads_pipeline.delta.folder import DELTA, FILE_MODE, LISTS, LOG, MARK, delete_tables, is_log, make_shared_folder
from leads_pipeline.delta.versions import forget_versions, newest_versions, write_versions
from leads_pipeline.durable import reading, replace_file, storing
from leads_pipeline.errors import StorageError
from leads_pipeline.lake import Lake
from leads_pipeline.objects import SIDE_BY_SIDE, ObjectStore

_COMMIT: Final = re.compile(rf"({DELTA}/[a-z]\w*/{LOG})/[0-9]{{20}}\.json")
_LIST: Final = re.compile(rf"{LISTS}[0-9]{{20}}\.json")

_MARK_SAYS: Final = (
    b"# Delta tables of leads-pipeline\n\nThe newest file of `versions/` says which versions belong together. Whatever "
    b"else is put here is deleted by the next publication.\n"
)

# A hint of which checkpoint is the newest: of all files of a table the only one that changes under its name.
_HINT: Final = "_last_checkpoint"


class Mirror:
    """The tables in the store, as they were found when this was made. The lock of delta/ is held."""

    def __init__(self, lake: Lake, store: ObjectStore) -> None:
        self._lake = lake
        self._store = store
        self._found = self._listed()
        self._commits: dict[str, tuple[str, bytes]] = {}
        self._committed: set[str] = set()

    def _listed(self) -> list[str]:
        """What is there but for the mark, which is made where nothing is. Raises StorageError where it isn't ours."""
        keys = self._store.list(f"{DELTA}/")
        if keys and MARK not in keys:
            raise StorageError(
                f"{self._store.address}/{DELTA}/ holds something that the pipeline hasn't written, and its tables "
                "would take the place of all that is there. Give LEADS_DATA_DIR a prefix of its own, or empty that "
                "one. Nothing was changed there."
            )
        if not keys:
            self._store.create(MARK, _MARK_SAYS)
        return [key for key in keys if key != MARK]

    def take_over(self) -> None:
        """Have here the logs that the store has, in place of what differs. Raises StorageError.

        A log that comes may name files that aren't here, so there is no list of versions until the next publication,
        which makes them anew.
        """
        for log, newest in _newest_commits(self._found).items():
            content = self._store.get(newest)
            if content is None:
                raise self._overtaken(newest)
            self._commits[log] = newest, content
            if self._commit_here(log) != (newest, content):
                self._fetch(log, newest)

    @property
    def next_list(self) -> int:
        """The number of the next list of versions. Of two machines that write it, one is told."""
        return max((int(Path(key).stem) for key in _lists_of(self._found)), default=0) + 1

    def hand_over(self, want_current: Callable[[], None]) -> None:
        """Have in the store what is here, and nothing else of what was found there.

        Until the list of versions is there, everything that the one before it names stays. `want_current` is called
        before anything is put there and again before it is committed. Raises what that raises, and StorageError; then
        files that no commit names go again.
        """
        want_current()
        here = self._keys_here()
        if not here.issuperset(self._found) and not _lists_of(here.difference(self._found)):
            # What is to be deleted may be another machine's, which the list will tell that it came too late.
            write_versions(self._lake, newest_versions(self._lake) or {}, self.next_list)
            here = self._keys_here()
        self._clear_the_way(here)
        new = here.difference(self._found)
        commits, lists = {key for key in new if _COMMIT.fullmatch(key)}, set(_lists_of(new))
        of_logs = {key for key in new if is_log(key)} - commits
        hints = {key for key in here if key.endswith(f"/{_HINT}")}
        data = new - commits - lists - of_logs
        with self._taking_back(data, commits):
            self._put(data)
            want_current()
            self._put(commits)
            self._put(lists)
            if lists and _lists_of(self._store.list(LISTS))[-1] not in lists:
                # Numbers are free again once they are deleted: it may have published twice.
                raise self._overtaken(max(lists))
        self._put(of_logs - hints)
        self._put(hints)
        delete_tables(self._store, [key for key in self._found if key not in here])

    @contextmanager
    def _taking_back(self, data: Set[str], commits: Set[str]) -> Iterator[None]:
        """Delete the files of tables whose commits don't come to be: nobody would, and they show whom they show."""
        try:
            yield
        except StorageError:
            tables = tuple(key.partition(LOG)[0] for key in commits - self._committed)
            with suppress(StorageError):  # what went wrong before says more; the next publication finds them
                self._store.delete([key for key in data if key.startswith(tables)])
            raise

    def _commit_here(self, log: str) -> tuple[str, bytes] | None:
        """The newest commit of this folder's log: its key and its content."""
        newest = _newest_commits(self._keys_here(log)).get(log)
        return (newest, self._read(newest)) if newest else None

    def _fetch(self, log: str, newest: str) -> None:
        """Replace a log here by the store's. Its newest commit comes last: where it is, the others are."""
        forget_versions(self._lake)
        folder = self._lake.folder / log
        with storing(folder):
            shutil.rmtree(folder, ignore_errors=True)
            make_shared_folder(folder)
        of_log = [key for key in self._found if key.startswith(f"{log}/") and key != newest]
        for key in [*of_log, newest]:
            content = self._store.get(key)
            if content is None:
                raise self._overtaken(key)
            path = folder / Path(key).name
            replace_file(path, content)
            with storing(path):
                path.chmod(FILE_MODE)

    def _clear_the_way(self, here: Collection[str]) -> None:
        """Delete the logs of tables that are begun anew here, and before them the lists that name their versions."""
        newest = _newest_commits(here)
        anew = [
            log
            for log, (found, content) in self._commits.items()
            if log in newest and newest[log] <= found and (newest[log], self._read(newest[log])) != (found, content)
        ]
        if anew:
            below = (LISTS, *(f"{log}/" for log in anew))
            gone = {key for key in self._found if key.startswith(below)}
            delete_tables(self._store, gone)
            self._found = [key for key in self._found if key not in gone]

    def _put(self, keys: Iterable[str]) -> None:
        with ThreadPoolExecutor(SIDE_BY_SIDE, "mirror") as pool:
            for _ in pool.map(self._put_one, sorted(keys)):
                """What one raises is raised here."""

    def _put_one(self, key: str) -> None:
        content = self._read(key)
        if key.endswith(f"/{_HINT}"):
            if self._store.get(key) != content:
                self._store.replace(key, content)
        elif not self._store.create(key, content):
            # By the name of a data file or a checkpoint there can't be another.
            is_claim = _COMMIT.fullmatch(key) or _LIST.fullmatch(key)
            if is_claim and self._store.get(key) != content:
                raise self._overtaken(key)
        self._committed.add(key)

    def _keys_here(self, below: str = DELTA) -> set[str]:
        """Drafts apart, which nobody reads."""
        folder = self._lake.folder / below
        with reading(folder):
            paths = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
        return {path.relative_to(self._lake.folder).as_posix() for path in paths}

    def _read(self, key: str) -> bytes:
        path = self._lake.folder / key
        with reading(path):
            return path.read_bytes()

    def _overtaken(self, key: str) -> StorageError:
        return StorageError(
            f"{self._store.address}/{key} is being written by another machine, which publishes Delta tables there as "
            "well. leads.duckdb is published. Run again; or set LEADS_TABLES on one of the machines alone."
        )


def _newest_commits(keys: Iterable[str]) -> dict[str, str]:
    """The newest commit of each log. Numbers are of one length."""
    return {match[1]: key for key in sorted(keys) if (match := _COMMIT.fullmatch(key))}


def _lists_of(keys: Iterable[str]) -> list[str]:
    """The lists of versions, the newest last."""
    return sorted(key for key in keys if _LIST.fullmatch(key))
