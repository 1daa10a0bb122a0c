"""The finder of delivery."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from leads_pipeline.domain.moments import has_passed
from leads_pipeline.errors import CredentialsError, SettingsError
from leads_pipeline.features.delivery.due import is_neglected
from leads_pipeline.features.delivery.ledger import VersionState, reading_ledger
from leads_pipeline.features.delivery.sending import Endpoint
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.finding import Finding, Level, finder
from leads_pipeline.raw.starting import name_in_dagster
from leads_pipeline.words import counted

# A pulled lead is delivered within a minute of its landing.
_LATE_DELIVERY: Final = timedelta(minutes=15)


@finder("delivery")
def delivery(facts: Facts) -> Iterator[Finding]:
    """Leads don't reach your own system.

    Meaning: the endpoint of `LEADS_DELIVERY_URL` fails or refuses, or nobody sends: the service was not started since
    the setting, the sensor `deliver` is off, or a `leads-pipeline deliver` hangs. Every lead is sent again for three
    days. Then it is given up: no longer sent, until it changes. A lead whose raw file is damaged is given up until the
    file is back. `held` counts leads whose contact the portal emptied: your own system would lose it, so this version
    is not delivered. No lead is lost: all are in `leads.duckdb`.
    Do: correct the endpoint, or switch the sensor `deliver` on in the Dagster UI. `leads-pipeline deliver status` lists
    the leads and says why. `leads-pipeline deliver retry` sends those that were given up or are held. After 410,
    nothing is sent until you run it.
    Over: when no lead waits for more than 15 minutes, and none is given up or held.
    """
    try:
        if Endpoint.of(facts.settings) is None:
            return
    except (SettingsError, CredentialsError) as error:
        yield Finding(Level.ERROR, f"No lead is delivered. {error}", "Correct the setting. Then restart the service.")
        return
    with reading_ledger(facts.data.folder) as ledger:
        if ledger is None:  # `deliver` never ran
            landed_at = facts.data.state.landed_at()
            if landed_at and has_passed(_LATE_DELIVERY, landed_at, facts.now):
                yield _nobody_looks(facts)
            return
        counts, oldest = ledger.counts(), ledger.oldest_waiting()
        trouble, gone = ledger.fact("trouble"), ledger.fact("gone")
        neglected = is_neglected(facts.data, ledger, facts.now, _LATE_DELIVERY)
    if gone or (oldest and has_passed(_LATE_DELIVERY, oldest, facts.now)):
        why = f"The endpoint {trouble}." if trouble else "Nobody sends them: does the service run?"
        yield Finding(
            Level.ERROR,
            f"{_versions(counts[VersionState.WAITING])} wait to be delivered. {why.replace('..', '.')}",
            "Run `leads-pipeline deliver retry` once the endpoint is there again."
            if gone
            else "Correct the endpoint. `leads-pipeline deliver --now` shows what it answers.",
            datetime.fromisoformat(gone) if gone else oldest,
            may_pass=not gone,
        )
    elif neglected:
        yield _nobody_looks(facts)
    if dead := counts[VersionState.DEAD]:
        yield Finding(
            Level.ERROR,
            f"{_versions(dead)} did not reach your own system. No more attempts are made.",
            "`leads-pipeline deliver status` says why. Then run `leads-pipeline deliver retry`.",
            key="given-up",
        )
    if held := counts[VersionState.HELD]:
        yield Finding(
            Level.WARNING,
            f"{_versions(held)} lack a contact that an earlier version has, and are not delivered.",
            "`leads-pipeline deliver status` lists them. `leads-pipeline deliver retry` delivers them.",
            key="held",
        )


def _nobody_looks(facts: Facts) -> Finding:
    lock = facts.data.state.path / "locks" / "delivery.lock"
    sensor = name_in_dagster(facts.data.state, "deliver")
    return Finding(
        Level.ERROR,
        "Nobody looks for new leads to deliver.",
        f"See that the service runs, and that the sensor `{sensor}` is on. If a `deliver` hangs, end it: "
        f"`fuser {lock}` names its process.",
        facts.data.state.landed_at(),
        may_pass=True,
    )


def _versions(count: int) -> str:
    return f"{counted(count, 'version')} of leads"
