"""What `doctor` asks if a bucket has the data."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dagster import DagsterInstance

from leads_pipeline.errors import SettingsError
from leads_pipeline.features.bucket.proof import prove
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.seen import Doubt, Seen, ask
from leads_pipeline.orchestration.raw_leads import PORTAL_POOL
from leads_pipeline.raw.store import Store

# The portal's clock may differ from this machine's by that much, too.
_CLOCK_WARN_SECONDS: Final = 30


def questions(facts: Facts) -> Iterator[Seen]:
    """Ask whether Dagster runs one pull at a time, and whether the bucket can be used."""
    bucket = facts.data.bucket
    if bucket is not None:
        yield ask("Dagster pool", lambda: _pool(facts.settings.dagster_folder))
        yield ask("object store", lambda: _state_of_store(facts, bucket))


def _pool(home: Path) -> str:
    """Without a bucket, pulls take turns by a lock of the machine."""
    os.environ["DAGSTER_HOME"] = str(home)  # our own dagster.yaml names it
    try:
        limit = _limit_of_pulls(home)
    except SettingsError as error:  # pulls may work all the same
        raise Doubt(str(error)) from None
    if limit == 1:
        return "Dagster runs one pull at a time."

    has = "has no limit" if limit is None else f"has the limit {limit}"
    raise Doubt(
        f"Dagster's pool {PORTAL_POOL} {has}. Two machines that pull at once don't know when the "
        f"portal asks the other one to slow down. Run `DAGSTER_HOME={home} dagster instance "
        f"concurrency set {PORTAL_POOL} 1`, or set it in the UI: Deployment > Concurrency. In "
        "dagster.yaml, `concurrency: {pools: {default_limit: 1}}` sets it for all pools."
    )


def _limit_of_pulls(home: Path) -> int | None:
    """Return the limit of the pool of pulls in this Dagster home, None if it has none.

    Raises SettingsError if it can't be read.
    """
    if not (home / "dagster.yaml").is_file():
        raise SettingsError(
            f"{home} has no dagster.yaml yet. `leads-pipeline serve` writes one. If another "
            "Dagster runs the pulls, set DAGSTER_HOME to its home and run this again."
        )

    try:
        with DagsterInstance.from_config(str(home)) as instance:
            limits = {one.name: one.limit for one in instance.event_log_storage.get_pool_limits()}
            default = instance.get_concurrency_config().pool_config.default_pool_limit
    except Exception as error:  # noqa: BLE001 - of any storage. Its message may quote a password
        raise SettingsError(
            f"Dagster's state in {home} can't be read ({type(error).__name__}). Start Dagster "
            "there to see why."
        ) from None

    return limits.get(PORTAL_POOL, default)


def _state_of_store(facts: Facts, store: Store) -> str:
    """Try the bucket out, exchange what machines agree on, and compare the clocks.

    Raises SettingsError if folder and bucket contradict each other.
    """
    seconds = round(prove(store).total_seconds())
    facts.data.exchange_with_bucket()
    if abs(seconds) > _CLOCK_WARN_SECONDS:
        raise Doubt(
            f"The clocks of {store.address} and of this machine are {abs(seconds)} s apart. Set "
            "both by NTP. Of two machines, the one that is ahead would have the newer leads."
        )
    return f"{store.address} can be written to and read."
