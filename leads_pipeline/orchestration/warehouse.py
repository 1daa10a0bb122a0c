"""The assets of leads.duckdb, which one run publishes together.

Belongs here: what a run publishes, checks and records. Doesn't: the publication
(publication_steps.py), when it runs (publish_sensor.py), what the catalog says of each table
(catalog.py).
"""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from dagster import (
    AssetCheckResult,
    AssetExecutionContext,
    AssetMaterialization,
    AssetsDefinition,
    Failure,
    MaterializeResult,
    multi_asset,
)

from leads_pipeline.errors import LeadsPipelineError, SettingsError
from leads_pipeline.extensions import brought
from leads_pipeline.orchestration.catalog import mart_spec, table_spec
from leads_pipeline.orchestration.checks import failure, published_check_specs, published_checks
from leads_pipeline.orchestration.names import PLAIN, Names
from leads_pipeline.orchestration.night import Night, work_of_night
from leads_pipeline.orchestration.partitions import Partitions
from leads_pipeline.orchestration.publish_sensor import (
    NIGHTLY_TAG,
    delete_old_runs,
    inputs_of,
    noted_publication,
)
from leads_pipeline.raw.branches import Branches, read_branches
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.settings import Settings
from leads_pipeline.warehouse.contents import other_tables
from leads_pipeline.warehouse.duck import literal, quoted
from leads_pipeline.warehouse.marts import marts
from leads_pipeline.warehouse.publication import PublicationSettings
from leads_pipeline.warehouse.published import Edition, LeadsFile
from leads_pipeline.warehouse.step import Publication
from leads_pipeline.warehouse.tables import lead_tables

# Publishes what has landed: features/publication_steps.py.
BringUpToDate = Callable[[DataFolder, PublicationSettings, datetime], Publication]


def warehouse_asset(
    settings: Settings,
    partitions: Partitions,
    bring_up_to_date: BringUpToDate,
    names: Names = PLAIN,
) -> AssetsDefinition:
    """One asset per table and mart, from one publication."""
    tables = [*lead_tables(), *other_tables()]
    specs = [
        *(table_spec(table, names) for table in tables),
        *(mart_spec(mart, names) for mart in marts()),
    ]

    @multi_asset(
        name=names.name("warehouse"),
        specs=specs,
        check_specs=published_check_specs(names),
        required_resource_keys={names.name("data")},
    )
    def warehouse(
        context: AssetExecutionContext,
    ) -> Iterator[MaterializeResult[None] | AssetMaterialization | AssetCheckResult]:
        data: DataFolder = names.resource(context.resources, "data")
        is_nightly = NIGHTLY_TAG in context.run.tags
        now = datetime.now(UTC)

        night = Night()

        try:
            if is_nightly:
                night = work_of_night(data, settings, now, brought("night"))
            with noted_publication(
                data, settings.zone, partial(inputs_of, settings), is_nightly=is_nightly
            ):
                publication = _publish(context, data, settings, partitions, bring_up_to_date)
                yield from _records(LeadsFile(data), publication, names)
                # Within the block: it counts as failed, so that it is tried again.
                _fail_if_something_is_as_before(publication)
        except LeadsPipelineError as error:
            raise failure("leads.duckdb could not be published", error, "publication") from None
        finally:
            if is_nightly:
                delete_old_runs(context.instance, now, names)
                _log_night(night, context)

        _fail_if_night_left_work(night)

    return warehouse


def _publish(
    context: AssetExecutionContext,
    data: DataFolder,
    settings: Settings,
    partitions: Partitions,
    bring_up_to_date: BringUpToDate,
) -> Publication:
    """Bring leads.duckdb up to date, and log what was done."""
    context.log.info("Publishing leads.duckdb.")
    began = time.monotonic()
    data.exchange_with_bucket()
    of_publication = PublicationSettings(
        scopes=settings.scopes,
        first_day=partitions.first_day,
        zone=settings.zone,
        branches=branches_or_published_ones(settings.branches_file, LeadsFile(data)),
        installation=settings,
    )
    # A fetch from after this moment would count as one of the future.
    publication = bring_up_to_date(data, of_publication, datetime.now(UTC))

    for what, why in publication.problems.items():
        context.log.error("Not done, although leads.duckdb is published: %s. %s", what, why)

    context.log.info(
        "Published leads.duckdb (%s): %s windows and %s leads changed, %.1f MB, in %.1f s.",
        publication.way,
        publication.windows,
        publication.leads,
        LeadsFile(data).path.stat().st_size / 1e6,
        time.monotonic() - began,
    )
    return publication


def _records(
    file: LeadsFile, publication: Publication, names: Names
) -> Iterator[MaterializeResult[None] | AssetMaterialization | AssetCheckResult]:
    """Yield what Dagster records: each table and its rows, tables of one's own, and the checks."""
    of_publication: dict[str, str | int] = {
        "way": publication.way,
        "windows_changed": publication.windows,
        "leads_changed": publication.leads,
        "file_bytes": file.path.stat().st_size,
    }
    with file.reading() as db:
        rows = {name: {"dagster/row_count": count} for name, count in _row_counts(db).items()}
        for table in (*lead_tables(), *other_tables(), *marts()):
            metadata = {**of_publication, **rows.get(table.name, {})}
            yield MaterializeResult(asset_key=names.key(table.name), metadata=metadata)
        for of_feature in brought("made_tables"):
            for name in of_feature(db):
                yield AssetMaterialization(names.key(name), metadata=rows[name])
        yield from published_checks(db, names)


def _fail_if_something_is_as_before(publication: Publication) -> None:
    """Raise Failure if something that is made from leads.duckdb isn't made."""
    if publication.as_before:
        left = " ".join(
            f"{what} are as before. {why}" for what, why in publication.as_before.items()
        )
        raise Failure(f"leads.duckdb is published, and {left}", allow_retries=False)


def branches_or_published_ones(path: Path | None, file: LeadsFile) -> Branches:
    """Return the names of the branches.

    If the file can't be read, which is a finding, the published names stay.
    """
    try:
        return read_branches(path)
    except SettingsError:
        try:
            (_, _, _, *columns), rows = file.query("from branches where name <> scope")
        except LeadsPipelineError:  # nothing is published yet, or by a version that knew no names
            return Branches()
        names = {scope: name for scope, _, name, *_ in rows}
        return Branches(names, tuple(columns), {scope: tuple(more) for scope, _, _, *more in rows})


def _row_counts(db: Edition) -> dict[str, int]:
    """Count the rows of each table. To count those of a view takes seconds."""
    _, tables = db.query("select table_name from duckdb_tables() where schema_name = 'main'")
    counts = [f"select {literal(name)}, count(*) from {quoted(name)}" for (name,) in tables]  # noqa: S608 - quoted
    return dict(db.query(" union all ".join(counts))[1]) if counts else {}


def _log_night(night: Night, context: AssetExecutionContext) -> None:
    """Say what the night did."""
    context.log.info(
        "The night's work: %s", ", ".join(f"{name} {count}" for name, count in night.counts.items())
    )
    for warning in night.warnings:
        context.log.warning(warning)


def _fail_if_night_left_work(night: Night) -> None:
    """Raise Failure if something is left to do, although leads.duckdb is published."""
    if night.troubles:
        raise Failure(
            f"leads.duckdb is published. Tasks of the night that failed: {len(night.troubles)}. "
            f"The next night tries them again. {night.troubles[0]}",
            metadata={**night.counts, "troubles": night.troubles},
            allow_retries=False,
        )
