"""Leads as a portal sends them, counted in plain Python: what a figure of the pipeline must be.

Belongs here: a lead's day, market and person, as the specification has them. Doesn't: anything of
the pipeline's own.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any, Self
from zoneinfo import ZoneInfo


@dataclass(frozen=True)
class Lead:
    """A lead as the portal sends it, with where and when it belongs."""

    kind: str
    scope: str
    day: date
    content: Mapping[str, Any]

    @classmethod
    def received(
        cls, kind: str, scope: str, window_day: date, content: Mapping[str, Any], zone: ZoneInfo
    ) -> Self:
        """A lead of a window.

        It belongs to the day on which it was made, or else to the window's.
        """
        lead = cls(kind, scope, window_day, content)
        return (
            replace(lead, day=lead.created_at.astimezone(zone).date()) if lead.created_at else lead
        )

    def text(self, path: str) -> str:
        return str(self.get(path) or "")

    def get(self, path: str) -> Any:
        value: Any = self.content
        for step in path.split("."):
            value = (value or {}).get(step)
        return value

    @property
    def created_at(self) -> datetime | None:
        text = self.text("createdAt")
        return None if not text or text.startswith("0001") else datetime.fromisoformat(text)

    @property
    def market(self) -> str:
        kind = self.text("enquiryType").removeprefix("ENQUIRY_TYPE_")
        intent = self.text("intent").rpartition("_")[2]
        return {"SALES": "sales", "LETTINGS": "lettings"}.get(
            kind,
            {"BUY": "sales", "SELL": "sales", "RENT": "lettings", "LET": "lettings"}.get(
                intent, "unknown"
            ),
        )

    @property
    def identity(self) -> str:
        """The e-mail address or else the telephone number, as people write the same one in several
        ways.
        """
        if email := self.text("contact.email").strip().lower():
            return email
        return re.sub(
            r"^(00)?44(0)?|^0", "", "".join(filter(str.isdigit, self.text("contact.phoneNumber")))
        )


def groups(
    leads: Iterable[Lead], key: Callable[[Lead], tuple[Any, ...]]
) -> Iterator[tuple[tuple[Any, ...], list[Lead]]]:
    found: dict[tuple[Any, ...], list[Lead]] = defaultdict(list)
    for lead in leads:
        found[key(lead)].append(lead)
    yield from found.items()


def people(leads: Iterable[Lead]) -> int:
    return len({lead.identity for lead in leads} - {""})
