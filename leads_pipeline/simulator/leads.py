"""The leads of each branch and day.

The seed alone decides, so any day can be had without the days before it.

Belongs here: the schedule of a day, the body of a lead, and which leads an answer holds. Doesn't:
how a request spells it (app.py).
"""

import json
import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from leads_pipeline.simulator.made_up import Person, person, pick
from leads_pipeline.simulator.organisation import BRANCHES_PER_COMPANY, Branch
from leads_pipeline.simulator.stock import HOMES, Listing, Stock, amount, estimate, uprn

KINDS: Final = ("applicant", "appraisal")

DAY_SECONDS: Final = 86_400
# Specification, "Limits".
RETENTION: Final = timedelta(days=30)
_LONDON: Final = ZoneInfo("Europe/London")

# Owners who want a valuation are fewer than people who look for a home.
_APPRAISALS_PER_APPLICANT: Final = 0.25
# Monday to Sunday; people look at the week-end's viewings on Monday. They average 1.
_WEEKDAY_SHARE: Final = (1.2, 1.1, 1.05, 1.0, 0.9, 0.8, 0.95)
# Leads in each hour of a British day: a lunch-time shoulder, an evening peak at eight, next to
# nothing at night.
_WORKDAY_HOURS: Final = (
    0.6, 0.3, 0.2, 0.1, 0.1, 0.2, 0.7, 1.6, 2.8, 3.9, 4.6, 4.8,
    5.4, 5.0, 4.6, 4.5, 4.8, 5.4, 6.6, 7.9, 8.4, 7.4, 5.0, 2.2,
)  # fmt: skip
# On Saturday and Sunday people get up later and ask all day long.
_WEEKEND_HOURS: Final = (
    0.9, 0.6, 0.3, 0.2, 0.1, 0.2, 0.4, 0.9, 2.2, 4.2, 6.0, 6.8,
    6.6, 6.0, 5.4, 5.2, 5.3, 5.6, 6.2, 6.6, 6.4, 5.4, 3.8, 1.9,
)  # fmt: skip
# Share of branch-days with a lead at exactly the first moment of the day, in UTC or in London. Both
# ends of a request are inclusive, so that lead is in two answers.
_MIDNIGHT: Final = 0.2

# Share of leads from people who ask more than once, over days and over the branches of a company.
_RETURNING: Final = 0.3
_RETURNING_FOR_DAYS: Final = 14
# Leads that a returning person sends in that time, about.
_LEADS_PER_RETURNING: Final = 4
# Every fourth of them has a home to sell; owners are told by their number, so that both kinds of
# lead agree.
_OWNERS: Final = 4

# createdAt as openapi.yaml's Timestamp describes it: without seconds now and then, seldom unknown.
_WITHOUT_SECONDS: Final = 0.03
_UNKNOWN_MOMENT: Final = 0.004
# Fields and enum members that the contract doesn't know "can appear at any time without notice".
_DRIFT: Final = 0.006

_APPLICANT_MESSAGES: Final = (
    "Hi,\n\nI would like to arrange a viewing of {place}. I'm free most evenings after 6pm.\n\n"
    "Thanks,\n{name}",
    "Is {place} still available?\r\n\r\nRegards\r\n{name}",
    "Please send me more details about this property, including council tax band and service "
    "charge.",
    "Hello, we are a couple with a small dog, are pets considered? Budget up to £{price:,}.\n"
    "Many thanks, {name}",
    '<p>I am interested in <b>{place}</b>.<br/>Please call me back.</p><a href="https://www.example.com/?a=1&b=2">me</a>',
    "Could I view this on Saturday morning? 👍",
    "I've sold my house (subject to contract) & I'm looking to move quickly. \"No chain\". "
    "Call any time.\n\n{name}",
    "",
)
_APPRAISAL_MESSAGES: Final = (
    "I'm thinking of selling {place} in the spring and would like to know what it's worth.\n\n"
    "{name}",
    "Please call to arrange a valuation.\r\nMornings are best.",
    "How much could I let my home for? New kitchen fitted last year (cost £{price:,}).",
    "<div>Valuation of {place}, please</div>",
    "",
    "",
)
_SITUATIONS: Final = tuple(
    f"CONSUMER_SITUATION_{name}"
    for name in (
        "UNSPECIFIED",
        "OTHER",
        "PROPERTY_TO_LET",
        "OFFER_ON_OWN_PROPERTY",
        "RECENTLY_SOLD",
        "FIRST_TIME_BUYER",
        "FIRST_TIME_BUYER",
        "BUYER_NOT_FIRST_TIME",
        "LOOKING_TO_INVEST",
        "NO_PROPERTY_TO_SELL",
    )
)
_METHODS: Final = ("CONTACT_METHOD_PHONE", "CONTACT_METHOD_EMAIL", "CONTACT_METHOD_UNSPECIFIED")
_TIMES: Final = (
    "TIME_PREFERENCE_MORNING",
    "TIME_PREFERENCE_AFTERNOON",
    "TIME_PREFERENCE_EVENING",
    "",
)
_URGENCIES: Final = (
    "URGENCY_ASAP",
    "URGENCY_WITHIN_3_MONTHS",
    "URGENCY_WITHIN_6_MONTHS",
    "URGENCY_UNSPECIFIED",
)


class Slot(NamedTuple):
    """A lead in the schedule.

    `moment` is in seconds since 1970, even if the lead itself says that it is unknown.
    """

    moment: int
    lead_id: str


class LeadBook:
    """The portal's leads. The same seed, kind, branch and day always give the same bytes."""

    def __init__(self, seed: int, leads_per_day: float) -> None:
        self.stock = Stock(seed)
        self._seed = seed
        self._leads_per_day = leads_per_day
        leads_of_company = leads_per_day * BRANCHES_PER_COMPANY * _RETURNING_FOR_DAYS
        self._returning_people = max(1, round(leads_of_company * _RETURNING / _LEADS_PER_RETURNING))

    def answer(
        self,
        kind: str,
        branches: Sequence[Branch],
        start: datetime | None,
        end: datetime | None,
        now: datetime,
    ) -> bytes:
        """The body of a 200 answer: all leads from `start` to `end` inclusive, earliest first.

        None means unbounded; the clock and retention bound it all the same.
        """
        first, last = _bounds(start, end, now)
        leads = [lead for branch in branches for lead in self._leads_of(kind, branch, first, last)]
        if len(branches) > 1:
            leads.sort(key=lambda lead: lead[0].moment)
        return b'{"%ss":[%s]}' % (kind.encode(), b",".join([body for _, body in leads]))

    def ids(
        self,
        kind: str,
        branches: Sequence[Branch],
        start: datetime | None,
        end: datetime | None,
        now: datetime,
    ) -> list[str]:
        """The ids of the same leads, without making the leads."""
        first, last = _bounds(start, end, now)
        days = range(first // DAY_SECONDS, last // DAY_SECONDS + 1)
        lead_ids = []
        for branch in branches:
            for day in days:
                slots = self._slots(kind, branch, day)
                lead_ids += [slot.lead_id for slot in slots if first <= slot.moment <= last]
        return lead_ids

    def leads(self, kind: str, branch: Branch, day: int) -> Iterator[tuple[Slot, bytes]]:
        """The leads of a UTC day as JSON text, earliest first. `day` counts from 1970-01-01."""
        rng = _rng(f"{self._seed}|{kind}|{branch.id}|{day}|leads")
        for number, slot in enumerate(self._slots(kind, branch, day)):
            lead = (
                self._applicant(rng, branch, slot)
                if kind == "applicant"
                else self._appraisal(rng, branch, slot)
            )
            if kind == "applicant" and number == 0:
                # Each day, so that a week has enough of them for the check of drift, whatever the
                # date.
                lead["affordability"] = {
                    "hasMortgageInPrinciple": rng.random() < 0.5,
                    "checkedAt": None,
                }
            if rng.random() < _DRIFT:
                _drift(rng, lead)
            yield slot, msgspec.json.encode(lead)

    def _leads_of(
        self, kind: str, branch: Branch, first: int, last: int
    ) -> Iterator[tuple[Slot, bytes]]:
        for day in range(first // DAY_SECONDS, last // DAY_SECONDS + 1):
            for slot, body in self.leads(kind, branch, day):
                if slot.moment > last:
                    break
                if slot.moment >= first:
                    yield slot, body

    def _slots(self, kind: str, branch: Branch, day: int) -> tuple[Slot, ...]:
        """The slots of a UTC day, earliest first. `day` counts from 1970-01-01."""
        rng = _rng(f"{self._seed}|{kind}|{branch.id}|{day}")
        start = datetime.fromtimestamp(day * DAY_SECONDS, UTC)
        mean = self._leads_per_day * branch.size * _WEEKDAY_SHARE[start.weekday()]

        if kind == "appraisal":
            mean *= _APPRAISALS_PER_APPLICANT

        # A normal distribution in place of Poisson's, which `random` doesn't have.
        count = max(0, round(rng.gauss(mean, math.sqrt(mean))))
        shape = _WEEKEND_HOURS if start.weekday() >= 5 else _WORKDAY_HOURS
        # The hours are London's, the seconds are UTC's.
        ahead = _hours_ahead(day)
        hours = rng.choices(range(24), weights=shape, k=count)
        seconds = [(hour - ahead) % 24 * 3600 + int(rng.random() * 3600) for hour in hours]

        if count and rng.random() < _MIDNIGHT:
            midnight_in_london = -ahead % 24 * 3600  # where two windows meet
            seconds.append(pick(rng, (0, midnight_in_london)))

        return tuple(
            Slot(day * DAY_SECONDS + second, str(UUID(int=rng.getrandbits(128), version=4)))
            for second in sorted(seconds)
        )

    def _applicant(self, rng: Random, branch: Branch, slot: Slot) -> dict[str, Any]:
        who = self._person(rng, branch, slot.moment)
        listing = self._listing(rng, branch)
        wants_viewing = rng.random() < 0.4
        text = pick(rng, _APPLICANT_MESSAGES).format(
            place=listing.address.street, name=who.first_name, price=listing.price
        )

        return {
            **_common(rng, branch, slot, who, listing.is_rented, text),
            "intent": "APPLICANT_INTENT_RENT" if listing.is_rented else "APPLICANT_INTENT_BUY",
            "propertyUse": _property_use(rng, listing.is_commercial),
            "viewingTimes": _viewing_times(rng, slot.moment)
            if wants_viewing
            else pick(rng, (None, None, [])),
            "organiseViewing": wants_viewing,
            "requestPropertyDetails": not wants_viewing or rng.random() < 0.3,
            "consumerSituation": "CONSUMER_SITUATION_PROPERTY_TO_SELL"
            if who.owns_home
            else pick(rng, _SITUATIONS),
            "consumerPostcode": who.home.postcode,
            "leadSource": "APPLICANT_SOURCE_ZOOPLA_WEBSITE",
            "portalSource": "APPLICANT_PORTAL_SOURCE_LISTING",
            "searchCriteria": pick(rng, listing.searches),
            "listingDetails": listing.details,
        }

    def _appraisal(self, rng: Random, branch: Branch, slot: Slot) -> dict[str, Any]:
        who = self._person(rng, branch, slot.moment, owner=True)
        wants_to_let = rng.random() < 0.25
        # What a home is like depends on the home alone: the same owner asks twice about the same
        # property.
        home = _rng(f"{who.email}|home")
        value = 95_000 + 2_500 * int(home.random() * 300)
        text = pick(rng, _APPRAISAL_MESSAGES).format(
            place=who.home.street, name=who.first_name, price=value // 20
        )

        return {
            **_common(rng, branch, slot, who, wants_to_let, text),
            "intent": "APPRAISAL_INTENT_LET" if wants_to_let else "APPRAISAL_INTENT_SELL",
            "propertyUse": _property_use(rng, is_commercial=False),
            "justCurious": rng.random() < 0.25,
            "urgency": pick(rng, _URGENCIES),
            "leadSource": "APPRAISAL_SOURCE_ZOOPLA_WEBSITE",
            "portalSource": pick(
                rng, ("APPRAISAL_PORTAL_SOURCE_ASKANAGENT", "APPRAISAL_PORTAL_SOURCE_PROSPECTPLUS")
            ),
            "propertyDetails": _property_details(home, who, value),
        }

    def _listing(self, rng: Random, branch: Branch) -> Listing:
        listings = self.stock.of(branch)
        while (listing := listings[int(rng.random() ** 2 * len(listings))]).is_archived:
            pass
        return listing

    def _person(self, rng: Random, branch: Branch, moment: int, *, owner: bool = False) -> Person:
        if rng.random() >= _RETURNING:
            return person(rng, branch.town, owns_home=owner or rng.random() < 1 / _OWNERS)
        number = int(rng.random() * self._returning_people)
        if owner:
            number -= number % _OWNERS
        fortnight = moment // (_RETURNING_FOR_DAYS * DAY_SECONDS)
        rng = _rng(f"{self._seed}|person|{branch.company_town.name}|{fortnight}|{number}")
        return person(rng, branch.company_town, owns_home=number % _OWNERS == 0)


def _bounds(start: datetime | None, end: datetime | None, now: datetime) -> tuple[int, int]:
    """First and last second that is asked for and can be had. Leads lie on whole seconds."""
    first = math.ceil((now - RETENTION).timestamp())
    last = math.floor(now.timestamp())
    if start is not None:
        first = max(first, math.ceil(start.timestamp()))
    if end is not None:
        last = min(last, math.floor(end.timestamp()))
    return first, last


def _rng(seed: str) -> Random:
    return Random(seed)  # noqa: S311 - made-up data, no secret


def _hours_ahead(day: int) -> int:
    """Hours that London's clocks are ahead of UTC at noon of that day."""
    offset = (
        datetime.fromtimestamp(day * DAY_SECONDS + DAY_SECONDS // 2, _LONDON).utcoffset()
        or timedelta()
    )
    return round(offset / timedelta(hours=1))


def _wire(moment: int) -> str:
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _created_at(rng: Random, moment: int) -> str:
    draw = rng.random()
    if draw < _UNKNOWN_MOMENT:
        return "0001-01-01T00:00Z"
    text = _wire(moment)
    return f"{text[:16]}Z" if draw < _UNKNOWN_MOMENT + _WITHOUT_SECONDS else text


def _common(
    rng: Random, branch: Branch, slot: Slot, who: Person, is_rented: bool, message: str
) -> dict[str, Any]:
    """The fields that both kinds share, in the order of the contract."""
    enquiry = "ENQUIRY_TYPE_LETTINGS" if is_rented else "ENQUIRY_TYPE_SALES"
    return {
        "id": slot.lead_id,
        "createdAt": _created_at(rng, slot.moment),
        "contact": {
            "firstName": who.first_name,
            "lastName": who.last_name,
            "phoneNumber": who.phone,
            "email": who.email,
            "preferences": {"method": pick(rng, _METHODS), "time": pick(rng, _TIMES)},
        },
        "enquiryType": enquiry if rng.random() < 0.97 else "ENQUIRY_TYPE_UNSPECIFIED",
        # json.dumps writes £ and 👍 as \u escapes: legal, and lost by a client that parses and
        # writes again.
        "message": msgspec.Raw(json.dumps(message).encode()),
        "isOverseas": who.is_overseas,
        "portalLeadId": str(10_000_000 + int(rng.random() * 10_000_000)),
        "portalBranchId": branch.id,
        "portalCompanyId": branch.company_id,
        "portalGroupId": branch.group_id,
        "sourceBranchId": branch.source_id,
        "recipientEmail": f"{branch.source_id.lower()}@agent.example",
    }


def _property_use(rng: Random, is_commercial: bool) -> str:
    if is_commercial:
        return "PROPERTY_USE_COMMERCIAL"
    return pick(rng, ("PROPERTY_USE_RESIDENTIAL",) * 8 + ("PROPERTY_USE_UNSPECIFIED", ""))


def _viewing_times(rng: Random, moment: int) -> list[dict[str, str]]:
    """One to three slots of two hours on the next days, on the hour."""
    midnight = moment - moment % DAY_SECONDS
    starts = [
        midnight + day * DAY_SECONDS + 3600 * int(9 + rng.random() * 9) for day in range(1, 4)
    ]
    return [
        {"earliest": _wire(at), "latest": _wire(at + 7200)}
        for at in starts[: 1 + int(rng.random() * 3)]
    ]


def _property_details(home: Random, who: Person, value: int) -> dict[str, Any]:
    place = who.home
    bedrooms = 1 + int(home.random() * 5)
    efficiency = 35 + int(home.random() * 60)

    return {
        "propertyId": str(9_000_000 + int(home.random() * 900_000)),
        "uprn": uprn(home),
        "bedrooms": bedrooms,
        "bathrooms": 1 + bedrooms // 3,
        "receptions": 1 + bedrooms // 4,
        "floorArea": 30 + 22 * bedrooms + int(home.random() * 20),
        "tenure": pick(home, ("Freehold", "Freehold", "Leasehold", "")),
        "propertyType": f"PROPERTY_TYPE_{pick(home, HOMES)}",
        "estimate": estimate(home, value),
        "lastSalePrice": amount(home, value * 3 // 4),
        # Out at sea, where no house stands.
        "latitude": round(55.5 + home.random(), 6),
        "longitude": round(2.0 + home.random(), 6),
        "address": {
            "line1": " ".join(filter(None, (place.flat, place.name_or_number))),
            "line2": place.street,
            "line3": place.locality,
            "town": place.town.name,
            "county": place.town.county,
            "postcode": place.postcode,
        },
        # The bands of an energy performance certificate: A from 92, B from 81, C from 69, D from
        # 55, E from 39.
        "energy": {
            "efficiency": efficiency,
            "rating": next(band for band, least in _ENERGY_BANDS if efficiency >= least),
        },
    }


_ENERGY_BANDS: Final = (("A", 92), ("B", 81), ("C", 69), ("D", 55), ("E", 39), ("F", 21), ("G", 0))


def _drift(rng: Random, lead: dict[str, Any]) -> None:
    """Add a field or a member of an enumeration that the contract doesn't know."""
    if rng.random() < 0.5:
        lead["contact"]["preferences"]["language"] = "cy"
    else:
        prefix = lead["portalSource"].partition("_")[0]
        lead["portalSource"] = f"{prefix}_PORTAL_SOURCE_CHAT_ASSISTANT"
