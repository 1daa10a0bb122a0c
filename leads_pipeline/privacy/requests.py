"""Requests of people that the suppression list knows: which of them are carried out, whose they are, when they are due.

Doesn't belong here: carrying them out (erase.py, objecting.py), whom an entry means (suppression/).
"""

from calendar import monthrange
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from leads_pipeline.contract import LEAD_KINDS
from leads_pipeline.person.matching import Sought
from leads_pipeline.suppression import Action, Entry, Suppressed, hashes


def open_entries(suppressed: Suppressed) -> list[Entry]:
    """Requests that nobody has shown to be carried out; what was lifted needn't be any more."""
    done = {entry.of for entry in suppressed.entries if entry.action is Action.DONE}
    lifts = [entry for entry in suppressed.entries if entry.action is Action.LIFT]
    return [entry for entry in (*suppressed.active, *lifts) if entry.number not in done]


def open_entries_of(suppressed: Suppressed, sought: Sought) -> list[Entry]:
    """Erasures among them that know their person by nothing but what is sought: to look for that shows them done."""
    emails, phones = hashes(suppressed, "mailbox", sought.mailboxes), hashes(suppressed, "phone", sought.phones)
    leads = _leads(suppressed, sought)
    return [
        entry
        for entry in open_entries(suppressed)
        if entry.action is Action.ERASE
        and (
            {*entry.emails}.issubset(emails) and {*entry.phones}.issubset(phones)
            if entry.emails or entry.phones
            else {*entry.leads}.issubset(leads)
        )
    ]


def is_on_an_erasure(suppressed: Suppressed, sought: Sought) -> bool:
    """Whether any erasure knows its person by something of what is sought."""
    given = {
        *hashes(suppressed, "mailbox", sought.mailboxes),
        *hashes(suppressed, "phone", sought.phones),
        *hashes(suppressed, "name", sought.names),
        *_leads(suppressed, sought),
    }
    return any(
        not given.isdisjoint((*entry.emails, *entry.phones, *entry.names, *entry.leads))
        for entry in suppressed.active
        if entry.action is Action.ERASE
    )


def _leads(suppressed: Suppressed, sought: Sought) -> set[str]:
    return {suppressed.hashed_lead(kind.name, lead_id) for kind in LEAD_KINDS for lead_id in sought.lead_ids}


def due_on(received: date) -> date:
    """The day on which a request has to be answered: one month after it was received (UK GDPR, article 12)."""
    year, month = (received.year + 1, 1) if received.month == 12 else (received.year, received.month + 1)
    return date(year, month, min(received.day, monthrange(year, month)[1]))


def no_backup_from(gone_at: datetime, zone: ZoneInfo, backup_days: int | None) -> date | None:
    """The first day on which no backup holds who was gone then; None where nobody has said how long one is kept.

    The last that may hold them was made on that local day, and is deleted so many days later.
    """
    return None if backup_days is None else gone_at.astimezone(zone).date() + timedelta(days=backup_days + 1)
