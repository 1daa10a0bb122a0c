"""leads.duckdb as publishing leaves it: whole, checked, with every lead that it ever had."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from zoneinfo import ZoneInfo

import duckdb
import pytest

from leads_pipeline.errors import BugError
from leads_pipeline.warehouse.step import Draft, Publication, Step
from leads_pipeline_tests.support.house import DAY, NEXT_DAY
from leads_pipeline_tests.support.publications import (
    OLD_DAY,
    SECRET,
    Folder,
)

# --- update ---------------------------------------------------------------------------------------


def test_the_first_publication_makes_the_file_and_one_with_nothing_new_leaves_it(
    folder: Folder,
) -> None:
    folder.raw.land({"id": "a", "message": "m"})
    assert folder.publish() == Publication("new file", windows=1, leads=1)
    before = folder.file.resolve()
    assert stat.S_IMODE(before.stat().st_mode) == 0o440

    assert folder.publish() == Publication()
    assert folder.publish(is_first_of_day=True) == Publication()
    assert folder.file.resolve() == before


def test_an_update_reads_the_changed_windows_alone(folder: Folder) -> None:
    folder.raw.land({"id": "a", "message": "old"})
    folder.raw.land({"id": "b", "message": "old"}, scope="branch-102")
    former = folder.raw.land({"id": "c", "message": "old"}, day=OLD_DAY)
    folder.publish()

    changed = folder.raw.land({"id": "b", "message": "new"}, scope="branch-102")
    folder.raw.land({"id": "c", "message": "new"}, day=OLD_DAY)
    assert folder.publish() == Publication("update", windows=1, leads=1)
    assert folder.raw.were_read == {changed}
    assert folder.messages() == {"a": "old", "b": "new", "c": "old"}

    assert folder.publish(is_first_of_day=True) == Publication("update", windows=1, leads=1)
    assert folder.raw.were_read == {former}
    assert folder.messages() == {"a": "old", "b": "new", "c": "new"}


@pytest.mark.parametrize("way", ["update", "new file"])
def test_a_lead_that_raw_has_lost_stays_with_its_lists_through_each_way_to_publish(
    folder: Folder, way: str
) -> None:
    folder.raw.land(
        {"id": "lost", "message": "m", "createdAt": "2026-11-19T20:00Z", "viewingTimes": [{}]}
    )
    folder.raw.land({"id": "older", "message": "newest"}, scope="branch-102")
    folder.publish()
    folder.raw.versions.clear()
    folder.raw.versions["applicant", DAY, "branch-102"] = [(1, {"id": "older", "message": "old"})]
    if way == "new file":
        folder = replace(folder, zone=ZoneInfo("Asia/Tokyo"))

    assert folder.publish().way == way

    assert folder.messages() == {"lost": "m", "older": "newest"}
    assert folder.query("select lead_id from applicant_viewing_times") == [("lost",)]
    day_of_lost = "select lead_day from applicant_leads where lead_id = 'lost'"
    assert folder.query(day_of_lost) == [(NEXT_DAY if way == "new file" else DAY,)]


# --- raw files were rewritten, or the list has grown ----------------------------------------------


def test_nothing_of_who_is_refused_is_left_in_any_file(folder: Folder) -> None:
    hers = {"id": "hers", "contact": {"email": SECRET}, "viewingTimes": [{"new": SECRET}]}
    folder.raw.land(hers, {"id": "b"})
    folder.publish()
    folder.raw.land({"id": "b", "message": "m"})
    folder.publish()

    folder.raw.refused = {"hers"}
    assert folder.publish().way == "new file"

    assert folder.messages() == {"b": "m"}
    assert folder.versions() == [folder.file.resolve()]
    assert SECRET.encode() not in folder.file.read_bytes()


def test_what_a_rewritten_window_says_counts_though_its_numbers_are_the_same(
    folder: Folder,
) -> None:
    lost = {"id": "lost", "message": "m"}
    key = folder.raw.land({"id": "a", "message": "as received", "viewingTimes": [{}]}, lost)
    folder.publish()

    folder.raw.versions[key] = [(1, {"id": "a", "message": "anonymous"})]
    assert replace(folder, rewriting="another").publish().way == "new file"

    assert folder.messages() == {"a": "anonymous", "lost": "m"}
    assert folder.query("from applicant_viewing_times") == []


# --- new file -------------------------------------------------------------------------------------


def not_a_database(path: Path) -> None:
    path.chmod(0o600)
    path.write_bytes(b"not a database")


def empty_database(path: Path) -> None:
    path.unlink()
    duckdb.connect(path).close()


def test_a_vanished_file_is_built_anew(folder: Folder) -> None:
    folder.raw.land({"id": "a", "message": "m", "viewingTimes": [{}]})
    folder.publish()
    before = folder.tables()
    folder.file.resolve().unlink()

    assert folder.publish().way == "new file"

    assert folder.tables() == before


@pytest.mark.parametrize("harm", [not_a_database, empty_database])
def test_of_a_damaged_file_or_somebody_elses_the_version_before_it_has_the_leads_that_raw_has_lost(
    folder: Folder, harm: Callable[[Path], None]
) -> None:
    folder.raw.land({"id": "a", "message": "lost"})
    folder.publish()
    folder.raw.versions.clear()
    folder.raw.land({"id": "b", "message": "new"})
    folder.publish()
    harm(folder.file.resolve())

    assert folder.publish().way == "new file"

    assert folder.messages() == {"a": "lost", "b": "new"}
    assert len([*folder.path.glob("quarantine/*")]) == 1


def test_a_byte_that_rots_is_found_on_the_first_publication_of_a_day(folder: Folder) -> None:
    folder.raw.land(
        *({"id": str(number), "message": f"{number * 7919}" * 40} for number in range(300))
    )
    folder.publish()
    before = folder.tables()
    file = folder.file.resolve()
    times = file.stat()
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.chmod(0o600)
    file.write_bytes(content)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))

    assert folder.publish(is_first_of_day=True).way == "new file"

    assert folder.tables() == before


def test_a_file_that_another_program_wrote_to_is_built_anew(folder: Folder) -> None:
    folder.raw.land({"id": "a", "message": "m"})
    folder.publish()
    before = folder.tables()
    folder.file.chmod(0o600)
    with duckdb.connect(folder.file) as db:
        db.execute("update applicant_leads set message = 'theirs'")

    assert folder.publish().way == "new file"
    assert folder.tables() == before


# It keeps the file open until its input ends.
OPENED = """
import sys, duckdb
db = duckdb.connect(sys.argv[1])
print("opened", flush=True)
sys.stdin.read()
"""


def test_a_file_that_another_program_has_opened_for_writing_keeps_the_leads_that_raw_has_lost(
    folder: Folder,
) -> None:
    """As a BI tool does that runs as root."""
    folder.raw.land({"id": "a", "message": "lost"})
    folder.publish()
    folder.raw.versions.clear()
    folder.raw.land({"id": "b", "message": "new"})
    file = folder.file.resolve()
    file.chmod(0o600)

    command = [sys.executable, "-c", OPENED, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout
        assert program.stdout.readline() == b"opened\n"
        folder.publish()
        folder.raw.land({"id": "c", "message": "new"})
        folder.publish()
        program.communicate()

    assert folder.messages() == {"a": "lost", "b": "new", "c": "new"}
    assert not (folder.path / "quarantine").exists()


def test_what_was_corrected_in_raw_is_not_taken_over_from_the_file_before(folder: Folder) -> None:
    key = folder.raw.land({"id": "a", "message": "as received"})
    folder.publish()
    folder.raw.versions[key] = [(1, {"id": "a", "message": "corrected"})]

    class Another(Step):
        def rebuilds_if(self) -> str:
            return "another"

    assert replace(folder, others=Another()).publish().way == "new file"

    assert folder.messages() == {"a": "corrected"}


def test_without_its_link_the_newest_version_is_the_file(folder: Folder) -> None:
    folder.raw.land({"id": "a", "message": "m"})
    folder.publish()
    folder.file.unlink()
    folder.raw.versions.clear()

    folder.publish()

    assert folder.messages() == {"a": "m"}


# --- whatever happens -----------------------------------------------------------------------------


def test_a_publication_that_fails_changes_nothing_and_the_next_one_makes_up_for_it(
    folder: Folder,
) -> None:
    folder.raw.land({"id": "a", "message": "old"})
    folder.publish()
    folder.raw.land({"id": "a", "message": "new"})

    class Fail(Step):
        def fill(self, draft: Draft) -> None:
            with draft.transaction():
                draft.db.execute("from a_table_that_is_missing")

    with pytest.raises(BugError):
        replace(folder, others=Fail()).publish()
    assert folder.messages() == {"a": "old"}

    assert folder.publish().way == "update"
    assert folder.messages() == {"a": "new"}


def test_a_file_that_has_a_lead_twice_is_not_published(folder: Folder) -> None:
    folder.raw.land({"id": "a", "message": "m"})
    folder.publish()
    folder.raw.land({"id": "b"})

    class Double(Step):
        def fill(self, draft: Draft) -> None:
            draft.db.execute("insert into applicant_leads from applicant_leads")

    with pytest.raises(BugError, match="would lose 0 applicant leads and double 1"):
        replace(folder, first=Double()).publish()

    assert folder.messages() == {"a": "m"}


def test_what_a_killed_publication_left_is_removed(folder: Folder) -> None:
    folder.raw.land({"id": "a", "contact": {"email": SECRET}}, {"id": "b", "message": "m"})
    folder.publish()
    versions = folder.path / ".versions"
    before = folder.file.read_bytes()
    folder.raw.refused = {"a"}
    folder.publish()
    (versions / f"leads-1-{'0' * 16}.duckdb").write_bytes(before)
    (versions / "draft-copy.duckdb").touch()
    (versions / "draft-link").symlink_to("nowhere")

    folder.publish()

    assert [*versions.iterdir()] == [folder.file.resolve()]
    assert folder.messages() == {"b": "m"}
