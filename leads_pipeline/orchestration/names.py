"""The names of one installation in Dagster.

Belongs here: names of assets, groups, jobs, schedules, sensors, resources and pools, and which runs
are the installation's own. Doesn't: what they do.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dagster import AssetKey, DagsterRun, DefaultScheduleStatus, DefaultSensorStatus

from leads_pipeline.errors import SettingsError

PULL_JOB: Final = "pull_leads"
PUBLISH_JOB: Final = "publish"

# The core's schedules and sensors without which leads would be late. `pull_hourly` isn't one of
# them.
NEEDED: Final = ("pull_daily", "retry_failed_partitions", "publish_changes")

# `serve` and `dev` set this variable for their processes. A company that loads the same code
# location doesn't have it, so nothing pulls there before somebody starts it.
SERVED: Final = "_LEADS_PIPELINE_IS_SERVED"

# Each run of a job of ours has it. In a Dagster that is shared with others, it tells our runs from
# theirs.
_TAG: Final = "leads_pipeline/installation"


@dataclass(frozen=True, slots=True)
class Names:
    """The names as the documentation has them, or with a prefix.

    With a prefix, the installation is a guest in somebody's code location, and nothing of it meets
    a name of theirs. `is_served`: schedules and sensors run by themselves. Otherwise none runs
    before somebody starts it.
    """

    prefix: tuple[str, ...] = ()
    is_served: bool = True

    @classmethod
    def of(cls, key_prefix: str | Sequence[str]) -> "Names":
        """Read a prefix of asset keys as Dagster takes it.

        Raises SettingsError if names can't begin with it.
        """
        parts = (key_prefix,) if isinstance(key_prefix, str) else tuple(key_prefix)
        for part in parts:
            if not re.fullmatch(r"[A-Za-z0-9_]+", part):
                raise SettingsError(
                    f"The key_prefix {part!r} can't be used, because names of jobs and resources "
                    "begin with it. Use letters, digits and underscores."
                )
        return cls(parts, is_served=False)

    @property
    def is_guest(self) -> bool:
        """Whether it has a prefix."""
        return bool(self.prefix)

    def name(self, name: str) -> str:
        """Return the name of a group, job, schedule, sensor, resource or pool."""
        return "_".join((*self.prefix, name))

    def resource(self, resources: object, name: str) -> Any:
        """Return one of the resources of a run or a tick. Its key in Dagster is `name(name)`."""
        return getattr(resources, self.name(name))

    def key(self, asset: str) -> AssetKey:
        """Return the key of an asset."""
        return AssetKey([*self.prefix, asset])

    @property
    def database(self) -> str:
        """Return the database in the names of tables.

        Dagster links assets whose tables have the same name.
        """
        return "_".join(self.prefix) or "leads"

    @property
    def schedule_status(self) -> DefaultScheduleStatus:
        """Whether a schedule that is on by default runs before anybody starts it."""
        return DefaultScheduleStatus.RUNNING if self.is_served else DefaultScheduleStatus.STOPPED

    @property
    def sensor_status(self) -> DefaultSensorStatus:
        """Whether a sensor that is on by default runs before anybody starts it."""
        return DefaultSensorStatus.RUNNING if self.is_served else DefaultSensorStatus.STOPPED

    @property
    def run_tags(self) -> dict[str, str]:
        """The tags of each run of a job.

        No prefix can be like the value of an installation without one.
        """
        return {_TAG: "_".join(self.prefix) or "no-prefix"}

    def is_own(self, run: DagsterRun, assets: Collection[AssetKey]) -> bool:
        """Whether the run is of one of our jobs, or materializes some of these assets alone."""
        is_of_job = self.run_tags.items() <= run.tags.items()
        materialized = run.asset_selection or frozenset()
        is_of_ours_alone = bool(materialized) and materialized <= frozenset(assets)
        return is_of_job or is_of_ours_alone


# In `serve` and `dev`.
PLAIN: Final = Names()
