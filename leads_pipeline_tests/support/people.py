"""A made-up person, leads that show them, and entries of the suppression list that mean them."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from leads_pipeline.person.identity import email_keys, mailbox_of, name_key, phone_keys
from leads_pipeline.suppression import Action, Entry, Suppressed, SuppressionList, hashes

UNTIL = datetime(2026, 11, 21, 12, tzinfo=UTC)

EMAIL, PHONE = "jane.roe@people.example", "07700 900123"


def lead(lead_id: str, *, email: str = "", phone: str = "", name: str = "", **more: Any) -> dict[str, Any]:
    first, _, last = name.partition(" ")
    contact = {"firstName": first, "lastName": last, "phoneNumber": phone, "email": email}
    return {"id": lead_id, "contact": contact, **more}


def entry_of(
    suppressed: Suppressed,
    number: int,
    action: Action = Action.ERASE,
    *,
    emails: Iterable[str] = (EMAIL,),
    phones: Iterable[str] = (),
    names: Iterable[str] = (),
    leads: Iterable[tuple[str, str]] = (),
    until: datetime | None = UNTIL,
    **more: Any,
) -> Entry:
    """An entry for a person."""
    keys = frozenset[str]().union(*map(email_keys, emails))
    return Entry(
        number=number,
        at=UNTIL,
        action=action,
        until=until,
        emails=hashes(suppressed, "mailbox", set(map(mailbox_of, keys))),
        phones=hashes(suppressed, "phone", frozenset[str]().union(*map(phone_keys, phones))),
        names=hashes(suppressed, "name", {key for name in names if (key := name_key(name))}),
        leads=tuple(suppressed.hashed_lead(*one) for one in leads),
        **more,
    )


def listed(list_: SuppressionList, action: Action = Action.ERASE, **more: Any) -> Entry:
    """Add an entry for a person."""
    return list_.append(lambda suppressed, number: entry_of(suppressed, number, action, **more))
