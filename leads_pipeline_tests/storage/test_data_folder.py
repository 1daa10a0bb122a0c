"""The parts of a data folder together: made from the settings, and taken over from the landed version."""

import json
from pathlib import Path
from typing import Any

import pytest

from leads_pipeline.contract import APPLICANT, InventoryItem, ReceivedLead
from leads_pipeline.data_folder import DataFolder
from leads_pipeline.lake import Lake
from leads_pipeline.settings import Settings
from leads_pipeline.storage.inventory import FoundItem
from leads_pipeline.storage.raw import RESTRICTED, place_of
from leads_pipeline.storage.rows import merged, newest_payloads
from leads_pipeline.storage.store import FolderStore
from leads_pipeline.suppression import Action
from leads_pipeline_tests.storage.test_store import moto, new_bucket
from leads_pipeline_tests.support.people import EMAIL, lead, listed
from leads_pipeline_tests.support.sample_answers import CLOSED_AT, DAY, LATER, WINDOW, answer

__all__ = ["moto"]  # a fixture

PLACE = place_of(APPLICANT, WINDOW)
HERS = lead("hers", email=EMAIL, createdAt="2026-11-19T10:00:00Z")
OTHERS = lead("others", email="john@people.example", createdAt="2026-11-19T10:00:00Z")


def received(*leads: dict[str, Any]) -> list[ReceivedLead]:
    return [ReceivedLead(str(one["id"]), json.dumps(one)) for one in leads]


def ids(data: DataFolder) -> set[str]:
    return set(newest_payloads(merged(data.raw.read(PLACE).rows)))


def land(data: DataFolder, *leads: dict[str, Any]) -> None:
    data.raw.land(APPLICANT, WINDOW, received(*leads), CLOSED_AT, json.dumps(leads), "run-1")


def test_making_one_touches_nothing(tmp_path: Path) -> None:
    DataFolder.at(tmp_path / "data")
    assert list(tmp_path.iterdir()) == []


def test_the_settings_name_folder_list_and_retention(tmp_path: Path) -> None:
    variables = {
        "LEADS_DATA_DIR": str(tmp_path / "data"),
        "LEADS_PRIVACY_DIR": str(tmp_path / "privacy"),
        "LEADS_KEEP_PERSONAL_DAYS": "35",
    }
    data = DataFolder.of(Settings.from_variables(variables))
    listed(data.gate.entries)
    began_at = LATER
    land(data, HERS, OTHERS)
    assert ids(data) == {"others"}
    assert (tmp_path / "privacy" / "list").is_dir()
    assert data.state.has_landed_since(began_at)
    assert data.is_behind
    data.state.note_swept(data.gate.number)
    assert not data.is_behind


def test_two_machines_with_one_bucket_have_the_same_leads_and_list(
    moto: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {"LEADS_DATA_DIR": new_bucket(moto, monkeypatch), "AWS_ENDPOINT_URL": moto}
    one, two = (
        DataFolder.of(Settings.from_variables(variables | {"LEADS_WORK_DIR": str(tmp_path / name)}))
        for name in ("one", "two")
    )
    one.state.remember_start_date(DAY)
    land(one, HERS, OTHERS)
    assert ids(two) == {"hers", "others"}

    listed(one.gate.entries)
    one.raw.rewrite(PLACE)
    two.share()
    assert (two.state.start_date(), two.gate.number) == (DAY, one.gate.number)
    land(two, HERS)
    assert ids(one) == ids(two) == {"others"}
    assert [path.suffix for path in (tmp_path / "two" / ".cache").rglob("*") if path.is_file()] == [".parquet"]


@pytest.mark.parametrize("is_bucket", [False, True])
def test_rows_that_the_landed_version_set_aside_and_its_inventory_are_taken_over(
    tmp_path: Path, is_bucket: bool
) -> None:
    former = Lake(tmp_path / "data")
    restriction = listed(former.suppression, Action.RESTRICT)
    former.land(answer(received(HERS, OTHERS)), "run-1")
    former.land_inventory(DAY, {"York": [InventoryItem("1", '{"id":1}', 1)]}, CLOSED_AT, "run-1", 7)
    former.land_inventory(DAY, {"York": [InventoryItem("1", '{"id":1,"x":2}', 1)]}, LATER, "run-1", 8)
    bucket = None
    if is_bucket:
        bucket = FolderStore(tmp_path / "bucket")
        for path in sorted((tmp_path / "data").rglob("*.parquet")):
            key = path.relative_to(tmp_path / "data").with_name(f"{path.stem}-{'0' * 32}.parquet")
            bucket.create(key.as_posix(), path.read_bytes())
    data = DataFolder.at(tmp_path / "data", bucket=bucket)

    assert data.take_over() == 3
    assert ids(data) == {"others"}
    assert [row.lead_id for row in data.gate.restricted.read(PLACE._replace(root=RESTRICTED)).rows] == ["hers"]
    assert [(one.day, one.searched_at, one.items) for one in data.inventory.searches()] == [
        (DAY, LATER, [FoundItem("1", "York", '{"id":1,"x":2}')])
    ]
    assert data.take_over() == 0

    listed(data.gate.entries, Action.LIFT, emails=[], of=restriction.number)
    data.gate.sweep_restricted(data.raw)
    assert ids(data) == {"hers", "others"}


def test_a_damaged_inventory_of_the_landed_version_is_set_aside(tmp_path: Path) -> None:
    former = Lake(tmp_path)
    former.land_inventory(DAY, {"York": [InventoryItem("1", '{"id":1}', 1)]}, CLOSED_AT, "run-1", 7)
    path = tmp_path / "raw" / "inventory" / f"day={DAY}" / "items.parquet"
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)
    data = DataFolder.at(tmp_path)
    data.take_over()
    assert list(data.inventory.searches()) == []
    [entry] = data.quarantine.files()
    assert "/items.parquet." in entry.key
