"""A data folder of dd03c9a opens by itself and loses nothing: three days, two branches, a window that failed.

The program that made it is in the history of this folder.
"""

import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import duckdb
import pytest

from leads_pipeline_tests.promises.month import RECORDED, command, libfaketime, recorded_month, request
from leads_pipeline_tests.promises.portal import portal
from leads_pipeline_tests.support.small_portal import Answers

FOLDER = RECORDED / "folder-dd03c9a.tar.xz"
DAYS = ("2026-11-15", "2026-11-16", "2026-11-17")

BRANCHES = {"LEADS_BRANCH_IDS": "101,102", "LEADS_START_DATE": DAYS[0]}

# A day later: the portal still has the window that failed. Each command begins after the one before it.
CLOCK, LATER, LAST = (f"2026-11-19 {hour}:00:00" for hour in ("07", "08", "09"))
NEW_DAY = "2026-11-18"

OF_THE_FAILED = f"select lead_id from applicant_leads where window_day = '{DAYS[1]}' and scope = 'branch-102'"  # noqa: S608


def answers_of_the_month() -> Answers:
    """The recorded answers of the first pull, with no leads for any other window."""
    _, _, (pull, *_) = recorded_month()

    def answers(path: str, parameters: Mapping[str, str]) -> tuple[int, bytes]:
        status, body = pull.answers.get(
            request(path, parameters), (200, f'{{"{path.strip("/").removesuffix("-leads")}s": []}}')
        )
        return status, body.encode()

    return answers


def run(data: Path, address: str, clock: str, *arguments: str) -> tuple[int, str]:
    """Run `leads-pipeline` on the folder, at that moment. Give the exit code and what it printed."""
    return command(data, address, clock, arguments, **BRANCHES)


@dataclass(frozen=True)
class Old:
    """The unpacked folder, and what it held: leads by kind, who was erased, who objected, which pushes wait."""

    data: Path
    leads: dict[str, list[str]]
    erased: list[str]
    objecting: str
    waiting: list[str]

    def rows(self, query: str) -> list[Any]:
        """What an analyst finds, the first column alone."""
        with duckdb.connect(str(self.data / "leads.duckdb"), read_only=True) as db:
            return [row[0] for row in db.sql(query).fetchall()]

    def due(self, address: str, clock: str) -> list[str]:
        """The windows that `coverage` says are to be pulled."""
        _, said = run(self.data, address, clock, "coverage", "--json")
        return [f"{one['kind']} {one['partition']}" for one in json.loads(said[said.index("{") :])["not_landed"]]

    def assert_nothing_is_lost(self) -> None:
        """Each lead is there once, but for those of the erased person. Nobody is to call the person who objected."""
        for kind, ids in self.leads.items():
            found = self.rows(f"select lead_id from {kind}_leads")  # noqa: S608 - our own name
            assert len(set(found)) == len(found)
            assert set(ids) - set(found) == set()
            assert not set(self.erased) & set(found)
        people = self.rows("select person::varchar from applicant_leads")
        hidden = self.rows("select person::varchar from mart_hidden_valuations")
        assert self.objecting in people
        assert hidden
        assert self.objecting not in hidden


@pytest.fixture
def old(tmp_path: Path) -> Old:
    if libfaketime() is None:
        pytest.skip("libfaketime is not installed: apt install faketime")
    with tarfile.open(FOLDER) as archive:
        # The argument of that name isn't in Debian 12's Python, 3.11.2.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(tmp_path)  # noqa: S202 - a file of this repository
    return Old(tmp_path / "data", **json.loads((tmp_path / "truth.json").read_text()))


@pytest.mark.slow
def test_a_folder_of_dd03c9a_opens_by_itself_and_loses_nothing(old: Old) -> None:
    failed = f"applicant {DAYS[1]}|branch-102"
    with portal(answers_of_the_month()) as address:
        # A command that only looks says what is to be done first.
        code, said = run(old.data, address, CLOCK, "coverage")
        assert (code, "files of an earlier version" in " ".join(said.split())) == (2, True)

        # A pull of a new day publishes the leads of the old folder, and pushes that waited.
        assert run(old.data, address, CLOCK, "backfill", "--from", NEW_DAY, "--to", NEW_DAY) == (0, ANY)
        old.assert_nothing_is_lost()
        assert old.due(address, LATER) == [failed]
        assert set(old.waiting) <= {
            *old.rows("select lead_id from applicant_leads union all from (select lead_id from appraisal_leads)")
        }
        assert not list((old.data / "spool").glob("*.pushed"))
        assert old.rows(OF_THE_FAILED) == []

        # A pull of the old days brings the window that had failed, and nobody back who was erased.
        assert run(old.data, address, LATER, "backfill", "--from", DAYS[0], "--to", DAYS[-1]) == (0, ANY)
        old.assert_nothing_is_lost()
        assert old.rows(OF_THE_FAILED)
        assert old.due(address, LAST) == []
