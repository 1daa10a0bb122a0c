"""The finders of delivery."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from leads_pipeline.domain.moments import has_passed
from leads_pipeline.errors import CredentialsError, SettingsError
from leads_pipeline.features.delivery.destinations import Destination, destinations_of
from leads_pipeline.features.delivery.due import is_neglected
from leads_pipeline.features.delivery.ledger import (
    DEFAULT,
    Ledger,
    VersionState,
    ledger_names,
    ledger_path,
    lock_name,
    reading_ledger,
)
from leads_pipeline.features.delivery.questions import counts, erasures, oldest_waiting
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.finding import Finding, Level, finder
from leads_pipeline.raw.starting import name_in_dagster
from leads_pipeline.words import counted

# A pulled lead is delivered within a minute of its landing.
_LATE_DELIVERY: Final = timedelta(minutes=15)
# Outcomes are asked for each night.
_LATE_OUTCOMES: Final = timedelta(days=2)


@finder("delivery")
def delivery(facts: Facts) -> Iterator[Finding]:
    """Leads don't reach your own system.

    Meaning: the destination that the message names fails or refuses, or nobody sends: the service
    was not started since the setting, the sensor `deliver` is off, or a `leads-pipeline deliver`
    hangs. Every lead is sent again for three days. Then it is given up: no longer sent, until it
    changes. A lead whose raw file is damaged is given up until the file is back. `held` counts
    leads whose contact the portal emptied: your own system would lose it, so this version is not
    delivered. No lead is lost: all are in `leads.duckdb`. An erasure may wait for a destination
    that is gone.
    Do: correct the destination, or switch the sensor `deliver` on in the Dagster UI.
    `leads-pipeline deliver status` lists the leads and says why. `leads-pipeline deliver retry`
    sends those that were given up or are held. After 410, nothing is sent until you run it.
    Over: when no lead waits for more than 15 minutes, and none is given up or held.
    """
    try:
        destinations = destinations_of(facts.settings)
    except (SettingsError, CredentialsError) as error:
        yield Finding(
            Level.ERROR,
            f"No lead is delivered. {error}",
            "Correct the setting. Then restart the service.",
        )
        return
    for destination in destinations:
        with reading_ledger(facts.data.folder, destination.name) as ledger:
            if ledger is None:
                yield from _never_sent(facts, destination)
            else:
                yield from _late(facts, destination, ledger)
                yield from _not_sent(destination, ledger)
        yield from _unknown_branches(facts, destination)
    yield from _untold(facts, {destination.name for destination in destinations})


@finder("outcomes")
def outcomes(facts: Facts) -> Iterator[Finding]:
    """Alto doesn't tell what came of leads.

    Meaning: each request for outcomes has failed for two days. The table `outcomes` keeps the
    earlier ones. Leads are delivered all the same.
    Do: correct what the message names. `leads-pipeline deliver outcomes` asks at once.
    Over: when a request succeeds.
    """
    try:
        destinations = destinations_of(facts.settings)
    except (SettingsError, CredentialsError):
        return
    for destination in destinations:
        with reading_ledger(facts.data.folder, destination.name) as ledger:
            failing = ledger.fact("outcomes_failing") if ledger else None
            if ledger is None or failing is None or destination.outcomes is None:
                continue
            since = datetime.fromisoformat(ledger.fact("outcomes_until") or failing)
            trouble = ledger.fact("outcomes_trouble")

        if has_passed(_LATE_OUTCOMES, since, facts.now):
            yield Finding(
                Level.WARNING,
                f"{destination.shown} tells no outcomes of leads. {trouble}",
                "Correct it. `leads-pipeline deliver outcomes` asks at once.",
                since,
                key=_key(destination),
            )


def _untold(facts: Facts, still_set: set[str]) -> Iterator[Finding]:
    """Find erasures that wait for a destination that is no longer set."""
    for name in ledger_names(facts.data.folder):
        if name in still_set:
            continue
        with reading_ledger(facts.data.folder, name) as ledger:
            waiting = (
                [one for one in erasures(ledger) if one.confirmed_at is None] if ledger else []
            )
        if waiting:
            yield Finding(
                Level.ERROR,
                f"{name} is no longer a destination, and isn't told of "
                f"{counted(len(waiting), 'erased lead')}.",
                f"Tell those who run it, then delete {ledger_path(facts.data.folder, name)}. Or "
                "set it again.",
                key=f"{name}/untold",
            )


def _never_sent(facts: Facts, destination: Destination) -> Iterator[Finding]:
    landed_at = facts.data.state.landed_at()
    if landed_at and has_passed(_LATE_DELIVERY, landed_at, facts.now):
        yield _nobody_looks(facts, destination)


def _late(facts: Facts, destination: Destination, ledger: Ledger) -> Iterator[Finding]:
    oldest = oldest_waiting(ledger)
    gone = ledger.fact("gone")
    trouble = ledger.fact("trouble")
    is_late = oldest is not None and has_passed(_LATE_DELIVERY, oldest, facts.now)
    if not gone and not is_late:
        if is_neglected(facts.data, ledger, facts.now, _LATE_DELIVERY):
            yield _nobody_looks(facts, destination)
        return

    why = "Nobody sends them: does the service run?"
    if trouble:
        why = f"{destination.shown} {trouble.rstrip('.')}."
    yield Finding(
        Level.ERROR,
        f"{_versions(counts(ledger)[VersionState.WAITING])} wait to be delivered. {why}",
        "Run `leads-pipeline deliver retry` once the destination is there again."
        if gone
        else "Correct the destination. `leads-pipeline deliver --now` shows what it answers.",
        datetime.fromisoformat(gone) if gone else oldest,
        key=_key(destination),
        may_pass=not gone,
    )


def _not_sent(destination: Destination, ledger: Ledger) -> Iterator[Finding]:
    found = counts(ledger)
    if dead := found[VersionState.DEAD]:
        yield Finding(
            Level.ERROR,
            f"{_versions(dead)} did not reach {destination.shown}. No more attempts are made.",
            "`leads-pipeline deliver status` says why. Then run `leads-pipeline deliver retry`.",
            key=_key(destination, "given-up"),
        )
    if held := found[VersionState.HELD]:
        yield Finding(
            Level.WARNING,
            f"{_versions(held)} lack a contact that an earlier version has, and are not delivered "
            f"to {destination.shown}.",
            "`leads-pipeline deliver status` lists them. `leads-pipeline deliver retry` delivers "
            "them.",
            key=_key(destination, "held"),
        )


def _unknown_branches(facts: Facts, destination: Destination) -> Iterator[Finding]:
    """Find a filter by branches that aren't pulled. One that was closed may stay there."""
    pulled = {scope.key for scope in facts.settings.scopes}
    unknown = sorted(destination.filter.scopes - pulled)
    if unknown:
        yield Finding(
            Level.HINT,
            f"{destination.shown} wants leads of {', '.join(unknown)}, which aren't pulled.",
            "If an id is mistyped, correct `branches` in LEADS_DESTINATIONS_FILE.",
            key=_key(destination, "branches"),
        )


def _nobody_looks(facts: Facts, destination: Destination) -> Finding:
    lock = facts.data.state.path / "locks" / f"{lock_name(destination.name)}.lock"
    sensor = name_in_dagster(facts.data.state, "deliver")
    return Finding(
        Level.ERROR,
        f"Nobody looks for new leads to deliver to {destination.shown}.",
        f"See that the service runs, and that the sensor `{sensor}` is on. If a `deliver` hangs, "
        f"end it: `fuser {lock}` names its process.",
        facts.data.state.landed_at(),
        key=_key(destination),
        may_pass=True,
    )


def _key(destination: Destination, what: str = "") -> str:
    name = "" if destination.name == DEFAULT else destination.name
    return "/".join(filter(None, (name, what)))


def _versions(count: int) -> str:
    return f"{counted(count, 'version')} of leads"
