"""Requests of people: entries of the suppression list, what holds for whom, and when an answer is due.

Belongs here: adding entries and noting that they are carried out. Doesn't: finding a person (finding.py), taking leads
out (sweeping.py), whom an entry means (storage/suppression/).
"""

from calendar import monthrange
from collections.abc import Sequence
from datetime import date, datetime
from typing import Final

import duckdb

from leads_pipeline.domain.contract import ReceivedLead
from leads_pipeline.domain.person import Person, texts_of
from leads_pipeline.errors import QuestionError
from leads_pipeline.privacy.finding import PLACES_OF_RAW, Found, FoundLead, left_in_quarantine
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.raw import RESTRICTED
from leads_pipeline.storage.rows import CORRECTION
from leads_pipeline.storage.suppression import Action, Entry, Suppressed, hashes
from leads_pipeline.transform.people import set_person_key

# What can be ended.
LIFTABLE: Final = frozenset({Action.OBJECT, Action.RESTRICT})


def add(
    data: DataFolder,
    action: Action,
    person: Person,
    found: Found,
    leads: Sequence[FoundLead],
    *,
    case: str,
    received: date,
    now: datetime,
) -> Entry:
    """Have the list mean these leads, and whatever else shows the person. An erasure means leads created before now."""
    persons = _persons(data, person, leads) if action is Action.OBJECT else ()

    def entry(suppressed: Suppressed, number: int) -> Entry:
        return Entry(
            number=number,
            at=now,
            action=action,
            case=case,
            received=received,
            until=now if action is Action.ERASE else None,
            emails=hashes(suppressed, "mailbox", person.emails),
            phones=hashes(suppressed, "phone", person.phones),
            names=hashes(suppressed, "name", found.names),
            is_shared=found.is_shared,
            leads=_hashed(suppressed, leads),
            persons=tuple(persons),
        )

    return data.gate.entries.append(entry)


def add_clearing(data: DataFolder, of: Entry, leads: Sequence[FoundLead], now: datetime) -> Entry:
    """Have the list empty the messages of these leads of others."""

    def entry(suppressed: Suppressed, number: int) -> Entry:
        return Entry(number=number, at=now, action=Action.CLEAR, of=of.number, leads=_hashed(suppressed, leads))

    return data.gate.entries.append(entry)


def land_correction(data: DataFolder, leads: Sequence[FoundLead], patch: str, now: datetime) -> None:
    """Land a JSON merge patch beside each raw version of the leads. A publication has to follow."""
    data.state.want_rewriting()
    for lead in leads:
        for place in {row.window for row in lead.rows if row.place in PLACES_OF_RAW and row.window}:
            root = data.gate.restricted if place.root == RESTRICTED else data.raw
            root.add(place, [ReceivedLead(lead.lead_id, patch)], now, CORRECTION)


def learn_contact(data: DataFolder, entries: Sequence[Entry], corrected: Person, now: datetime) -> None:
    """Have the objections among these entries hold for the person under a corrected address or number too."""
    persons = tuple(_persons(data, corrected, ()))
    for of in [entry.number for entry in entries if entry.action is Action.OBJECT]:

        def entry(_: Suppressed, number: int, of: int = of) -> Entry:
            return Entry(number=number, at=now, action=Action.LEARNED, of=of, persons=persons)

        data.gate.entries.append(entry)


def add_lift(data: DataFolder, of: Entry, *, case: str, received: date, now: datetime) -> Entry:
    """Have the list say that an entry ended."""

    def entry(_: Suppressed, number: int) -> Entry:
        return Entry(number=number, at=now, action=Action.LIFT, of=of.number, case=case, received=received)

    return data.gate.entries.append(entry)


def note_done(data: DataFolder, now: datetime) -> dict[int, list[str]]:
    """Note the open requests that the folder was swept and published for as carried out.

    An erasure stays open while a file in quarantine may hold the person. Return these files, by the number of the
    erasure.
    """
    left: dict[int, list[str]] = {}
    for open_one in [
        entry for entry in open_entries(data.gate.entries.read()) if data.state.swept_to() >= entry.number
    ]:
        if open_one.action is Action.ERASE and (paths := left_in_quarantine(data, open_one)):
            left[open_one.number] = paths
            continue

        def entry(_: Suppressed, number: int, of: int = open_one.number) -> Entry:
            return Entry(number=number, at=now, action=Action.DONE, of=of)

        data.gate.entries.append(entry)
    return left


def open_entries(suppressed: Suppressed) -> list[Entry]:
    """Requests that aren't carried out yet. A request that was lifted needn't be."""
    done = {entry.of for entry in suppressed.entries if entry.action is Action.DONE}
    lifts = [entry for entry in suppressed.entries if entry.action is Action.LIFT]
    return [entry for entry in (*suppressed.active, *lifts) if entry.number not in done]


def liftable(suppressed: Suppressed, numbers: Sequence[int]) -> list[Entry]:
    """The entries of these numbers. Raises QuestionError if one can't be ended."""
    by_number = {entry.number: entry for entry in suppressed.active}
    for number in dict.fromkeys(numbers):
        if number not in by_number:
            raise QuestionError(
                f"{number} is no objection or restriction in force. `leads-pipeline privacy log` shows the numbers."
            )
        if by_number[number].action not in LIFTABLE:
            raise QuestionError(f"{number} can't be ended. Only objections and restrictions can.")
    return [by_number[number] for number in dict.fromkeys(numbers)]


def in_force(suppressed: Suppressed, person: Person, found: Found) -> list[Entry]:
    """The objections and restrictions that hold for this person or for one of the leads that were found."""
    emails, phones = hashes(suppressed, "mailbox", person.emails), hashes(suppressed, "phone", person.phones)
    leads = _hashed(suppressed, found.theirs)
    return [
        entry
        for entry in suppressed.active
        if entry.action in LIFTABLE
        and not {*emails, *phones, *leads}.isdisjoint((*entry.emails, *entry.phones, *entry.leads))
    ]


def due_on(received: date) -> date:
    """The day on which a request has to be answered: one month after it was received (UK GDPR, article 12)."""
    year, month = (received.year + 1, 1) if received.month == 12 else (received.year, received.month + 1)
    return date(year, month, min(received.day, monthrange(year, month)[1]))


def _hashed(suppressed: Suppressed, leads: Sequence[FoundLead]) -> tuple[str, ...]:
    return tuple(sorted({suppressed.hashed_lead(lead.kind, lead.lead_id) for lead in leads}))


def _persons(data: DataFolder, person: Person, leads: Sequence[FoundLead]) -> list[str]:
    """What the column `person` has for these leads, and for the addresses and numbers that were given."""
    contacts: list[tuple[str | None, str | None]] = [(email, None) for email in person.emails]
    contacts += [(None, phone) for phone in person.phones]
    for lead in leads:
        for row in lead.rows:
            texts = dict(texts_of(row.payload))
            email, phone = (
                ("contact.email", "contact.phoneNumber")
                if row.is_received
                else ("contact_email", "contact_phone_number")
            )
            contacts.append((texts.get(email), texts.get(phone)))
    with duckdb.connect() as db:
        set_person_key(db, data.state.person_key())
        rows = db.execute(
            "select distinct person_of(email, phone)::varchar as person "
            "from (select unnest($emails::varchar[]) as email, unnest($phones::varchar[]) as phone) "
            "where person is not null order by all",
            {"emails": [email for email, _ in contacts], "phones": [phone for _, phone in contacts]},
        ).fetchall()
    return [person for (person,) in rows]
