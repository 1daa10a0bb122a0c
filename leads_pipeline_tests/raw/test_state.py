"""What a data folder remembers over processes and machines, and its locks."""

import subprocess
import sys
import threading
import time
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from leads_pipeline.errors import SettingsError, StorageError
from leads_pipeline.raw.state import State
from leads_pipeline.raw.store import FolderStore
from leads_pipeline.settings import THIS_MACHINE

DAY = date(2026, 11, 19)
NOW = datetime(2026, 11, 20, 8, tzinfo=UTC)

HOLDER = """
import sys, time
from pathlib import Path
from leads_pipeline.raw.state import State
with State(Path(sys.argv[1])).pulling():
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path)


# --- locks ----------------------------------------------------------------------------------------


def test_a_lock_shows_in_other_processes_and_a_kill_frees_it(tmp_path: Path, state: State) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        holder.stdout.readline()
        assert state.is_pulling()
        holder.kill()
        holder.wait()
    assert not state.is_pulling()


def test_a_lock_keeps_other_threads_out(tmp_path: Path, state: State) -> None:
    inside = list[str]()

    def enter() -> None:
        with State(tmp_path).publishing():
            inside.append("second")

    with state.publishing():
        second = threading.Thread(target=enter)
        second.start()
        time.sleep(0.1)
        inside.append("first")
    second.join()
    assert inside == ["first", "second"]


# --- what is the same for all machines ------------------------------------------------------------


def test_a_dagster_home_within_the_data_folder_is_the_same_under_another_path(
    tmp_path: Path,
) -> None:
    """Fault 105: a container and its host have the data folder at different paths."""
    (tmp_path / "in container").mkdir()
    (tmp_path / "host").symlink_to(tmp_path / "in container")

    State(tmp_path / "in container").note_dagster_home(tmp_path / "in container" / ".dagster")

    assert State(tmp_path / "host").dagster_home() == (tmp_path / "host" / ".dagster", "")


def test_the_demo_is_moved_aside_by_a_command_unless_the_folder_belongs_to_somebodys_dagster(
    state: State,
) -> None:
    state.claim(THIS_MACHINE)
    with pytest.raises(SettingsError, match="--move-demo"):
        state.claim("https://leads.portal.example")

    state.note_dagster_home(state.path / "theirs", "leads")

    with pytest.raises(SettingsError, match="set LEADS_DATA_DIR to another folder") as refused:
        state.claim("https://leads.portal.example")
    assert "--move-demo" not in str(refused.value)


def test_a_broken_key_of_people_is_not_replaced(tmp_path: Path, state: State) -> None:
    assert state.person_key() == State(tmp_path).person_key()
    (tmp_path / ".state" / "person_key").write_text("ab")
    with pytest.raises(StorageError, match="64 hexadecimal digits"):
        state.person_key()


def test_a_folder_brings_along_to_a_bucket_what_it_remembers_and_another_buckets_folder_is_refused(
    tmp_path: Path,
) -> None:
    key = State(tmp_path / "one").person_key()
    bucket = FolderStore(tmp_path / "bucket")
    State(tmp_path / "one", bucket).exchange_with_bucket()
    assert State(tmp_path / "two", bucket).person_key() == key
    State(tmp_path / "three").person_key()
    with pytest.raises(SettingsError, match="another person_key"):
        State(tmp_path / "three", bucket).exchange_with_bucket()
