"""The settings of the report."""

from typing import ClassVar

from leads_pipeline.settings import FeatureSettings, setting


class ReportSettings(FeatureSettings):
    """Who gets the weekly page."""

    needs: ClassVar = {"LEADS_REPORT_MAIL": "LEADS_SMTP_URL"}

    report_mail: str | None = setting(
        "LEADS_REPORT_MAIL", "The weekly report", link="guides/get-the-weekly-page.md#by-mail"
    )
    """Who gets the page each Monday at 07:00: addresses, comma-separated, or the path of a CSV with
    the columns email and branch
    """
