"""Whom the ledgers of deliveries hold."""

from dataclasses import dataclass
from typing import Final

from leads_pipeline.errors import StorageError
from leads_pipeline.features.delivery.ledger import (
    DEFAULT,
    ledger_names,
    lock_name,
    reading_ledger,
    writing_ledger,
)
from leads_pipeline.features.delivery.questions import known_leads, sent
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.people import HoldsPeople, IsMeant

# How long an erasure waits for a delivery that is under way.
_PATIENCE_SECONDS: Final = 10


@dataclass(frozen=True, slots=True)
class DeliveredLeads(HoldsPeople):
    """The leads of which the ledgers know the ids (see HoldsPeople)."""

    data: DataFolder

    def recipients(self, is_meant: IsMeant) -> dict[str, list[str]]:
        """Return to which hosts they were delivered, and on which days, as ISO dates. Raises StorageError."""
        days: dict[str, set[str]] = {}
        for name in ledger_names(self.data.folder):
            with reading_ledger(self.data.folder, name) as ledger:
                for lead in filter(is_meant, known_leads(ledger) if ledger else ()):
                    for host, at in sent(ledger, *lead) if ledger else ():
                        shown = host if name == DEFAULT else f"{name} ({host})"
                        days.setdefault(shown, set()).add(f"{at:%Y-%m-%d}")
        return {host: sorted(of_host) for host, of_host in sorted(days.items())}

    def forget(self, is_meant: IsMeant) -> list[str]:
        """Forget them. Return what couldn't be forgotten."""
        troubles = []
        for name in ledger_names(self.data.folder):
            try:
                self._forget(name, is_meant)
            except StorageError as error:
                troubles.append(
                    "The ledger of deliveries: it still has the ids of their leads. `privacy apply` forgets them. "
                    f"{error}"
                )
        return troubles

    def _forget(self, name: str, is_meant: IsMeant) -> None:
        with reading_ledger(self.data.folder, name) as ledger:
            meant = [lead for lead in known_leads(ledger) if is_meant(lead)] if ledger else []
        if not meant:
            return

        with (
            self.data.state.lock(lock_name(name), timeout_seconds=_PATIENCE_SECONDS),
            writing_ledger(self.data.folder, name) as mine,
        ):
            for lead in meant:
                mine.forget(*lead)
