"""Readers in other processes are never held up, never meet an error, and never see half of a
publication.

Two DuckDB versions read: the one of the lock, and the oldest one that docs/guides/ask-the-data.md
promises.
"""

import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from leads_pipeline_tests.promises.agency import BRANCHES, KINDS, Agency, agency, lead
from leads_pipeline_tests.support.newcomer import PATIENCE_SECONDS, wait_for

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "ask-the-data.md"
[OLDEST] = re.findall(r"DuckDB (\S+) or newer reads", GUIDE.read_text(encoding="utf-8"))

LOCKED = "the lock"
CLIENTS = (LOCKED, OLDEST)

VERSIONS: Final = (1, 2, 3)

# So few of a branch's leads change that a publication brings the file up to date, and doesn't make
# it anew.
STEADY = 80
CHANGING = 3

# What a reader reads on one connection: the versions that changed leads and their children show,
# and how many leads the tables of leads and some marts have.
READ = """
    import json, select, sys, time
    sys.path[:0] = sys.argv[2:]
    import duckdb

    def read(db):
        db.execute("set enable_progress_bar = false")  # which the oldest DuckDB prints on a busy machine
        def one(query):
            return db.execute(query).fetchall()

        shown = [
            one("select distinct message from applicant_leads where starts_with(lead_id, 'changing')"),
            one("select distinct filename from applicant_listing_images where starts_with(lead_id, 'changing')"),
            one("select distinct message from appraisal_leads where starts_with(lead_id, 'changing')"),
        ]
        leads = one("select count(*) from applicant_leads")
        time.sleep(0.1)  # while others publish
        counts = [
            leads,
            one("select count(*) from appraisal_leads"),
            one("select sum(leads)::int from mart_leads_daily where kind = 'applicant'"),
            one("select sum(leads)::int from mart_listing_demand"),
            one("select sum(rows)::int from mart_coverage where kind = 'applicant'"),
        ]
        print(json.dumps({"shown": shown, "counts": counts}), flush=True)
"""

# Opens the file again and again until its input ends, and once more: a reading may have begun long
# before.
OPENS_AGAIN = """
    is_over = False
    while not is_over:
        is_over = bool(select.select([sys.stdin], [], [], 0)[0])
        with duckdb.connect(sys.argv[1], read_only=True) as db:
            read(db)
"""

# Opens the file once, and reads it when its input ends.
STAYS_OPEN = """
    with duckdb.connect(sys.argv[1], read_only=True) as db:
        print("open", flush=True)
        sys.stdin.read()
        read(db)
"""

# Every row of every table and mart.
READS_ALL = """
    with duckdb.connect(sys.argv[1], read_only=True) as db:
        db.execute("set enable_progress_bar = false")
        names = db.execute("select table_name from information_schema.tables where table_schema = 'main'").fetchall()
        def plain(value):  # versions name the same time zone in different ways
            return value.timestamp() if getattr(value, "tzinfo", None) else value
        rows = {
            name: sorted(str([plain(one) for one in row]) for row in db.execute(f'from "{name}"').fetchall())
            for name, in names
        }
        print(json.dumps({"version": duckdb.__version__, "rows": rows}))
"""


class Reader:
    """A program that reads the file in a process of its own, by the DuckDB in that folder of
    packages.
    """

    def __init__(self, program: str, file: Path, packages: Path, log: Path) -> None:
        self._log = log
        with log.open("w") as output:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    textwrap.dedent(READ) + textwrap.dedent(program),
                    str(file),
                    str(packages),
                ],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def wait_for_a_line(self) -> None:
        """Wait until it has printed something."""
        wait_for(lambda: "\n" in self._log.read_text())

    def end(self) -> list[Any]:
        """Tell it to end; what it read. It ended well."""
        self.process.communicate(timeout=PATIENCE_SECONDS)
        assert self.process.returncode == 0, self._log.read_text()
        return [json.loads(line) for line in self._log.read_text().splitlines() if line != "open"]


def folder_of(client: str, folder: Path) -> Path | None:
    """The folder of packages with that DuckDB: the lock's, or the oldest one, installed anew.

    None if it can't be.
    """
    if client == LOCKED:
        return folder
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    which = ["--only-binary", ":all:", "--target", str(folder), f"duckdb=={OLDEST}"]
    done = subprocess.run([*install, *which], check=False)
    return folder if done.returncode == 0 else None


def publish(there: Agency, version: int) -> None:
    """Change some leads at the portal, add some, and publish."""
    steady = {f"steady-{number}": 1 for number in range(STEADY)}
    changing = {f"changing-{number}": version for number in range(CHANGING + version)}
    for branch in BRANCHES:
        for kind in KINDS:
            for id_, of in {**steady, **changing}.items():
                listing = {"id": "1", "images": [{"filename": f"version {of}"}]}
                there.put(kind, branch, lead(f"{id_}-{kind}-{branch}", of, listingDetails=listing))
    done = there.backfill()
    assert done.returncode == 0, done.stderr


def whole(version: int) -> dict[str, Any]:
    """What a reader reads of that publication."""
    of_kind = len(BRANCHES) * (STEADY + CHANGING + version)
    return {"shown": [[[f"version {version}"]]] * 3, "counts": [[[of_kind]]] * 5}


def version_of(read: dict[str, Any]) -> int:
    return int(read["shown"][0][0][0].removeprefix("version "))


@pytest.fixture
def readers(tmp_path: Path) -> Iterator[dict[tuple[str, str], Reader]]:
    """Publish several times while readers read: the readers, by DuckDB and name."""
    packages = {
        client: path for client in CLIENTS if (path := folder_of(client, tmp_path / client))
    }
    found: dict[tuple[str, str], Reader] = {}

    def begin(name: str, program: str) -> None:
        for client, path in packages.items():
            found[client, name] = Reader(program, file, path, tmp_path / f"{client} {name}")
        for client in packages:
            found[client, name].wait_for_a_line()

    try:
        with agency(tmp_path / "data") as there:
            file = there.data / "leads.duckdb"
            for version in VERSIONS:
                publish(there, version)
                begin(f"stays {version}", STAYS_OPEN)
                if version == VERSIONS[0]:
                    begin("in turn", OPENS_AGAIN)
        begin("everything", READS_ALL)
        yield found
    finally:
        for reader in found.values():
            reader.process.kill()
            reader.process.communicate()


@pytest.mark.slow
def test_readers_are_never_blocked_and_see_whole_publications_alone(
    readers: dict[tuple[str, str], Reader],
) -> None:
    clients = {client for client, _ in readers}
    for client in clients:
        # Who connects sees the newest publication, whole.
        in_turn = readers[client, "in turn"].end()
        versions = [version_of(one) for one in in_turn]
        assert in_turn == [whole(version) for version in versions]
        assert versions == sorted(versions)
        assert {versions[0], versions[-1]} == {VERSIONS[0], VERSIONS[-1]}

        # Who stays connected keeps their version. None had read a row before the next publication,
        # so none had any in its memory.
        for version in VERSIONS:
            assert readers[client, f"stays {version}"].end() == [whole(version)]

    # Every DuckDB that the docs promise reads every table alike.
    [of_lock] = readers[LOCKED, "everything"].end()
    if OLDEST not in clients:
        pytest.skip(f"DuckDB {OLDEST} can't be installed here by pip")
    [of_oldest] = readers[OLDEST, "everything"].end()
    assert of_oldest == {"version": OLDEST, "rows": of_lock["rows"]}
