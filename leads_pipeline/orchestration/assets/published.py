"""The tables and marts of leads.duckdb, published together.

Belongs here: what a run publishes, what the UI says of each table, the checks on the published file. Doesn't: the
publication (publication.py, transform/), when it runs (publishing.py), the marts' SQL (sql/).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from dagster import (
    AssetCheckResult,
    AssetExecutionContext,
    AssetMaterialization,
    AssetsDefinition,
    AssetSpec,
    Failure,
    MaterializeResult,
    ResourceParam,
    TableColumn,
    TableSchema,
    multi_asset,
)

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.errors import LeadsPipelineError, SettingsError
from leads_pipeline.orchestration.assets.checks import published_check_specs, published_checks
from leads_pipeline.orchestration.failing import failure
from leads_pipeline.orchestration.partitions import Partitions
from leads_pipeline.orchestration.publication import Outcome, Wanted, bring_up_to_date
from leads_pipeline.orchestration.publishing import NIGHTLY_TAG, delete_old_runs, noted_publication
from leads_pipeline.portal.http import server_time
from leads_pipeline.privacy.nightly import Night, keep_clean
from leads_pipeline.settings import Settings
from leads_pipeline.storage.branches import Branches, read_branches
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.transform.duck import quoted
from leads_pipeline.transform.marts import EVERY_LEAD, Mart, marts, other_tables
from leads_pipeline.transform.reading import LeadsFile, Version
from leads_pipeline.transform.tables import Table, lead_tables


def leads_file_asset(settings: Settings, partitions: Partitions) -> AssetsDefinition:
    """One asset per table and mart, from one publication."""
    tables = [*lead_tables(), *other_tables()]

    @multi_asset(
        name="warehouse",
        specs=[*(_table_spec(table) for table in tables), *(_mart_spec(mart, tables) for mart in marts())],
        check_specs=published_check_specs(),
    )
    def warehouse(
        context: AssetExecutionContext, data: ResourceParam[DataFolder]
    ) -> Iterator[MaterializeResult[None] | AssetMaterialization | AssetCheckResult]:
        now = datetime.now(UTC)
        file = LeadsFile(data)
        is_nightly = NIGHTLY_TAG in context.run.tags
        try:
            night = keep_clean(data, settings, now, server_time) if is_nightly else Night()
            branches = known_branches(settings.branches_file, file)
            data.share()
            with noted_publication(data, settings.zone, is_nightly=is_nightly):
                outcome = bring_up_to_date(data, wanted(settings, partitions, branches), now)
                for what, why in outcome.swept.failed.items():
                    context.log.error("The suppression list couldn't be applied to %s: %s", what, why)
                with file.reading() as db:
                    for name in (*(table.name for table in tables), *(mart.name for mart in marts())):
                        yield MaterializeResult(asset_key=name, metadata=_metadata(db, name, outcome))
                    yield from published_checks(db)
                if outcome.tables_trouble:
                    raise Failure(
                        "leads.duckdb is published, and the tables in data/tables are as before. "
                        f"{outcome.tables_trouble}",
                        allow_retries=False,
                    )
        except LeadsPipelineError as error:
            raise failure("leads.duckdb could not be published", error) from None
        if is_nightly:
            delete_old_runs(context.instance, now)
            _tell_of(night, context)

    return warehouse


def _tell_of(night: Night, context: AssetExecutionContext) -> None:
    """Say what the night did. Raises Failure if something is left to do, although leads.duckdb is published."""
    context.log.info("The night's work: %s", ", ".join(f"{name} {count}" for name, count in night.counts.items()))
    if night.came_back:
        context.log.warning(
            "Leads of people who were erased were in the data folder again, and were taken out. Was a backup restored? "
            "Then look into quarantine/, where the list can't look."
        )
    if night.troubles:
        raise Failure(
            f"leads.duckdb is published. {len(night.troubles)} things of the night couldn't be done, and the next "
            f"night tries again. {night.troubles[0]}",
            metadata={**night.counts, "troubles": night.troubles},
            allow_retries=False,
        )


def wanted(settings: Settings, partitions: Partitions, branches: Branches) -> Wanted:
    """What these settings want published."""
    return Wanted(
        settings.scopes,
        partitions.first_day,
        settings.zone,
        branches,
        settings.tables,
    )


def known_branches(path: Path | None, file: LeadsFile) -> Branches:
    """What the branches are called. If the file can't be read, which is a finding, the published names stay.

    A slip in a list of names holds no lead back.
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


def _metadata(db: Version, name: str, outcome: Outcome) -> Mapping[str, TableSchema | int | str]:
    is_table = db.query(
        "select 1 from duckdb_tables() where schema_name = 'main' and table_name = $name", {"name": name}
    )[1]
    rows = db.query(f"select count(*) from {quoted(name)}")[1][0][0] if is_table else None  # noqa: S608 - our own name
    _, columns = db.query(
        "select column_name, data_type, comment from duckdb_columns() "
        "where schema_name = 'main' and table_name = $name order by column_index",
        {"name": name},
    )
    publication = outcome.publication
    return {
        # Which types the columns of a mart have follows from its statement.
        "dagster/column_schema": TableSchema([TableColumn(*column) for column in columns]),
        # To count a view's rows takes seconds.
        **({} if rows is None else {"dagster/row_count": rows}),
        "way": publication.way if publication else "unchanged",
        "windows_changed": publication.windows if publication else 0,
        "leads_changed": publication.leads if publication else 0,
        "file_bytes": outcome.size_bytes,
    }


def _table_spec(table: Table) -> AssetSpec:
    others = {"inventory": ["raw_inventory"], "drift": [of_leads.name for of_leads in lead_tables()]}
    kinds = [kind for kind in LEAD_KINDS if table.name in kind.tables] or LEAD_KINDS
    return AssetSpec(
        table.name,
        deps=others.get(table.name, [f"raw_{kind.table}" for kind in kinds]),
        description=f"{table.description}. A table of leads.duckdb.",
        group_name="warehouse",
        kinds={"duckdb"},
        metadata={
            "dagster/column_schema": TableSchema(
                [TableColumn(column.name, column.type.upper(), column.description) for column in table.columns]
            )
        },
    )


def _mart_spec(mart: Mart, tables: Sequence[Table]) -> AssetSpec:
    words = set(re.findall(r"\w+", mart.statement))
    read = (words & {*(table.name for table in tables), *(other.name for other in marts())}) - {mart.name}
    if EVERY_LEAD in words:
        read |= {kind.table for kind in LEAD_KINDS}
    if not read:  # it reads what is known of the windows
        read = {f"raw_{kind.table}" for kind in LEAD_KINDS}
    return AssetSpec(
        mart.name,
        deps=sorted(read),
        description=f"{mart.description}\n\nA {'table' if mart.is_by_day else 'view'} of leads.duckdb.",
        group_name="marts",
        kinds={"duckdb", "sql"},
        metadata={
            "dagster/column_schema": TableSchema(
                # Each publication shows their types.
                [TableColumn(name, "", description) for name, description in mart.columns.items()]
            )
        },
    )
