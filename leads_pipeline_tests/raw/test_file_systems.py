"""File systems that lack hard links, symbolic links, the fsync of a folder, or locks: what works,
and what is said.

The kernel refuses the calls, as exFAT and SMB do. Neither can be mounted everywhere.
"""

import errno
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from leads_pipeline.features.doctor.file_system import prove_folder
from leads_pipeline.raw.store import FolderStore
from leads_pipeline_tests.support.house import House
from leads_pipeline_tests.support.system_calls import (
    EXFAT,
    NO_LOCKS,
    SMB,
    needs_seccomp,
    run,
)

pytestmark = needs_seccomp

# --- without hard links (fault 81) ----------------------------------------------------------------


def create_by_many(folder: Path) -> tuple[list[bool], str, list[str]]:
    """Create a key once by eight threads. Return who was first, what is there, and all keys."""
    store = FolderStore(folder)
    with ThreadPoolExecutor(8) as pool:
        created = list(
            pool.map(lambda number: store.create_once("list/1", str(number).encode()), range(8))
        )
    return created, (store.get("list/1") or b"").decode(), store.list("")


def test_without_hard_links_one_of_many_creates_a_key(tmp_path: Path) -> None:
    """Fault 81."""
    outcome = run(create_by_many, tmp_path, folder=tmp_path, lacks=EXFAT)

    assert outcome.error == ""
    created, content, keys = outcome.result
    assert created.count(True) == 1
    assert content == str(created.index(True))
    assert keys == ["list/1"]


def ask_three_times(folder: Path) -> list[str]:
    """Erase Jane, note John's objection and a restriction. Return the published leads."""
    house = House(folder)
    house.land("applicant", [{"id": "jane"}, {"id": "john"}, {"id": "other"}])
    house.erase(lead="applicant/jane")
    house.object_(lead="applicant/john")
    house.restrict(lead="applicant/other")
    return [*house.leads("applicant")]


@pytest.mark.slow
def test_without_hard_links_people_can_be_erased_can_object_and_be_restricted(
    tmp_path: Path,
) -> None:
    """Fault 81."""
    outcome = run(ask_three_times, tmp_path / "data", folder=tmp_path, lacks=SMB)

    assert outcome.result == ["john"]


# --- without the fsync of a folder (fault 82) -----------------------------------------------------


def back_up_twice(folder: Path) -> None:
    house = House(folder / "data")
    house.land("applicant", [{"id": "jane"}])
    for _ in range(2):
        house.back_up(folder / "backups", keep=1)


def test_without_the_fsync_of_a_folder_backups_are_made_and_deleted(tmp_path: Path) -> None:
    """Fault 82."""
    outcome = run(back_up_twice, tmp_path, folder=tmp_path, lacks=SMB)

    assert outcome.error == ""
    [snapshot] = (tmp_path / "backups").iterdir()
    assert [lead_id for lead_id, _ in House(snapshot).raw("applicant")] == ["jane"]


# --- without symbolic links (fault 83) ------------------------------------------------------------


def publish_twice(folder: Path) -> list[str]:
    """Land and publish. Return what was said."""
    house = House(folder)
    messages = []
    for number in range(2):
        house.land("applicant", [{"id": f"lead-{number}"}])
        try:
            house.publish()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            messages.append(f"{type(error).__name__}: {error}")
    return messages


def test_without_symbolic_links_a_publication_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    """Fault 83."""
    outcome = run(publish_twice, tmp_path / "data", folder=tmp_path, lacks=EXFAT)

    assert [*(tmp_path / "data" / ".versions").iterdir()] == []
    assert len(outcome.result) == 2
    for message in outcome.result:
        assert "has no symbolic links" in message
        assert "Set LEADS_DATA_DIR" in message


# --- too few descriptors (fault 85) ---------------------------------------------------------------


def land(folder: Path) -> None:
    House(folder).land("applicant", [{"id": "jane"}])


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.EMFILE, "Raise the limit of open files"),
        (errno.ENOMEM, "The machine or the container has no memory left"),
    ],
)
def test_what_a_process_may_not_have_is_not_taken_for_a_fault_of_the_disk(
    code: int, advice: str, tmp_path: Path
) -> None:
    """Fault 85: 24 descriptors advised to check the disk."""
    outcome = run(land, tmp_path / "data", folder=tmp_path, lacks={"openat": code, "open": code})

    assert outcome.error.startswith("StorageError: ")
    assert advice in outcome.error
    assert "Check the disk" not in outcome.error


# --- doctor tries the file system -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("lacks", "words"),
    [
        (EXFAT, "has no symbolic links, and leads.duckdb is one. Set LEADS_DATA_DIR"),
        (NO_LOCKS, "has no locks for files, so two processes would overwrite each other's"),
    ],
    ids=["no symbolic links", "no locks"],
)
def test_a_file_system_that_cannot_be_used_is_named(
    lacks: Mapping[str, int], words: str, tmp_path: Path
) -> None:
    outcome = run(prove_folder, tmp_path, folder=tmp_path, lacks=lacks)

    mount = next(one for one in tmp_path.parents if one.is_mount())
    assert outcome.error.startswith("StorageError: ")
    assert f"The file system {mount} {words}" in outcome.error
