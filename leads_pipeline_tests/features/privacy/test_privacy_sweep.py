"""The night's work: files that somebody put back are noticed, and retention runs where it is set."""

import shutil
from datetime import UTC, datetime, time, timedelta
from functools import partial
from pathlib import Path

import pytest

from leads_pipeline.errors import StorageError
from leads_pipeline.features.privacy.carrying_out import carry_out
from leads_pipeline.features.privacy.gatekeeper import list_of
from leads_pipeline.features.privacy.nightly import work_of_night as work_of_privacy
from leads_pipeline.features.privacy.settings import PrivacySettings
from leads_pipeline.features.privacy.sweeping import sweep
from leads_pipeline.orchestration.night import Night, work_of_night
from leads_pipeline.raw.store import FolderStore
from leads_pipeline.settings import Settings
from leads_pipeline_tests.support.house import DAY, NEXT_DAY, House
from leads_pipeline_tests.support.people import EMAIL, lead, left_by_list, listed

BEFORE = "2026-11-19T10:00:00Z"
JANE = lead("jane", email=EMAIL, createdAt=BEFORE)
JOHN = lead("john", email="john@people.example", createdAt=BEFORE)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> House:
    """Jane and John in each window of two days and two branches."""
    house = House(tmp_path_factory.mktemp("nights") / "data")
    for day in (DAY, NEXT_DAY):
        for scope in house.scopes:
            house.land("applicant", [JANE, JOHN], day, scope)
    house.publish()
    return house


@pytest.fixture
def full(published: House, tmp_path: Path) -> House:
    return published.copied(tmp_path / "data")


def night(house: House, portal_time: datetime | None = None, **variables: str) -> Night:
    settings = Settings.from_variables(variables)
    house.keep_days = settings.of(PrivacySettings).keep_personal_days
    of_privacy = partial(work_of_privacy, portal_time=lambda _: portal_time)
    return work_of_night(house.data, settings, house.now, [of_privacy])


@pytest.mark.slow
def test_a_night_leaves_to_the_publication_what_was_asked_for_and_is_quiet_then(
    full: House,
) -> None:
    listed(list_of(full.data))
    assert night(full).counts == {"requests_not_shown_done": 1}

    full.publish()
    assert left_by_list(full.data) == []

    carry_out(full.data, lambda: None, full.now)
    assert night(full).counts == {"requests_not_shown_done": 0, "windows_rewritten": 0}


@pytest.mark.slow
@pytest.mark.parametrize("way", ["file", "day", "clock that was ahead"])
def test_raw_files_that_were_put_back_are_noticed(full: House, tmp_path: Path, way: str) -> None:
    """A file with its old time, or the folder of a day."""
    shutil.copytree(full.folder / "raw", tmp_path / "backup")
    listed(list_of(full.data))
    full.publish()
    carry_out(full.data, lambda: None, full.now)
    assert not night(full).warnings
    if way == "clock that was ahead":
        full.data.state.note_looked(datetime.now(UTC) + timedelta(days=365))

    file = next((tmp_path / "backup").rglob("*.parquet"))
    subject = file.parents[1] if way == "day" else file
    there = full.folder / "raw" / subject.relative_to(tmp_path / "backup")
    shutil.rmtree(there, ignore_errors=True)
    subject.rename(there)

    assert night(full).warnings
    full.publish()
    assert left_by_list(full.data) == []


@pytest.mark.slow
def test_an_object_that_was_put_back_into_a_bucket_is_noticed_once_it_was_read(
    house: House, tmp_path: Path
) -> None:
    house.bucket = FolderStore(tmp_path / "bucket")
    house.land("applicant", [JANE, JOHN])
    house.publish()
    shutil.copytree(tmp_path / "bucket" / "raw", tmp_path / "backup")
    listed(list_of(house.data))
    house.publish()
    carry_out(house.data, lambda: None, house.now)
    assert not night(house).warnings

    shutil.copytree(tmp_path / "backup", tmp_path / "bucket" / "raw", dirs_exist_ok=True)
    house.publish()

    assert night(house).warnings
    house.publish()
    assert left_by_list(house.data) == []


class FullOnce(FolderStore):
    """A bucket that has no room for one file of branch 102."""

    room = True

    def create(self, key: str, content: bytes) -> None:
        if "branch-102" in key and not self.room:
            self.room = True
            raise StorageError("No room.")
        super().create(key, content)


def test_a_window_that_a_later_pass_could_rewrite_has_not_failed(
    house: House, tmp_path: Path
) -> None:
    bucket = FullOnce(tmp_path / "bucket")
    house.bucket = bucket
    house.land("applicant", [JANE])
    house.land("applicant", [JANE], scope="branch-102")
    listed(list_of(house.data))

    bucket.room = False
    swept = sweep(house.data)

    assert (swept.windows, swept.failed) == (2, {})


@pytest.mark.slow
def test_what_a_killed_writer_left_is_gone_after_a_night_and_after_an_erasure(full: House) -> None:
    folders = "raw/applicant_leads/day=2026-11-19", "restricted", "quarantine/answers"
    left = [full.folder / folder / ".0123456789abcdef.tmp" for folder in folders]
    for clean in (lambda: night(full), lambda: full.erase(email=EMAIL)):
        for path in left:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(EMAIL)
        clean()
        assert [path for path in left if path.exists()] == []


@pytest.mark.slow
def test_a_lead_that_another_machine_lands_with_an_older_list_is_not_marketed(
    house: House, tmp_path: Path
) -> None:
    marketed = "select lead_id from mart_hidden_valuations"
    owner = {"createdAt": BEFORE, "consumerSituation": "CONSUMER_SITUATION_PROPERTY_TO_SELL"}
    house.bucket = FolderStore(tmp_path / "bucket")
    house.land("applicant", [lead("jane", email=EMAIL, **owner)])
    other = House(tmp_path / "other")
    other.bucket = house.bucket
    other.data.exchange_with_bucket()
    house.publish()
    assert house.query(marketed) == [("jane",)]

    house.data.exchange_with_bucket()
    house.object_(email=EMAIL)
    other.land("applicant", [lead("later", email=EMAIL, **owner)], DAY, "branch-102")

    house.publish()
    assert "later" in house.leads("applicant")
    assert house.query(marketed) == []


def test_a_step_that_cannot_be_done_fails_loudly(full: House) -> None:
    listed(list_of(full.data))
    (list_of(full.data).folder / "key").unlink()

    [trouble] = night(full).troubles

    assert "privacy apply --list" in trouble


@pytest.mark.slow
def test_retention_runs_where_it_is_set(full: House) -> None:
    full.later(days=40)
    assert "days_cut" not in night(full).counts
    assert night(full, LEADS_KEEP_PERSONAL_DAYS="35").counts["days_cut"] == 2

    full.push("applicant", JOHN | {"id": "late"})
    full.publish()
    assert night(full, LEADS_KEEP_PERSONAL_DAYS="35").counts["days_cut"] == 1


@pytest.mark.slow
def test_a_day_becomes_anonymous_within_a_week_of_its_date(house: House) -> None:
    for number in range(10):
        day = DAY + timedelta(days=number)
        house.now = datetime.combine(day + timedelta(days=1), time(6), tzinfo=UTC)
        house.land("applicant", [JOHN | {"id": str(day), "createdAt": f"{day}T10:00:00Z"}], day)

    cut_in: list[int] = []
    for nights in range(16):
        house.now = datetime.combine(DAY + timedelta(days=36 + nights), time(6), tzinfo=UTC)
        cut_in += [nights] * night(house, LEADS_KEEP_PERSONAL_DAYS="35").counts["days_cut"]

    nights_late = [nights - age for age, nights in enumerate(cut_in)]
    assert len(cut_in) == 10
    assert (min(nights_late), max(nights_late)) == (0, 6)


@pytest.mark.slow
def test_retention_runs_only_while_this_clock_agrees_with_the_portals_within_an_hour(
    full: House,
) -> None:
    full.later(days=366)
    variables = {"LEADS_KEEP_PERSONAL_DAYS": "35", "LEADS_BASE_URL": "https://leads.example"}

    for theirs in (None, full.now - timedelta(days=366), full.now + timedelta(minutes=61)):
        wrong = night(full, theirs, **variables)
        assert "days_cut" not in wrong.counts
        assert len(wrong.troubles) == 1

    right = night(full, full.now - timedelta(minutes=59), **variables)
    assert right.counts["leads_cut"] == 2
    assert right.troubles == []
