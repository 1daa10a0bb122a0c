"""What is copied, and in which order.

Belongs here: PARTS, the one list of it, and what of the settings goes along. Doesn't: copying.

The order keeps a lead from falling between two copies while everything runs. What tells of a thing is copied before the
thing itself: Dagster's history and leads.duckdb before the raw files, so that the copy of raw holds all that they speak
of, and perhaps more, which is published and looked at again. What keeps leads out is copied last, so that nobody is
missing from it who was erased while raw was copied.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from leads_pipeline.settings import SECRETS, VARIABLES
from leads_pipeline.storage.durable import PRIVATE_FILE_MODE, reading
from leads_pipeline.storage.raw import RawFile
from leads_pipeline.storage.rows import hash_of

DATA: Final = "data"
DAGSTER: Final = "dagster"
PRIVACY: Final = "privacy"
SETTINGS: Final = "settings"

# By its name (one of the four above), where a root lies in an installation: the data folder, Dagster's home, …
Roots = Mapping[str, Path]


@dataclass(frozen=True, slots=True)
class Part:
    """Files of a root. Those of `find` are copied while the iterator stands at them, so that it may hold a lock.

    `is_whole` says of a file and its content whether it is what was written, None where nobody can tell.
    """

    root: str
    find: Callable[[Path], Iterator[Path]]
    is_whole: Callable[[Path, bytes], bool] | None = None
    is_database: bool = False


def _matching(*patterns: str) -> Callable[[Path], Iterator[Path]]:
    def find(folder: Path) -> Iterator[Path]:
        for pattern in patterns:
            with reading(folder):
                paths = sorted(path for path in folder.glob(pattern) if path.is_file())
            yield from (path for path in paths if not path.name.endswith((".tmp", ".lock")))

    return find


def _raw(folder: Path) -> Iterator[Path]:
    """Each window's files, and those that came while they were copied: a file that is merged goes on in another one."""
    copied: set[Path] = set()
    # Leads move from raw to restricted and back. What moves meanwhile is copied in its old or its new place.
    for root in ("restricted", "raw", "restricted"):
        with reading(folder):
            windows = sorted(path for path in folder.glob(f"{root}/**/") if path.is_dir())
        for window in windows:
            while new := {path for path in window.glob("*") if path.suffix in (".parquet", ".json")} - copied:
                yield from sorted(new)
                copied |= new


def _is_intact(path: Path, content: bytes) -> bool:
    file = RawFile.parse(path.name)
    return file is None or file.hash == hash_of(content)


_REMEMBERED: Final = ("origin", "start_date", "person_key", "privacy", "raw_format")

PARTS: Final = (
    Part(DAGSTER, _matching("dagster.yaml")),
    Part(DAGSTER, _matching("**/*.db"), is_database=True),
    # What raw has lost for good is only here.
    Part(DATA, _matching("leads.duckdb")),
    Part(DATA, _raw, _is_intact),
    # An earlier release wrote these. They count leads that it has deleted.
    Part(DATA, _matching("frozen/*.parquet")),
    Part(DATA, _matching("quarantine/**/*")),
    Part(DATA, _matching("answers.csv", "answers.parquet")),
    # The last entry of the suppression list that this folder knew is copied before the list.
    Part(DATA, _matching(*(f".state/{name}" for name in _REMEMBERED))),
    Part(PRIVACY, _matching("**/*")),
)


def identity(path: Path, *, is_database: bool) -> tuple[int, ...]:
    """What changes when the file may have another content. Raises FileNotFoundError.

    The newest pages of a database lie in its write-ahead log.
    """
    files = [path, path.with_name(f"{path.name}-wal")] if is_database else [path]
    stats = [file.stat() for file in files if file == path or file.exists()]
    # A log of no bytes comes and goes with whoever reads the database.
    return tuple(
        number
        for stat in stats
        if stat is stats[0] or stat.st_size
        for number in (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
    )


def copy_database(path: Path, draft: Path) -> None:
    """Write the database as it is at one moment, by sqlite's own backup, while others write to it.

    Raises FileNotFoundError where it is gone, as a run is that is forgotten meanwhile; else OSError.
    """
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=60)) as source:
            draft.touch(PRIVATE_FILE_MODE)
            with closing(sqlite3.connect(draft)) as copy:
                source.backup(copy)
                # A file by itself, which needs no log beside it.
                copy.execute("pragma journal_mode = delete")
    except sqlite3.Error as error:
        if not path.exists():
            draft.unlink(missing_ok=True)
            raise FileNotFoundError(path) from error
        raise OSError(None, f"sqlite says: {error}") from error


def settings_files(environment: Mapping[str, str], *, with_secrets: bool) -> dict[str, bytes]:
    """What goes along of the settings, by path below SETTINGS: an .env file, and the list of names of branches.

    With secrets also these, and the files that hold some.
    """
    given = {name: value for name in sorted(VARIABLES) if (value := environment.get(name))}
    lines, files = [], {}
    for name, value in given.items():
        if name in SECRETS and not with_secrets:
            lines.append(f"# {name} was set; secrets are copied on request only")
            continue
        quoted = value.replace("\\", "\\\\").replace("'", "\\'")
        lines.append(f"{name}='{quoted}'")
        if name.endswith("_FILE") and (with_secrets or name == "LEADS_BRANCHES_FILE"):
            path = Path(value).expanduser()
            with reading(path):
                files[f"{name}{path.suffix}"] = path.read_bytes()
    return {"settings.env": "".join(f"{line}\n" for line in lines).encode(), **files}
