"""What is wrong with the inventory."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from leads_pipeline.domain.moments import has_passed
from leads_pipeline.features.inventory.searches import Inventory
from leads_pipeline.features.inventory.settings import InventorySettings
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.finding import Finding, Level, finder
from leads_pipeline.raw.starting import how_to_start
from leads_pipeline.words import moment

_OLDEST: Final = timedelta(hours=27)


@finder("inventory")
def inventory(facts: Facts) -> Iterator[Finding]:
    """Today's inventory was not pulled.

    Meaning: a day's inventory can be pulled on that day alone. Without a pull, listings of this day
    stay unknown.
    Do: see what the last run of `pull_inventory` says in the Dagster UI. `leads-pipeline backfill
    --last 1d --kind inventory` pulls it now.
    Over: when a search succeeds.
    """
    if facts.settings.of(InventorySettings).reason_against:
        return
    searched_at = Inventory.of(facts.data).searched_at()
    since = searched_at or facts.data.state.opened_at()
    if since is None or not has_passed(_OLDEST, since, facts.now):
        return

    last = (
        f"The last inventory is from {moment(searched_at)}."
        if searched_at
        else "No inventory was ever pulled."
    )
    command = "leads-pipeline backfill --last 1d --kind inventory"
    pull = how_to_start(facts.data.state, "pull_inventory", command, str(facts.today))
    yield Finding(
        Level.WARNING,
        f"{last} The portal has today's until midnight only.",
        f"{pull}: it pulls the inventory, or says why it can't.",
        since,
    )
