"""leads.duckdb is published soon after something has landed, once a night, and not too often."""

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from dagster import (
    DagsterInstance,
    DagsterRunStatus,
    Definitions,
    RunRequest,
    SkipReason,
    asset,
    define_asset_job,
)
from dagster._core.test_utils import freeze_time

from leads_pipeline.domain.contract import APPLICANT
from leads_pipeline.features.privacy.identity import Person
from leads_pipeline.features.privacy.requests import Request, add
from leads_pipeline.features.privacy.search import Found
from leads_pipeline.features.privacy.suppression import Action
from leads_pipeline.orchestration.names import PLAIN, PUBLISH_JOB, PULL_JOB
from leads_pipeline.orchestration.publish_sensor import (
    NIGHTLY_TAG,
    NIGHTS_KEPT_FOR,
    RUNS_KEPT_FOR,
    delete_old_runs,
    inputs_of,
    noted_publication,
    publish_sensor,
)
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.publications import Publications
from leads_pipeline.raw.store import FolderStore
from leads_pipeline.settings import Settings
from leads_pipeline.warehouse.editions import Editions
from leads_pipeline_tests.support.house import LONDON
from leads_pipeline_tests.support.installation import Clock, home, tick_of
from leads_pipeline_tests.support.pulls import DAY, HOUR, MINUTE
from leads_pipeline_tests.support.sample_answers import CLOSED_AT, TWENTY, WINDOW

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


class House:
    """A data folder, its sensor, and publications that succeed or fail."""

    def __init__(
        self,
        folder: DataFolder,
        instance: DagsterInstance,
        clock: Clock,
        *,
        is_bucket: bool = False,
    ) -> None:
        self.folder = folder
        self.instance = instance
        self.clock = clock
        self.is_broken = False
        self.nightly: list[bool] = []
        self.marts = folder.folder.with_name("marts")
        variables = {"LEADS_DATA_DIR": str(folder.folder), "LEADS_MARTS_DIR": str(self.marts)}
        self.inputs = partial(inputs_of, Settings.from_variables(variables))
        self.sensor = publish_sensor(LONDON, self.inputs, is_bucket=is_bucket, clock=clock)

        @asset
        def leads() -> None:
            """What the jobs make. No test runs them."""

        jobs = [
            define_asset_job(job, [leads], tags=PLAIN.run_tags) for job in (PUBLISH_JOB, PULL_JOB)
        ]
        self.definitions = Definitions(
            [leads], jobs=jobs, sensors=[self.sensor], resources={"data": folder}
        )

    @property
    def publications(self) -> Publications:
        """What is remembered of the publications."""
        return Publications.read(self.folder.state.path)

    def tick(self) -> RunRequest | SkipReason:
        return tick_of(
            self.definitions,
            self.sensor.name,
            self.clock.now,
            instance=self.instance,
            resources={"data": self.folder},
        )

    def publishes(self) -> bool:
        """A tick, and the publication that it asks for. Whether it asked for one."""
        request = self.tick()
        if isinstance(request, SkipReason):
            return False
        with suppress(OSError):
            self.publish(is_nightly=NIGHTLY_TAG in request.tags)
        return True

    def publish(self, *, is_nightly: bool) -> None:
        """Swap in another file."""
        versions = Editions(self.folder.folder)
        with (
            noted_publication(
                self.folder, LONDON, self.inputs, is_nightly=is_nightly, clock=self.clock
            ),
            versions.drafting(),
        ):
            if self.is_broken:
                raise OSError("The disk is full.")
            versions.draft("copy").touch()
            versions.swap_in(versions.draft("copy"), versions.next_edition_number(NOON))
        self.nightly.append(is_nightly)

    def note_run(self, job: str, status: DagsterRunStatus, *, is_nightly: bool = False) -> str:
        """Have Dagster know a run of that job. Return its id."""
        tags = {**PLAIN.run_tags, **({NIGHTLY_TAG: "true"} if is_nightly else {})}
        of_job = self.definitions.resolve_job_def(job)
        return self.instance.create_run_for_job(of_job, status=status, tags=tags).run_id

    def land(self) -> None:
        """As landing does it."""
        self.folder.state.note_landed()
        at = self.clock().timestamp()
        os.utime(self.folder.state.path / "landed", (at, at))

    def land_and_publish(self) -> None:
        self.land()
        assert self.publishes()


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    clock = Clock(NOON)
    with home(tmp_path / "home") as instance:
        yield House(DataFolder.at(tmp_path / "data", clock=clock), instance, clock)


def test_what_has_landed_is_published_once_and_at_most_once_a_minute(house: House) -> None:
    assert house.tick() == SkipReason("Nothing has landed yet.")
    house.land_and_publish()
    assert house.tick() == SkipReason("Nothing has landed since the last publication.")

    house.land()
    assert house.tick() == SkipReason(
        "The last publication began at 12:00:00 UTC. The next one is at 12:01:00 UTC."
    )
    house.clock.now += MINUTE
    assert house.publishes()

    house.clock.now += HOUR
    assert not house.publishes()


def test_publications_write_at_most_10_gb_a_day_and_a_large_file_waits_four_hours(
    house: House,
) -> None:
    for written, wait in ((110_000_000, 16 * MINUTE), (20_000_000_000, 4 * HOUR)):
        house.land_and_publish()
        publication = msgspec.structs.replace(house.publications, written_bytes=written)
        publication.write(house.folder.state.path)
        house.land()

        house.clock.now += wait - MINUTE
        assert not house.publishes()

        house.clock.now += MINUTE
        assert house.publishes()
        house.clock.now += DAY


def test_what_lands_during_a_publication_is_published_by_the_next(house: House) -> None:
    house.land()
    with noted_publication(house.folder, LONDON, is_nightly=True, clock=house.clock):
        house.land()
    house.clock.now += MINUTE
    assert house.publishes()


def test_a_request_whose_command_was_killed_is_carried_out_without_waiting_for_the_night(
    house: House,
) -> None:
    house.land_and_publish()
    house.clock.now += MINUTE
    assert not house.publishes()

    jane = Person.of(lead_ids=[("applicant", "jane")])
    erasure = Request(Action.ERASE, jane, Found(), house.clock.now.date())
    add(house.folder, erasure, house.clock.now)

    assert house.publishes()
    house.clock.now += MINUTE
    assert not house.publishes()


def test_a_change_in_the_folder_of_ones_own_marts_is_published(house: House) -> None:
    house.marts.mkdir()
    house.land_and_publish()

    house.clock.now += MINUTE
    assert not house.publishes()

    (house.marts / "a.sql").write_text("select 1")
    assert house.publishes()


def test_a_night_publishes_once_whether_something_has_landed_or_not(house: House) -> None:
    house.land_and_publish()
    house.nightly.clear()

    for _ in range(26):
        house.clock.now += HOUR
        house.publishes()

    assert house.nightly == [True]
    assert house.publications.began_at
    assert house.publications.began_at.hour == 2  # in London, in winter


def test_a_publication_that_fails_is_tried_again_less_and_less_often(house: House) -> None:
    house.land()
    house.is_broken = True
    tries: list[datetime] = []
    while len(tries) < 5:
        house.clock.now += 5 * MINUTE
        if house.publishes():
            tries.append(house.clock.now)

    waits = [later - earlier for earlier, later in pairwise(tries)]
    assert [round(wait / MINUTE, -1) for wait in waits] == [10, 20, 40, 60]
    assert "The last publication failed." in str(house.tick())

    house.is_broken = False
    house.clock.now += HOUR
    assert house.publishes()
    assert house.publications.failures == 0


def test_a_clock_that_ran_ahead_holds_up_no_publication(house: House) -> None:
    house.clock.now += 365 * DAY
    house.land()
    house.is_broken = True
    house.publishes()
    house.clock.now -= 365 * DAY
    assert house.publishes()


def test_while_a_publication_is_under_way_no_other_is_asked_for(house: House) -> None:
    house.land()
    house.note_run(PUBLISH_JOB, DagsterRunStatus.STARTED)

    assert house.tick() == SkipReason("A publication is under way.")


def test_in_a_bucket_what_another_machine_has_landed_is_published_too(tmp_path: Path) -> None:
    clock = Clock(CLOSED_AT + HOUR)
    bucket = FolderStore(tmp_path / "bucket")  # it has all verbs
    here = DataFolder.at(tmp_path / "here", bucket=bucket, clock=clock)
    there = DataFolder.at(tmp_path / "there", bucket=bucket, clock=clock)
    with home(tmp_path / "home") as instance:
        house = House(here, instance, clock, is_bucket=True)
        house.publishes()
        clock.now += HOUR
        assert not house.publishes()

        there.raw.land(APPLICANT, WINDOW, TWENTY, CLOSED_AT, "hash", "run")

        assert house.publishes()


def test_old_runs_of_publications_are_deleted_with_their_files_those_of_nights_later(
    house: House,
) -> None:
    ended = DagsterRunStatus.SUCCESS
    with freeze_time(datetime.now(UTC) - NIGHTS_KEPT_FOR - DAY):
        house.note_run(PUBLISH_JOB, ended, is_nightly=True)
    with freeze_time(datetime.now(UTC) - RUNS_KEPT_FOR - DAY):
        house.note_run(PUBLISH_JOB, ended)
        last_night = house.note_run(PUBLISH_JOB, ended, is_nightly=True)
        pull = house.note_run(PULL_JOB, ended)
    new = house.note_run(PUBLISH_JOB, ended)

    assert delete_old_runs(house.instance, datetime.now(UTC)) == 2

    assert {run.run_id for run in house.instance.get_runs()} == {new, pull, last_night}
    files = Path(house.instance.root_directory, "history", "runs").glob("*-*.db")
    assert {path.stem for path in files} == {new, pull, last_night}
