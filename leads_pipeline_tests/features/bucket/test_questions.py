"""What `doctor` asks if a bucket has the data."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dagster import DagsterInstance

from leads_pipeline.features.bucket.questions import questions
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.seen import Light, Seen
from leads_pipeline.orchestration.home import dagster_home
from leads_pipeline.orchestration.raw_leads import PORTAL_POOL
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.store import FolderStore
from leads_pipeline.settings import Settings
from leads_pipeline_tests.support.command_line import run


class LateStore(FolderStore):
    """A store whose clock is two minutes behind."""

    def modified_at(self, key: str) -> datetime | None:
        moment = super().modified_at(key)
        return moment and moment - timedelta(minutes=2)


def asked(settings: Settings, folder: Path, bucket: FolderStore | None) -> dict[str, Seen]:
    facts = Facts(settings, DataFolder.at(folder, bucket), datetime.now(UTC))
    return {one.check: one for one in questions(facts)}


def test_with_a_bucket_the_pool_of_pulls_needs_the_limit_1(tmp_path: Path) -> None:
    """Fault 106: only our own dagster.yaml set it, and nothing said so."""
    home = tmp_path / "home"
    os.environ["DAGSTER_HOME"] = str(home)
    settings = Settings.from_variables({"DAGSTER_HOME": str(home)})

    def pool() -> Seen:
        bucket = FolderStore(tmp_path / "bucket")
        return asked(settings, tmp_path / "data", bucket)["Dagster pool"]

    dagster_home(settings)
    assert pool().light is Light.GREEN

    (home / "dagster.yaml").write_text("telemetry: {enabled: false}")
    assert pool().light is Light.YELLOW
    assert "dagster instance concurrency set leads_portal 1`" in pool().message

    with DagsterInstance.from_config(str(home)) as instance:
        instance.event_log_storage.set_concurrency_slots(PORTAL_POOL, 3)
    assert "has the limit 3" in pool().message


def test_a_bucket_is_tried_and_its_clock_compared(tmp_path: Path) -> None:
    def store(bucket: FolderStore) -> Seen:
        return asked(Settings.from_variables({}), tmp_path / "data", bucket)["object store"]

    assert store(FolderStore(tmp_path / "store")).light is Light.GREEN
    assert store(LateStore(tmp_path / "store")).light is Light.YELLOW


def test_doctor_asks_it(tmp_path: Path) -> None:
    os.environ["LEADS_DATA_DIR"] = (tmp_path / "store").as_uri()
    said = run("doctor").output
    assert "Dagster pool: " in said
    assert "object store: " in said
