"""Jobs: assets of ours that are made together.

Belongs here: how a job selects its assets, and its tags. Doesn't: which jobs there are
(definitions.py, features/).
"""

from collections.abc import Sequence
from typing import Any, Final

from dagster import AssetsDefinition, AssetSelection, define_asset_job

from leads_pipeline.orchestration.asking import LAST_IN_QUEUE
from leads_pipeline.orchestration.names import Names

# Windows that are due are asked for again (domain/due.py). Dagster would retry refused ones for
# ever.
_TAGS: Final = {"dagster/max_retries": "0"}


def asset_job(
    job: str,
    assets: Sequence[AssetsDefinition],
    names: Names,
    description: str,
    *,
    is_last_in_queue: bool,
) -> Any:  # the type of Dagster's jobs of assets is private
    """Return the job of these assets.

    `is_last_in_queue`: a person's backfill has many runs, and what schedules and sensors ask for
    comes before them. They bring a higher priority.
    """
    priority = LAST_IN_QUEUE if is_last_in_queue else {}
    return define_asset_job(
        names.name(job),
        # By keys: a group of the same name may hold assets of somebody else.
        AssetSelection.assets(*assets),
        description=description,
        tags={**_TAGS, **priority, **names.run_tags},
    )
