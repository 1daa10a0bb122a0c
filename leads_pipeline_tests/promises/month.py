"""A recorded month: the commands of a person, the portal's answers to them, and the tables that
come of it.

It holds drift, hostile leads, an erasure, a correction, restrictions, an objection, a restored
backup and a lift.

Belongs here: what several tests share. The recordings are `recorded/month.json.xz` (clocks, files
and answers) and `recorded/tables.json.xz` (a line a row; `xzcat` shows them).
"""

import json
import lzma
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import duckdb

from leads_pipeline_tests.promises.portal import variables
from leads_pipeline_tests.support.small_portal import Answers

RECORDED = Path(__file__).parent / "recorded"
ANSWERS, TABLES = RECORDED / "month.json.xz", RECORDED / "tables.json.xz"

# The hash of a person depends on the folder's key, so each folder gets this one.
PERSON_KEY = "5eed" * 16

# What differs from one run to the next, and why. Everything else is compared.
EXCLUDED = {
    "fetched_at": "the moment of a request",
    "looked_at": "likewise",
    "landed_at": "likewise",
    "last_looked_at": "likewise",
    "sequence": "numbers of requests, which go out side by side",
    "published_in": "numbers of publications, which grow with the clock",
    "run_id": "a random id for each run",
    "attempts": "a busy machine may need a second one",
    "minutes_p50": "moments of requests, too",
    "minutes_p95": "likewise",
    "last_error": "a sentence for people, whose words may improve; mart_coverage.state says that "
    "it failed",
}


@dataclass(frozen=True)
class Step:
    """One command: the moment that the clock shows, the arguments, the exit code, and what the
    portal answers.
    """

    clock: str
    arguments: list[str]
    exit_code: int
    answers: dict[str, tuple[int, str]]


# With a clock that is set, libfaketime breaks the system call behind Python's sleep, and no other.
_SLEEP = """\
import select, time
time.sleep = lambda seconds: select.select([], [], [], seconds)
"""


def request(path: str, parameters: Mapping[str, str]) -> str:
    """The request as one text, whatever the order of its parameters."""
    return f"{path}?{urlencode(sorted(parameters.items()))}"


def replayed(step: Step) -> Answers:
    """The answers during a step. A request that wasn't recorded is refused."""

    def answers(path: str, parameters: Mapping[str, str]) -> tuple[int, bytes]:
        status, body = step.answers.get(
            request(path, parameters), (400, '{"errors": [{"code": "not_recorded"}]}')
        )
        return status, body.encode()

    return answers


def prepare(data: Path, files: Mapping[str, str]) -> None:
    """Make the data folder: with the key of people and the user's own files."""
    state = data / ".state"
    state.mkdir(parents=True, mode=0o700)
    (state / "person_key").write_text(f"{PERSON_KEY}\n")
    (state / "person_key").chmod(0o600)
    for name, text in files.items():
        (data / name).write_text(text)


def libfaketime() -> Path | None:
    """The library that gives a process another clock; None if it isn't installed."""
    folders = (Path("/usr/lib"), Path("/usr/lib64"), Path("/usr/local/lib"))
    return next(
        (path for folder in folders for path in sorted(folder.rglob("libfaketimeMT.so.1"))), None
    )


def remove_shared_clock(pid: int) -> None:
    """Remove what libfaketime shares with a process's children: one that a signal ends leaves it
    behind.
    """
    for name in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
        Path("/dev/shm", name).unlink(missing_ok=True)  # noqa: S108 - the library decides where


def executable() -> str:
    """The path of `leads-pipeline` in this environment."""
    return str(Path(sys.executable).parent / "leads-pipeline")


def environment(data: Path, address: str, clock: str, **more: str) -> dict[str, str]:
    """The variables of a process with this data folder and portal, whose clock begins at that
    moment.
    """
    library = libfaketime()
    assert library is not None
    patched = data.parent / "patched"
    patched.mkdir(exist_ok=True)
    (patched / "sitecustomize.py").write_text(_SLEEP)

    return {
        "HOME": str(data.parent),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(patched),
        "LD_PRELOAD": str(library),
        "FAKETIME": f"@{clock}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
        "TZ": "UTC",
        **variables(address, str(data)),
        "LEADS_TIMEZONE": "Europe/London",
        **more,
    }


def command(
    data: Path, address: str, clock: str, arguments: Sequence[str], **more: str
) -> tuple[int, str]:
    """Run `leads-pipeline` to its end at that moment.

    Give the exit code and everything that it printed.
    """
    output = data.parent / "output.txt"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [executable(), *arguments],
            cwd=data.parent,
            env=environment(data, address, clock, **more),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        return process.wait(300), output.read_text()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)
        remove_shared_clock(process.pid)


def carry_out(
    data: Path, address: str, clock: str, arguments: Sequence[str], start: str
) -> tuple[int, str]:
    """Run a command of the month for the two branches; the exit code and what it said.

    A restore makes the data folder anew: the one before is lost. Only the suppression list is
    somewhere else.
    """
    if arguments[0] == "restore":
        data.rename(data.with_name("lost"))
    # 1de0322e ended a restriction without asking.
    if "lift" in arguments:
        arguments = [*arguments, "--yes"]

    return command(
        data,
        address,
        clock,
        arguments,
        LEADS_BRANCH_IDS="101,102",
        LEADS_START_DATE=start,
        LEADS_BRANCHES_FILE=str(data / "branches.csv"),
        LEADS_PRIVACY_DIR=str(data.parent / "privacy"),
        INVENTORY_ADDRESSES="Alderbourne",
    )


# Of each table its columns and its rows, in order.
Tables = dict[str, tuple[list[str], list[list[Any]]]]


def tables(file: Path) -> Tables:
    """All tables of a published file, without the excluded columns."""
    found: Tables = {}
    with duckdb.connect(str(file), read_only=True) as db:
        db.execute("set TimeZone = 'UTC'")
        for (table,) in db.sql(
            "select table_name from information_schema.tables where table_schema = 'main' order by "
            "1"
        ).fetchall():
            columns = [
                (name, type_)
                for name, type_ in db.execute(
                    "select column_name, data_type from information_schema.columns "
                    "where table_name = ? and table_schema = 'main' order by ordinal_position",
                    [table],
                ).fetchall()
                if name not in EXCLUDED
            ]
            shown = ", ".join(
                f"timezone('UTC', \"{name}\")"
                if type_ == "TIMESTAMP WITH TIME ZONE"
                else f'"{name}"'
                for name, type_ in columns
            )
            rows = [
                [_cell(value) for value in row]
                for row in db.sql(f'select {shown} from "{table}"').fetchall()  # noqa: S608
            ]
            found[table] = [name for name, _ in columns], sorted(rows, key=json.dumps)
    return found


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, list):
        return sorted((_cell(one) for one in value), key=json.dumps)
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value)


def recorded_tables() -> Tables:
    """The tables as 1de0322e made them."""
    found: Tables = {}
    rows: list[list[Any]] = []
    with lzma.open(TABLES, "rt", encoding="utf-8") as file:
        for line in file:
            match json.loads(line):
                case {"table": table, "columns": columns}:
                    rows = []
                    found[table] = columns, rows
                case row:
                    rows.append(row)
    return found


def recorded_month() -> tuple[str, dict[str, str], list[Step]]:
    """The first day, the files of the user and the steps."""
    with lzma.open(ANSWERS, "rt", encoding="utf-8") as file:
        month = json.load(file)
    return month["start"], month["files"], [Step(**step) for step in month["steps"]]
