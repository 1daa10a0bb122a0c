"""The machine of machine.py with Dagster's own engine: nothing of a run, a staging or a publication is replaced.

Belongs here: runs that Dagster executes, and its own evaluation of the conditions by which staging and publication
follow. So that the weeks of machine.py, which replaces both to save time, are compared with what it stands for.
"""

import uuid
import warnings
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final

from dagster import AssetKey, BetaWarning, RunRequest, build_sensor_context
from dagster._core.definitions.automation_condition_sensor_definition import (
    AutomationConditionSensorDefinition,
    _evaluate,
)

from leads_pipeline.definitions import PUBLISH_JOB, STAGE_JOB
from leads_pipeline.partitions import RANGE_END_TAG, RANGE_START_TAG, consecutive
from leads_pipeline_tests.chaos.machine import Machine

# Ticks in a row, until the conditions ask for nothing any more: staging, publication, and what follows those.
_TICKS: Final = 10


@dataclass(slots=True)
class Engine(Machine):
    """A machine whose runs Dagster executes, and whose staging and publication its conditions ask for."""

    # Its runs can't be killed halfway, and what is to be staged anew isn't for the test to say.
    IS_SPARED = frozenset({"kill", "upgrade"})

    _is_published: bool = False

    def run(
        self,
        job_name: str,
        tags: Mapping[str, str],
        selection: Collection[AssetKey] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> bool:
        """Have Dagster execute the job, in this process."""
        job = self._definitions.resolve_job_def(job_name)
        if selection:
            job = job.get_subset(asset_selection=set(selection))
        run_id = str(uuid.UUID(int=self.rng.getrandbits(128), version=4))
        self.portal.run = run_id
        self.runs += 1
        result = job.execute_in_process(
            run_id=run_id,
            instance=self.instance,
            tags=dict(tags),
            run_config={**(config or {}), "loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
            raise_on_error=False,
        )
        self._recorded += 1
        self._status.clear()
        return result.success

    def tick(self) -> None:
        """As the daemon does it: schedules and sensors, then what follows what they pulled.

        It has looked at the conditions since the last tick, every 30 seconds.
        """
        self.stage()
        Machine.tick(self)
        self.stage()

    def stage(self) -> None:
        """Run what the conditions ask for, until they ask for nothing."""
        sensor = self._repository.get_sensor_def("follow_sources")
        assert isinstance(sensor, AutomationConditionSensorDefinition)
        for _ in range(_TICKS):
            context = build_sensor_context(
                instance=self.instance,
                cursor=self._cursors.get(sensor.name),
                repository_def=self._repository,
                sensor_name=sensor.name,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", BetaWarning)
                said = _evaluate(sensor, context)
            self._cursors[sensor.name] = said.cursor
            if not said.run_requests:
                return
            for request in said.run_requests:
                self._execute(request)
            self.portal.now += timedelta(seconds=30)

    def _execute(self, request: RunRequest) -> None:
        """What the daemon makes of a request: a run for each stretch of days of the same assets, and one for the rest.

        It asks for several partitions by a backfill, which it cuts into such runs.
        """
        wanted: defaultdict[AssetKey, set[str | None]] = defaultdict(set)
        if request.asset_graph_subset is not None:
            for one in request.asset_graph_subset.iterate_asset_partitions():
                wanted[one.asset_key].add(one.partition_key)
        for key in request.asset_selection or ():
            wanted[key].add(request.partition_key)
        assets: defaultdict[frozenset[date], set[AssetKey]] = defaultdict(set)
        for key, partitions in wanted.items():
            assets[frozenset(date.fromisoformat(one) for one in partitions if one)].add(key)
        for days in sorted(assets, key=len, reverse=True):
            for first, last in consecutive(days):
                self.run(STAGE_JOB, {RANGE_START_TAG: str(first), RANGE_END_TAG: str(last)}, assets[days])
            if not days:
                self._is_published = self.run(PUBLISH_JOB, {}, assets[days])

    def publish(self) -> bool:
        """Whether the last publication succeeded; it has followed by itself."""
        return self._is_published and self.warehouse.exists()
