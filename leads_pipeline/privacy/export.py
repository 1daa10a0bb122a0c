"""What a person is given who asks what is held of them: `person.html` to be read, `person.json` for a machine.

Belongs here: the content of both files and how a lead is shown, in clear and masked. Doesn't: finding it (search.py).
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime
from html import escape
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

from leads_pipeline.contract import ENUM_PREFIXES, LEAD_KINDS
from leads_pipeline.durable import make_folder, replace_file
from leads_pipeline.errors import QuestionError
from leads_pipeline.person.identity import plain
from leads_pipeline.person.showing import is_contact, is_name, texts_of
from leads_pipeline.privacy.search import Found, FoundLead
from leads_pipeline.settings import Settings

# True of every installation. What only the agency knows, docs/privacy.md asks it to add.
PURPOSES: Final = (
    "To answer the enquiry that was sent to the agent by way of the portal.",
    "To count enquiries by branch, day and kind. Tables of figures hold no name, address or number; a person is "
    "counted under a keyed hash.",
    "To see whom the agent might offer a valuation, which is direct marketing (the table mart_hidden_valuations): you "
    "may object to it at any time, and are left out of it then.",
)
SOURCES: Final = (
    "What was typed into the portal's form, and what the portal added to it, as listed below. The portal handed it "
    "over when it was asked (pull) or by itself (push).",
)

# As a person reads it.
_TRUTHS: Final = {True: "yes", False: "no"}

_KINDS: Final = {"applicant": "enquiry about a property", "appraisal": "request for a valuation"}
_SOURCES: Final = {"pull": "the agent asked the portal", "push": "the portal sent it by itself"}

# What stands behind a semicolon or an example is for analysts.
_DESCRIPTIONS: Final = {
    (kind.name, field.path): re.split("; |, e[.]g[.]", field.description)[0]
    for kind in LEAD_KINDS
    for field in (
        *kind.fields,
        *(replace(one, path=f"{child.path}.{one.path}") for child in kind.children for one in child.fields),
    )
}

# A code of the portal's, such as APPLICANT_INTENT_BUY, and a moment.
_CODE: Final = re.compile(f"(?:{'|'.join(ENUM_PREFIXES)})([A-Z0-9]+(?:_[A-Z0-9]+)*)")
_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.]\d+)?)?(Z|[+-]\d\d:\d\d)")


def _in_words(text: str, zone: ZoneInfo) -> str:
    """A value as a person reads it: a code of the portal's in words, a moment as 19 November 2026, 10:40."""
    if code := _CODE.fullmatch(text):
        return code[1].replace("_", " ").lower()
    if _MOMENT.fullmatch(text):
        with suppress(ValueError, OverflowError):
            moment = datetime.fromisoformat(text)
            return "not known" if moment.year == 1 else _uk_moment(moment.astimezone(zone))
    return text


def _uk_moment(moment: datetime) -> str:
    return f"{_uk_day(moment)}, {moment:%H:%M}"


def _uk_day(day: date) -> str:
    return f"{day.day} {_MONTHS[day.month - 1]} {day.year}"


# Whatever language this machine speaks.
_MONTHS: Final = (
    "January February March April May June July August September October November December".split()  # noqa: SIM905
)


def _label(kind: str, path: str) -> str:
    """What a field is called: as the contract describes it, else by its own name in words."""
    words = re.sub("(?<=[a-z0-9])(?=[A-Z])", " ", path.replace(".", ": ").replace("_", " ")).lower()
    return _DESCRIPTIONS.get((kind, path), words)


@dataclass(frozen=True, slots=True)
class Contact:
    """What a lead says of its person, as it was typed."""

    names: Sequence[str]
    others: Sequence[str]

    @classmethod
    def of(cls, lead: FoundLead) -> "Contact":
        """Of all versions, each once."""
        names: dict[str, None] = {}
        others: dict[str, None] = {}
        for sight in lead.sights:
            texts = list(sight.row.texts())
            if name := " ".join(plain(text) for path, text in texts if is_name(path) and text.strip()):
                names[name] = None
            for path, text in texts:
                if is_contact(path) and re.search("[@0-9]", text) and not path.endswith("."):
                    others[plain(text)] = None
        return cls(list(names), list(others))

    def masked(self) -> "Contact":
        """So much of it that whoever knows the person recognises them."""
        return Contact([_masked_words(name) for name in self.names], [_masked(text) for text in self.others])


def _masked(text: str) -> str:
    if "@" in text:
        local, _, domain = text.partition("@")
        return f"{local[:1]}…@{domain[:1]}…"
    return f"…{text.strip()[-3:]}"


def _masked_words(name: str) -> str:
    return " ".join(f"{word[:1]}…" for word in name.split())


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a lead as it was received, with everywhere that it lies. `content` is the exact text."""

    received_at: str
    source: str
    days: Sequence[str]
    scopes: Sequence[str]
    files: Sequence[str]
    content: str


def versions_of(lead: FoundLead) -> list[Version]:
    """Each text that was received of the lead once, oldest first."""
    found: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for sight in lead.sights:
        if (payload := sight.row.columns.get("payload")) is not None:
            found.setdefault(str(payload), []).append((sight.file.path, sight.row.columns))
    versions = []
    for content, rows in found.items():
        moments = [_text(row.get("fetched_at", row.get("received_at"))) for _, row in rows]
        versions.append(
            Version(
                received_at=min(moments),
                source=", ".join(_each(row.get("source", "push") for _, row in rows)),
                days=_each(row.get("day") for _, row in rows),
                scopes=_each(row.get("scope") for _, row in rows),
                files=_each(path for path, _ in rows),
                content=content,
            )
        )
    return sorted(versions, key=lambda version: version.received_at)


def _each(values: Iterable[object]) -> list[str]:
    return sorted({_text(value) for value in values if value is not None})


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def retention_of(settings: Settings) -> list[str]:
    """How long what is exported is kept, by the portal and by these settings."""
    sentences = ["The portal deletes an enquiry after 30 days."]
    if settings.keep_personal_days is not None:
        sentences.append(
            f"{settings.keep_personal_days} days after the day on which the agent received it, names, addresses, "
            "numbers, messages and whatever else is personal are cut out of the agent's copy."
        )
    else:
        sentences.append(
            "The agent's copy has no end of its own: it is kept until the agent deletes it, or cuts out what is "
            "personal."
        )
    return sentences


def write_export(
    folder: Path, found: Found, portal: str | None, retention: Sequence[str], made_at: datetime, zone: ZoneInfo
) -> list[Path]:
    """Write both files into a new or empty folder, for this user alone (0700, 0600).

    The page has moments in that zone and the portal's codes in words, the document each as it was received.

    Raises QuestionError where something is in the folder already, and StorageError.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise QuestionError(f"{folder} is there already, and not an empty folder. Name a new one.")
    make_folder(folder)
    folder.chmod(0o700)
    document = _document(found, portal, retention, made_at)
    paths = [folder / "person.html", folder / "person.json"]
    replace_file(paths[0], _page(document, zone).encode(errors="replace"))
    replace_file(paths[1], json.dumps(document, indent=2).encode())
    return paths


def _document(found: Found, portal: str | None, retention: Sequence[str], made_at: datetime) -> dict[str, Any]:
    return {
        "made_at": made_at.isoformat(timespec="seconds"),
        "portal": portal,
        "is_whole": found.is_whole,
        "sources": list(SOURCES),
        "purposes": list(PURPOSES),
        "retention": list(retention),
        "leads": [
            {
                "kind": lead.kind,
                "lead_id": lead.lead_id,
                "why": lead.group.name.lower(),
                "versions": [
                    {**asdict(version), "fields": [list(one) for one in texts_of(version.content, _TRUTHS)]}
                    for version in versions_of(lead)
                ],
                "tables": [
                    {
                        "file": sight.file.path,
                        "table": sight.row.table,
                        "columns": {
                            name: _text(value) for name, value in sight.row.columns.items() if value not in (None, [])
                        },
                    }
                    for sight in lead.sights
                    if "payload" not in sight.row.columns
                ],
            }
            for lead in found.leads
        ],
    }


_STYLE: Final = """
body { font: 16px/1.5 sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; width: 100%; margin-bottom: 2rem }
th, td { border-bottom: 1px solid #ddd; padding: .3rem .6rem; text-align: left; vertical-align: top }
th { width: 40%; font-weight: normal; color: #555 } td { white-space: pre-wrap; overflow-wrap: anywhere }
"""


def _page(document: Mapping[str, Any], zone: ZoneInfo) -> str:
    """The same for a reader. All that was received is escaped, and nothing is fetched from anywhere."""
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>Personal data</title><style>{_STYLE}</style><h1>Your personal data</h1>",
        f"<p>Made on {escape(_in_words(document['made_at'], zone))}. Times are those of {escape(zone.key)}. "
        f"Enquiries: {len(document['leads'])}"
        + (f", received from {escape(document['portal'])}" if document["portal"] else "")
        + ".</p>",
    ]
    for title in ("sources", "purposes", "retention"):
        items = "".join(f"<li>{escape(item)}</li>" for item in document[title])
        parts.append(f"<h2>{_TITLES[title]}</h2><ul>{items}</ul>")
    parts += [_lead(number, lead, zone) for number, lead in enumerate(document["leads"], 1)]
    return "\n".join(parts) + "</html>\n"


_TITLES: Final = {
    "sources": "Where it comes from",
    "purposes": "What it is used for",
    "retention": "How long it is kept",
}


def _lead(number: int, lead: Mapping[str, Any], zone: ZoneInfo) -> str:
    kind = lead["kind"]
    parts = [f"<h2>{number}: {escape(_KINDS.get(kind, 'enquiry'))}, {escape(lead['lead_id'])}</h2>"]
    for version in lead["versions"]:
        how = ", ".join(_SOURCES.get(source, source) for source in version["source"].split(", "))
        branches = ", ".join(scope.replace("-", " ", 1) for scope in version["scopes"])
        parts.append(
            f"<p>Received on {escape(_in_words(version['received_at'], zone))}: {escape(how)}"
            + (f" ({escape(branches)})" if branches else "")
            + ".</p>"
        )
        fields = [(path, text) for path, text in version["fields"] if text and not path.endswith(".")]
        parts.append(_table((_label(kind, path), _in_words(text, zone)) for path, text in fields))
    if not lead["versions"]:
        parts.append("<p>The text that was received is lost. The tables still have:</p>")
        columns = [column for table in lead["tables"] for column in table["columns"].items()]
        parts.append(_table((_label(kind, name), _in_words(text, zone)) for name, text in columns))
    return "\n".join(parts)


def _table(rows: Iterable[tuple[str, str]]) -> str:
    return "<table>" + "".join(f"<tr><th>{escape(name)}<td>{escape(text)}" for name, text in rows) + "</table>"
