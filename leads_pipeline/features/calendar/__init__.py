"""The calendar: days with weeks, months and bank holidays, and the opening hours of branches.

    bank_holidays.py    LEADS_BANK_HOLIDAYS_FILE
    opening_hours.py    the column opening_hours of LEADS_BRANCHES_FILE
    step.py             both as tables that marts read
    sql/                the table `dates`, and the leads that come while a branch is closed

The other files are what the core asks for.
"""

from typing import Final

from leads_pipeline.features.feature import Feature

FEATURE: Final = Feature(
    name="calendar",
    settings="leads_pipeline.features.calendar.settings:CalendarSettings",
    finders="leads_pipeline.features.calendar.findings",
    steps="leads_pipeline.features.calendar.step:steps",
    has_marts=True,
)
