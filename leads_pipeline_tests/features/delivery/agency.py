"""An agency whose leads are delivered: a house, and the made-up endpoint that takes its leads.

Belongs here: what the tests of delivery do again and again. Doesn't: what has to come of it, which they say.
"""

from pathlib import Path
from typing import Any

from leads_pipeline.features.delivery.ledger import VersionState, reading_ledger, writing_ledger
from leads_pipeline.features.delivery.sending import Endpoint, Sent, deliver
from leads_pipeline.portal.http_library import httpx
from leads_pipeline.settings import Settings
from leads_pipeline_tests.support.crm import VARIABLES, Crm
from leads_pipeline_tests.support.house import DAY, House

Lead = dict[str, Any]


def lead(number: int, message: str = "first", **contact: str) -> Lead:
    known = {"firstName": "Jane", "lastName": "Quill", "email": f"j{number}@example.org", "phoneNumber": "07700 900123"}
    return {"id": f"lead-{number}", "createdAt": f"{DAY}T10:00:00Z", "message": message, "contact": known | contact}


class Agency:
    def __init__(self, folder: Path) -> None:
        self.house = House(folder)
        self.crm = Crm()
        self.variables = {**VARIABLES, "LEADS_TIMEZONE": "Europe/London", "LEADS_DELIVERY_FROM": str(DAY)}

    def land(self, *leads: Lead | str, **window: Any) -> None:
        """Land an answer with these leads of applicants."""
        self.house.land("applicant", leads, **window)

    def deliver(self, **options: Any) -> Sent:
        """Deliver to the made-up endpoint, at the house's moment."""
        return self.send(clock=lambda: self.house.now, transport=self.crm, **options)

    def send(self, **options: Any) -> Sent:
        """Deliver to the address of the variables."""
        settings = Settings.from_variables(self.variables)
        endpoint = Endpoint.of(settings)
        assert endpoint
        return deliver(settings, self.house.data, endpoint, **options)

    def endpoint_answers(self, status: int, **headers: str) -> None:
        self.crm.answer = lambda _message: httpx.Response(status, headers=headers)

    def retry(self) -> int:
        """As a person does by `deliver retry`."""
        with writing_ledger(self.house.folder) as ledger:
            return ledger.retry(self.house.now.timestamp())

    def replay(self) -> int:
        """As a person does by `deliver replay`."""
        with writing_ledger(self.house.folder) as ledger:
            return ledger.replay(DAY, DAY, self.house.now.timestamp())

    def erase_without_publishing(self, **person: str) -> None:
        """Put a person on the list. Nobody sweeps files yet."""
        publish = self.house.publish
        self.house.publish = lambda: None  # type: ignore[method-assign]
        self.house.erase(**person)
        self.house.publish = publish  # type: ignore[method-assign]

    @property
    def delivered(self) -> list[str]:
        """The leads that the endpoint took, in order."""
        return [lead_id for _, lead_id, _ in self.crm.events]

    @property
    def counts(self) -> dict[VersionState, int]:
        """The versions in each state of the ledger."""
        with reading_ledger(self.house.folder) as ledger:
            assert ledger
            return {state: count for state, count in ledger.counts().items() if count}
