"""Files of the data folder that vanish, and files that somebody left in it."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

from leads_pipeline_tests.support.house import House


def land(
    house: House, text: str = "first", scopes: tuple[str, ...] = ("branch-101", "branch-102")
) -> None:
    for scope in scopes:
        leads = [
            {"id": f"{scope} {number}", "message": text, "viewingTimes": [{}]}
            for number in range(6)
        ]
        house.land("applicant", leads, scope=scope)


def test_whatever_is_removed_no_window_is_said_to_be_there_that_is_not_and_what_is_published_stays(
    house: House,
) -> None:
    here, gone = [("branch-101", "landed"), ("branch-102", "landed")], [("branch-101", "missing")]

    def found() -> tuple[int, list[tuple[str, str]]]:
        house.publish()
        states = (
            "select scope, state from mart_coverage where kind = 'applicant' and day = ? order by "
            "all"
        )
        return len(house.leads("applicant")), house.query(states, house.day)

    land(house)
    assert found() == (12, here)
    lists = house.query("from applicant_viewing_times order by all")
    shutil.rmtree(house.folder / "raw")
    assert found() == (12, [*gone, ("branch-102", "missing")])
    land(house, scopes=("branch-102",))
    assert found() == (12, [*gone, here[1]])
    shutil.rmtree(house.folder / ".versions")  # the link leads nowhere then
    assert found() == (6, [*gone, here[1]])
    shutil.rmtree(house.folder)
    assert found() == (0, [*gone, ("branch-102", "missing")])
    land(house)
    shutil.rmtree(house.folder / ".state")
    assert found() == (12, here)
    assert house.query("from applicant_viewing_times order by all") == lists


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
    land(house)
    house.publish()
    house.file.chmod(0o600)
    killed = subprocess.run([sys.executable, "-c", WRITER, house.file], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert Path(f"{house.file.resolve()}.wal").stat().st_size > 0
    land(house, "second")
    house.publish()

    assert {lead["message"] for lead in house.leads("applicant").values()} == {"second"}
    assert len(house.leads("applicant")) == 12
    assert not list(house.folder.rglob("*.wal"))
