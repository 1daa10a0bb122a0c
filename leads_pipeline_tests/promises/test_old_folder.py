"""A data folder of 1de0322e opens and loses nothing: three days, two branches, a window that
failed, four requests.

The program that made it is in the history of this folder.
"""

import json
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml
from dagster import DagsterInstance

from leads_pipeline_tests.promises.month import (
    RECORDED,
    command,
    libfaketime,
    recorded_month,
    request,
)
from leads_pipeline_tests.promises.portal import portal
from leads_pipeline_tests.support.crm import SECRET
from leads_pipeline_tests.support.serving import QuietHandler, serving
from leads_pipeline_tests.support.small_portal import Answers

FOLDER = RECORDED / "folder-1de0322e.tar.xz"
DAYS = ("2026-11-15", "2026-11-16", "2026-11-17")
BRANCHES = {"LEADS_BRANCH_IDS": "101,102", "LEADS_START_DATE": DAYS[0]}

# A day later: the portal still has the window that failed.
NEW_DAY = "2026-11-18"
FAILED = f"applicant {DAYS[1]}|branch-102"
OF_THE_FAILED = (
    f"select lead_id from applicant_leads where window_day = '{DAYS[1]}' and scope = 'branch-102'"  # noqa: S608
)

# The address that corrected leads show.
RIGHT = "right@people.example"

# A lead that was pushed after the last publication and the last delivery.
WAITING = "pushed-and-waiting"


@dataclass
class Endpoint:
    """The agency's own system: its address, and the ids that were delivered to it."""

    address: str
    delivered: list[str] = field(default_factory=list)


@contextmanager
def endpoint() -> Iterator[Endpoint]:
    """Take deliveries while the block runs.

    Signatures aren't verified, as the sender has another clock.
    """

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["content-length"])))
            crm.delivered.append(message["data"]["lead_id"])
            self.send_response(204)
            self.end_headers()

    with serving(Handler) as address:
        crm = Endpoint(address)
        yield crm


def answers_of_the_month(refused: tuple[str, str] | None = None) -> Answers:
    """The recorded answers of the first pull, with no leads for any other window, and perhaps one
    that is refused.
    """
    _, _, (pull, *_) = recorded_month()

    def answers(path: str, parameters: Mapping[str, str]) -> tuple[int, bytes]:
        asked = request(path, parameters)
        if refused and asked.startswith(refused[0]) and f"from-time={refused[1]}" in asked:
            return 400, b'{"errors": [{"code": "invalid_time", "message": "no", "links": []}]}'
        status, body = pull.answers.get(
            asked, (200, f'{{"{path.strip("/").removesuffix("-leads")}s": []}}')
        )
        return status, body.encode()

    return answers


def run(data: Path, address: str, clock: str, *arguments: str, crm: Endpoint) -> tuple[int, str]:
    """Run `leads-pipeline` on the folder, at that moment.

    Give the exit code and what it printed.
    """
    return command(
        data,
        address,
        clock,
        arguments,
        **BRANCHES,
        INVENTORY_ADDRESSES="Alderbourne",
        LEADS_DELIVERY_URL=crm.address,
        LEADS_DELIVERY_SECRET=SECRET,
        LEADS_DELIVERY_FROM=DAYS[0],
    )


@dataclass(frozen=True)
class Old:
    """The unpacked folder, and what it held: ids of leads, and the address of the person who
    objected.
    """

    data: Path
    leads: dict[str, list[str]]
    delivered: list[str]
    erased: list[str]
    restricted: list[str]
    corrected: list[str]
    objecting: str

    @property
    def of_objecting(self) -> str:
        """A query for the leads of the person who objected."""
        return f"select lead_id from applicant_leads where contact_email = '{self.objecting}'"  # noqa: S608

    def rows(self, query: str) -> list[Any]:
        """What an analyst finds, the first column alone."""
        with duckdb.connect(str(self.data / "leads.duckdb"), read_only=True) as db:
            return [row[0] for row in db.sql(query).fetchall()]

    def assert_is_published(self) -> None:
        """Each lead is there once, but for those of people who asked otherwise."""
        for kind, ids in self.leads.items():
            found = self.rows(f"select lead_id from {kind}_leads")  # noqa: S608 - our own name
            assert len(set(found)) == len(found)
            assert set(ids) - set(found) == set()
            assert not {*self.erased, *self.restricted} & set(found)
        of_corrected = self.rows(
            f"select lead_id from applicant_leads where contact_email = '{RIGHT}'"  # noqa: S608
        )
        assert sorted(of_corrected) == self.corrected
        assert self.rows(self.of_objecting)
        assert self.rows("from mart_hidden_valuations")
        assert not self.rows(f"from mart_hidden_valuations where lead_id in ({self.of_objecting})")


@pytest.fixture
def old(tmp_path: Path) -> Old:
    if libfaketime() is None:
        pytest.skip("libfaketime is not installed: apt install faketime")
    with tarfile.open(FOLDER) as archive:
        # The argument of that name isn't in Debian 12's Python, 3.11.2.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(tmp_path)  # noqa: S202 - a file of this repository
    return Old(tmp_path / "data", **json.loads((tmp_path / "truth.json").read_text()))


def test_the_classes_that_a_dagster_yaml_of_1de0322e_names_can_be_imported(old: Old) -> None:
    settings = yaml.safe_load((old.data / ".dagster" / "dagster.yaml").read_text())
    sqlite = settings["event_log_storage"]
    postgres = {
        "module": "leads_pipeline.orchestration.event_log_postgres",
        "class": "PostgresStorage",
    }

    for named in (sqlite, postgres):
        assert hasattr(import_module(named["module"]), named["class"])


def test_dagster_starts_with_a_dagster_yaml_of_1de0322e_and_keeps_events_in_its_class(
    old: Old, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = old.data / ".dagster"
    monkeypatch.setenv("DAGSTER_HOME", str(home))

    with DagsterInstance.from_config(str(home)) as instance:
        instance.report_engine_event("started", run_id="a-run", job_name="pull_leads")

        assert type(instance.event_log_storage).__module__.startswith("leads_pipeline.")
        [event] = instance.all_logs("a-run")
        assert event.message == "started"


@pytest.mark.slow
def test_a_folder_of_1de0322e_opens_and_loses_nothing(old: Old) -> None:
    with portal(answers_of_the_month()) as address, endpoint() as crm:

        def said(hour: str, *arguments: str, exit_code: int = 0) -> str:
            code, text = run(old.data, address, f"2026-11-19 {hour}:00", *arguments, crm=crm)
            assert code == exit_code, text
            return text

        def answered(hour: str, *arguments: str, exit_code: int = 0) -> Any:
            text = said(hour, *arguments, "--json", exit_code=exit_code)
            return json.loads(text[text.index("{") :])

        # Commands that only look find everything, before anything is published anew.
        old.assert_is_published()
        leads = sum(len(ids) for ids in old.leads.values())
        status = answered("07:00", "status", exit_code=1)
        assert leads == sum(status["leads"].values())
        found = answered("07:05", "privacy", "find", "--email", old.objecting)
        assert [one["lead_id"] for one in found["theirs"]] == old.rows(old.of_objecting)

        # The lead that waits is delivered, and the corrected one again. No other lead is delivered
        # twice.
        said("07:10", "deliver")
        assert set(crm.delivered) - set(old.delivered) == {WAITING}
        assert set(crm.delivered) & set(old.delivered) == set(old.corrected)

        # A pull of a new day publishes the lead that waits, and loses nothing.
        said("07:15", "backfill", "--from", NEW_DAY, "--to", NEW_DAY)
        old.assert_is_published()
        assert WAITING in old.rows("select lead_id from applicant_leads")
        coverage = answered("07:30", "coverage", exit_code=1)
        assert [f"{one['kind']} {one['partition']}" for one in coverage["not_landed"]] == [FAILED]
        assert old.rows(OF_THE_FAILED) == []

        # A pull of the old days brings the window that had failed, and nobody back who asked not to
        # be there.
        said("08:00", "backfill", "--from", DAYS[0], "--to", DAYS[-1])
        old.assert_is_published()
        assert old.rows(OF_THE_FAILED)
