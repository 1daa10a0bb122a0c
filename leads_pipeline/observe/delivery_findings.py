"""Findings about leads on their way: pushes of the portal, and deliveries to the agency's own endpoint.

Belongs here: the finders that look at the receiver and at the ledger of deliveries. Doesn't: the other finders
(findings.py).
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from leads_pipeline.delivery.due import is_neglected
from leads_pipeline.delivery.ledger import VersionState, looked_at
from leads_pipeline.delivery.sending import Endpoint
from leads_pipeline.errors import CredentialsError, SettingsError
from leads_pipeline.observe.finding import Found, Level, counted, finder
from leads_pipeline.observe.known import Known

# A pulled lead is delivered within a minute of its landing.
_LATE: Final = timedelta(minutes=15)


# The portal sends a push again for so long.
_PORTAL_GIVES_UP: Final = timedelta(hours=20)


@finder("receiver")
def receiver(known: Known) -> Iterator[Found]:
    """Nobody takes the leads that the portal pushes.

    Meaning: `leads-pipeline receive` has not run for more than 20 hours, so the portal gave failed pushes up.
    These leads come with the nightly pull. Those of branches that aren't configured come by push alone: they are lost.
    Do: start `leads-pipeline receive` again, on a server `systemctl restart leads-pipeline-receive`. If the portal
    pushes nothing any more, remove LEADS_RECEIVE_KEY.
    Over: when it runs.
    """
    seen_at = known.data.state.receiver_seen_at()
    if known.settings.receive_key and seen_at and known.now - seen_at > _PORTAL_GIVES_UP:
        yield Found(
            Level.ERROR,
            "`leads-pipeline receive` has not run for more than 20 hours, so pushed leads come with the daily pull.",
            "Start `leads-pipeline receive`.",
            seen_at,
        )


@finder("delivery")
def delivery(known: Known) -> Iterator[Found]:
    """Leads don't reach your own system.

    Meaning: the endpoint of `LEADS_DELIVERY_URL` fails or refuses, or nobody sends: the sensor `deliver` is off, or a
    `leads-pipeline deliver` hangs. Every lead is sent
    again for three days. Then it is given up: no longer sent, until it changes. `held` counts leads whose contact the
    portal emptied: your own system would lose it, so this version is not delivered. No lead is lost: all are in
    `leads.duckdb`.
    Do: correct the endpoint, or switch the sensor `deliver` on in the Dagster UI. `leads-pipeline deliver status` lists
    the leads and says why. `leads-pipeline deliver retry` sends those that were given up or are held. After 410,
    nothing is sent until you run it.
    Over: when no lead waits for more than 15 minutes, and none is given up or held.
    """
    try:
        if Endpoint.of(known.settings) is None:
            return
    except (SettingsError, CredentialsError) as error:
        yield Found(Level.ERROR, f"No lead is delivered. {error}", "Correct the setting. Then restart the service.")
        return
    with looked_at(known.data.folder) as ledger:
        if ledger is None:
            return
        counts, oldest = ledger.counts(), ledger.oldest_waiting()
        trouble, gone = ledger.fact("trouble"), ledger.fact("gone")
        neglected = is_neglected(known.data, ledger, known.now, _LATE)
    if gone or (oldest and known.now - oldest >= _LATE):
        why = f"The endpoint {trouble}." if trouble else "Nobody sends them: does the service run?"
        yield Found(
            Level.ERROR,
            f"{_versions(counts[VersionState.WAITING])} wait to be delivered. {why.replace('..', '.')}",
            "Run `leads-pipeline deliver retry` once the endpoint is there again."
            if gone
            else "Correct the endpoint. `leads-pipeline deliver --now` shows what it answers.",
            datetime.fromisoformat(gone) if gone else oldest,
            may_pass=not gone,
        )
    elif neglected:
        lock = known.data.state.path / "locks" / "delivery.lock"
        yield Found(
            Level.ERROR,
            "Nobody looks for new leads to deliver.",
            "See that the service runs, and that the sensor `deliver` is on. If a `deliver` hangs, end it: "
            f"`fuser {lock}` names its process.",
            known.data.state.landed_at(),
            may_pass=True,
        )
    if dead := counts[VersionState.DEAD]:
        yield Found(
            Level.ERROR,
            f"{_versions(dead)} did not reach your own system within three days.",
            "`leads-pipeline deliver status` says why. Then run `leads-pipeline deliver retry`.",
            part="given-up",
        )
    if held := counts[VersionState.HELD]:
        yield Found(
            Level.WARNING,
            f"{_versions(held)} lack a contact that an earlier version has, and are not delivered.",
            "`leads-pipeline deliver status` lists them. `leads-pipeline deliver retry` delivers them.",
            part="held",
        )


def _versions(count: int) -> str:
    return f"{counted(count, 'version')} of leads"
