"""The finder of alerts."""

from collections.abc import Iterator

from leads_pipeline.features.alerts.alerts import AlertMemory
from leads_pipeline.features.alerts.channels import SET_UP, channels_of
from leads_pipeline.features.alerts.settings import AlertSettings
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.finding import Finding, Level, finder, never_set_up


@finder("alert-channels")
def alert_channels(facts: Facts) -> Iterator[Finding]:
    """Nobody is told of problems, or a channel doesn't work.

    Meaning: without a channel, only people who look see problems. Without a heartbeat, nobody
    notices that this machine is off. A channel that doesn't work is told on the others.
    Do: set `LEADS_ALERT_EMAIL` and `LEADS_SMTP_URL`, or a webhook, and `LEADS_HEARTBEAT_URL`. Then
    run `leads-pipeline alert --test`.
    Over: when both are set, and a message or a test has got through.
    """
    for variable, failure in AlertMemory.read(facts.data.state.path).failures.items():
        yield Finding(
            Level.ERROR,
            f"Messages don't get through on {variable}. {failure.message}",
            "Run `leads-pipeline alert --test` to try it again.",
            since=failure.since,
            key=variable,
            may_pass=True,
        )
    if not channels_of(facts.settings):
        yield Finding(
            never_set_up(facts),
            "No alert channel is set up, so nobody is told of problems.",
            f"{SET_UP} Then run `leads-pipeline alert --test`.",
        )
    elif not facts.settings.of(AlertSettings).heartbeat_url:
        yield Finding(
            Level.HINT,
            "LEADS_HEARTBEAT_URL isn't set. Alerts stop when this machine stops, and nobody "
            "notices.",
            "Set LEADS_HEARTBEAT_URL to the address of an outside monitor.",
        )
