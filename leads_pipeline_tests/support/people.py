"""A made-up person, leads that show them, entries of the suppression list that mean them, and what it left."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import duckdb
import pyarrow.parquet as pq

from leads_pipeline.contract import LEAD_KINDS
from leads_pipeline.domain.person import LeadRow, email_keys, name_key, phone_keys
from leads_pipeline.lake import Lake
from leads_pipeline.suppression import Action, Entry, Suppressed, SuppressionList, hashes

UNTIL = datetime(2026, 11, 21, 12, tzinfo=UTC)

EMAIL, PHONE = "jane.roe@people.example", "07700 900123"


def lead(lead_id: str, *, email: str = "", phone: str = "", name: str = "", **more: Any) -> dict[str, Any]:
    first, _, last = name.partition(" ")
    contact = {"firstName": first, "lastName": last, "phoneNumber": phone, "email": email}
    return {"id": lead_id, "contact": contact, **more}


def entry_of(
    suppressed: Suppressed,
    number: int,
    action: Action = Action.ERASE,
    *,
    emails: Iterable[str] = (EMAIL,),
    phones: Iterable[str] = (),
    names: Iterable[str] = (),
    leads: Iterable[tuple[str, str]] = (),
    until: datetime | None = UNTIL,
    **more: Any,
) -> Entry:
    """An entry for a person."""
    keys = frozenset[str]().union(*map(email_keys, emails))
    return Entry(
        number=number,
        at=UNTIL,
        action=action,
        until=until,
        emails=hashes(suppressed, "mailbox", keys),
        phones=hashes(suppressed, "phone", frozenset[str]().union(*map(phone_keys, phones))),
        names=hashes(suppressed, "name", {key for name in names if (key := name_key(name))}),
        leads=tuple(suppressed.hashed_lead(*one) for one in leads),
        **more,
    )


def listed(list_: SuppressionList, action: Action = Action.ERASE, **more: Any) -> Entry:
    """Add an entry for a person."""
    return list_.append(lambda suppressed, number: entry_of(suppressed, number, action, **more))


def left_by_list(lake: Lake) -> list[str]:
    """The raw files and the published leads that the suppression list keeps out, and that are there all the same."""
    left = []
    for path in lake.raw_lead_files():
        rows = pq.ParquetFile(path).read().to_pylist()
        verdict = lake.verdict(LeadRow(row["kind"], row["lead_id"], row["day"], row["payload"]) for row in rows)
        if verdict.passed(rows) != rows:
            left.append(path.relative_to(lake.folder).as_posix())
    out = lake.suppression.read().out
    with duckdb.connect(lake.folder / "leads.duckdb", read_only=True) as db:
        for kind in LEAD_KINDS:
            ids = db.execute(f"select lead_id from {kind.table}").fetchall()  # noqa: S608 - our own names
            left += [lead_id for (lead_id,) in ids if out.is_known(kind.name, lead_id)]
    return left
