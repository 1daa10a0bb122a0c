"""The wiring: settings into resources, assets, jobs and schedules.

Belongs here: what exists in the code location that Dagster loads. Doesn't: what an asset does
(orchestration/raw_leads.py, orchestration/warehouse.py), how the command line runs it
(orchestration/runs.py).
"""

import logging
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from dagster import (
    AssetKey,
    AssetsDefinition,
    BetaWarning,
    Definitions,
    definitions,
    in_process_executor,
)

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.errors import SettingsError
from leads_pipeline.extensions import brought
from leads_pipeline.features.publication_steps import bring_up_to_date
from leads_pipeline.orchestration.asking import Asking
from leads_pipeline.orchestration.catalog import with_conventions
from leads_pipeline.orchestration.jobs import asset_job
from leads_pipeline.orchestration.names import PLAIN, PUBLISH_JOB, PULL_JOB, SERVED, Names
from leads_pipeline.orchestration.partitions import Partitions
from leads_pipeline.orchestration.publish_sensor import inputs_of, publish_sensor
from leads_pipeline.orchestration.raw_leads import raw_leads_asset
from leads_pipeline.orchestration.resources import DataFolderResource, LeadsService
from leads_pipeline.orchestration.warehouse import warehouse_asset
from leads_pipeline.raw.data_folder import first_day
from leads_pipeline.raw.durable import forgo_core_dumps
from leads_pipeline.settings import Settings, filled_in

logger = logging.getLogger(__name__)

_PULL: Final = "Pull both kinds of leads: days x scopes."
_PUBLISH: Final = (
    "Publish what has landed in leads.duckdb, then write the report. Follows the pulls by itself."
)


def build_definitions(
    variables: Mapping[str, str], *, key_prefix: str | Sequence[str] | None = None
) -> Definitions:
    """Return everything that Dagster needs, for the settings in `variables`.

    They have the names of environment variables. A missing service is no error here: the code
    location loads, and the assets that need it say what to set.

    With a `key_prefix`, the definitions are a guest in somebody else's code location. Keys of
    assets begin with it, and so do the names of groups, jobs, schedules, sensors, resources and the
    pool. No executor is set, and no schedule or sensor runs before somebody starts it.
    LEADS_DATA_DIR has to be an absolute path. Merge them with your own: `Definitions.merge(own,
    leads)`.

    Raises SettingsError for a value that can't be right.
    """
    settings = Settings.from_variables(variables)
    if key_prefix is None:
        return _build(settings, PLAIN)

    _want_absolute_folder(variables, settings)
    return _build(settings, Names.of(key_prefix))


def _want_absolute_folder(variables: Mapping[str, str], settings: Settings) -> None:
    """Raise SettingsError if the data folder depends on where a process was started.

    Not later than at the load: partitions begin with the day that the data folder remembers.
    """
    name = settings.folder_variable
    folder = Path(variables.get(name, "").strip())
    if not folder.expanduser().is_absolute():
        raise SettingsError(
            f"Set {name} to an absolute path. The processes of your Dagster may start in different "
            "folders, and each would work with a data folder of its own."
        )


@definitions
def defs() -> Definitions:
    """The code location, for `workspace.yaml` and `dg`. Dagster's code server and each run call it.

    Schedules and sensors run by themselves in `serve` and `dev` alone.
    """
    forgo_core_dumps()
    environment = filled_in(os.environ)
    if "DAGSTER_HOME" not in environment:
        logger.warning(
            "DAGSTER_HOME is not set, so Dagster forgets all runs when it ends. Use "
            "`leads-pipeline dev`, or set DAGSTER_HOME to the absolute path of .dagster in the "
            "data folder."
        )
    return _build(Settings.from_variables(environment), Names(is_served=SERVED in environment))


def _build(settings: Settings, names: Names) -> Definitions:
    with warnings.catch_warnings():
        # Backfill policies are what makes 15,000 windows one run; Dagster has called them beta for
        # years.
        warnings.simplefilter("ignore", BetaWarning)
        return _wired(settings, names)


def _wired(settings: Settings, names: Names) -> Definitions:
    first = first_day(settings)
    partitions = Partitions.of(settings, first)
    # Loading the code location writes nothing. The first run or sensor remembers the first day, so
    # that the partitions stay the same.
    data = DataFolderResource.of(settings, None if settings.start_date else first)

    raw_leads = [raw_leads_asset(kind, settings, partitions, names) for kind in LEAD_KINDS]
    of_features = [of_feature(names) for of_feature in brought("published_asset")]
    published = [warehouse_asset(settings, partitions, bring_up_to_date, names), *of_features]
    assets = [*raw_leads, *published]
    added = [of_feature(settings, names) for of_feature in brought("definitions")]

    asking = Asking(settings, first, names=names, assets=_made_by_runs(assets, added))
    others = [spec for of_feature in brought("assets") for spec in of_feature(settings, names)]
    core = Definitions(
        assets=with_conventions([*assets, *others], settings, names),
        resources={
            names.name("data"): data,
            names.name("leads"): LeadsService.of(settings, data),
        },
        jobs=[
            asset_job(PULL_JOB, raw_leads, names, _PULL, is_last_in_queue=True),
            asset_job(PUBLISH_JOB, published, names, _PUBLISH, is_last_in_queue=False),
        ],
        schedules=asking.schedules(),
        sensors=[
            asking.sensor(),
            publish_sensor(
                settings.zone,
                partial(inputs_of, settings),
                names,
                is_bucket=settings.store is not None,
            ),
        ],
        # A process per step costs more than most steps (1.25 s a run against 2.5 s).
        executor=None if names.is_guest else in_process_executor,
    )
    return Definitions.merge(core, *added)


def _made_by_runs(
    assets: Iterable[AssetsDefinition], added: Iterable[Definitions]
) -> frozenset[AssetKey]:
    """Return the keys of all assets that our runs make."""
    keys = {key for asset in assets for key in asset.keys}
    for definitions_ in added:
        for asset in definitions_.assets or ():
            if isinstance(asset, AssetsDefinition):
                keys |= asset.keys
    return frozenset(keys)
