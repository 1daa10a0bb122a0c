"""The finder of pushes."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from leads_pipeline.domain.moments import has_passed
from leads_pipeline.features.pushes.settings import PushSettings
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.finding import Finding, Level, finder

# Under this name, the data folder remembers when `receive` last worked on this machine.
SEEN: Final = "receiver"

# The portal tries a push again for 24 hours. Four of them are left to start the receiver.
_LONGEST_RECEIVER_PAUSE: Final = timedelta(hours=20)


@finder("receiver")
def receiver(facts: Facts) -> Iterator[Finding]:
    """Nobody takes the leads that the portal pushes.

    Meaning: `leads-pipeline receive` has not run for more than 20 hours. The portal gives up a push
    after 24 hours. Then its lead comes with the daily pull. Leads of branches that aren't
    configured come by push alone: they are lost.
    Do: start `leads-pipeline receive` again, on a server `systemctl restart
    leads-pipeline-receive`. If the portal pushes nothing any more, remove LEADS_RECEIVE_KEY.
    Over: when it runs.
    """
    seen_at = facts.data.state.touched_at(SEEN)
    has_key = facts.settings.of(PushSettings).receive_key is not None
    if has_key and seen_at and has_passed(_LONGEST_RECEIVER_PAUSE, seen_at, facts.now):
        yield Finding(
            Level.ERROR,
            "`leads-pipeline receive` has not run for more than 20 hours. The portal gives up a "
            "push after 24 hours, and its lead comes with the daily pull.",
            "Start `leads-pipeline receive`.",
            seen_at,
        )
