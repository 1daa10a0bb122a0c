"""The report: one page of last week's figures for any browser, and by mail.

    content.py        the figures, of all branches or of one
    page.py           the page, with its charts
    mail.py           the mail, with the page attached
    mailing.py        when the mail is due, and who has got it
    sql/              each figure's statement, below period.sql

The other files are what the core asks for.
"""

from typing import Final

from leads_pipeline.features.feature import Command, Feature

FEATURE: Final = Feature(
    name="report",
    settings="leads_pipeline.features.report.settings:ReportSettings",
    commands={
        "report": Command(
            "leads_pipeline.features.report.command:report", "Write or mail the page of last week."
        )
    },
    published_asset="leads_pipeline.features.report.asset:report_asset",
    definitions="leads_pipeline.features.report.sensor:definitions",
    needed="leads_pipeline.features.report.sensor:needed",
    finders="leads_pipeline.features.report.findings",
)
