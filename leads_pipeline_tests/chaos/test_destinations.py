"""Three destinations at once: one is dead, one is slow, and one answers 409 for half of the leads.

The sender is killed twice, and two people are erased in the middle.
"""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leads_pipeline.features.privacy.carrying_out import carry_out
from leads_pipeline.features.privacy.nightly import work_of_night
from leads_pipeline.orchestration.night import Night
from leads_pipeline.settings import Settings
from leads_pipeline_tests.support.crm import SECRET
from leads_pipeline_tests.support.house import DAY, House
from leads_pipeline_tests.support.serving import QuietHandler, free_port, serving

PROGRAM = Path(sys.executable).with_name("leads-pipeline")
# Requests at once, whose answers a killed sender doesn't note.
AT_ONCE = 4

# DEAD, SLOW and API stand for addresses.
FILE = """
[[destination]]
name = "dead"
url = "DEAD/hook"
secret = {env = "SECRET"}
from = 2026-11-19

[[destination]]
name = "slow"
url = "SLOW/hook"
secret = {env = "SECRET"}
from = 2026-11-19
kinds = ["applicant"]
branches = ["101"]

[[destination]]
name = "api"
from = 2026-11-19
markets = ["sales"]
[destination.created]
done = [409]
url = "API/leads"
body = '{"id": {{ data.lead_id }}, "branch": {{ data.branch }}}'
[destination.erased]
method = "DELETE"
url = "API/leads/{{ data.lead_id }}"
"""


@dataclass
class Taken:
    """What an endpoint has acknowledged, in order: the type of the event, and the lead."""

    events: list[tuple[str, str]] = field(default_factory=list)

    def of(self, kind: str) -> Counter[str]:
        return Counter(lead_id for event, lead_id in self.events if event == kind)


@contextmanager
def hook(seconds: float, port: int = 0) -> Iterator[tuple[str, Taken]]:
    """An endpoint that takes webhooks, in so many seconds each."""
    taken = Taken()

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["content-length"])))
            time.sleep(seconds)
            taken.events.append((message["type"], message["data"]["lead_id"]))
            self.send_response(204)
            self.end_headers()

    with serving(Handler, port) as address:
        yield address, taken


@contextmanager
def api() -> Iterator[tuple[str, Taken]]:
    """An API that has half of the leads already."""
    taken = Taken()

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            lead_id = json.loads(self.rfile.read(int(self.headers["content-length"])))["id"]
            taken.events.append(("created", lead_id))
            self.send_response(409 if int(lead_id.rpartition("-")[2]) % 2 else 201)
            self.end_headers()

        def do_DELETE(self) -> None:
            taken.events.append(("erased", self.path.rpartition("/")[2]))
            self.send_response(204)
            self.end_headers()

    with serving(Handler) as address:
        yield address, taken


def lead(number: int) -> dict[str, Any]:
    market = "SALES" if number % 3 else "LETTINGS"
    return {
        "id": f"lead-{number}",
        "createdAt": f"{DAY}T10:00:00Z",
        "enquiryType": f"ENQUIRY_TYPE_{market}",
        "contact": {"lastName": f"Quill{number}", "email": f"j{number}@people.example"},
    }


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_each_lead_is_once_where_it_belongs_and_erasures_are_where_it_was(tmp_path: Path) -> None:
    house = House(tmp_path / "data")
    house.land("applicant", map(lead, range(500)))
    house.land("applicant", map(lead, range(500, 800)), scope="branch-102")
    house.land("appraisal", map(lead, range(800, 1000)), scope="branch-102")
    house.publish()
    of_slow = [f"lead-{number}" for number in range(500)]
    dead_port = free_port()

    with hook(0.02) as (slow_address, slow), api() as (api_address, crm):
        file = tmp_path / "destinations.toml"
        file.write_text(
            FILE.replace("DEAD", f"http://127.0.0.1:{dead_port}")
            .replace("SLOW", slow_address)
            .replace("API", api_address)
        )
        environment = {
            **os.environ,
            "LEADS_DATA_DIR": str(house.folder),
            "LEADS_DESTINATIONS_FILE": str(file),
            "LEADS_TIMEZONE": "Europe/London",
            "SECRET": SECRET,
        }

        def deliver(*options: str) -> subprocess.Popen[bytes]:
            command = [str(PROGRAM), "deliver", *options]
            return subprocess.Popen(
                command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE
            )

        for events in (50, 120):
            sender = deliver("--now")
            wait_for(lambda events=events: len(slow.events) >= events)  # type: ignore[misc]
            sender.kill()
            sender.communicate()

        sender = deliver("--now")
        wait_for(lambda: len(slow.events) >= 200)
        delivered = slow.of("lead.created")
        had_it = next(lead_id for lead_id in delivered if lead_id in crm.of("created"))
        waits = next(one for one in reversed(of_slow) if one not in delivered)
        for lead_id in (had_it, waits):
            house.erase(lead=f"applicant/{lead_id}")
        sender.communicate()
        carry_out(house.data, lambda: None, house.now)

        # The dead one holds no other. At last it comes back.
        said = deliver("--now").communicate()[0].decode()
        assert "Delivered to dead (127.0.0.1): 0. Left: 99" in said
        assert "Left: 0." in said
        with hook(0, dead_port) as (_, back):
            deliver("--now").communicate()

    to_slow = slow.of("lead.created")
    to_api = crm.of("created")
    to_dead = back.of("lead.created")
    sales = {f"lead-{number}" for number in range(1000) if number % 3}
    assert set(to_slow) == {*of_slow} - {waits}
    assert sales - set(to_api) <= {waits}
    assert set(to_api) <= sales
    assert set(to_dead) == {f"lead-{number}" for number in range(1000)} - {had_it, waits}

    # A killed sender hasn't noted the answers to its last requests. Nothing else comes twice.
    assert to_dead.total() == len(to_dead)
    for taken in (to_slow, to_api):
        assert taken.total() - len(taken) <= 2 * AT_ONCE

    assert slow.of("lead.erased") == Counter([had_it])
    # A killed sender may have noted a request that it never sent: then the API is told, too.
    assert {had_it, waits} & set(to_api) <= set(crm.of("erased")) <= {had_it, waits}
    assert set(crm.of("erased").values()) == {1}
    assert back.of("lead.erased") == Counter()
    work_of_night(house.data, Settings.from_variables({}), house.now, Night())
    receipts = [path.read_text() for path in (house.folder / "privacy" / "receipts").iterdir()]
    [of_both] = [text for text in receipts if "slow (127.0.0.1) confirmed on" in text]
    assert "api (127.0.0.1) confirmed on" in of_both
