"""The answer to an access request: `person.html` to be read, `person.json` for a machine.

Belongs here: the content of both files and how a lead is shown, in clear and masked. Doesn't:
finding it (search.py), how the page looks (person.html.jinja, which escapes every text).
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

from leads_pipeline.domain.contract import LEAD_KINDS, Field, LeadKind, member_in_words
from leads_pipeline.errors import QuestionError
from leads_pipeline.features.privacy.contact_keys import plain
from leads_pipeline.features.privacy.identity import (
    CONTACT,
    FIRST_NAME,
    LAST_NAME,
    OWN_POSTCODE,
    Text,
    texts_of,
)
from leads_pipeline.features.privacy.receipt import recipients
from leads_pipeline.features.privacy.search import FoundLead, Row
from leads_pipeline.features.privacy.settings import PrivacySettings
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.durable import make_folder, replace_file
from leads_pipeline.raw.people import holders
from leads_pipeline.settings import Settings
from leads_pipeline.warehouse.html import template_of

# True of every installation. docs/guides/answer-a-person.md asks the agency to add the rest.
PURPOSES: Final = (
    "To answer the enquiry that you sent to the agent through the portal.",
    "To count enquiries by branch, day and kind. These tables hold no name, address or number. A "
    "person is counted under a keyed hash.",
    "To see to whom the agent might offer a valuation, which is direct marketing. You may object "
    "to it at any time.",
)
SOURCES: Final = (
    "The details that you typed into the portal's form, and what the portal added to them. The "
    "portal handed them over when the agent's software asked (pull), or by itself (push).",
)

_KINDS: Final = {"applicant": "enquiry about a property", "appraisal": "request for a valuation"}
_SOURCES: Final = {
    "pull": "the agent asked the portal",
    "push": "the portal sent it by itself",
    "correction": "the agent corrected it",
}


def _fields_of(kind: LeadKind) -> Iterator[Field]:
    """Yield the declared fields, and those of the lists by their paths in the lead."""
    yield from kind.fields
    for child in kind.children:
        for field in child.fields:
            yield replace(field, path=f"{child.path}.{field.path}")


# In a description, the part behind a semicolon or an example is for analysts. The page has moments
# of the local zone.
_DESCRIPTIONS: Final = {
    (kind.name, field.path): re.split("; |, e[.]g[.]|, UTC", field.description)[0]
    for kind in LEAD_KINDS
    for field in _fields_of(kind)
}

_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.]\d+)?)?(Z|[+-]\d\d:\d\d)")

# No browser shows them, and some programs refuse a page with one.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

_TRUTHS: Final = {True: "yes", False: "no"}


@dataclass(frozen=True, slots=True)
class Contact:
    """The names, addresses and numbers in a lead, as they were typed."""

    names: Sequence[str]
    others: Sequence[str]

    @classmethod
    def of(cls, lead: FoundLead) -> "Contact":
        """Of all versions, each once."""
        names = list[str]()
        others = list[str]()
        for row in lead.rows:
            fields = _values_of(row.payload)
            names.append(
                " ".join(
                    plain(field.text) for field in fields if field.path in FIRST_NAME | LAST_NAME
                ).strip()
            )
            others += [
                plain(field.text)
                for field in fields
                if field.path in CONTACT and field.text.strip()
            ]
        return cls(list(filter(None, dict.fromkeys(names))), list(dict.fromkeys(others)))

    def masked(self) -> "Contact":
        """Enough of it to recognise a person whom you know, and to tell Jane from John."""
        names = [" ".join(map(_masked_word, name.split())) for name in self.names]
        return Contact(names, [_masked(text) for text in self.others])


def _masked_word(word: str) -> str:
    shown = 2 if len(word) > 3 else 1
    return f"{word[:shown]}…"


def _masked(text: str) -> str:
    if "@" in text:
        local, _, domain = text.partition("@")
        return f"{local[:1]}…@{domain[:1]}…"
    return f"…{''.join(filter(str.isdigit, text))[-3:]}"


def written_by(lead: FoundLead) -> list[str]:
    """Return postcodes and messages of all versions, each once.

    A person judges by these whose lead it is.
    """
    fields = list[Text]()
    for row in lead.rows:
        fields += _values_of(row.payload)

    written = [
        field for field in fields if field.path in OWN_POSTCODE or field.path.endswith("message")
    ]
    return list(dict.fromkeys(plain(field.text) for field in written if field.text.strip()))


def versions_of(lead: FoundLead) -> list[dict[str, Any]]:
    """Each text of the lead once, oldest first, with everywhere that it lies.

    If the text that was received is lost, its row of leads.duckdb is one of them.
    """
    by_text: dict[str, list[Row]] = {}
    for row in lead.rows:
        by_text.setdefault(row.payload, []).append(row)

    versions = [_version(content, rows) for content, rows in by_text.items()]
    return sorted(versions, key=lambda version: str(version["received_at"]))


def _version(content: str, rows: Sequence[Row]) -> dict[str, Any]:
    values = _values_of(content, _TRUTHS)
    return {
        "received_at": min(row.received_at for row in rows).isoformat(),
        "source": ", ".join(sorted({row.source for row in rows if row.source})),
        "days": sorted({row.place.day.isoformat() for row in rows}),
        "scopes": sorted({row.place.scope for row in rows}),
        "files": sorted({row.path for row in rows}),
        "content": content,
        "fields": [(field.path, field.text) for field in values if field.text],
    }


def _values_of(content: str, truths: Mapping[bool, str] | None = None) -> list[Text]:
    """Return the texts of a lead, but for the names of members."""
    return [text for text in texts_of(content, truths) if not text.is_member_name]


def retention_of(settings: Settings) -> list[str]:
    """How long the portal and the agency keep the data, by these settings."""
    keep_days = settings.of(PrivacySettings).keep_personal_days
    kept = (
        f"After {keep_days} days the agent's copy becomes anonymous: names, addresses, numbers, "
        "messages and all other personal details are removed."
        if keep_days is not None
        else "The agent's copy is kept until the agent deletes it or makes it anonymous."
    )
    return ["The portal deletes an enquiry after 30 days.", kept]


def write_export(
    data: DataFolder, folder: Path, leads: Sequence[FoundLead], settings: Settings, now: datetime
) -> list[Path]:
    """Write both files into a new or empty folder, for this user alone (0700, 0600).

    The page has moments in the agency's time zone and codes of the portal in words. The document
    has each value as it was received. Raises QuestionError if something is in the folder already,
    and StorageError.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise QuestionError(f"{folder} exists and isn't an empty folder. Name a new one.")

    keys = {lead.key for lead in leads}
    hosts = recipients(data, keys.__contains__)
    notes = [note for one in holders(data) for note in one.notes_on(keys.__contains__)]
    make_folder(folder)
    folder.chmod(0o700)
    document = {
        "made_at": now.isoformat(timespec="seconds"),
        "portal": data.state.claimed_by(),
        "sources": list(SOURCES),
        "purposes": list(PURPOSES),
        "recipients": [{"host": host, "days": days} for host, days in hosts.items()],
        "notes": notes,
        "retention": retention_of(settings),
        "leads": [
            {
                "kind": lead.kind,
                "lead_id": lead.lead_id,
                "why": sorted(lead.why),
                "versions": versions_of(lead),
            }
            for lead in leads
        ],
    }
    paths = [folder / "person.html", folder / "person.json"]
    replace_file(paths[0], _page(document, settings.zone).encode(errors="replace"))
    replace_file(paths[1], json.dumps(document, indent=2).encode())
    return paths


def _page(document: Mapping[str, Any], zone: ZoneInfo) -> str:
    """The same for a reader. Every text is escaped, and nothing is fetched from anywhere."""
    template = template_of(
        Path(__file__).with_name("person.html.jinja"),
        in_words=lambda text: _in_words(str(text), zone),
        label=_label,
        kind=lambda kind: _KINDS.get(kind, "enquiry"),
        how=lambda source: ", ".join(_SOURCES.get(one, one) for one in source.split(", ")),
    )
    return _CONTROL.sub("", template.render(document, zone=zone.key))


def _in_words(text: str, zone: ZoneInfo) -> str:
    """A member of an enumeration in words, a moment as 19 November 2026, 10:40; else the text."""
    if words := member_in_words(text):
        return words
    if _MOMENT.fullmatch(text):
        with suppress(ValueError, OverflowError):
            moment = datetime.fromisoformat(text)
            return (
                "not known" if moment.year == 1 else f"{moment.astimezone(zone):%-d %B %Y, %H:%M}"
            )
    return text


def _label(path: str, kind: str) -> str:
    """Return what a field is called: by the contract, else by its own name in words."""
    words = re.sub("(?<=[a-z0-9])(?=[A-Z])", " ", path.replace(".", ": ").replace("_", " ")).lower()
    return _DESCRIPTIONS.get((kind, path), words)
