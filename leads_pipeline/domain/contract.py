"""The wire: paths, parameter names, valid answers, and the declared fields of each lead kind.

Belongs here: everything that the portal decides, as data. Doesn't: sending requests (portal/),
cutting a body into leads (domain/bodies.py), how a declared type is cast (warehouse/typed_rows.py).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, NamedTuple

from leads_pipeline.domain.window import ScopeKind, Window
from leads_pipeline.errors import LeadsPipelineError

LEADS_TOKEN_PATH: Final = "/oauth2/token"  # noqa: S105 - a path, not a secret

# The year-1 moment that the portal sends for "unknown" (openapi.yaml, Timestamp), without its
# seconds and zone.
UNKNOWN_MOMENT: Final = "0001-01-01T00:00"


class FieldType(Enum):
    """The type of a declared field.

    warehouse/ knows the DuckDB type and the strict cast of each.
    """

    TEXT = "text"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    NUMBER = "number"
    AMOUNT = "amount"
    MOMENT = "moment"


@dataclass(frozen=True, slots=True)
class Field:
    """A declared field of a lead.

    `path` is its place in the lead (camel case, dotted), `description` what an analyst reads.
    `is_personal` marks a field that identifies a person (UK GDPR). Its column stays out of marts,
    metadata and reports. `is_key`: without it, a lead can't be answered, or isn't counted in its
    place. A check warns if it is empty more often than usual.
    """

    path: str
    type: FieldType
    description: str
    is_personal: bool = False
    is_key: bool = False

    @property
    def column(self) -> str:
        """Column name in snake case: `contact_first_name` for `contact.firstName`."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", self.path.replace(".", "_")).lower()


@dataclass(frozen=True, slots=True)
class ChildTable:
    """A list inside a lead that becomes a table of its own.

    The table has one row per element, with lead_id and position.
    """

    name: str
    path: str
    fields: tuple[Field, ...]
    description: str


@dataclass(frozen=True, slots=True, eq=False)
class LeadKind:
    """One of the two kinds of lead: its endpoint, list, tables and fields. Each exists once."""

    name: str
    path: str
    list_key: str
    table: str
    description: str
    fields: tuple[Field, ...]
    children: tuple[ChildTable, ...] = ()

    @property
    def tables(self) -> tuple[str, ...]:
        """Return the kind's own table, then its child tables."""
        return (self.table, *(child.name for child in self.children))


def declared_members(fields: Iterable[Field], children: Iterable[ChildTable]) -> dict[str, Any]:
    """Return the declarations by their members' names, with a dict for each object between."""
    members: dict[str, Any] = {}
    declarations: list[Any] = [*fields, *children]

    for declared in declarations:
        *objects, name = declared.path.split(".")
        inner = members
        for step in objects:
            inner = inner.setdefault(step, {})
        inner[name] = declared

    return members


class ReceivedLead(NamedTuple):
    """One element of an answer's list, as received.

    `payload` is the exact text. `lead_id` is the lead's own id, or `sha256:` and the hash of its
    payload where it has none.
    """

    lead_id: str
    payload: str


def lead_in_words(kind: str, lead_id: str) -> str:
    """Name a lead on one line. Characters that a terminal obeys are escaped as in a Python text."""
    return f"{kind} lead {_printable(lead_id)}"


def lead_reference(kind: str, lead_id: str) -> str:
    """Name a lead as commands take it: `applicant/17`.

    Characters that a terminal obeys are escaped.
    """
    return f"{kind}/{_printable(lead_id)}"


def _printable(lead_id: str) -> str:
    return lead_id if lead_id.isprintable() else repr(lead_id)[1:-1]


@dataclass(frozen=True, slots=True)
class Answer:
    """A valid answer for one window, with how it was had.

    `attempts` counts requests, retries included; `duration_seconds` spans them all. `body_bytes` is
    the decoded size.

    A window that came in pieces has one answer: `fetched_at` is that of the first piece.
    `body_sha256` and `body_bytes` are of all bodies, one after the other. `failure` says why some
    of the leads are missing. Without them, the window isn't landed. None if all are there.
    `unknown_members` are as in CutAnswer (bodies.py).
    """

    window: Window
    leads: Sequence[ReceivedLead]
    fetched_at: datetime
    body_sha256: str
    body_bytes: int
    attempts: int
    duration_seconds: float
    failure: LeadsPipelineError | None = None
    unknown_members: frozenset[str] = frozenset()


def window_parameters(window: Window) -> dict[str, str]:
    """Return a window's query parameters.

    The service includes both ends, so `to-time` is the next day's start.
    """
    parameters = {"from-time": _wire_moment(window.start), "to-time": _wire_moment(window.end)}
    if window.scope.kind is not ScopeKind.ALL:
        parameters[f"{window.scope.kind}-id"] = window.scope.id
    return parameters


def _wire_moment(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- declared fields (openapi.yaml, Applicant and Appraisal) --------------------------------------

_T = FieldType.TEXT
_B = FieldType.BOOLEAN
_I = FieldType.INTEGER
_N = FieldType.NUMBER
_A = FieldType.AMOUNT
_M = FieldType.MOMENT

_LEAD: Final = (
    Field(
        "createdAt",
        _M,
        "When the lead was submitted, UTC; NULL if the portal sends its year-1 default",
        is_key=True,
    ),
    Field("contact.firstName", _T, "First name of the person", is_personal=True),
    Field("contact.lastName", _T, "Last name of the person", is_personal=True),
    Field("contact.phoneNumber", _T, "Telephone number as typed", is_personal=True, is_key=True),
    Field("contact.email", _T, "E-mail address as typed", is_personal=True, is_key=True),
    Field(
        "contact.preferences.method",
        _T,
        "How the person likes to be contacted, e.g. CONTACT_METHOD_PHONE",
    ),
    Field(
        "contact.preferences.time",
        _T,
        "When the person likes to be contacted, e.g. TIME_PREFERENCE_AFTERNOON",
    ),
    Field(
        "intent",
        _T,
        "What the person wants to do, e.g. APPLICANT_INTENT_BUY, APPRAISAL_INTENT_SELL",
        is_key=True,
    ),
    Field("enquiryType", _T, "Sales or lettings, e.g. ENQUIRY_TYPE_SALES", is_key=True),
    Field(
        "message",
        _T,
        "Free text typed by the person; may hold HTML, never show it unescaped",
        is_personal=True,
    ),
    Field("propertyUse", _T, "Residential or commercial, e.g. PROPERTY_USE_RESIDENTIAL"),
    Field("isOverseas", _B, "Whether the person asks about property abroad"),
    Field(
        "portalLeadId", _T, "The portal's own reference of the lead; not guaranteed to be unique"
    ),
    Field("portalBranchId", _T, "The portal's internal branch id"),
    Field("portalCompanyId", _T, "The portal's internal company id"),
    Field("portalGroupId", _T, "The portal's internal group id"),
    Field("sourceBranchId", _T, "The agent's own branch id"),
    Field(
        "recipientEmail", _T, "Address at the agent's that the lead was sent to", is_personal=True
    ),
    Field("leadSource", _T, "Which site the lead came from", is_key=True),
    Field("portalSource", _T, "Which product of the portal the lead came from"),
)


def _estimate(path: str, *, is_key: bool = False) -> tuple[Field, ...]:
    return (
        Field(
            f"{path}.lowerRange",
            _I,
            "Lower end of the portal's estimate, in the listing's currency",
        ),
        Field(
            f"{path}.upperRange",
            _I,
            "Upper end of the portal's estimate, in the listing's currency",
        ),
        Field(
            f"{path}.value", _I, "The portal's estimate, in the listing's currency", is_key=is_key
        ),
        Field(f"{path}.confidence", _I, "Confidence of the estimate as a number"),
        Field(
            f"{path}.confidenceBand",
            _T,
            "Confidence of the estimate in words, e.g. CONFIDENCE_BAND_HIGH",
        ),
    )


APPLICANT: Final = LeadKind(
    name="applicant",
    path="/applicant-leads",
    list_key="applicants",
    table="applicant_leads",
    description="People who ask about a listing, to buy or to rent",
    fields=(
        *_LEAD,
        Field("organiseViewing", _B, "Whether the person wants a viewing"),
        Field(
            "requestPropertyDetails", _B, "Whether the person wants more details of the property"
        ),
        Field(
            "consumerSituation",
            _T,
            "The person's own situation, e.g. CONSUMER_SITUATION_PROPERTY_TO_SELL",
            is_key=True,
        ),
        Field("consumerPostcode", _T, "Postcode of the person", is_personal=True),
        Field("searchCriteria.location.alias", _T, "Searched place: alias"),
        Field("searchCriteria.location.area", _T, "Searched place: area"),
        Field("searchCriteria.location.areaStreet", _T, "Searched place: street"),
        Field("searchCriteria.location.country", _T, "Searched place: country"),
        Field("searchCriteria.location.countryCode", _T, "Searched place: country code"),
        Field("searchCriteria.location.countyArea", _T, "Searched place: county"),
        Field("searchCriteria.location.district", _T, "Searched place: district"),
        Field("searchCriteria.location.incode", _T, "Searched place: second half of the postcode"),
        Field("searchCriteria.location.outcode", _T, "Searched place: first half of the postcode"),
        Field("searchCriteria.location.postTown", _T, "Searched place: post town"),
        Field("searchCriteria.location.postalArea", _T, "Searched place: postal area"),
        Field("searchCriteria.location.region", _T, "Searched place: region"),
        Field("searchCriteria.radius", _N, "Search radius in the portal's unit"),
        Field("searchCriteria.minimumBedrooms", _I, "Fewest bedrooms searched for"),
        Field("searchCriteria.maximumBedrooms", _I, "Most bedrooms searched for"),
        Field("searchCriteria.minimumPrice", _A, "Lowest price searched for"),
        Field("searchCriteria.maximumPrice", _A, "Highest price searched for"),
        Field(
            "searchCriteria.priceFrequency",
            _T,
            "Period of the searched rent, e.g. RENT_FREQUENCY_PER_WEEK",
        ),
        Field("searchCriteria.propertyType", _T, "Kind of property searched for"),
        Field("searchCriteria.propertySubType", _T, "Finer kind of property searched for"),
        Field("listingDetails.id", _T, "Id of the listing asked about", is_key=True),
        Field("listingDetails.branchId", _T, "Branch id of the listing; ids are text"),
        Field("listingDetails.bedrooms", _I, "Bedrooms of the listing"),
        Field("listingDetails.bathrooms", _I, "Bathrooms of the listing"),
        Field("listingDetails.receptions", _I, "Reception rooms of the listing"),
        Field(
            "listingDetails.lifeCycleStatus",
            _T,
            "Status of the listing, e.g. LIFE_CYCLE_STATUS_FOR_SALE",
        ),
        Field(
            "listingDetails.address.propertyNumberOrName",
            _T,
            "Listing's address: house number or name",
        ),
        Field("listingDetails.address.streetName", _T, "Listing's address: street"),
        Field("listingDetails.address.locality", _T, "Listing's address: locality"),
        Field("listingDetails.address.townOrCity", _T, "Listing's address: town or city"),
        Field("listingDetails.address.postcode", _T, "Listing's address: postcode"),
        Field("listingDetails.address.countryCode", _T, "Listing's address: country code"),
        Field(
            "listingDetails.pricing.transactionType", _T, "Sale or rent, e.g. TRANSACTION_TYPE_SALE"
        ),
        Field("listingDetails.pricing.currencyCode", _T, "Currency of the price, e.g. gbp"),
        Field("listingDetails.pricing.price", _A, "Price of the listing", is_key=True),
        Field(
            "listingDetails.pricing.rentFrequency",
            _T,
            "Period of the rent, e.g. RENT_FREQUENCY_PER_MONTH",
        ),
        *_estimate("listingDetails.estimate"),
        Field(
            "listingDetails.propertyId",
            _T,
            "Id of the property; ids are text, though it comes as an integer",
        ),
        Field("listingDetails.uprn", _I, "Unique property reference number, 64-bit"),
        Field("listingDetails.propertyType", _T, "Kind of property, e.g. PROPERTY_TYPE_FLAT"),
        Field("listingDetails.sourceBranchId", _T, "The agent's own branch id of the listing"),
        Field("listingDetails.sourceId", _T, "The agent's own id of the listing"),
        Field("listingDetails.url", _T, "Address of the listing's page"),
    ),
    children=(
        ChildTable(
            name="applicant_viewing_times",
            path="viewingTimes",
            fields=(
                Field("earliest", _M, "Earliest moment that suits the person, UTC"),
                Field("latest", _M, "Latest moment that suits the person, UTC"),
            ),
            description="Times that suit the person for a viewing, one row each",
        ),
        ChildTable(
            name="applicant_listing_images",
            path="listingDetails.images",
            fields=(
                Field("original", _T, "Address of the original image"),
                Field("cdnUrl", _T, "Address of the image at the portal's content network"),
                Field("filename", _T, "File name of the image"),
            ),
            description="Images of the listing asked about, one row each",
        ),
    ),
)

APPRAISAL: Final = LeadKind(
    name="appraisal",
    path="/appraisal-leads",
    list_key="appraisals",
    table="appraisal_leads",
    description="Owners who ask what a property is worth, to sell or to let it",
    fields=(
        *_LEAD,
        Field("justCurious", _B, "Whether the owner says that they are just curious"),
        Field("urgency", _T, "How soon the owner wants to act"),
        Field("propertyDetails.propertyId", _T, "Id of the property"),
        Field(
            "propertyDetails.uprn", _I, "Unique property reference number, 64-bit", is_personal=True
        ),
        Field("propertyDetails.bedrooms", _I, "Bedrooms of the property"),
        Field("propertyDetails.bathrooms", _I, "Bathrooms of the property"),
        Field("propertyDetails.receptions", _I, "Reception rooms of the property"),
        Field("propertyDetails.floorArea", _I, "Floor area in the portal's unit"),
        Field("propertyDetails.tenure", _T, "Tenure, e.g. Leasehold"),
        Field("propertyDetails.propertyType", _T, "Kind of property"),
        *_estimate("propertyDetails.estimate", is_key=True),
        Field("propertyDetails.lastSalePrice", _A, "Price of the last sale"),
        Field("propertyDetails.latitude", _N, "Latitude in degrees", is_personal=True),
        Field("propertyDetails.longitude", _N, "Longitude in degrees", is_personal=True),
        Field(
            "propertyDetails.address.line1",
            _T,
            "Owner's property: first address line",
            is_personal=True,
        ),
        Field(
            "propertyDetails.address.line2",
            _T,
            "Owner's property: second address line",
            is_personal=True,
        ),
        Field(
            "propertyDetails.address.line3",
            _T,
            "Owner's property: third address line",
            is_personal=True,
        ),
        Field("propertyDetails.address.town", _T, "Owner's property: town"),
        Field("propertyDetails.address.county", _T, "Owner's property: county"),
        Field(
            "propertyDetails.address.postcode",
            _T,
            "Owner's property: postcode",
            is_personal=True,
            is_key=True,
        ),
        Field("propertyDetails.energy.efficiency", _I, "Energy efficiency score"),
        Field("propertyDetails.energy.rating", _T, "Energy rating, a letter"),
    ),
)

LEAD_KINDS: Final = (APPLICANT, APPRAISAL)


def lead_kind(name: str) -> LeadKind:
    """Return the kind of that name."""
    return next(kind for kind in LEAD_KINDS if kind.name == name)


# --- enumerated fields (openapi.yaml's examples, and published members; new ones can appear at any

_PROPERTY_TYPES: Final = (
    "FLAT DETACHED SEMI_DETACHED TERRACED END_TERRACE DETACHED_BUNGALOW BUNGALOW STUDIO MAISONETTE "
    "TOWN_HOUSE COTTAGE SEMI_DETACHED_BUNGALOW LAND PARK_HOME LINK_DETACHED BARN_CONVERSION MEWS "
    "CHALET VILLA FARMHOUSE COUNTRY_HOUSE TERRACED_BUNGALOW PARKING BLOCK_OF_FLATS EQUESTRIAN "
    "LODGE HOUSEBOAT FARM CHATEAU FARM_BARN FINCA HOTEL INDUSTRIAL JUNK LEISURE LIGHT_INDUSTRIAL "
    "LONGERE OFFICE PUB_BAR RESTAURANT RETAIL RIAD WAREHOUSE MID_TERRACE"
)
_CONFIDENCE_BANDS: Final = "LOW MEDIUM HIGH"

# The portal's default member of every enumeration.
_DEFAULT: Final = "UNSPECIFIED"

# Path, common prefix of the members, and the rest of each but the default. A path may have several
# lines. The lists are complete for consumerSituation, enquiryType, propertyUse and propertyType. Of
# the others, only examples are published. A member that isn't here is kept all the same, and is a
# hint of drift.
_MEMBERS: Final = (
    ("intent", "APPLICANT_INTENT_", "BUY RENT"),
    ("intent", "APPRAISAL_INTENT_", "SELL LET"),
    ("enquiryType", "ENQUIRY_TYPE_", "SALES LETTINGS"),
    ("propertyUse", "PROPERTY_USE_", "RESIDENTIAL COMMERCIAL"),
    ("contact.preferences.method", "CONTACT_METHOD_", "PHONE EMAIL"),
    ("contact.preferences.time", "TIME_PREFERENCE_", "MORNING AFTERNOON EVENING"),
    ("leadSource", "APPLICANT_SOURCE_", "ZOOPLA_WEBSITE"),
    ("leadSource", "APPRAISAL_SOURCE_", "ZOOPLA_WEBSITE"),
    ("portalSource", "APPLICANT_PORTAL_SOURCE_", "LISTING"),
    ("portalSource", "APPRAISAL_PORTAL_SOURCE_", "ASKANAGENT PROSPECTPLUS"),
    (
        "consumerSituation",
        "CONSUMER_SITUATION_",
        "OTHER PROPERTY_TO_SELL PROPERTY_TO_LET OFFER_ON_OWN_PROPERTY RECENTLY_SOLD "
        "FIRST_TIME_BUYER BUYER_NOT_FIRST_TIME LOOKING_TO_INVEST NO_PROPERTY_TO_SELL",
    ),
    ("urgency", "URGENCY_", "ASAP WITHIN_3_MONTHS WITHIN_6_MONTHS"),
    ("searchCriteria.priceFrequency", "RENT_FREQUENCY_", "PER_WEEK PER_MONTH"),
    (
        "listingDetails.lifeCycleStatus",
        "LIFE_CYCLE_STATUS_",
        "FOR_SALE SOLD_SUBJECT_TO_CONTRACT SOLD TO_LET LET_AGREED LET",
    ),
    ("listingDetails.pricing.transactionType", "TRANSACTION_TYPE_", "SALE RENT"),
    ("listingDetails.pricing.rentFrequency", "RENT_FREQUENCY_", "PER_WEEK PER_MONTH"),
    ("searchCriteria.propertyType", "PROPERTY_TYPE_", _PROPERTY_TYPES),
    ("listingDetails.propertyType", "PROPERTY_TYPE_", _PROPERTY_TYPES),
    ("propertyDetails.propertyType", "PROPERTY_TYPE_", _PROPERTY_TYPES),
    ("listingDetails.estimate.confidenceBand", "CONFIDENCE_BAND_", _CONFIDENCE_BANDS),
    ("propertyDetails.estimate.confidenceBand", "CONFIDENCE_BAND_", _CONFIDENCE_BANDS),
)


def _declared_enumerations() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for path, prefix, names in _MEMBERS:
        members = [f"{prefix}{name}" for name in (_DEFAULT, *names.split())]
        found[path] = (*found.get(path, ()), *members)
    return found


# The whole members, by path.
ENUMERATIONS: Final = _declared_enumerations()

# Prefixes of members that readable text leaves out, the longest first. Two of the same length
# always have the same order: marts are made anew when the patterns below change.
ENUM_PREFIXES: Final = sorted(
    {prefix for _, prefix, _ in _MEMBERS}, key=lambda prefix: (-len(prefix), prefix)
)

# The form of a member, known or not: a declared prefix, then a name in capitals, digits and
# underscores. Nobody types that into a form, so it is no personal data and may be shown. Any other
# value may be a person's words. SQL reads these patterns too (sql/macros/marts.sql).
PREFIX_PATTERN: Final = f"^(?:{'|'.join(ENUM_PREFIXES)})"
MEMBER_PATTERN: Final = f"{PREFIX_PATTERN}[A-Z0-9][A-Z0-9_]{{0,59}}"


def member_in_words(value: str) -> str | None:
    """Return a member in words: `PROPERTY_TYPE_END_TERRACE` → `end terrace`.

    None if the value has another form.
    """
    if not re.fullmatch(MEMBER_PATTERN, value):
        return None

    name = re.sub(PREFIX_PATTERN, "", value)
    if name == _DEFAULT:
        return "unknown"
    return name.replace("_", " ").lower()
