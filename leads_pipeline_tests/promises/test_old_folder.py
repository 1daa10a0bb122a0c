"""A data folder of 1de0322e opens and loses nothing: three days, two branches, a window that
failed, four requests.

The program that made it is in the history of this folder.
"""

import json
import lzma
import os
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from dagster import DagsterInstance

from leads_pipeline_tests.promises.machine import Clock, Machine, needs_faketime
from leads_pipeline_tests.support.analyst import query
from leads_pipeline_tests.support.crm import SECRET
from leads_pipeline_tests.support.sinks import web_sink
from leads_pipeline_tests.support.small_portal import SmallPortal, served, variables

RECORDED = Path(__file__).parent / "recorded"
DAYS = ("2026-11-15", "2026-11-16", "2026-11-17")

# A day later: the portal still has the window that failed.
NEW_DAY = "2026-11-18"
MORNING = datetime(2026, 11, 19, 7, tzinfo=UTC)
OF_THE_FAILED = (
    f"select lead_id from applicant_leads where window_day = '{DAYS[1]}' and scope = 'branch-102'"  # noqa: S608
)

# The address that corrected leads show.
RIGHT = "right@people.example"

# A lead that was pushed after the last publication and the last delivery.
WAITING = "pushed-and-waiting"


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

    def rows(self, sql: str) -> list[Any]:
        """What an analyst finds, the first column alone."""
        return [row[0] for row in query(self.data / "leads.duckdb", sql)]

    def assert_is_published(self) -> None:
        """Each lead is there once, but for those of people who asked otherwise."""
        for kind, ids in self.leads.items():
            found = self.rows(f"select lead_id from {kind}_leads")  # noqa: S608 - our own name
            assert len(set(found)) == len(found)
            assert set(ids) <= set(found)
            assert set(found).isdisjoint([*self.erased, *self.restricted])

        of_corrected = f"select lead_id from applicant_leads where contact_email = '{RIGHT}'"  # noqa: S608
        assert sorted(self.rows(of_corrected)) == self.corrected
        assert self.rows(self.of_objecting)
        assert self.rows("from mart_hidden_valuations")
        assert not self.rows(f"from mart_hidden_valuations where lead_id in ({self.of_objecting})")


@pytest.fixture
def old(tmp_path: Path) -> Old:
    with tarfile.open(RECORDED / "folder-1de0322e.tar.xz") as archive:
        # The argument of that name isn't in Debian 12's Python, 3.11.2.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(tmp_path)  # noqa: S202 - a file of this repository
    return Old(tmp_path / "data", **json.loads((tmp_path / "truth.json").read_text()))


def test_dagster_starts_with_a_dagster_yaml_of_1de0322e_and_keeps_its_events(old: Old) -> None:
    home = old.data / ".dagster"
    os.environ["DAGSTER_HOME"] = str(home)

    with DagsterInstance.from_config(str(home)) as instance:
        instance.report_engine_event("started", run_id="a-run", job_name="pull_leads")

        assert type(instance.event_log_storage).__module__.startswith("leads_pipeline.")
        [event] = instance.all_logs("a-run")
        assert event.message == "started"


def test_the_class_that_a_dagster_yaml_of_1de0322e_names_for_postgres_is_still_there() -> None:
    of_postgres = import_module("leads_pipeline.orchestration.event_log_postgres")

    assert of_postgres.PostgresStorage


def recorded_answer(path: str, parameters: Mapping[str, str]) -> tuple[int, bytes]:
    """The answer for a window of the three days; for any other, no leads."""
    with lzma.open(RECORDED / "answers.json.xz", "rt", encoding="utf-8") as file:
        bodies = json.load(file)
    no_leads = f'{{"{path.strip("/").removesuffix("-leads")}s": []}}'
    request = f"{path}?{urlencode(sorted(parameters.items()))}"
    return 200, bodies.get(request, no_leads).encode()


@needs_faketime
@pytest.mark.slow
def test_a_folder_of_1de0322e_opens_and_loses_nothing(old: Old, tmp_path: Path) -> None:
    with served(SmallPortal(recorded_answer)) as portal, web_sink() as crm:
        settings = {
            **variables(portal.base_url),
            "LEADS_DATA_DIR": str(old.data),
            "LEADS_BRANCH_IDS": "101,102",
            "LEADS_START_DATE": DAYS[0],
            "LEADS_TIMEZONE": "Europe/London",
            "LEADS_DELIVERY_URL": crm.url,
            "LEADS_DELIVERY_SECRET": SECRET,
            "LEADS_DELIVERY_FROM": DAYS[0],
            "INVENTORY_BASE_URL": portal.base_url,
            "INVENTORY_CLIENT_ID": "client",
            "INVENTORY_CLIENT_SECRET": "made-up-secret",
            "INVENTORY_AGENCY_REF": "agency",
            "INVENTORY_ADDRESSES": "Alderbourne",
        }
        machine = Machine(tmp_path, Clock(tmp_path / "clock", MORNING), settings)

        # A command that only looks finds everything, before anything is published anew.
        old.assert_is_published()
        _, text = machine.said("privacy", "find", "--email", old.objecting, "--json")
        found = json.loads(text[text.index("{") :])
        assert [one["lead_id"] for one in found["theirs"]] == old.rows(old.of_objecting)

        # The lead that waits is delivered, and the corrected one again. No other lead is delivered
        # twice.
        assert machine.command("deliver") == 0, machine.output()
        delivered = {json.loads(body)["data"]["lead_id"] for _, _, body in crm.requests}
        assert delivered - set(old.delivered) == {WAITING}
        assert delivered & set(old.delivered) == set(old.corrected)

        # A pull of a new day publishes the lead that waits, and loses nothing.
        assert machine.command("backfill", "--from", NEW_DAY, "--to", NEW_DAY) == 0
        old.assert_is_published()
        assert WAITING in old.rows("select lead_id from applicant_leads")
        assert old.rows(OF_THE_FAILED) == []

        # A pull of the old days brings the window that had failed, and nobody back who asked not to
        # be there.
        assert machine.command("backfill", "--from", DAYS[0], "--to", DAYS[-1]) == 0
        old.assert_is_published()
        assert old.rows(OF_THE_FAILED)
