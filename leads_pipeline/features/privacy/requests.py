"""Requests of people: the suppression list's entries, for whom they hold, and their due dates.

Belongs here: adding entries, noting that they are done, the log. Doesn't: carrying them out
(carrying_out.py), finding a person (search.py), taking leads out (sweeping.py), receipts
(receipt.py), whom an entry means (suppression/).
"""

import json
from calendar import monthrange
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from functools import partial
from operator import attrgetter
from typing import Any, Final

from leads_pipeline.domain.contract import ReceivedLead, lead_in_words, lead_kind
from leads_pipeline.errors import QuestionError
from leads_pipeline.features.privacy.gatekeeper import list_of
from leads_pipeline.features.privacy.identity import LeadKey, LeadRow, Person
from leads_pipeline.features.privacy.search import PLACES_OF_RAW, Found, FoundLead
from leads_pipeline.features.privacy.suppression import IDENTITY, Action, Entry, Suppressed
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.rows import CORRECTION, corrected
from leads_pipeline.warehouse.typed_rows import read_leads

NOUNS: Final = {
    Action.ERASE: "erasure",
    Action.OBJECT: "objection",
    Action.CORRECT: "correction",
    Action.RESTRICT: "restriction",
    Action.LIFT: "end",
    Action.ACCESS: "access",
}

NOBODY: Final = Person()

# Laid over a text to see if the text can be read.
_ANY_PATCH: Final = '{"contact": {"email": "jane@home.example"}}'

# Requests that can be ended.
LIFTABLE: Final = frozenset({Action.OBJECT, Action.RESTRICT})

# Requests that hold for a person from then on.
_HOLDING_FOR_PEOPLE: Final = frozenset({Action.ERASE, *LIFTABLE})

# Requests that change raw rows. They leave out leads that raw has lost.
_NEEDS_RAW: Final = frozenset({Action.RESTRICT, Action.CORRECT})


@dataclass(frozen=True, slots=True)
class Request:
    """The request of a person, and the leads that were found.

    `case` is a reference of the agency's own, `received` the day on which the request came.
    """

    action: Action
    person: Person
    found: Found
    received: date
    case: str = ""


def add(
    data: DataFolder, request: Request, now: datetime, cleared: Sequence[FoundLead] = ()
) -> Entry:
    """Put the person on the list with their leads.

    From then on nobody lands what the entry keeps out. An erasure means leads created before now.
    `cleared` are leads of others whose messages it empties. A restriction leaves out leads of which
    leads.duckdb alone has the newest version. A given id counts although no lead has it: an
    interrupted erasure may have taken it out. Raises QuestionError if nothing names anybody.
    """
    person = request.person
    found = request.found
    given = person.contact
    has_contact = given.emails or (given.phones and found.names)

    if not (found.theirs or has_contact or person.lead_ids or cleared):
        raise QuestionError(
            "Nothing that was given names one person. A number may be anybody's in the house: give "
            "the name too, or an address. Or name their leads: --lead KIND/ID."
        )

    leads = found.in_raw if request.action is Action.RESTRICT else found.theirs
    gone = person.lead_ids - found.keys
    lost: list[FoundLead] = []

    if request.action in _NEEDS_RAW:
        lost = [lead for lead in found.theirs if lead.is_lost]

    return list_of(data).append(
        lambda suppressed, number: Entry(
            number=number,
            at=now,
            action=request.action,
            case=request.case,
            received=request.received,
            until=now if request.action is Action.ERASE else None,
            identity=IDENTITY,
            emails=suppressed.hashes("mailbox", given.emails),
            phones=suppressed.hashes("phone", given.phones),
            names=suppressed.hashes("name", found.names),
            is_named=bool(given.names),
            leads=_hashed(suppressed, [*_keys(leads), *gone]),
            not_leads=_hashed(suppressed, person.not_leads),
            cleared=_hashed(suppressed, _keys(cleared)),
            lost=_hashed(suppressed, _keys(lost)),
        )
    )


def correction_of(data: DataFolder, request: Request, email: str | None, phone: str | None) -> str:
    """Return the text that is laid over their leads.

    Raises QuestionError if no lead is theirs, a lead's text can't be read, or an erasure means the
    corrected lead.
    """
    if not request.found.theirs:
        raise QuestionError(
            "No lead of this person was found, so nothing was corrected. Check the spelling."
        )

    for lead in request.found.in_raw:
        if not _is_readable(lead):
            raise QuestionError(
                f"{lead_in_words(lead.kind, lead.lead_id)} can't be corrected: its text can't be "
                "read. Leave it out, or erase it. Nothing was corrected."
            )

    contact: dict[str, str] = {}
    if email is not None:
        contact["email"] = email
    if phone is not None:
        contact["phoneNumber"] = phone

    patch = json.dumps({"contact": contact})

    corrected_rows = list[LeadRow]()
    for lead in request.found.in_raw:
        corrected_rows += [
            LeadRow(*row.key, row.place.day, _corrected(row.payload, patch)) for row in lead.rows
        ]

    if list_of(data).read().erased.leads(corrected_rows):
        raise QuestionError(
            "The new address or number is that of a person who was erased, so the corrected lead "
            "would be erased too. Nothing was corrected."
        )

    return patch


def add_correction(
    data: DataFolder, request: Request, email: str | None, phone: str | None, now: datetime
) -> Entry:
    """Land the right address or number beside each of their leads, and note it.

    A publication follows. Objections and restrictions hold for the new address and number too.
    After a kill the correction isn't on the list, and can be repeated. Raises QuestionError as
    `correction_of` does.
    """
    patch = correction_of(data, request, email, phone)
    contact = Person.of([email] if email else [], [phone] if phone else [])

    for entry in in_force(list_of(data).read(), request.person, request.found):
        if entry.action in LIFTABLE:
            list_of(data).append(partial(_of, entry, Action.LEARNED, now, person=contact))

    data.state.note_rewriting()
    for lead in request.found.in_raw:
        places = {row.place for row in lead.rows if row.place.root in PLACES_OF_RAW}
        for place in places:
            data.raw.add(place, [ReceivedLead(lead.lead_id, patch)], now, CORRECTION)

    data.state.note_rewriting()  # a publication may have read windows before they were corrected
    return add(data, request, now)


def _is_readable(lead: FoundLead) -> bool:
    """Whether a correction can be laid over the newest version, as tables and deliveries do."""
    rows = [
        row for row in lead.rows if row.place.root in PLACES_OF_RAW and row.source != CORRECTION
    ]
    if not rows:
        return True

    newest = sorted(rows, key=attrgetter("received_at"))[-1]
    corrected_lead = (newest.lead_id, newest.payload, [_ANY_PATCH])
    leads: list[Any] = read_leads(lead_kind(lead.kind), [corrected_lead]).to_pylist()
    return bool(leads[0]["contact"]["email"])


def _corrected(payload: str, patch: str) -> str:
    with suppress(ValueError):
        return corrected(payload, patch).decode()
    return patch


def add_lift(data: DataFolder, of: Entry, *, case: str, received: date, now: datetime) -> Entry:
    """Have the list say that an entry ended."""
    return list_of(data).append(partial(_of, of, Action.LIFT, now, case=case, received=received))


def _of(
    of: Entry,
    action: Action,
    now: datetime,
    suppressed: Suppressed,
    number: int,
    person: Person = NOBODY,
    **more: Any,
) -> Entry:
    emails = suppressed.hashes("mailbox", person.contact.emails)
    phones = suppressed.hashes("phone", person.contact.phones)
    return Entry(
        number=number, at=now, action=action, of=of.number, emails=emails, phones=phones, **more
    )


def note_done(data: DataFolder, entry: Entry, now: datetime) -> None:
    """Have the list say that a request was carried out, or that an access request was answered."""
    list_of(data).append(partial(_of, entry, Action.DONE, now))


def add_access(data: DataFolder, request: Request, now: datetime) -> Entry:
    """Note an access request.

    An open one of the same case is the same request. It keeps nobody out.
    """
    given = request.person.contact
    for entry in open_access(list_of(data).read()):
        if entry.case == request.case:
            return entry

    return list_of(data).append(
        lambda suppressed, number: Entry(
            number=number,
            at=now,
            action=Action.ACCESS,
            case=request.case,
            received=request.received,
            emails=suppressed.hashes("mailbox", given.emails),
            phones=suppressed.hashes("phone", given.phones),
            leads=_hashed(suppressed, _keys(request.found.theirs)),
        )
    )


def note_answered(data: DataFolder, case: str, day: date) -> tuple[Entry, str | None]:
    """Note the day on which the newest access request of a case, or of a number, was answered.

    Return the request, and the day that was noted before. Raises QuestionError if there is none, or
    it was received later.
    """
    suppressed = list_of(data).read()
    entries = [entry for entry in suppressed.entries if entry.action is Action.ACCESS]
    of_case = [entry for entry in entries if entry.case == case]
    of_number = [entry for entry in entries if str(entry.number) == case]
    named = of_case or of_number
    if not named:
        raise QuestionError(
            f"No access request has the case or the number {case}. See `leads-pipeline privacy "
            "log`."
        )

    entry = named[-1]
    if entry.received and day < entry.received:
        raise QuestionError(
            f"--answered is before {entry.received}, when the request was received."
        )
    before = _ends(suppressed, Action.DONE).get(entry.number)
    note_done(data, entry, datetime.combine(day, time(12), UTC))
    return entry, before


def open_access(suppressed: Suppressed) -> list[Entry]:
    """Access requests that weren't answered yet."""
    done = suppressed.done
    return [
        entry
        for entry in suppressed.entries
        if entry.action is Action.ACCESS and entry.number not in done
    ]


def open_entries(suppressed: Suppressed) -> list[Entry]:
    """Requests that aren't carried out yet. A request that was lifted needn't be."""
    done = suppressed.done
    lifts = [entry for entry in suppressed.entries if entry.action is Action.LIFT]
    return [entry for entry in (*suppressed.active, *lifts) if entry.number not in done]


def liftable(suppressed: Suppressed, numbers: Sequence[int]) -> list[Entry]:
    """The entries of these numbers. Raises QuestionError if one can't be ended."""
    by_number = {entry.number: entry for entry in suppressed.active}
    for number in dict.fromkeys(numbers):
        if number not in by_number:
            raise QuestionError(
                f"No objection or restriction in force has the number {number}. See "
                "`leads-pipeline privacy log`."
            )
        if by_number[number].action not in LIFTABLE:
            raise QuestionError(f"{number} can't be ended. Only objections and restrictions can.")

    return [by_number[number] for number in dict.fromkeys(numbers)]


def still_holding(suppressed: Suppressed, lifted: Sequence[Entry]) -> list[Entry]:
    """Return the objections and restrictions that still hold for a lead of the ended ones.

    They are in force, and of the same kind.
    """
    holding = list[Entry]()
    for entry in suppressed.active:
        of_kind = [one for one in lifted if one.action is entry.action]
        if any(not {*entry.leads}.isdisjoint(one.leads) for one in of_kind):
            holding.append(entry)
    return holding


def in_force(suppressed: Suppressed, person: Person, found: Found) -> list[Entry]:
    """Return erasures, objections and restrictions that hold for this person or a found lead."""
    theirs = {
        *suppressed.hashes("mailbox", person.contact.emails),
        *suppressed.hashes("phone", person.contact.phones),
        *_hashed(suppressed, _keys(found.theirs)),
    }
    holding = list[Entry]()

    for entry in suppressed.active:
        is_of_person = not theirs.isdisjoint((*entry.emails, *entry.phones, *entry.leads))
        if is_of_person and entry.action in _HOLDING_FOR_PEOPLE:
            holding.append(entry)

    return holding


def log(suppressed: Suppressed) -> list[dict[str, str | int | None]]:
    """A row for each request: what it was, when it was received, due, done and ended, as ISO dates.

    The end of a request is due on no day: whoever ends it decides when.
    """
    done = _ends(suppressed, Action.DONE)
    lifted = _ends(suppressed, Action.LIFT)

    rows = list[dict[str, str | int | None]]()

    for entry in suppressed.entries:
        if entry.received is None:
            continue
        is_end = entry.action is Action.LIFT
        rows.append(
            {
                "number": entry.number,
                "action": in_words(entry),
                "case": entry.case,
                "received": entry.received.isoformat(),
                "due": None if is_end else due_on(entry.received).isoformat(),
                "done": done.get(entry.number),
                "lifted": lifted.get(entry.number),
                "leads": len(entry.leads),
            }
        )

    return rows


def _ends(suppressed: Suppressed, action: Action) -> dict[int, str]:
    """The newest day of this action, by the number of the request that it is of."""
    return {
        entry.of: f"{entry.at:%Y-%m-%d}" for entry in suppressed.entries if entry.action is action
    }


def in_words(entry: Entry) -> str:
    """Name what was asked for: `erasure`, or `end of 3`."""
    noun = NOUNS.get(entry.action, str(entry.action))
    return f"{noun} of {entry.of}" if entry.of else noun


def due_on(received: date) -> date:
    """Return the day on which an answer is due: one month after receipt (UK GDPR, article 12)."""
    year, month = (
        (received.year + 1, 1) if received.month == 12 else (received.year, received.month + 1)
    )
    return date(year, month, min(received.day, monthrange(year, month)[1]))


def _keys(leads: Iterable[FoundLead]) -> list[LeadKey]:
    return [lead.key for lead in leads]


def _hashed(suppressed: Suppressed, leads: Iterable[LeadKey]) -> tuple[str, ...]:
    return tuple(sorted({suppressed.hashed_lead(*key) for key in leads}))
