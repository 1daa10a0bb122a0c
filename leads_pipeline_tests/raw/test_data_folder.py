"""The parts of a data folder together, made from the settings."""

import json
from pathlib import Path
from typing import Any

import pytest

from leads_pipeline.domain.contract import APPLICANT, ReceivedLead
from leads_pipeline.errors import SettingsError
from leads_pipeline.features.privacy.gatekeeper import list_of
from leads_pipeline.raw.data_folder import DataFolder, move_demo
from leads_pipeline.raw.names import place_of
from leads_pipeline.raw.rows import merged, newest_payloads
from leads_pipeline.raw.service_lock import alone
from leads_pipeline.raw.store import Store
from leads_pipeline.settings import Settings
from leads_pipeline_tests.support.buckets import new_bucket
from leads_pipeline_tests.support.people import EMAIL, lead, listed
from leads_pipeline_tests.support.sample_answers import CLOSED_AT, DAY, WINDOW

PLACE = place_of(APPLICANT, WINDOW)
HERS = lead("hers", email=EMAIL, createdAt="2026-11-19T10:00:00Z")
OTHERS = lead("others", email="john@people.example", createdAt="2026-11-19T10:00:00Z")


def received(*leads: dict[str, Any]) -> list[ReceivedLead]:
    return [ReceivedLead(str(one["id"]), json.dumps(one)) for one in leads]


def ids(data: DataFolder) -> set[str]:
    return set(newest_payloads(merged(data.raw.read(PLACE).rows)))


def land(data: DataFolder, *leads: dict[str, Any]) -> None:
    data.raw.land(APPLICANT, WINDOW, received(*leads), CLOSED_AT, json.dumps(leads), "run-1")


def test_the_demos_data_stays_while_a_service_works_with_it(tmp_path: Path) -> None:
    """Also if DAGSTER_HOME lies elsewhere."""
    data, home = DataFolder.at(tmp_path / "data"), tmp_path / "home"
    land(data, HERS)
    home.mkdir()
    with alone(home, "its address"), pytest.raises(SettingsError, match="is in use"):
        move_demo(data, home, CLOSED_AT)
    assert ids(data) == {"hers"}
    assert ids(DataFolder.at(move_demo(data, home, CLOSED_AT))) == {"hers"}


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

    listed(list_of(one))
    one.raw.rewrite(PLACE)
    two.share()
    assert (two.state.start_date(), two.gate.newest_entry) == (DAY, one.gate.newest_entry)
    land(two, HERS)
    assert ids(one) == ids(two) == {"others"}
    assert [path.suffix for path in (tmp_path / "two" / ".cache").rglob("*") if path.is_file()] == [
        ".parquet"
    ]


def test_a_folder_moves_into_a_bucket_and_back_as_the_guide_says(
    moto: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Raw files are copied by hand. The keys and the list follow by themselves."""
    address = new_bucket(moto, monkeypatch)
    alone = DataFolder.at(tmp_path / "data")
    land(alone, HERS, OTHERS)
    listed(list_of(alone))
    key, number = alone.state.person_key(), alone.gate.newest_entry
    alone.state.remember_start_date(DAY)

    def in_the_bucket(work: str) -> DataFolder:
        variables = {
            "LEADS_DATA_DIR": address,
            "AWS_ENDPOINT_URL": moto,
            "LEADS_WORK_DIR": str(tmp_path / work),
        }
        return DataFolder.of(Settings.from_variables(variables))

    def copy(source: Store, target: Store) -> None:
        for name in source.list("raw/"):
            target.create(name, source.get(name) or b"")

    moved = in_the_bucket("data")
    copy(alone.store, moved.store)
    moved.share()
    other = in_the_bucket("other")
    other.share()
    assert (other.state.person_key(), other.state.start_date(), other.gate.newest_entry) == (
        key,
        DAY,
        number,
    )
    assert ids(other) == {"hers", "others"}  # until it is swept
    land(other, HERS, OTHERS, lead("new"))
    assert ids(moved) == {"others", "new"}

    back = DataFolder.at(tmp_path / "data")
    back.store.delete(back.store.list("raw/"))
    copy(moved.store, back.store)
    assert (ids(back), back.state.person_key(), back.gate.newest_entry) == (
        {"others", "new"},
        key,
        number,
    )
