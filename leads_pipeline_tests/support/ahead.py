"""What is loaded ahead of a publication, as tests look at it.

Belongs here: the draft, its helpers, leads enough for a round, and what would be published without
it. Doesn't: loading (house.py).
"""

import shutil
from pathlib import Path
from typing import Any

from leads_pipeline.features.loading_ahead.pull import HELPER
from leads_pipeline_tests.support.house import House
from leads_pipeline_tests.support.people import lead

# Two windows of so many leads make a round.
MANY = 3_000


def land_many(house: House, number: int, **person: str) -> None:
    """Land many leads in a window of one of two branches, and one of that person."""
    leads = [lead(f"{number} {one}", email=f"{one}@people.example") for one in range(MANY)]
    house.land(
        "applicant",
        [*leads, lead(f"{number} jane", **person)],
        house.today,
        f"branch-{101 + number % 2}",
    )


def draft_of(house: House) -> Path:
    """The folder of the draft that a helper loads."""
    return house.folder / ".versions" / "ahead"


def published_plainly(house: House, folder: Path) -> dict[str, Any]:
    """The tables that a publication makes if nothing was loaded ahead."""
    house.data.state.person_key()  # else each folder would make its own
    plain = house.copied(folder)
    shutil.rmtree(draft_of(plain), ignore_errors=True)
    plain.publish()
    return all_tables(plain)


def all_tables(house: House) -> dict[str, Any]:
    """Every published table, and what the file remembers of windows, people and days."""
    remembered = {
        name: house.query(f"from pipeline.{name} order by all") for name in ("windows", "objected")
    }
    days = house.query("select day from pipeline.touched_days order by all")
    return {**house.tables(), **remembered, "days": days}


def helpers_of(house: House) -> list[int]:
    """The helpers of the folder that run."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_text()
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:  # it has just ended
            continue
        if {HELPER, str(house.folder)} <= {*command.split("\0")} and state != "Z":
            found.append(int(process.name))
    return found
