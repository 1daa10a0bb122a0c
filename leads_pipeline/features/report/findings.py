"""The finding of the weekly mail."""

from collections.abc import Iterator

from leads_pipeline.errors import SettingsError
from leads_pipeline.features.report.memory import Memory
from leads_pipeline.features.report.recipients import recipients_of
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.finding import Finding, Level, finder


@finder("report-mail")
def report_mail(facts: Facts) -> Iterator[Finding]:
    """The weekly mail can't be sent.

    Meaning: somebody doesn't get last week's page. It is tried again every hour until the end of
    Wednesday.
    Do: do what the message says, then run `leads-pipeline report --mail`. It sends to everybody.
    Over: when a mail gets through, or with the next week.
    """
    what_to_do = (
        "Then run `leads-pipeline report --mail`, or wait for the next try within the hour."
    )
    try:
        recipients = recipients_of(facts.settings)
    except SettingsError as error:
        yield Finding(Level.WARNING, str(error), what_to_do, key="recipients")
        return

    memory = Memory.of_week(facts.data, facts.today)
    if recipients and memory.trouble:
        message = f"The weekly report wasn't sent to everybody. {memory.trouble}"
        newest_failure_at = max(memory.failed.values(), default=None)
        yield Finding(Level.WARNING, message, what_to_do, since=newest_failure_at, may_pass=True)
