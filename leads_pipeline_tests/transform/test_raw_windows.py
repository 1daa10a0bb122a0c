"""From the portal to leads.duckdb by the new rooms alone: fetch, land, publish."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import duckdb
import pytest

from leads_pipeline.domain.contract import APPLICANT, LEAD_KINDS, Answer, ReceivedLead
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.simulator.app import Config
from leads_pipeline.simulator.server import RunningSimulator, running
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.raw import Landed, Place, Raw, place_of
from leads_pipeline.storage.rows import CORRECTION, Row
from leads_pipeline.storage.store import FolderStore
from leads_pipeline.transform.people import set_person_key
from leads_pipeline.transform.publish import Content, Publication, publish
from leads_pipeline.transform.raw_windows import RawWindows
from leads_pipeline_tests.chaos.way import DAY, connect, truth, window, windows_of
from leads_pipeline_tests.support.keeping_out import KeptOut

UTC_ZONE = ZoneInfo("UTC")
PLACE = place_of(APPLICANT, window())


class House:
    """A data folder with the new rooms."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.list = KeptOut(folder / "list")
        self.store = FolderStore(folder)
        self.raw = Raw(self.store, self.list)
        self.windows = RawWindows(self.store, self.list)

    def pull(self, portal: RunningSimulator, days: int = 3) -> dict[str, Landed]:
        found: dict[str, Landed] = {}
        for kind in LEAD_KINDS:
            client, _ = connect(portal.environment(), DataFolder.at(self.folder))

            def land(answer: Answer) -> Landed:
                return self.raw.land(
                    answer.kind, answer.window, answer.leads, answer.fetched_at, answer.body_sha256, "run"
                )

            for one, outcome in client.fetch_windows(kind, windows_of(portal, days), land):
                assert not isinstance(outcome, LeadsPipelineError), outcome
                found[f"{kind.name} {one.partition_key}"] = outcome
        return found

    def publish(self, **options: bool) -> Publication | None:
        content = Content(
            zone=UTC_ZONE,
            fingerprint="",
            list_number=self.list.number,
            prepare=lambda db: set_person_key(db, b"key"),
            refuse=lambda _: None,
            inputs="",
            make_marts=lambda *_: None,
        )
        return publish(self.folder, self.windows, content, **options)

    def query(self, sql: str) -> list[tuple[object, ...]]:
        with duckdb.connect(self.folder / "leads.duckdb", read_only=True) as db:
            return db.execute(sql).fetchall()

    def ids(self, kind: str = "applicant") -> list[str]:
        return [str(lead_id) for (lead_id,) in self.query(f"from {kind}_leads select lead_id order by all")]


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path / "data")


@pytest.fixture
def portal() -> Iterator[RunningSimulator]:
    with running(Config(branches=3, leads_per_day=20)) as portal:
        yield portal


def test_each_lead_of_the_portal_is_published_once_and_a_second_pull_changes_nothing(
    house: House, portal: RunningSimulator
) -> None:
    first = house.pull(portal)
    published = house.publish()
    assert published is not None
    assert (published.way, published.windows) == ("new file", len(first))
    for kind in LEAD_KINDS:
        wanted = {lead_id for one in windows_of(portal, 3) for lead_id in truth(portal, kind, one)}
        assert house.ids(kind.name) == sorted(wanted)
    again = house.pull(portal)
    assert all(landed.new == landed.changed == 0 for landed in again.values())
    assert house.publish() is None, "only the looks are newer"


def test_a_push_is_published_beside_what_was_pulled(house: House, portal: RunningSimulator) -> None:
    house.pull(portal, days=1)
    house.publish()
    before = house.ids()
    house.raw.add(PLACE, [ReceivedLead("pushed", '{"id": "pushed"}')], datetime.now(UTC))
    assert house.publish() == Publication("update", windows=1, leads=1)
    assert house.ids() == sorted([*before, "pushed"])
    assert house.query("select source from applicant_leads where lead_id = 'pushed'") == [("push",)]


def test_a_file_that_an_older_list_has_filtered_passes_the_list_when_it_is_read(house: House) -> None:
    asked_at = datetime.now(UTC) - timedelta(hours=1)
    leads = [ReceivedLead(lead_id, json.dumps({"id": lead_id})) for lead_id in ("a", "b")]
    house.raw.land(APPLICANT, window(), leads, asked_at, "", "run")
    house.list.keep_out("a")  # and nobody has swept yet
    house.publish()
    assert house.ids() == ["b"]


def test_a_window_older_than_sixty_days_is_looked_at_once_a_night(house: House) -> None:
    old = Place(APPLICANT, DAY - timedelta(days=90), "branch-101")
    house.raw.add(PLACE, [ReceivedLead("new", '{"id": "new"}')], datetime.now(UTC))
    house.publish()
    house.raw.add(old, [ReceivedLead("old", '{"id": "old"}')], datetime.now(UTC))
    assert house.publish() is None
    assert house.publish(of_all_days=True) == Publication("update", windows=1, leads=1)


def test_a_correction_holds_for_later_versions_too(house: House) -> None:
    rows = [
        Row("a", 1, '{"id": "a", "contact": {"email": "old@x.example", "firstName": "Jo"}}'),
        Row("a", 2, '{"contact": {"email": "new@x.example"}}', CORRECTION),
        Row("a", 3, '{"id": "a", "contact": {"email": "old@x.example", "firstName": "Joe"}}'),
    ]
    house.raw.merge(PLACE, rows)
    house.publish()
    assert house.query("select contact_email, contact_first_name from applicant_leads") == [("new@x.example", "Joe")]
