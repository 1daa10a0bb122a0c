"""Which window a pushed lead belongs to."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from leads_pipeline.domain.bodies import read_texts
from leads_pipeline.domain.contract import LeadKind, ReceivedLead
from leads_pipeline.domain.window import Scope, ScopeKind, today
from leads_pipeline.raw.names import PUSH_SCOPE, Place

# Nobody looks for news in older windows.
_OLDEST: Final = timedelta(days=60)

# Which of a lead's members name each kind of scope. A lead names no brand.
_SCOPE_FIELDS: Final = {
    ScopeKind.BRANCH: "portalBranchId",
    ScopeKind.COMPANY: "portalCompanyId",
    ScopeKind.GROUP: "portalGroupId",
}
_CREATED_AT: Final = "createdAt"
_PLACING_FIELDS: Final = frozenset({_CREATED_AT, *_SCOPE_FIELDS.values()})


@dataclass(frozen=True, slots=True)
class Placement:
    """Which window a pushed lead belongs to.

    The day is that of createdAt in `zone`, so that a repeated push lands in the same window. If it
    is more than 60 days ago or after tomorrow, the day of receipt counts. The scope is the
    configured one that the lead names, else PUSH_SCOPE.
    """

    scopes: Sequence[Scope]
    zone: ZoneInfo

    def of(self, kind: LeadKind, lead: ReceivedLead, received_at: datetime) -> Place:
        """The window of a lead that was received at that moment."""
        texts = read_texts(lead.payload, _PLACING_FIELDS)
        day_received = today(self.zone, received_at)
        day = self._day(texts.get(_CREATED_AT, ""))
        if day is None or not day_received - _OLDEST <= day <= day_received + timedelta(days=1):
            day = day_received

        scope_keys = (scope.key for scope in self.scopes if _names(texts, scope))
        return Place(kind, day, next(scope_keys, PUSH_SCOPE))

    def _day(self, text: str) -> date | None:
        with suppress(ValueError, OverflowError):
            created = datetime.fromisoformat(text)
            if created.tzinfo is not None:
                return today(self.zone, created)
        return None


def _names(texts: Mapping[str, str], scope: Scope) -> bool:
    if scope.kind is ScopeKind.ALL:
        return True
    return scope.kind in _SCOPE_FIELDS and texts.get(_SCOPE_FIELDS[scope.kind]) == scope.id
