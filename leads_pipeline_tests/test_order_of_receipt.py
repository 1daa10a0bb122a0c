"""Which version of a lead is the newest, from the portal to the analyst, whatever clocks and processes do."""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest

from leads_pipeline.contract import APPLICANT, LEAD_KINDS
from leads_pipeline.flatten.batches import flatten_day
from leads_pipeline.lake import Lake
from leads_pipeline.receiver import Receiver
from leads_pipeline.resources import DataFolder, LeadsService
from leads_pipeline.spool import Placement, Spool
from leads_pipeline.warehouse import Grid, Warehouse
from leads_pipeline.window import Scope, Window
from leads_pipeline_tests.sample_answers import UTC_ZONE
from leads_pipeline_tests.small_portal import CLIENT_ID, SmallPortal, served

SCOPE = Scope.parse("branch-101")
SECRET = "the-secret-of-the-small-portal"
KEY = "the-key-that-deliveries-carry"


class Agency:
    """A data folder, and a portal that holds one lead of yesterday."""

    def __init__(self, folder: Path) -> None:
        self.lake = Lake(folder)
        self.now = datetime.now(UTC)
        self.window = Window.of(self.now.date() - timedelta(days=1), SCOPE, UTC_ZONE)
        self.text = ""
        self.portal = SmallPortal(SECRET, self._answer)
        self.before_answering: Callable[[str], None] = lambda _: None

    def pull(self) -> None:
        service = LeadsService(
            data=DataFolder(path=str(self.lake.folder)),
            base_url=self.portal.base_url,
            auth_url=self.portal.base_url,
            client_id=CLIENT_ID,
            client_secret=SECRET,
        )
        client, _ = service.connect()
        for _, answer in client.fetch_windows(APPLICANT, [self.window]):
            assert not isinstance(answer, Exception)
            self.lake.land(answer, "run")

    def push(self) -> None:
        async def deliver() -> httpx.Response:
            app = Receiver(Spool(self.lake), KEY)
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as http:
                return await http.post("/leads", json={"applicant": self._lead()}, headers={"X-API-Key": KEY})

        assert asyncio.run(deliver()).status_code == 200

    def seen(self) -> list[tuple[Any, ...]]:
        """What an analyst sees: each lead's message, and how many versions of it lie in raw."""
        list(Spool(self.lake).take_in(Placement((SCOPE,), UTC_ZONE, self.window.day), "run"))
        for kind in LEAD_KINDS:
            flatten_day(self.lake, kind, self.window.day, UTC_ZONE)
        store = Warehouse(self.lake)
        store.publish(Grid((SCOPE,), self.window.day, UTC_ZONE), self.now)
        return store.query("select lead_id, message from applicant_leads")[1]

    def versions(self) -> int:
        files = (self.lake.folder / "raw").rglob("*.parquet")
        sql = "select count(distinct payload) from read_parquet($files, union_by_name = true)"
        with duckdb.connect() as db:
            return int(db.execute(sql, {"files": [str(path) for path in files]}).fetchall()[0][0])

    def _lead(self) -> dict[str, str]:
        created = f"{self.window.start + timedelta(hours=9):%Y-%m-%dT%H:%M:%SZ}"
        return {"id": "lead-1", "createdAt": created, "portalBranchId": "101", "message": self.text}

    def _answer(self, path: str, _: dict[str, str]) -> tuple[int, bytes]:
        kind = next(kind for kind in LEAD_KINDS if kind.path == path)
        body = json.dumps({kind.list_key: [self._lead()]}).encode()
        self.before_answering(self.text)
        return 200, body


@pytest.fixture
def agency(tmp_path: Path) -> Any:
    agency = Agency(tmp_path / "data")
    with served(agency.portal):
        yield agency


@pytest.mark.parametrize(
    ("ways", "clock"),
    [
        ("pull push pull", timedelta(hours=-1)),
        ("push pull push", timedelta(days=-365)),
        ("pull pull pull", timedelta(days=-365)),
        ("push push push", timedelta(hours=-1)),
    ],
)
def test_a_version_that_comes_back_counts_though_the_clock_is_set_back_each_time(
    agency: Agency, ways: str, clock: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time_ns
    for number, (text, way) in enumerate(zip("ABA", ways.split(), strict=True)):
        monkeypatch.setattr(time, "time_ns", lambda: now() + number * int(clock.total_seconds() * 1e9))  # noqa: B023 - used at once
        agency.text = text
        getattr(agency, way)()
    assert agency.seen() == [("lead-1", "A")]
    assert agency.versions() == 2


def test_the_slower_of_two_pulls_that_holds_the_older_answer_changes_nothing(agency: Agency) -> None:
    is_asked, may_answer = threading.Event(), threading.Event()

    def hold_back(text: str) -> None:
        if text == "older":
            is_asked.set()
            assert may_answer.wait(60)

    agency.text, agency.before_answering = "older", hold_back
    slow = threading.Thread(target=agency.pull)
    slow.start()
    assert is_asked.wait(60)
    agency.text = "newer"
    agency.pull()
    may_answer.set()
    slow.join()

    assert agency.seen() == [("lead-1", "newer")]
    assert agency.versions() == 2


def test_a_delivery_counts_from_when_it_was_received_and_not_from_when_it_was_taken_in(agency: Agency) -> None:
    agency.text = "pushed"
    agency.push()
    agency.text = "pulled later, and landed before"
    agency.pull()
    assert agency.seen() == [("lead-1", agency.text)]
