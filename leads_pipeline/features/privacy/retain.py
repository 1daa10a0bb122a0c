"""The agency's own retention: a day becomes anonymous after so many days.

Its rows stay and are counted.

Belongs here: which days are due, what is done to each in which order. Doesn't: what stays of a
lead's text (redact.py), rewriting a raw window (raw/), when it runs (orchestration/, command.py).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import duckdb

from leads_pipeline.domain.contract import LEAD_KINDS, Field, LeadKind
from leads_pipeline.domain.window import today
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.features.privacy.keys_of_days import forget_key_of_day, make_key_of_day
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.names import Place, list_places
from leads_pipeline.warehouse.duck import WAREHOUSE_FILE, quoted
from leads_pipeline.warehouse.load_leads import former_of
from leads_pipeline.warehouse.published import LeadsFile

_EMAIL: Final = "contact_email"


@dataclass(frozen=True, slots=True)
class CutDay:
    """A day of a kind that is made anonymous.

    `leads` counts its published leads that name somebody.
    """

    kind: LeadKind
    day: date
    leads: int
    error: LeadsPipelineError | None = None


def due_before(now: datetime, zone: ZoneInfo, keep_days: int) -> date:
    """Return the day before which leads are due.

    So many whole local days have passed since the end of each of their windows.
    """
    return today(zone, now) - timedelta(days=keep_days)


def cut_days(data: DataFolder, before: date, *, is_dry: bool = False) -> Iterator[CutDay]:
    """Make every raw day before that one anonymous. Give each day as it is done.

    The publication that has to follow writes `leads.duckdb` anew, and makes leads anonymous there
    that raw has lost. A day that fails stays as it is and the others go on. A day that a killed
    process left, or that a push or a restore has filled again, is due again. A dry run only counts.
    """
    with data.state.lock("retention"):
        places = _places_by_day(data, before)
        named = {kind: _named_leads(data, kind, before) for kind in LEAD_KINDS}
        days = set(places).union(*named.values())

        for day in sorted(days):
            has_failed = False
            for kind in LEAD_KINDS:
                leads = named[kind].get(day, 0)
                try:
                    windows = _named_windows(data, places.get(day, []), kind)
                    if not windows and not leads:
                        continue
                    if not is_dry:
                        _cut(data, day, windows, before)
                    yield CutDay(kind, day, leads)
                except LeadsPipelineError as error:
                    has_failed = True
                    yield CutDay(kind, day, 0, error)

            # A day that failed goes on under its key.
            if not is_dry and not has_failed:
                forget_key_of_day(data.state, day)


def _places_by_day(data: DataFolder, before: date) -> dict[date, list[Place]]:
    places: dict[date, list[Place]] = {}
    for place in list_places(data.store):
        if place.day < before:
            places.setdefault(place.day, []).append(place)
    return places


def _named_windows(data: DataFolder, places: Sequence[Place], kind: LeadKind) -> list[Place]:
    """Return the windows of that kind with a file that may name somebody."""
    return [
        place for place in places if place.kind == kind and not data.raw.read(place).is_anonymous
    ]


def _cut(data: DataFolder, day: date, windows: Sequence[Place], before: date) -> None:
    """Make these windows of a day anonymous."""
    data.state.note_anonymous_before(before)
    data.state.note_rewriting()
    make_key_of_day(data.state, day)
    for place in windows:
        data.raw.rewrite(place, is_anonymous=True)  # the gate cuts the day's rows
    data.state.note_rewriting()  # a publication may have read windows before they were cut


def _named_leads(data: DataFolder, kind: LeadKind, before: date) -> dict[date, int]:
    """Count the published leads before that day that still name somebody, by day."""
    if not (data.folder / WAREHOUSE_FILE).exists():
        return {}

    with LeadsFile(data).reading() as db:
        _, rows = db.query(
            f"select window_day, count(*) from {quoted(kind.table)} "  # noqa: S608 - our own names
            f"where window_day < $before and {_is_named(kind.fields)} group by window_day",
            {"before": before},
        )

    return dict(rows)


def anonymise_former(db: duckdb.DuckDBPyConnection, kind: LeadKind, before: date) -> None:
    """Make leads from before that day anonymous that raw has lost.

    They are in the temporary tables of load_leads.py. The random id of a person is the same among
    the lost leads of a day and kind.
    """
    leads = quoted(former_of(kind.table))
    db.execute(
        f"""
        create or replace temp table named as
        select lead_id, person, window_day
        from {leads}
        where window_day < $before and {_is_named(kind.fields)}
        """,  # noqa: S608 - our own names
        {"before": before},
    )
    db.execute(
        "create or replace temp table anonymous as select lead_id, id from named join (select *, "
        "if(person is null, null, uuid()) as id from (select distinct person, window_day from "
        "named)) as people on people.person is not distinct from named.person and "
        "people.window_day = named.window_day"
    )
    db.execute(_cut_statement(former_of(kind.table), kind.fields))
    db.execute(
        f"update {leads} set person = id, {_EMAIL} = id::varchar || '@removed.invalid' "  # noqa: S608
        f"from anonymous where anonymous.lead_id = {leads}.lead_id"
    )

    for child in kind.children:
        db.execute(_cut_statement(former_of(child.name), child.fields))


def _is_named(fields: Sequence[Field]) -> str:
    """Whether a row has a personal or unknown field, in SQL."""
    conditions = [
        f"{quoted(column)} is not null" for column in _personal(fields) if column != _EMAIL
    ]
    conditions.append(f"({_EMAIL} is not null and {_EMAIL} not like '%@removed.invalid')")
    conditions.append("_extra is not null")
    return f"({' or '.join(conditions)})"


def _cut_statement(table: str, fields: Sequence[Field]) -> str:
    nothing = [f"{quoted(column)} = null" for column in _personal(fields)]
    changes = ", ".join([*nothing, "_extra = null"])
    return f"update {quoted(table)} set {changes} where lead_id in (select lead_id from anonymous)"  # noqa: S608


def _personal(fields: Sequence[Field]) -> list[str]:
    return [field.column for field in fields if field.is_personal]
