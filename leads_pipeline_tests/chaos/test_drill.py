"""The drill: the data folder is destroyed in the middle of a day and restored from last night.

Belongs here: that after the catch-up nothing is missing that the portal still has or the backup
had, by the portal's own book. Doesn't: what a backup copies and how it fails (test_backup.py).
"""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from leads_pipeline.domain.contract import APPLICANT, LEAD_KINDS, ReceivedLead
from leads_pipeline.raw.names import Place
from leads_pipeline.simulator.app import Config
from leads_pipeline.warehouse.published import LeadsFile
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.installation import Installation, installation

# How long the portal goes on between the backup and the loss: the oldest days are deleted there
# meanwhile.
_LATER = timedelta(days=3)
_DAYS = 29


class Clock:
    """The portal's."""

    ahead = timedelta(0)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def here(tmp_path: Path, clock: Clock) -> Iterator[Installation]:
    with installation(
        tmp_path, Config(branches=2, leads_per_day=4, clock=clock), first=_DAYS
    ) as started:
        yield started


def push(here: Installation, lead_id: str) -> None:
    """A delivery of a lead that the portal lists nowhere."""
    text = f'{{"id":"{lead_id}","createdAt":"{here.day(2)}T12:00:00Z"}}'
    place = Place(APPLICANT, here.day(2), "branch-101")
    here.data.raw.add(place, [ReceivedLead(lead_id, text)], datetime.now(UTC))


def pull(here: Installation, first: int, last: int = 0) -> None:
    result = run("backfill", "--from", here.day(first), "--to", here.day(last))
    assert result.exit_code == 0, result.output


def in_the_book(here: Installation) -> set[str]:
    return {lead for kind in LEAD_KINDS for lead in here.truth(kind, range(_DAYS + 1))}


def published(here: Installation) -> list[str]:
    _, rows = LeadsFile(here.data).query(
        "select lead_id from applicant_leads union all select lead_id from appraisal_leads"
    )
    return [lead for (lead,) in rows]


def test_nothing_is_missing_after_a_restore_that_the_portal_still_has_or_the_backup_had(
    here: Installation, clock: Clock, tmp_path: Path
) -> None:
    push(here, "pushed-and-merged")
    pull(here, _DAYS, 2)
    push(here, "pushed-last")
    at_night = in_the_book(here) - {
        lead for kind in LEAD_KINDS for lead in here.truth(kind, [0, 1])
    }
    result = run("backup", tmp_path / "target")
    assert result.exit_code == 0, result.output

    clock.ahead = _LATER
    pull(here, 1)  # the day goes on, and what it brings is in no backup
    shutil.rmtree(here.settings.data_dir)
    shutil.rmtree(tmp_path / "home")

    result = run("restore", tmp_path / "target")
    assert result.exit_code == 0, result.output
    result = run("verify")
    assert result.exit_code == 0, result.output
    # What nothing in the restored files speaks of isn't landed, whatever was known before the loss.
    assert run("coverage", "--days", _DAYS).exit_code == 1
    pull(here, _DAYS)

    still_there = in_the_book(here)
    wanted = at_night | still_there | {"pushed-and-merged", "pushed-last"}
    assert at_night - still_there, "the portal has deleted some, which the backup alone had"
    assert still_there - at_night, "the portal has some that came after the backup"
    found = published(here)
    assert set(found) == wanted
    assert len(found) == len(wanted)
    result = run("verify")
    assert result.exit_code == 0, result.output


def test_a_window_that_the_history_says_is_landed_is_pulled_again_where_its_file_is_not_in_the_backup(
    here: Installation, tmp_path: Path
) -> None:
    pull(here, 2, 1)
    raw = (
        here.settings.data_dir
        / "raw"
        / "applicant_leads"
        / f"day={here.day(1)}"
        / "scope=branch-101"
    )
    shutil.rmtree(raw)
    assert run("backup", tmp_path / "target").exit_code == 1  # and the backup is made
    shutil.rmtree(here.settings.data_dir)
    shutil.rmtree(tmp_path / "home")
    assert run("restore", tmp_path / "target").exit_code == 0
    assert run("coverage", "--days", 2).exit_code == 1
    pull(here, 2, 1)
    assert set(published(here)) >= here.truth(APPLICANT, [1, 2])
    assert run("coverage", "--days", 2).exit_code == 0
