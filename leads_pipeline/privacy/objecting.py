"""Objections and restrictions: which hold for whom, ending one, and whether each is carried out.

Belongs here: what the list and the published file say of them. Doesn't: adding one (erase.py), keeping leads back
(lake/gate.py, warehouse/).
"""

from collections.abc import Sequence
from datetime import date, datetime

from leads_pipeline.duck import WAREHOUSE_FILE, connection, literal
from leads_pipeline.errors import QuestionError
from leads_pipeline.lake import Lake
from leads_pipeline.person.matching import Sought
from leads_pipeline.privacy.erase import left_published, note_done, shown_of
from leads_pipeline.privacy.requests import open_entries
from leads_pipeline.privacy.search import Found
from leads_pipeline.suppression import Action, Entry, Meant, Suppressed, hashes

# What can be ended. An erasure can't: nothing is left that would come back.
LIFTABLE = frozenset({Action.OBJECT, Action.RESTRICT})


def entries_in_force(suppressed: Suppressed, sought: Sought, found: Found) -> list[tuple[Entry, int]]:
    """Which of them hold for the person who is sought, and for how many of the leads that were found."""
    in_force = []
    for entry in suppressed.active:
        if entry.action in LIFTABLE:
            rows = [row for lead in found.leads for sight in lead.sights for row in shown_of(lead, sight)]
            leads = {lead_id for _, lead_id in Meant(suppressed, [entry]).leads(rows)}
            if leads or _is_of(suppressed, entry, sought):
                in_force.append((entry, len(leads)))
    return in_force


def _is_of(suppressed: Suppressed, entry: Entry, sought: Sought) -> bool:
    """Whether the entry knows its person by nothing but what is sought."""
    return (
        bool(entry.emails or entry.phones)
        and {*entry.emails}.issubset(hashes(suppressed, "mailbox", sought.mailboxes | sought.cut_emails))
        and {*entry.phones}.issubset(hashes(suppressed, "phone", sought.phones))
    )


def liftable_of(suppressed: Suppressed, sought: Sought) -> list[Entry]:
    """Those that know their person by nothing but what is sought. Raises QuestionError where there are none."""
    liftable = [entry for entry in suppressed.active if entry.action in LIFTABLE and _is_of(suppressed, entry, sought)]
    if not liftable:
        raise QuestionError(
            "No objection or restriction is known by what was given alone. Give every address and number that it was "
            "made with, or its number, which `leads-pipeline privacy log` has."
        )
    return liftable


def liftable_numbered(suppressed: Suppressed, numbers: Sequence[int]) -> list[Entry]:
    """Those of these numbers. Raises QuestionError where one is none that can be ended."""
    by_number = {entry.number: entry for entry in suppressed.active}
    for number in numbers:
        if number not in by_number:
            raise QuestionError(
                f"{number} is no objection or restriction that holds. `leads-pipeline privacy log` has the numbers."
            )
        if by_number[number].action not in LIFTABLE:
            raise QuestionError(f"{number} is an erasure: its leads are gone, and nothing ends it.")
    return [by_number[number] for number in numbers]


def add_lift(lake: Lake, entry: Entry, case: str, received: date, now: datetime) -> Entry:
    """Add to the list that an entry ended."""

    def lift(_: Suppressed, number: int) -> Entry:
        return Entry(number=number, at=now, action=Action.LIFT, of=entry.number, case=case, received=received)

    return lake.suppression.append(lift)


def marketed(lake: Lake) -> int:
    """How many people in mart_hidden_valuations have objected."""
    published = lake.folder / WAREHOUSE_FILE
    if not published.exists():
        return 0
    with connection(lake, "objections") as db:
        db.execute(f"attach {literal(str(published))} as published (read_only)")
        [(count,)] = db.execute(
            "select count(*) from published.mart_hidden_valuations where person in (select unnest($persons::uuid[]))",
            {"persons": sorted(lake.suppression.read().objecting)},
        ).fetchall()
    return int(count)


def close(lake: Lake) -> list[str]:
    """Note as done what the list alone shows to be carried out, all but erasures; why the others aren't."""
    still = [entry for entry in open_entries(lake.suppression.read()) if entry.action is not Action.ERASE]
    left: list[str] = []
    if still:
        count = marketed(lake)
        left = [f"{count} people in mart_hidden_valuations"] if count else []
        left += left_published(lake)
        is_followed = lake.follows(max(entry.number for entry in still))
        left += [] if is_followed else ["the folder, which isn't in line with the suppression list"]
    for entry in still if not left else ():
        note_done(lake, entry)
    return left
