"""The finding of the calendar."""

from collections.abc import Iterator

from leads_pipeline.errors import SettingsError
from leads_pipeline.features.calendar.bank_holidays import read_bank_holidays
from leads_pipeline.features.calendar.opening_hours import COLUMN, read_opening_hours
from leads_pipeline.features.calendar.settings import CalendarSettings
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.finding import Finding, Level, finder
from leads_pipeline.words import some


@finder("calendar")
def calendar(facts: Facts) -> Iterator[Finding]:
    """Bank holidays or opening hours can't be read.

    Meaning: the table `dates` keeps the last bank holidays that could be read. A branch whose
    opening hours can't be read isn't in `mart_opening_hours`.
    Do: correct the file that the message names. The next publication reads it.
    Over: when it can be read.
    """
    try:
        read_bank_holidays(facts.settings.of(CalendarSettings).bank_holidays_file)
    except SettingsError as error:
        what_to_do = "Correct the file. The next publication reads it."
        yield Finding(Level.WARNING, str(error), what_to_do, key="bank-holidays")

    unreadable = []
    columns = facts.branches.columns
    for scope, values in facts.branches.more.items():
        text = dict(zip(columns, values, strict=True)).get(COLUMN)
        if not text:
            continue
        try:
            read_opening_hours(text)
        except ValueError:
            unreadable.append(scope)
    if unreadable:
        yield Finding(
            Level.WARNING,
            f"The opening_hours of {some(unreadable)} in LEADS_BRANCHES_FILE can't be read.",
            "Write them as Mon-Fri 09:00-17:30; Sat 10:00-16:00. The next publication reads the "
            "file.",
            key="opening-hours",
        )
