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
from dataclasses import dataclass
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
STEADY, CHANGING = 80, 3

# Each mart says how many leads it was made from, of one kind or of both.
BOTH: Final = (
    "mart_leads_daily",
    "mart_people",
    "mart_people_daily",
    "mart_weekly",
    "mart_monthly",
    "mart_districts",
    "mart_hourly",
    "mart_arrival_times",
)
OF_APPLICANTS: Final = ("mart_listing_demand", "mart_listing_daily", "mart_enquiry_mix")
AGREEING: Final = {
    **dict.fromkeys(BOTH, ("sum(leads)", "both")),
    **dict.fromkeys(OF_APPLICANTS, ("sum(leads)", "applicant")),
    "mart_lead_properties": ("count(*)", "both"),
    "mart_coverage": ("sum(rows)", "both"),
    "mart_hidden_valuations": ("count(*)", "applicant"),
    "drift": ("max(leads)", "applicant"),
    "mart_appraisals": ("sum(leads)", "appraisal"),
}
COUNTING_NO_LEADS: Final = {
    "mart_answers",
    "mart_listing_stock",
    "mart_opening_hours",
    "mart_outcomes",
    "mart_searches",
}

# What a reader reads on one connection: the versions that changed leads and their children show,
# and all counts.
READ = f"""
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
        leads = {{kind: one(f"select count(*) from {{kind}}_leads")[0][0] for kind in {KINDS}}}
        time.sleep(0.1)  # while others publish
        marts = {{mart: int(one(f"select {{figure}} from {{mart}}")[0][0]) for mart, (figure, _) in {AGREEING}.items()}}
        print(json.dumps({{"shown": shown, "leads": leads, "marts": marts}}), flush=True)
"""  # noqa: S608 - our own names

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
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--only-binary",
        ":all:",
    ]
    command += ["--target", str(folder), f"duckdb=={OLDEST}"]
    return folder if subprocess.run(command, check=False).returncode == 0 else None


@dataclass
class History:
    """What the readers with one DuckDB read: in connection after connection, in those that stayed,
    and all at last.
    """

    in_turn: list[Any]
    stayed: list[Any]
    everything: dict[str, Any]


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, History]:
    """Publish several times while readers read; by client."""
    folder = tmp_path_factory.mktemp("readers")
    packages = {client: path for client in CLIENTS if (path := folder_of(client, folder / client))}
    readers: dict[tuple[str, str], Reader] = {}

    def begin(name: str, program: str) -> None:
        for client, path in packages.items():
            readers[client, name] = Reader(program, file, path, folder / f"{client} {name}")
        for client in packages:
            readers[client, name].wait_for_a_line()

    try:
        with agency(folder / "data") as there:
            file = there.data / "leads.duckdb"
            for version in VERSIONS:
                publish(there, version)
                begin(f"stays {version}", STAYS_OPEN)
                if version == VERSIONS[0]:
                    begin("in turn", OPENS_AGAIN)
        begin("everything", READS_ALL)
        return {
            client: History(
                in_turn=readers[client, "in turn"].end(),
                stayed=[
                    one for version in VERSIONS for one in readers[client, f"stays {version}"].end()
                ],
                everything=readers[client, "everything"].end()[0],
            )
            for client in packages
        }
    finally:
        for reader in readers.values():
            reader.process.kill()
            reader.process.communicate()


@pytest.fixture(params=CLIENTS)
def history(request: pytest.FixtureRequest, histories: dict[str, History]) -> History:
    if request.param not in histories:
        pytest.skip(f"DuckDB {OLDEST} can't be installed here by pip")
    return histories[request.param]


def publish(there: Agency, version: int) -> None:
    """Change some leads at the portal, add some, and publish."""

    def put(kind: str, branch: str, id_: str, version: int, **more: Any) -> None:
        listing = {"id": "1", "images": [{"filename": f"version {version}"}]}
        of_applicants = {
            "consumerSituation": "CONSUMER_SITUATION_PROPERTY_TO_SELL",
            "listingDetails": listing,
            "new": 1,
        }
        more |= of_applicants if kind == "applicant" else {}
        there.put(kind, branch, lead(f"{id_}-{kind}-{branch}", version, **more))

    for branch in BRANCHES:
        for kind in KINDS:
            for number in range(STEADY):
                # One has a value of another type than declared.
                put(
                    kind,
                    branch,
                    f"steady-{number}",
                    1,
                    isOverseas="perhaps" if number == 0 else True,
                )
            for number in range(CHANGING + version):
                put(kind, branch, f"changing-{number}", version)
    done = there.backfill()
    assert done.returncode == 0, done.stderr


def whole(version: int) -> dict[str, Any]:
    """What a reader reads of that publication."""
    of_kind = len(BRANCHES) * (STEADY + CHANGING + version)
    return {
        "shown": [[[f"version {version}"]]] * 3,
        "leads": dict.fromkeys(KINDS, of_kind),
        "marts": {mart: of_kind * (2 if of == "both" else 1) for mart, (_, of) in AGREEING.items()},
    }


@pytest.mark.slow
def test_readers_see_whole_publications_alone_and_the_newest_when_they_connect(
    history: History,
) -> None:
    versions = [one["shown"][0][0][0] for one in history.in_turn]
    assert [
        one
        for one, other in zip(history.in_turn, versions, strict=True)
        if one != whole(int(other[8:]))
    ] == []
    assert versions == sorted(versions)
    assert {versions[0], versions[-1]} == {f"version {VERSIONS[0]}", f"version {VERSIONS[-1]}"}


@pytest.mark.slow
def test_a_reader_that_stays_connected_keeps_its_version(history: History) -> None:
    # None had read a row before the next publication, so none had any in its memory.
    assert history.stayed == [whole(version) for version in VERSIONS]


@pytest.mark.slow
def test_every_client_that_the_docs_promise_reads_every_table(
    history: History, histories: dict[str, History]
) -> None:
    rows = histories[LOCKED].everything["rows"]
    assert {
        name for name in rows if name.startswith("mart_")
    } <= AGREEING.keys() | COUNTING_NO_LEADS
    assert history.everything["rows"] == rows
    assert OLDEST not in histories or histories[OLDEST].everything["version"] == OLDEST
