"""A small agency: a portal whose leads the test decides, a data folder, and `leads-pipeline`
commands on it.

Belongs here: what several promises share. Doesn't: what must come of the commands, which is the
tests'.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import duckdb

from leads_pipeline_tests.support.small_portal import SmallPortal, served, variables

PROGRAM: Final = str(Path(sys.executable).with_name("leads-pipeline"))

KINDS: Final = ("applicant", "appraisal")
BRANCHES: Final = ("101", "102")

# A day that is over in each time zone, and that the portal still has.
DAY: Final = (datetime.now(UTC) - timedelta(days=2)).date()


@dataclass
class Agency:
    """The leads by kind, branch and id, as the portal has them now."""

    data: Path
    address: str = ""
    leads: dict[tuple[str, str, str], Mapping[str, Any]] = field(default_factory=dict)

    def put(self, kind: str, branch: str, lead: Mapping[str, Any]) -> None:
        """Add a lead to the portal, or a newer version of it."""
        self.leads[kind, branch, lead["id"]] = lead

    def answers(self, path: str, parameters: Mapping[str, str]) -> tuple[int, bytes]:
        """Answer as the specification says: the branch's leads that were created between two
        moments, both included.
        """
        kind = path.strip("/").removesuffix("-leads")
        since, until = (
            datetime.fromisoformat(parameters[name]) for name in ("from-time", "to-time")
        )
        found = [
            lead
            for (of_kind, branch, _), lead in self.leads.items()
            if (of_kind, branch) == (kind, parameters["branch-id"])
            and since <= datetime.fromisoformat(lead["createdAt"]) <= until
        ]
        return 200, json.dumps({f"{kind}s": found}).encode()

    def environment(self) -> dict[str, str]:
        """All variables of a command."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.data.parent),
            "LEADS_BRANCH_IDS": ",".join(BRANCHES),
            "LEADS_DATA_DIR": str(self.data),
            "LEADS_START_DATE": str(DAY),
            **variables(self.address),
        }

    def run(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run `leads-pipeline` to its end."""
        environment = {**self.environment(), **more}
        command = [PROGRAM, *arguments]
        return subprocess.run(
            command,
            env=environment,
            cwd=self.data.parent,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def backfill(self) -> subprocess.CompletedProcess[str]:
        """Pull the day."""
        return self.run("backfill", "--from", str(DAY), "--to", str(DAY))


@contextmanager
def agency(data: Path) -> Iterator[Agency]:
    """Serve its portal while the block runs."""
    there = Agency(data)
    with served(SmallPortal(there.answers)) as portal:
        there.address = portal.base_url
        yield there


def lead(id_: str, version: int, *, email: str = "", **more: Any) -> dict[str, Any]:
    """A lead of the day whose message and children all say which version it is."""
    return {
        "id": id_,
        "createdAt": f"{DAY}T10:00:00Z",
        "message": f"version {version}",
        "contact": {
            "firstName": "Ann",
            "lastName": "Lee",
            "email": email or f"{id_}@people.example",
        },
        "viewingTimes": [{"earliest": f"{DAY}T{12 + version}:00Z"}],
        "listingDetails": {"images": [{"filename": f"version {version}"}]},
        **more,
    }


def versions(data: Path) -> dict[str, str]:
    """The message of each published lead by id.

    Fails if a lead is there twice, or half of a publication is there.
    """
    found: dict[str, str] = {}
    with duckdb.connect(str(data / "leads.duckdb"), read_only=True) as db:
        for kind in KINDS:
            rows = db.execute(f"select lead_id, message from {kind}_leads").fetchall()  # noqa: S608 - our own names
            assert len(dict(rows)) == len(rows), "a lead is published twice"
            counted = db.execute(
                "select coalesce(sum(leads), 0) from mart_leads_daily where kind = ?", [kind]
            ).fetchall()
            assert counted == [(len(rows),)], "a mart counts other leads than there are"
            found |= dict(rows)
        shown = db.execute("select lead_id, filename from applicant_listing_images").fetchall()
    assert dict(shown).items() <= found.items(), "children show another version than their lead"
    return found
