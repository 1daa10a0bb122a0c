"""An agency whose leads are delivered: a house, and the made-up endpoint that takes its leads.

Belongs here: what the tests of delivery do again and again. Doesn't: what has to come of it, which
they say.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from leads_pipeline.features.delivery.destinations import Destination, destinations_of
from leads_pipeline.features.delivery.ledger import (
    DEFAULT,
    VersionState,
    reading_ledger,
    writing_ledger,
)
from leads_pipeline.features.delivery.questions import Retried, Selection, counts, replay, retry
from leads_pipeline.features.delivery.sending import Sent, deliver
from leads_pipeline.features.privacy.sweeping import sweep
from leads_pipeline.portal.http_library import httpx
from leads_pipeline.settings import Settings
from leads_pipeline_tests.support.crm import SECRET, VARIABLES, Crm
from leads_pipeline_tests.support.house import DAY, House

Lead = dict[str, Any]


def lead(number: int, message: str = "first", **contact: str) -> Lead:
    known = {
        "firstName": "Jane",
        "lastName": "Quill",
        "email": f"j{number}@example.org",
        "phoneNumber": "07700 900123",
    }
    return {
        "id": f"lead-{number}",
        "createdAt": f"{DAY}T10:00:00Z",
        "message": message,
        "contact": known | contact,
    }


class SweptHouse(House):
    """A house that publishes nothing after a request of a person, as deliveries read raw files."""

    def publish(self) -> None:
        swept = sweep(self.data)
        self.data.state.note_swept(swept.newest_entry)

    def publish_tables(self) -> None:
        super().publish()


class Agency:
    def __init__(self, folder: Path) -> None:
        self.house = SweptHouse(folder)
        self.crm = Crm()
        self.variables = {
            **VARIABLES,
            "LEADS_TIMEZONE": "Europe/London",
            "LEADS_DELIVERY_FROM": str(DAY),
        }

    def land(self, *leads: Lead | str, **window: Any) -> None:
        """Land an answer with these leads of applicants."""
        self.house.land("applicant", leads, **window)

    def deliver(self, **options: Any) -> Sent:
        """Deliver to the made-up endpoint, at the house's moment."""
        return self.send(clock=lambda: self.house.now, transport=self.crm, **options)

    def send(self, **options: Any) -> Sent:
        """Deliver to the address of the variables."""
        settings = Settings.from_variables(self.variables)
        [destination] = destinations_of(settings)
        return deliver(settings, self.house.data, destination, **options)

    def endpoint_answers(self, status: int, **headers: str) -> None:
        self.crm.answer = lambda _message: httpx.Response(status, headers=headers)

    def retry(self) -> Retried:
        """As a person does by `deliver retry`."""
        with writing_ledger(self.house.folder) as ledger:
            return retry(ledger, self.house.now.timestamp())

    def replay(self) -> int:
        """As a person does by `deliver replay`, of DAY."""
        of_the_day = Selection(first=DAY, last=DAY)
        with writing_ledger(self.house.folder) as ledger:
            return replay(ledger, of_the_day, self.house.now.timestamp())

    def erase_without_sweeping(self, **person: str) -> None:
        """Put a person on the list. Nobody sweeps files yet."""
        with patch.object(SweptHouse, "publish"):
            self.house.erase(**person)

    @property
    def delivered(self) -> list[str]:
        """The leads that the endpoint took, in order."""
        return [lead_id for _, lead_id, _ in self.crm.events]

    def states(self, destination: str = DEFAULT) -> dict[VersionState, int]:
        """The versions in each state of a destination's ledger."""
        with reading_ledger(self.house.folder, destination) as ledger:
            assert ledger
            return {state: count for state, count in counts(ledger).items() if count}


@dataclass
class Api(httpx.AsyncBaseTransport):
    """A destination's own API. It remembers requests, and answers with `answer`."""

    answer: Callable[[httpx.Request], httpx.Response] = lambda _: httpx.Response(201)
    requests: list[httpx.Request] = field(default_factory=list)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        return self.answer(request)

    @property
    def said(self) -> list[tuple[str, str, Any]]:
        """Method, address and JSON of each request."""
        return [
            (one.method, str(one.url), json.loads(one.content or b"null")) for one in self.requests
        ]


class Destinations:
    """The agency's file of destinations, and a made-up endpoint for each."""

    def __init__(self, agency: Agency, *tables: str, **variables: str) -> None:
        self.agency = agency
        self.file = agency.house.folder.parent / "destinations.toml"
        self.variables = {"SECRET": SECRET, "LEADS_TIMEZONE": "Europe/London", **variables}
        self.variables["LEADS_DESTINATIONS_FILE"] = str(self.file)
        self.write(*tables)
        self.crms: dict[str, Crm] = {}
        self.api: Api | None = None

    def write(self, *tables: str) -> None:
        self.file.write_text("\n".join(f"[[destination]]\n{table}" for table in tables))

    @property
    def settings(self) -> Settings:
        return Settings.from_variables(
            self.variables | {"LEADS_DATA_DIR": str(self.agency.house.folder)}
        )

    def read(self) -> list[Destination]:
        return destinations_of(self.settings)

    def deliver(self, **options: Any) -> dict[str, Sent]:
        """Deliver to each."""
        sent = {}
        house = self.agency.house
        for destination in self.read():
            crm = self.api or self.crms.setdefault(destination.name, Crm())
            sent[destination.name] = deliver(
                self.settings,
                house.data,
                destination,
                clock=lambda: house.now,
                transport=crm,
                **options,
            )
        return sent

    @property
    def delivered(self) -> dict[str, list[str]]:
        """The leads that were sent to each, as often as they were."""
        return {
            name: sorted(message["data"]["lead_id"] for _, _, message in crm.attempts)
            for name, crm in self.crms.items()
        }


# A destination with an API of its own.
HEAD = f'name = "api"\nfrom = {DAY}\n'
CREATED = """
[destination.created]
url = "https://api.example/leads/{{ data.lead_id }}"
body = '''{"name": {{ data.contact_first_name ~ " " ~ data.contact_last_name }}, "text": {{ data.message }}}'''
"""


def webhook(name: str, *lines: str) -> str:
    """A table of a destination that takes webhooks."""
    more = "\n".join(lines)
    return f'name = "{name}"\nurl = "https://{name}.example/hook"\nsecret = {{env = "SECRET"}}\nfrom = {DAY}\n{more}\n'
