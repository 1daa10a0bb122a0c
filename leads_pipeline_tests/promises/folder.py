"""A small data folder that dd03c9a left, and how to work on it: three days, two branches, a window that failed.

Belongs here: what record_folder.py and test_old_folder.py share.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from leads_pipeline_tests.promises.month import RECORDED, command, recorded_month, request
from leads_pipeline_tests.promises.portal import Answers

FOLDER: Final = RECORDED / "folder-dd03c9a.tar.xz"
ZONE = ZoneInfo("Europe/London")
DAYS = ("2026-11-15", "2026-11-16", "2026-11-17")
CLOCK = "2026-11-18 07:00:00"

# The window that the portal refused: what its request begins with.
FAILED = ("/applicant-leads?branch-id=102", "2026-11-16")
BRANCHES = {"LEADS_BRANCH_IDS": "101,102", "LEADS_START_DATE": DAYS[0]}


def answers_of_the_month(refused: tuple[str, str] | None = None) -> Answers:
    """The recorded answers of the first pull, with no leads for any other window, and perhaps one that is refused."""
    _, _, (pull, *_) = recorded_month()

    def answers(path: str, parameters: Mapping[str, str]) -> tuple[int, bytes]:
        asked = request(path, parameters)
        if refused and asked.startswith(refused[0]) and f"from-time={refused[1]}" in asked:
            return 400, b'{"errors": [{"code": "invalid_time", "message": "no", "links": []}]}'
        status, body = pull.answers.get(asked, (200, f'{{"{path.strip("/").removesuffix("-leads")}s": []}}'))
        return status, body.encode()

    return answers


def run(data: Path, address: str, clock: str, *arguments: str) -> tuple[int, str]:
    """Run `leads-pipeline` on the folder, at that moment. Give the exit code and what it printed."""
    return command(data, address, clock, arguments, **BRANCHES)
