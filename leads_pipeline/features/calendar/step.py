"""The step that loads bank holidays and opening hours, for the marts.

Belongs here: the tables. Doesn't: what the files may hold (bank_holidays.py, opening_hours.py).
"""

# ruff: noqa: S608 - only quoted names are in the statements

from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final

from leads_pipeline.errors import SettingsError
from leads_pipeline.features.calendar.bank_holidays import read_bank_holidays
from leads_pipeline.features.calendar.opening_hours import COLUMN, read_opening_hours
from leads_pipeline.features.calendar.settings import CalendarSettings
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.durable import digest_of
from leads_pipeline.warehouse.duck import quoted
from leads_pipeline.warehouse.publication import PublicationSettings
from leads_pipeline.warehouse.step import FORMER, Draft, Step
from leads_pipeline.warehouse.tables import columns_of, insert

_HOLIDAYS: Final = "day date, name varchar"
_HOURS: Final = "scope varchar, weekday integer, opens integer, closes integer"


def steps(data: DataFolder, settings: PublicationSettings, now: datetime) -> list[Step]:  # noqa: ARG001 - as others
    """Return what the calendar adds to a publication."""
    return [LoadCalendar(settings.installation.of(CalendarSettings).bank_holidays_file)]


class LoadCalendar(Step):
    """Loads `pipeline.bank_holidays`, and `pipeline.opening_hours` from the table `branches`."""

    def __init__(self, bank_holidays_file: Path | None) -> None:
        self._file = bank_holidays_file

    def updates_if(self) -> str:
        """The bytes of the file."""
        return digest_of(self._file) if self._file else ""

    def rebuilds_if(self) -> str:
        """The columns."""
        return _HOLIDAYS + _HOURS

    def fill(self, draft: Draft) -> None:
        """Load both.

        If the file of bank holidays can't be read, which is a finding, the last ones stay.
        """
        with draft.transaction():
            self._fill_holidays(draft)
            _fill_hours(draft)

    def _fill_holidays(self, draft: Draft) -> None:
        db = draft.db
        db.execute(f"create table if not exists pipeline.bank_holidays ({_HOLIDAYS})")
        try:
            holidays = read_bank_holidays(self._file)
        except SettingsError:
            # If there is a former file, this one is new, and its table is empty.
            if draft.changes.has_former and columns_of(db, "bank_holidays", "pipeline", FORMER):
                db.execute(
                    f"insert into pipeline.bank_holidays from {FORMER}.pipeline.bank_holidays"
                )
            return
        db.execute("delete from pipeline.bank_holidays")
        insert(db, "pipeline.bank_holidays", [*holidays.items()])


def _fill_hours(draft: Draft) -> None:
    db = draft.db
    db.execute(f"create or replace table pipeline.opening_hours ({_HOURS})")
    if COLUMN not in columns_of(db, "branches"):
        return

    written = db.execute(
        f"select scope, {quoted(COLUMN)} from branches where {quoted(COLUMN)} is not null"
    ).fetchall()
    rows: list[tuple[object, ...]] = []
    for scope, text in written:
        with suppress(ValueError):  # which is a finding
            rows += [(scope, *hours) for hours in read_opening_hours(text)]
    insert(db, "pipeline.opening_hours", rows)
