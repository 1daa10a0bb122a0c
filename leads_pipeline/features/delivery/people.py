"""Whom the ledger of deliveries holds."""

from dataclasses import dataclass
from typing import Final

from leads_pipeline.errors import StorageError
from leads_pipeline.features.delivery.ledger import reading_ledger, writing_ledger
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.people import HoldsPeople, IsMeant

# How long an erasure waits for a delivery that is under way.
_PATIENCE_SECONDS: Final = 10


@dataclass(frozen=True, slots=True)
class DeliveredLeads(HoldsPeople):
    """The leads of which the ledger knows the ids (see HoldsPeople)."""

    data: DataFolder

    def recipients(self, is_meant: IsMeant) -> dict[str, list[str]]:
        """Return to which hosts they were delivered, and on which days, as ISO dates. Raises StorageError."""
        days: dict[str, set[str]] = {}
        with reading_ledger(self.data.folder) as ledger:
            for lead in filter(is_meant, ledger.leads() if ledger else ()):
                for host, at in ledger.sent(*lead) if ledger else ():
                    days.setdefault(host, set()).add(f"{at:%Y-%m-%d}")
        return {host: sorted(of_host) for host, of_host in sorted(days.items())}

    def forget(self, is_meant: IsMeant) -> list[str]:
        """Forget them. Return what couldn't be forgotten."""
        try:
            with reading_ledger(self.data.folder) as ledger:
                leads = [lead for lead in ledger.leads() if is_meant(lead)] if ledger else []
            if not leads:
                return []

            with (
                self.data.state.lock("delivery", timeout_seconds=_PATIENCE_SECONDS),
                writing_ledger(self.data.folder) as mine,
            ):
                for lead in leads:
                    mine.forget(*lead)
        except StorageError as error:
            return [
                "The ledger of deliveries: it still has the ids of their leads. `privacy apply` forgets them. "
                + str(error)
            ]
        return []
