"""The sensor that asks for publications, and the notes that it decides by.

Belongs here: when leads.duckdb is published, and which of these runs Dagster forgets. Doesn't:
publishing (publication_steps.py), how long to wait (raw/publications.py).
"""

import hashlib
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Final
from zoneinfo import ZoneInfo

import msgspec
from dagster import (
    DagsterInstance,
    RunRequest,
    RunsFilter,
    SensorDefinition,
    SensorEvaluationContext,
    SkipReason,
    sensor,
)

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.domain.window import today
from leads_pipeline.extensions import brought
from leads_pipeline.orchestration.asking import FINISHED, is_under_way, utc_now
from leads_pipeline.orchestration.names import PLAIN, PUBLISH_JOB, Names
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.names import RAW
from leads_pipeline.raw.publications import NIGHT, NOTING, Publications
from leads_pipeline.settings import Settings
from leads_pipeline.warehouse.editions import Editions
from leads_pipeline.warehouse.unpublished import recent_days

# Marks the run of the night, which also sweeps, applies retention and deletes old runs.
NIGHTLY_TAG: Final = "leads_pipeline/nightly"

FOLDER_SECONDS: Final = 30
BUCKET_SECONDS: Final = 300

RUNS_KEPT_FOR: Final = timedelta(days=3)
NIGHTS_KEPT_FOR: Final = timedelta(days=90)


def landed_mark(data: DataFolder, now: datetime, inputs: Callable[[], str]) -> str:
    """Return a text that changes if something lands, or `inputs` do.

    It is empty if nothing has landed in a folder.
    """
    if data.bucket is None:
        landed_at = data.state.landed_at()
        landed = landed_at.isoformat() if landed_at else ""
    else:  # another machine may land, too
        folders = (
            f"{RAW}/{kind.table}/day={day}/" for kind in LEAD_KINDS for day in recent_days(now)
        )
        names = "\n".join(name for folder in folders for name in data.store.list(folder))
        landed = hashlib.sha256(names.encode()).hexdigest()
    return f"{landed} {inputs()}".strip() if landed else ""


def inputs_of(settings: Settings) -> str:
    """Return a text that changes with what features publish, besides what lands."""
    inputs = [of_feature(settings) for of_feature in brought("inputs")]
    return " ".join(filter(None, inputs))


@contextmanager
def noted_publication(
    data: DataFolder,
    zone: ZoneInfo,
    inputs: Callable[[], str] = lambda: "",
    *,
    is_nightly: bool,
    clock: Callable[[], datetime] = utc_now,
) -> Iterator[None]:
    """Remember how the publication in this block went. One that is killed counts as failed."""
    with data.state.alive(NOTING):
        began_at = clock()
        before = Publications.read(data.state.path)
        mark = landed_mark(data, began_at, inputs)
        written = _written_bytes()
        msgspec.structs.replace(before, began_at=began_at, failures=before.failures + 1).write(
            data.state.path
        )
        yield
        nightly_on = today(zone, began_at - NIGHT) if is_nightly else before.nightly_on
        after = Publications(
            began_at=began_at, published_at=began_at, mark=mark, nightly_on=nightly_on
        )
        msgspec.structs.replace(after, written_bytes=_written_bytes() - written).write(
            data.state.path
        )


def _written_bytes() -> int:
    """Return what this process has written to disks."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_oublock * 512


def publish_sensor(
    zone: ZoneInfo,
    inputs: Callable[[], str],
    names: Names = PLAIN,
    *,
    is_bucket: bool,
    clock: Callable[[], datetime] = utc_now,
) -> SensorDefinition:
    """Return `publish_changes`."""

    @sensor(
        name=names.name("publish_changes"),
        job_name=names.name(PUBLISH_JOB),
        required_resource_keys={names.name("data")},
        minimum_interval_seconds=BUCKET_SECONDS if is_bucket else FOLDER_SECONDS,
        default_status=names.sensor_status,
        description=(
            "Publishes leads.duckdb when something has landed, LEADS_MARTS_DIR has changed or the "
            "suppression list has grown, at most once a minute, and once a night. On ext4, a file "
            "of 110 MB is published every 16 minutes, and a large one every four hours. So "
            "publications of up to 4 million leads write at most 10 GB a day. Makes the file anew "
            "if it is gone, or if another program wrote to it. A publication that failed is tried "
            "again after 10 minutes, then less often, down to once an hour."
        ),
    )
    def publish_changes(context: SensorEvaluationContext) -> RunRequest | SkipReason:
        data: DataFolder = names.resource(context.resources, "data")
        if is_under_way(context.instance, PUBLISH_JOB, names):
            return SkipReason("A publication is under way.")

        now = clock()
        last = Publications.read(data.state.path)
        mark = landed_mark(data, now, inputs)
        is_nightly = last.is_night_due(zone, now)
        is_as_published = Editions(data.folder).is_as_published()
        next_at = last.next_at(is_urgent=is_nightly or not is_as_published)

        if not mark and next_at is None:
            return SkipReason("Nothing has landed yet.")
        if is_as_published and mark == last.mark and not last.failures and not is_nightly:
            return SkipReason("Nothing has landed since the last publication.")

        if next_at is not None and last.began_at is not None and last.began_at <= now < next_at:
            what = "failed" if last.failures else f"began at {last.began_at:%H:%M:%S} UTC"
            return SkipReason(
                f"The last publication {what}. The next one is at {next_at:%H:%M:%S} UTC."
            )

        return RunRequest(
            run_key=f"publish-{now:%Y-%m-%dT%H:%MZ}",
            tags={NIGHTLY_TAG: "true"} if is_nightly else {},
        )

    return publish_changes


def delete_old_runs(instance: DagsterInstance, now: datetime, names: Names = PLAIN) -> int:
    """Delete old runs of publications, and return how many.

    Runs of nights are kept for 90 days, the others for three. A publication each minute adds 0.9 GB
    a day to Dagster's database. Partitions need runs of pulls, which stay.
    """
    finished = partial(RunsFilter, job_name=names.name(PUBLISH_JOB), statuses=FINISHED)
    old = instance.get_run_ids(finished(tags=names.run_tags, created_before=now - RUNS_KEPT_FOR))
    of_nights = {**names.run_tags, NIGHTLY_TAG: "true"}
    nights = instance.get_run_ids(finished(tags=of_nights, created_after=now - NIGHTS_KEPT_FOR))
    to_delete = {*old}.difference(nights)

    for run_id in to_delete:
        instance.compute_log_manager.delete_logs(prefix=[run_id])
        instance.delete_run(run_id)

    return len(to_delete)
