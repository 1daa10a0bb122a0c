"""Findings about leads on their way: pushes of the portal, and deliveries to the agency's own endpoint.

Belongs here: the finders that look at the receiver and at the ledger of deliveries. Doesn't: the other finders
(findings.py).
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

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

    Meaning: `leads-pipeline receive` has not run for more than 20 hours. The portal no longer repeats the pushes that
    failed. These leads come with the nightly pull, later than by push. Pushes of branches that aren't configured come
    by push alone: they are lost.
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

    Meaning: the endpoint of LEADS_DELIVERY_URL fails or refuses, or the sensor `deliver` is off. Every lead waits and
    is sent again, for three days.
    Do: do what the message says about the endpoint. Switch the sensor `deliver` on in the Dagster UI. After 410, run
    `leads-pipeline deliver retry`: nothing is sent until then. `leads-pipeline deliver --now` sends at once.
    Over: when no lead waits for more than 15 minutes.
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
        waiting, oldest = ledger.counts()[VersionState.WAITING], ledger.oldest_waiting()
        trouble, gone = ledger.fact("trouble"), ledger.fact("gone")
    if not gone and (oldest is None or known.now - oldest < _LATE):
        return
    what = f"{counted(waiting, 'version')} of leads wait to be delivered."
    why = f"The endpoint {trouble}." if trouble else "Nobody sends them: does the service run?"
    yield Found(
        Level.ERROR,
        f"{what} {why.replace('..', '.')}",
        "Run `leads-pipeline deliver retry` once the endpoint is there again."
        if gone
        else "Correct the endpoint. `leads-pipeline deliver --now` shows what it answers.",
        datetime.fromisoformat(gone) if gone else oldest,
        may_pass=not gone,
    )


@finder("delivery-given-up")
def delivery_given_up(known: Known) -> Iterator[Found]:
    """Leads were given up.

    Meaning: the endpoint did not take these leads for three days, so they are no longer sent. If a lead
    changes, its new version is sent. No lead is lost: all are in `leads.duckdb`.
    Do: see why with `leads-pipeline deliver status`. Mostly the endpoint refuses something in the lead. Once it is
    corrected, run `leads-pipeline deliver retry`. It also sends leads that are held.
    Over: when they are delivered.
    """
    if count := _count(known, VersionState.DEAD):
        yield Found(
            Level.ERROR,
            f"{counted(count, 'version')} of leads did not reach your own system within three days.",
            "`leads-pipeline deliver status` says why. Then run `leads-pipeline deliver retry`.",
        )


@finder("delivery-held")
def delivery_held(known: Known) -> Iterator[Found]:
    """Leads are held, because the portal emptied their contact.

    Meaning: the newest version lacks an address, a number or a name that an earlier one has. Your own system would lose
    it, so this version is not delivered. Perhaps the portal did so by mistake.
    Do: see which leads they are with `leads-pipeline deliver status`. If the person asked the portal for it, run
    `leads-pipeline deliver retry`.
    Over: when they are delivered, or a newer version is.
    """
    if count := _count(known, VersionState.HELD):
        yield Found(
            Level.WARNING,
            f"{counted(count, 'version')} of leads lack a contact that an earlier version has, and are not delivered.",
            "`leads-pipeline deliver status` lists them. `leads-pipeline deliver retry` delivers them.",
        )


def _count(known: Known, state: VersionState) -> int:
    if known.settings.delivery_url is None:
        return 0
    with looked_at(known.data.folder) as ledger:
        return ledger.counts()[state] if ledger else 0
