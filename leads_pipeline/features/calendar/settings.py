"""The settings of the calendar."""

from leads_pipeline.settings import AbsolutePath, FeatureSettings, setting


class CalendarSettings(FeatureSettings):
    """Where the bank holidays are written."""

    bank_holidays_file: AbsolutePath = setting(
        "LEADS_BANK_HOLIDAYS_FILE",
        "The calendar",
        link="guides/add-your-own-data.md#bank-holidays-and-opening-hours",
    )
    """A CSV with the columns day and name, for the table `dates`: 2026-12-25,Christmas Day"""
