"""Whom the ledgers of deliveries hold."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from leads_pipeline.errors import StorageError
from leads_pipeline.features.delivery.ledger import (
    DEFAULT,
    Ledger,
    VersionState,
    ledger_names,
    lock_name,
    reading_ledger,
    writing_ledger,
)
from leads_pipeline.features.delivery.outcomes import write_outcomes
from leads_pipeline.features.delivery.questions import (
    Erasure,
    erasures,
    forget_erasure,
    known_hosts,
    known_leads,
    sent,
)
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.people import HoldsPeople, IsMeant

# How long an erasure waits for a delivery that is under way.
_PATIENCE_SECONDS: Final = 10


@dataclass(frozen=True, slots=True)
class DeliveredLeads(HoldsPeople):
    """The leads of which the ledgers know the ids (see HoldsPeople)."""

    data: DataFolder

    def recipients(self, is_meant: IsMeant) -> dict[str, list[str]]:
        """Return to which hosts they were delivered, and on which days, as ISO dates.

        Raises StorageError.
        """
        days: dict[str, set[str]] = {}
        for ledger in self._ledgers():
            for lead in filter(is_meant, known_leads(ledger)):
                for host, at in sent(ledger, *lead):
                    days.setdefault(_shown(ledger.name, host), set()).add(f"{at:%Y-%m-%d}")
        return {host: sorted(of_host) for host, of_host in sorted(days.items())}

    def notes_on(self, is_meant: IsMeant) -> list[str]:
        """Return which leads were accepted or rejected there, in sentences. Raises StorageError."""
        notes = []
        for ledger in self._ledgers():
            destination = _destination_of(ledger)
            for kind, lead_id, outcome, at in ledger.outcomes():
                if is_meant((kind, lead_id)):
                    day = datetime.fromtimestamp(at, UTC).date()
                    notes.append(f"{destination}: {kind}/{lead_id} was {outcome} on {day}.")
        return notes

    def untold(self) -> set[str]:
        """Return the hosts that nobody tells of erasures. Raises StorageError."""
        hosts = set[str]()
        for ledger in self._ledgers():
            tells = ledger.fact("tells_erasures") != "no"
            here = ledger.fact("host")
            for host in known_hosts(ledger):
                is_former = here is not None and host != here  # its address has changed
                if is_former or not tells:
                    hosts.add(_shown(ledger.name, host))
        return hosts

    def confirmations(self, is_meant: IsMeant) -> list[str]:
        """Return who has confirmed all erasures of such leads, and when, and who isn't told.

        Raises StorageError.
        """
        lines = []
        for ledger in self._ledgers():
            name = ledger.name
            of_ledger = [one for one in erasures(ledger) if is_meant(one.lead)]
            moments = [one.confirmed_at for one in of_ledger if one.confirmed_at]
            if moments and len(moments) == len(of_ledger):
                shown = ", ".join(sorted({_shown(name, one.host or "") for one in of_ledger}))
                lines.append(
                    f"{shown} confirmed on {max(moments):%Y-%m-%d} that it erased the leads."
                )
            if any(one.state == VersionState.UNWANTED for one in of_ledger):
                destination = _destination_of(ledger)
                lines.append(f"{destination} isn't told of erasures. Tell those who run it.")
        return lines

    def forget_confirmed(self, is_meant: IsMeant) -> None:
        """Forget erasures of such leads that are confirmed, or that nobody is told of.

        Raises StorageError.
        """
        for name in ledger_names(self.data.folder):
            with reading_ledger(self.data.folder, name) as ledger:
                found = erasures(ledger) if ledger else []
                leads = [one.lead for one in found if _is_over(one) and is_meant(one.lead)]
            if leads:
                with self._writing(name) as mine:
                    for lead in leads:
                        forget_erasure(mine, lead)

    def forget(self, is_meant: IsMeant) -> list[str]:
        """Forget them, and have those told who got them. Return what couldn't be forgotten."""
        try:
            self.recipients(is_meant)
        except StorageError as error:  # no receipt has named whom the others had it sent to
            return [f"The ledgers of deliveries: nothing was forgotten. {error}"]

        troubles = []
        for name in ledger_names(self.data.folder):
            try:
                self._forget(name, is_meant)
            except StorageError as error:
                troubles.append(
                    "The ledger of deliveries: it still has the ids of their leads. `privacy "
                    f"apply` forgets them. {error}"
                )
        return troubles

    def _forget(self, name: str, is_meant: IsMeant) -> None:
        with reading_ledger(self.data.folder, name) as ledger:
            found = known_leads(ledger) if ledger else []
            leads = [lead for lead in found if is_meant(lead)]
        if leads:
            with self._writing(name) as mine:
                for lead in leads:
                    mine.erase(*lead, datetime.now(UTC))
                write_outcomes(self.data.folder, mine)

    def _ledgers(self) -> Iterator[Ledger]:
        """Open each ledger to look at it alone. Raises StorageError."""
        for name in ledger_names(self.data.folder):
            with reading_ledger(self.data.folder, name) as ledger:
                if ledger is not None:
                    yield ledger

    @contextmanager
    def _writing(self, name: str) -> Iterator[Ledger]:
        with (
            self.data.state.lock(lock_name(name), timeout_seconds=_PATIENCE_SECONDS),
            writing_ledger(self.data.folder, name) as ledger,
        ):
            yield ledger


def _shown(name: str, host: str) -> str:
    return host if name == DEFAULT else f"{name} ({host})"


def _destination_of(ledger: Ledger) -> str:
    host = ledger.fact("host")
    return _shown(ledger.name, host) if host else ledger.name


def _is_over(erasure: Erasure) -> bool:
    return erasure.state in (VersionState.DELIVERED, VersionState.UNWANTED)
