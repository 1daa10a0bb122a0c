"""Fields and values that the contract doesn't know: one select over the tables of leads.

The select is made from the contract.

Belongs here: new members, new values and values that don't fit. Doesn't: how marts show new values
(marts.py).
"""

# ruff: noqa: S608 - only the contract's own names are in the statements

from collections.abc import Iterator
from datetime import date, timedelta
from typing import Final

import duckdb

from leads_pipeline.domain.contract import ENUMERATIONS, LEAD_KINDS, MEMBER_PATTERN, Field, LeadKind
from leads_pipeline.warehouse.duck import Column, literal, quoted
from leads_pipeline.warehouse.step import Draft, Step
from leads_pipeline.warehouse.tables import Table, comment

# A name or a value may be a person's. One that so many people have sent says nothing of any of
# them.
PEOPLE_MIN: Final = 3
DRIFT_DAYS: Final = 60

# Names and values that look like a programmer's are shown. Others may be a person's words.
_FORM: Final = r"[A-Za-z0-9_.\[\]]{1,200}"

# Changes of the values of an enumerated field. A member in the portal's form is a hint, any other
# value a warning.
NEW_MEMBER: Final = "new member"
NEW_VALUE: Final = "new value"

DRIFT: Final = Table(
    "drift",
    f"One row per kind and change that the contract doesn't know, of the last {DRIFT_DAYS} days, "
    f"from at least {PEOPLE_MIN} people",
    (
        Column("kind", "varchar", "applicant or appraisal"),
        Column(
            "change",
            "varchar",
            "new field, new member (of an enumerated field), new value (of one, in another form "
            "than its members) or changed type (a value that doesn't fit its field)",
        ),
        Column(
            "field", "varchar", "Path of the field; what follows [] is in each element of a list"
        ),
        Column("value", "varchar", "The new value"),
        Column("first_seen_day", "date", "First window day on which it came"),
        Column("last_seen_day", "date", "Last window day on which it came"),
        Column("leads", "bigint", "Leads, or elements of their declared lists, that have it"),
    ),
    reads=tuple(table for kind in LEAD_KINDS for table in kind.tables),
)


class FindDrift(Step):
    """Makes the table `drift`."""

    def __init__(self, today: date) -> None:
        self._today = today

    def rebuilds_if(self) -> str:
        """The columns."""
        return repr(DRIFT)

    def fill(self, draft: Draft) -> None:
        """Make it anew."""
        with draft.transaction():
            make_drift(draft.db, self._today)


def make_drift(db: duckdb.DuckDBPyConnection, today: date) -> None:
    """Make the table anew, of the windows of the last 60 days."""
    first_day = today - timedelta(days=DRIFT_DAYS)
    db.execute(f"create or replace table drift as {drift_statement(first_day)}")
    comment(db, "drift", DRIFT.description, DRIFT.descriptions)


def drift_statement(first_day: date) -> str:
    """Return the select, from that window day on."""
    changes = " union all ".join(
        change for kind in LEAD_KINDS for change in _changes(kind, first_day)
    )
    return f"""
select
    kind, change, field, value,
    min(day) as first_seen_day,
    max(day) as last_seen_day,
    count(*) as leads
from ({changes})
where sender is not null and regexp_full_match(field || coalesce(value, ''), '{_FORM}')
group by all
having count(distinct sender) >= {PEOPLE_MIN}
order by all
"""


def _changes(kind: LeadKind, first_day: date) -> Iterator[str]:
    # Retention has put made-up people into the leads of old days. They are no senders, and don't
    # count.
    leads = f"""(
        select *, window_day as day,
            if(
                contact_email like '%@removed.invalid', null, coalesce(person::varchar, lead_id)
            ) as sender
        from {quoted(kind.table)}
        where window_day >= {literal(first_day.isoformat())}
    )"""
    yield from _changes_of(kind, leads, "", kind.fields, {child.path for child in kind.children})

    for child in kind.children:
        elements = (
            f"(from {quoted(child.name)} join (select lead_id, sender from {leads}) using "
            "(lead_id))"
        )
        yield from _changes_of(kind, elements, f"{child.path}[].", child.fields, set())


def _changes_of(
    kind: LeadKind, rows: str, prefix: str, fields: tuple[Field, ...], lists: set[str]
) -> Iterator[str]:
    """Yield selects with the columns kind, change, field, value, day and sender."""
    paths = [field.path for field in fields]
    objects = sorted(
        {
            ".".join(path.split(".")[:depth])
            for path in (*paths, *lists)
            for depth in range(path.count(".") + 1)
        }
    )
    pointers = [f"/{path.replace('.', '/')}" if path else "" for path in objects]
    # A declared object that came as something else isn't a new field.
    declared = ", ".join(map(literal, objects))
    yield f"""
select
    {literal(kind.name)} as kind,
    'new field' as change,
    {literal(prefix)} || member as field,
    null::varchar as value,
    day, sender
from (
    select day, sender, concat_ws('.', nullif(object, ''), key) as member
    from (
        select day, sender, object, unnest(keys) as key
        from (
            select
                day,
                sender,
                unnest({objects}) as object,
                unnest(json_keys(_extra, {pointers})) as keys
            from {rows}
            where _extra is not null
        )
    )
)
where member not in ({declared})
"""
    yield f"""
select {literal(kind.name)}, 'changed type', {literal(prefix)} || problem, null, day, sender
from (select day, sender, unnest(_problems) as problem from {rows} where len(_problems) > 0)
"""

    enumerated = [field for field in fields if field.path in ENUMERATIONS]
    if enumerated:
        values = ", ".join(_value_of(field) for field in enumerated)
        is_member = f"regexp_full_match(found.value, {literal(MEMBER_PATTERN)})"
        yield f"""
select {literal(kind.name)}, if({is_member}, {literal(NEW_MEMBER)}, {literal(NEW_VALUE)}),
    {literal(prefix)} || found.field, found.value, day, sender
from (select day, sender, unnest([{values}]) as found from {rows})
where found.value <> '' and not list_contains(found.known, found.value)
"""


def _value_of(field: Field) -> str:
    """Return a struct of an enumerated field, its value and the values that are known."""
    known = ", ".join(map(literal, ENUMERATIONS[field.path]))
    return (
        f"{{'field': {literal(field.path)}, 'value': {quoted(field.column)}, 'known': [{known}]}}"
    )
