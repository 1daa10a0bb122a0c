"""Names, places, addresses and contacts, made up by rule from a random generator.

Belongs here: what one person or one address looks like. Doesn't: who asks for what, and when
(leads.py). Nothing can belong to a real person. Telephone numbers come from Ofcom's ranges for
drama, e-mail from RFC 2606's example domains. Postcodes begin with X, which no real one does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, TypeVar

FIRST_NAMES: Final = (
    "Aisha",
    "Alfie",
    "Amelia",
    "Arjun",
    "Beatrice",
    "Callum",
    "Carys",
    "Charlotte",
    "Chidi",
    "Daniel",
    "Deepa",
    "Dylan",
    "Eilidh",
    "Eleanor",
    "Ewan",
    "Fatima",
    "Freya",
    "George",
    "Grace",
    "Hamza",
    "Hannah",
    "Harriet",
    "Imogen",
    "Isla",
    "Jack",
    "Jasmine",
    "Kofi",
    "Leah",
    "Lewis",
    "Łukasz",
    "Maeve",
    "Malcolm",
    "Mei",
    "Mohammed",
    "Nia",
    "Noah",
    "Oliver",
    "Olivia",
    "Owen",
    "Priya",
    "Rhys",
    "Rosie",
    "Ruth",
    "Samuel",
    "Siân",
    "Sophie",
    "Theo",
    "Tomasz",
    "Wei",
    "William",
    "Yusuf",
    "Zoë",
)
LAST_NAMES: Final = (
    "Adeyemi",
    "Ahmed",
    "Anderson",
    "Bailey",
    "Baker",
    "Begum",
    "Bell",
    "Bennett",
    "Campbell",
    "Carter",
    "Chen",
    "Clarke",
    "Collins",
    "Davies",
    "D'Arcy",
    "Edwards",
    "Evans",
    "Fraser",
    "Green",
    "Griffiths",
    "Hall",
    "Harris",
    "Hughes-Parry",
    "Hussain",
    "Jackson",
    "Jones",
    "Kaur",
    "Kelly",
    "Khan",
    "King",
    "Kowalski",
    "Lewis",
    "MacLeod",
    "Martin",
    "McDonald",
    "Morgan",
    "Murphy",
    "Nowak",
    "O'Brien",
    "O'Neill",
    "Okafor",
    "Osei",
    "Patel",
    "Phillips",
    "Roberts",
    "Robinson",
    "Shah",
    "Singh",
    "Smith",
    "Stewart",
    "Taylor",
    "Thomas",
    "Walker",
    "Ward",
    "Williams",
    "Wright",
    "Young",
    "de Souza",
    "van der Berg",
)
_TOWN_BEGINNINGS: Final = (
    "Alder",
    "Apple",
    "Ash",
    "Barrow",
    "Beck",
    "Birch",
    "Black",
    "Bram",
    "Brock",
    "Cald",
    "Clay",
    "Cold",
    "Crow",
    "Dun",
    "East",
    "Elm",
    "Fern",
    "Glen",
    "Hart",
    "Hazel",
    "Holly",
    "Kings",
    "Lang",
    "Marl",
    "Mere",
    "Oak",
    "Otter",
    "Pen",
    "Raven",
    "Red",
    "Rowan",
    "Stan",
    "Thorn",
    "Wether",
    "Whit",
    "Wool",
)
_TOWN_ENDINGS: Final = (
    "bourne",
    "bridge",
    "bury",
    "by",
    "combe",
    "dale",
    "ford",
    "ham",
    "hurst",
    "ley",
    "mouth",
    "stead",
    "thorpe",
    "ton",
    "wick",
    "worth",
)
_COUNTIES: Final = ("Northmarch", "Westmere", "Eastwold", "Southdale", "Midfordshire", "Penwithy")
_REGIONS: Final = (
    "North East",
    "North West",
    "East Midlands",
    "South East",
    "West Midlands",
    "South West",
)
_STREET_NAMES: Final = (
    "Abbey",
    "Albert",
    "Beech",
    "Bramble",
    "Castle",
    "Cherry Tree",
    "Church",
    "Cromwell",
    "Foundry",
    "Garden",
    "George",
    "Grange",
    "High",
    "Kestrel",
    "Lime",
    "Linden",
    "Manor",
    "Mill",
    "Orchard",
    "Park",
    "Queen's",
    "Regent",
    "Rope",
    "St Mary's",
    "Station",
    "Tannery",
    "Victoria",
    "Water",
    "Willow",
    "York",
)
_STREET_KINDS: Final = (
    "Street",
    "Road",
    "Lane",
    "Avenue",
    "Close",
    "Drive",
    "Gardens",
    "Mews",
    "Terrace",
    "Way",
)
_HOUSE_NAMES: Final = (
    "Rose Cottage",
    "The Old Forge",
    "Orchard House",
    "Ty Gwyn",
    "The Coach House",
    "Mill View",
)
_LOCALITIES: Final = ("", "", "", "Old Town", "Riverside", "The Green", "Harbourside")
# Letters that the second half of a postcode uses (Royal Mail: never C I K M O V).
_INCODE_LETTERS: Final = "ABDEFGHJLNPQRSTUWXYZ"
# The letters of the areas: without I and O, which read as digits.
_AREA_LETTERS: Final = "ABCDEFGHJKLMNPQRSTUVWYZ"
# Ofcom, "Telephone numbers for drama purposes": without the three digits that are free.
_DRAMA_NUMBERS: Final = (
    "07700 900",
    "07700 900",
    "07700 900",
    "07700 900",
    "020 7946 0",
    "0161 496 0",
    "01632 960",
)
_MAIL_DOMAINS: Final = ("example.com", "example.org", "example.net")
_ASCII: Final = str.maketrans({"Ł": "l", "ł": "l", "â": "a", "ë": "e", "'": "", " ": "", "-": ""})


_Member = TypeVar("_Member")


@dataclass(frozen=True, slots=True)
class Town:
    """A town of ours."""

    name: str
    county: str
    region: str
    outcode: str

    @property
    def postal_area(self) -> str:
        """The letters that the outcode begins with."""
        return self.outcode[:2]


@dataclass(frozen=True, slots=True)
class Address:
    """A dwelling. `flat` and `locality` are empty where it has none."""

    flat: str
    name_or_number: str
    street: str
    locality: str
    town: Town
    incode: str

    @property
    def postcode(self) -> str:
        """Both halves, `XA1 2BC`."""
        return f"{self.town.outcode} {self.incode}"


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who asks. `home` is where they live; it's theirs to sell where `owns_home`."""

    first_name: str
    last_name: str
    phone: str
    email: str
    home: Address
    owns_home: bool
    is_overseas: bool


def pick(rng: Random, members: Sequence[_Member]) -> _Member:
    """One of the members; three times as fast as Random.choice, and a lead takes fifteen."""
    return members[int(rng.random() * len(members))]


def town(number: int) -> Town:
    """The town of that number; the same number is always the same town."""
    # One ending further in each round over the beginnings: 576 towns before a name comes back.
    rounds, beginning = divmod(number, len(_TOWN_BEGINNINGS))
    ending = (beginning * 5 + rounds) % len(_TOWN_ENDINGS)
    district, area = divmod(number, len(_AREA_LETTERS))

    return Town(
        name=_TOWN_BEGINNINGS[beginning] + _TOWN_ENDINGS[ending],
        county=_COUNTIES[number % len(_COUNTIES)],
        region=_REGIONS[number % len(_REGIONS)],
        outcode=f"X{_AREA_LETTERS[area]}{district + 1}",
    )


def address(rng: Random, in_town: Town) -> Address:
    """A dwelling in that town."""
    draw = rng.random()
    return Address(
        flat=f"Flat {1 + int(draw * 40)}" if draw < 0.3 else "",
        name_or_number=pick(rng, _HOUSE_NAMES) if draw > 0.93 else str(1 + int(rng.random() * 140)),
        street=f"{pick(rng, _STREET_NAMES)} {pick(rng, _STREET_KINDS)}",
        locality=pick(rng, _LOCALITIES),
        town=in_town,
        incode=f"{int(rng.random() * 10)}{pick(rng, _INCODE_LETTERS)}{pick(rng, _INCODE_LETTERS)}",
    )


def person(rng: Random, in_town: Town, *, owns_home: bool) -> Person:
    """Somebody who lives in that town."""
    first = pick(rng, FIRST_NAMES)
    last = pick(rng, LAST_NAMES)
    mailbox = f"{first}.{last}".translate(_ASCII).lower()
    number = int(rng.random() * 1000)
    phone = f"{pick(rng, _DRAMA_NUMBERS)}{number:03}"

    if number % 3 == 0:  # people write their number in every way
        phone = "+44" + phone.replace(" ", "")[1:]

    return Person(
        first_name=first,
        last_name=last,
        phone=phone,
        email=f"{mailbox}{int(rng.random() * 100_000)}@{pick(rng, _MAIL_DOMAINS)}",
        home=address(rng, in_town),
        owns_home=owns_home,
        is_overseas=rng.random() < 0.03,
    )
