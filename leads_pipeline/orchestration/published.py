"""The tables and marts of leads.duckdb, published together, and the report that is made of them.

Belongs here: what a run publishes and checks, and what the UI says of each table. Doesn't: the publication
(publication.py, transform/), when it runs (publishing.py), the marts' SQL (sql/), the page (transform/report/).
"""

import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dagster import (
    AssetCheckResult,
    AssetExecutionContext,
    AssetMaterialization,
    AssetsDefinition,
    AssetSpec,
    Failure,
    MaterializeResult,
    MetadataValue,
    ResourceParam,
    TableColumn,
    TableColumnDep,
    TableColumnLineage,
    TableSchema,
    asset,
    multi_asset,
)

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.errors import LeadsPipelineError, SettingsError
from leads_pipeline.orchestration.checks import published_check_specs, published_checks
from leads_pipeline.orchestration.conventions import OWN, code_reference
from leads_pipeline.orchestration.failing import failure
from leads_pipeline.orchestration.partitions import Partitions
from leads_pipeline.orchestration.publication import Wanted, bring_up_to_date
from leads_pipeline.orchestration.publishing import NIGHTLY_TAG, delete_old_runs, noted_publication
from leads_pipeline.portal.http import server_time
from leads_pipeline.privacy.nightly import Night, keep_clean
from leads_pipeline.settings import Settings
from leads_pipeline.storage.branches import Branches, read_branches
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.transform.duck import SQL_FOLDER, quoted
from leads_pipeline.transform.feed import FEED
from leads_pipeline.transform.marts import EVERY_LEAD, Mart, marts, other_tables
from leads_pipeline.transform.own_marts import OwnFile, own_files
from leads_pipeline.transform.reading import LeadsFile
from leads_pipeline.transform.tables import Table, lead_tables


def published_asset(settings: Settings, partitions: Partitions) -> AssetsDefinition:
    """One asset per table and mart, from one publication."""
    tables = [*lead_tables(), *other_tables()]
    names = [*(table.name for table in tables), *(mart.name for mart in marts())]

    @multi_asset(
        name="warehouse",
        specs=[*map(_table_spec, tables), *map(_mart_spec, marts())],
        check_specs=published_check_specs(),
    )
    def warehouse(
        context: AssetExecutionContext, data: ResourceParam[DataFolder]
    ) -> Iterator[MaterializeResult[None] | AssetMaterialization | AssetCheckResult]:
        now, file, began = datetime.now(UTC), LeadsFile(data), time.monotonic()
        is_nightly = NIGHTLY_TAG in context.run.tags
        try:
            night = keep_clean(data, settings, now, server_time) if is_nightly else Night()
            branches = known_branches(settings.branches_file, file)
            wanted = Wanted(
                settings.scopes, partitions.first_day, settings.zone, branches, settings.tables, settings.marts_dir
            )
            context.log.info("Publishing leads.duckdb%s.", " with the work of the night" if is_nightly else "")
            data.share()
            with noted_publication(data, settings.zone, settings.marts_dir, is_nightly=is_nightly):
                outcome = bring_up_to_date(data, wanted, now)
                for what, why in outcome.swept.failed.items():
                    context.log.error("The suppression list couldn't be applied to %s: %s", what, why)
                publication = outcome.publication
                rows_of = publication.rows if publication else {}
                did: dict[str, str | int] = {
                    "way": publication.way if publication else "unchanged",
                    "windows_changed": publication.windows if publication else 0,
                    "leads_changed": publication.leads if publication else 0,
                    "file_bytes": outcome.size_bytes,
                }
                context.log.info(
                    "Published leads.duckdb (%s): %s windows and %s leads changed, %.1f MB, in %.1f s.",
                    *(did["way"], did["windows_changed"], did["leads_changed"]),
                    *(outcome.size_bytes / 1e6, time.monotonic() - began),
                )
                with file.reading() as db:
                    # To count the rows of a view takes seconds.
                    _, rows = db.query("select table_name from duckdb_tables() where schema_name = 'main'")
                    for name in names:
                        count = f"select count(*) from {quoted(name)}"  # noqa: S608 - our own name
                        counted = {"dagster/row_count": db.query(count)[1][0][0]} if (name,) in rows else {}
                        changes = {f"rows_{change}": number for change, number in rows_of.get(name, {}).items()}
                        yield MaterializeResult(asset_key=name, metadata={**did, **counted, **changes})
                    for (name,) in db.query("select name from pipeline.own_tables where is_made order by name")[1]:
                        [(count,)] = db.query(f"select count(*) from {quoted(name)}")[1]  # noqa: S608 - quoted
                        yield AssetMaterialization(name, metadata={"dagster/row_count": count})
                    yield from published_checks(db)
                if outcome.tables_trouble:
                    raise Failure(
                        "leads.duckdb is published, and the tables in data/tables are as before. "
                        f"{outcome.tables_trouble}",
                        allow_retries=False,
                    )
        except LeadsPipelineError as error:
            raise failure("leads.duckdb could not be published", error, "publication") from None
        if is_nightly:
            delete_old_runs(context.instance, now)
            _tell_of(night, context)

    return warehouse


def own_specs(settings: Settings) -> list[AssetSpec]:
    """One asset per file of LEADS_MARTS_DIR. The publication makes the table, and records each time that it did.

    Nobody can run one by itself. So files may come and go while a code location is loaded.
    """
    files = [one for one in own_files(settings.marts_dir).files if one.name]
    tables = [table.name for table in (*lead_tables(), *other_tables())]
    known = {*tables, *(mart.name for mart in marts()), *(one.name for one in files)}
    return [_own_spec(one, known) for one in files]


def report_asset() -> AssetsDefinition:
    """`leads_report`: reports/leads.html."""

    @asset(
        deps=[*(mart.name for mart in marts()), "drift"],
        group_name="reports",
        kinds={"html"},
        description="One page of figures from the marts, for any browser: data/reports/leads.html. No personal data.",
    )
    def leads_report(data: ResourceParam[DataFolder]) -> MaterializeResult[None]:
        # Importing jinja2 takes a tenth of a second, which every run of any asset would pay.
        from leads_pipeline.transform.report.page import write_report

        try:
            with LeadsFile(data).reading() as db:
                report = write_report(db, data.folder)
        except LeadsPipelineError as error:
            raise failure("The report could not be written", error, "report") from None
        return MaterializeResult(
            metadata={
                "last_day": report.last_day.isoformat() if report.last_day else "none yet",
                "file_bytes": report.size_bytes,
                "path": MetadataValue.path(report.path),
            }
        )

    return leads_report


def known_branches(path: Path | None, file: LeadsFile) -> Branches:
    """What the branches are called. If the file can't be read, which is a finding, the published names stay."""
    try:
        return read_branches(path)
    except SettingsError:
        try:
            (_, _, _, *columns), rows = file.query("from branches where name <> scope")
        except LeadsPipelineError:  # nothing is published yet, or by a version that knew no names
            return Branches()
        names = {scope: name for scope, _, name, *_ in rows}
        return Branches(names, tuple(columns), {scope: tuple(more) for scope, _, _, *more in rows})


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


# --- what the UI says of each table -----------------------------------------------------------------------------------


def _table_spec(table: Table) -> AssetSpec:
    of_leads = [of_leads.name for of_leads in lead_tables()]
    others = {"inventory": ["raw_inventory"], "drift": of_leads, FEED.name: of_leads}
    kinds = [kind for kind in LEAD_KINDS if table.name in kind.tables]
    deps = others.get(table.name, [f"raw_{kind.table}" for kind in kinds or LEAD_KINDS])
    payloads = dict.fromkeys(deps, ("payload",)) if kinds or table.name == "inventory" else {}
    columns = [(column.name, column.type, column.description) for column in table.columns]
    return AssetSpec(
        table.name,
        deps=deps,
        description=f"{table.description}. A table of leads.duckdb.",
        group_name="warehouse",
        kinds={"duckdb"},
        metadata=_columns(columns, payloads),
    )


def _own_spec(one: OwnFile, known: Collection[str | None]) -> AssetSpec:
    # One that reads itself in a circle has a problem.
    words = re.findall(r"\w+", one.mart.statement.lower()) if one.mart and not one.problem else []
    columns = [(name, one.mart.types[name], text) for name, text in one.mart.columns.items()] if one.mart else []
    return AssetSpec(
        str(one.name),
        deps=sorted({*words}.intersection(known) - {str(one.name)}),
        description=f"{one.mart.description if one.mart else 'A file as it is'}\n\nMade from {one.file}.",
        group_name=OWN,
        kinds={"duckdb"},
        metadata={**_columns(columns, {}), **code_reference(one.file)},
    )


def _mart_spec(mart: Mart) -> AssetSpec:
    known = {table.name: [column.name for column in table.columns] for table in (*lead_tables(), *other_tables())}
    known |= {other.name: [*other.columns] for other in marts() if other is not mart}
    words = set(re.findall(r"\w+", mart.statement))
    read = words & known.keys()
    if EVERY_LEAD in words:
        read |= {kind.table for kind in LEAD_KINDS}
    columns = [(name, mart.types[name], description) for name, description in mart.columns.items()]
    return AssetSpec(
        mart.name,
        # One that reads no table reads what is known of the windows.
        deps=sorted(read or {f"raw_{kind.table}" for kind in LEAD_KINDS}),
        description=f"{mart.description}\n\nA {'table' if mart.is_by_day else 'view'} of leads.duckdb.",
        group_name="marts",
        kinds={"duckdb", "sql"},
        metadata={
            **_columns(columns, {name: known[name] for name in sorted(read)}),
            **code_reference(SQL_FOLDER / f"{mart.name}.sql"),
        },
    )


def _columns(columns: Iterable[tuple[str, str, str]], sources: Mapping[str, Iterable[str]]) -> dict[str, Any]:
    """The columns' types and descriptions, and by their names the columns of the sources that they come from.

    A lead's columns come from its `payload`.
    """
    schema = TableSchema([TableColumn(name, type_.upper(), description) for name, type_, description in columns])
    lineage = {
        name: [
            TableColumnDep(source, of) for source, names in sources.items() for of in names if of in (name, "payload")
        ]
        for name, _, _ in columns
    }
    return {"dagster/column_schema": schema, "dagster/column_lineage": TableColumnLineage(lineage)}
