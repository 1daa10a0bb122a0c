"""Files of the data folder that vanish, and files that somebody left in it."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

from leads_pipeline_tests.support.house import DAY, House

SCOPES = ("branch-101", "branch-102")


def land(house: House, scope: str, text: str = "first") -> None:
    house.land("applicant", [{"id": f"of {scope}", "message": text}], scope=scope)


def published(house: House) -> tuple[int, dict[str, str]]:
    """Publish. How many leads an analyst finds, and the state of each branch's window."""
    house.publish()
    states = "select scope, state from mart_coverage where kind = 'applicant' and day = ?"
    return len(house.leads("applicant")), dict(house.query(states, DAY))


def test_whatever_is_removed_no_window_is_said_to_be_there_that_is_not_and_what_is_published_stays(
    house: House,
) -> None:
    landed = dict.fromkeys(SCOPES, "landed")
    missing = dict.fromkeys(SCOPES, "missing")
    for scope in SCOPES:
        land(house, scope)
    assert published(house) == (2, landed)

    shutil.rmtree(house.folder / "raw")
    assert published(house) == (2, missing)

    land(house, "branch-102")
    shutil.rmtree(house.folder / ".versions")  # the link leads nowhere then
    assert published(house) == (1, missing | {"branch-102": "landed"})

    shutil.rmtree(house.folder)
    assert published(house) == (0, missing)

    for scope in SCOPES:
        land(house, scope)
    shutil.rmtree(house.folder / ".state")
    assert published(house) == (2, landed)


WRITER = """
import os, sys, duckdb
db = duckdb.connect(sys.argv[1])
db.execute("pragma disable_checkpoint_on_shutdown")
db.execute("delete from applicant_leads")
os.kill(os.getpid(), 9)
"""


def test_a_log_that_somebody_left_beside_the_file_is_neither_applied_nor_in_the_way(
    house: House,
) -> None:
    land(house, "branch-101")
    house.publish()
    house.file.chmod(0o600)
    killed = subprocess.run([sys.executable, "-c", WRITER, house.file], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert Path(f"{house.file.resolve()}.wal").stat().st_size > 0

    land(house, "branch-102")
    house.publish()

    assert house.leads("applicant").keys() == {"of branch-101", "of branch-102"}
    assert not list(house.folder.rglob("*.wal"))
