"""The warehouse asset: every table and mart of leads.duckdb, published together.

Belongs here: what is published when, what the UI says of each table, the checks on the published file. Doesn't: the
publication (warehouse/), the marts' SQL (sql/).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from dagster import (
    AssetCheckResult,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetExecutionContext,
    AssetMaterialization,
    AssetsDefinition,
    AssetSpec,
    AutomationCondition,
    MaterializeResult,
    MetadataValue,
    TableColumn,
    TableRecord,
    TableSchema,
    multi_asset,
)

from leads_pipeline.assets.checks import NAMED, attempted, habit_check_specs, habit_checks
from leads_pipeline.assets.privacy import PRIVACY_SWEEP
from leads_pipeline.assets.raw import failure
from leads_pipeline.assets.staged import FOLLOWS_ITS_SOURCES, IS_FREE
from leads_pipeline.assets.windows import window_check_specs, window_checks
from leads_pipeline.branches import Branches, read_branches
from leads_pipeline.contract import LEAD_KINDS, LeadKind
from leads_pipeline.delta.folder import remove_tables
from leads_pipeline.duck import glob_literal, statement
from leads_pipeline.errors import LeadsPipelineError, SettingsError
from leads_pipeline.flatten.columns import windows_table
from leads_pipeline.flatten.windows import damage_message, damaged_files
from leads_pipeline.lake import Lake
from leads_pipeline.partitions import Partitions
from leads_pipeline.privacy.sweeping import in_line
from leads_pipeline.resources import DataFolder
from leads_pipeline.settings import Settings
from leads_pipeline.status import failed_windows
from leads_pipeline.warehouse import Grid, Mart, Publication, Reader, Table, Warehouse, marts, tables

# How many changes the drift check shows.
_NAMED_CHANGES = 50

# While nothing lands, nothing is staged that a publication could follow; the checks on it have to ring all the same.
_IS_DAILY = AutomationCondition.cron_tick_passed("30 2 * * *") & IS_FREE


def warehouse_asset(settings: Settings, partitions: Partitions) -> AssetsDefinition:
    """One asset per table and mart, from one publication."""
    lead_tables = [kind.table for kind in LEAD_KINDS]

    @multi_asset(
        name="warehouse",
        specs=[*(_table_spec(table) for table in tables()), *(_mart_spec(mart) for mart in marts())],
        check_specs=[
            *(
                AssetCheckSpec(
                    "lead_ids_are_unique",
                    asset=table,
                    blocking=True,
                    description="Each lead is one row, however it came",
                )
                for table in lead_tables
            ),
            *(
                AssetCheckSpec(
                    "staged_rows_add_up",
                    asset=table,
                    blocking=True,
                    description="Every staged row is a row here, or an older version of a lead that is",
                )
                for table in lead_tables
            ),
            *habit_check_specs(),
            *window_check_specs(),
            AssetCheckSpec(
                "contract_knows_what_comes",
                asset="drift",
                description="The portal sends no field, no enumerated value and no type that the contract doesn't know",
            ),
            AssetCheckSpec(
                "names_are_read",
                asset="branches",
                description="LEADS_BRANCHES_FILE can be read and is right, where it is set",
            ),
            AssetCheckSpec(
                "files_are_whole",
                asset="landed_windows",
                description="No raw or staged file is damaged or missing",
            ),
        ],
    )
    def warehouse(
        context: AssetExecutionContext, data: DataFolder
    ) -> Iterator[MaterializeResult[None] | AssetMaterialization | AssetCheckResult]:
        now = datetime.now(UTC)
        store = Warehouse(data.lake)
        try:
            data.lake.refresh(())
            failed = failed_windows(context.instance, settings, partitions)
            branches, trouble = known_branches(settings.branches_file, store)
            grid = Grid(settings.scopes, partitions.first_day, settings.zone, failed, branches)
            with in_line(data.lake, settings.zone) as swept:
                publication = store.publish(grid, now)
            for what, why in swept.failed.items():
                context.log.error("The suppression list couldn't be applied to %s: %s", what, why)
        except LeadsPipelineError as error:
            raise failure("The warehouse could not be published", error) from None
        # Whatever breaks from here on, the file is published.
        try:
            if not settings.has_delta:
                remove_tables(data.lake)
        except LeadsPipelineError as error:
            context.log.error(
                "Nobody wants the Delta tables any more, and they go on holding what they hold: %s", error
            )
        with store.reading() as db:
            for name, rows in publication.rows.items():
                yield MaterializeResult(asset_key=name, metadata=_metadata(publication, rows))
            for table in lead_tables:
                yield attempted(table, "lead_ids_are_unique", partial(uniqueness_check, db, table))
            for kind in LEAD_KINDS:
                yield attempted(kind.table, "staged_rows_add_up", partial(completeness_check, db, data.lake, kind))
            yield from habit_checks(db)
            yield attempted("drift", "contract_knows_what_comes", partial(drift_check, db))
            yield from window_checks(db, now)
            yield names_check(trouble)
            yield attempted("landed_windows", "files_are_whole", partial(wholeness_check, data.lake, publication))

    return warehouse


def known_branches(file: Path | None, store: Warehouse) -> tuple[Branches, str | None]:
    """What the branches are called, and what is wrong with the file: then the names stay as they are published.

    A slip in a list of names holds no lead back.
    """
    try:
        return read_branches(file), None
    except SettingsError as error:
        try:
            (_, _, _, *columns), rows = store.query("from branches where name <> scope")
        except LeadsPipelineError:  # nothing is published yet, or by a version that knew no names
            return Branches(), str(error)
        names = {scope: name for scope, _, name, *_ in rows}
        return Branches(names, tuple(columns), {scope: tuple(more) for scope, _, _, *more in rows}), str(error)


def _metadata(publication: Publication, rows: int) -> Mapping[str, bool | int | float]:
    return {
        "dagster/row_count": rows,
        "is_changed": publication.is_changed,
        "is_rebuilt": publication.is_rebuilt,
        "days_changed": publication.days_changed,
        "file_bytes": publication.size_bytes,
        "duration_seconds": round(publication.seconds, 3),
    }


def _table_spec(table: Table) -> AssetSpec:
    sources = {
        "inventory": ["raw_inventory"],
        # Whoever takes leads out of raw files and staged days wants them out of the published file as well.
        "landed_windows": [*(f"stg_{windows_table(kind)}" for kind in LEAD_KINDS), PRIVACY_SWEEP],
    }
    return AssetSpec(
        table.name,
        deps=sources.get(table.name, [f"stg_{table.name}"]),
        description=f"{table.description}. A table of leads.duckdb.",
        group_name="warehouse",
        kinds={"duckdb"},
        # A publication makes every table, and each staging changes the windows: so of what follows the staged days, one
        # is evaluated, which is published last.
        automation_condition=FOLLOWS_ITS_SOURCES | _IS_DAILY if table.name in sources else None,
        metadata={
            "dagster/column_schema": TableSchema(
                [TableColumn(column.name, column.type.upper(), column.description) for column in table.columns]
            )
        },
    )


def _mart_spec(mart: Mart) -> AssetSpec:
    read = set(re.findall(r"\b(?:from|join)\s+([\w.]+)", mart.statement))
    # The drift is found while the leads are loaded.
    leads = {kind.table for kind in LEAD_KINDS} if "pipeline.drift_by_day" in read else set()
    return AssetSpec(
        mart.name,
        deps=sorted(read & {table.name for table in tables()} | leads),
        description=f"{mart.description} A table of leads.duckdb.",
        group_name="marts",
        kinds={"duckdb", "sql"},
        metadata={
            "dagster/column_schema": TableSchema(
                # Their types follow from the statement, which nothing runs when the code location is loaded.
                [TableColumn(name, "", description) for name, description in mart.columns.items()]
            )
        },
    )


def uniqueness_check(db: Reader, table: str) -> AssetCheckResult:
    """Whether each lead is one row of the table."""
    _, [(rows, ids)] = db.query(statement("checks/lead_ids_are_unique").format(table=table))
    return AssetCheckResult(
        asset_key=table, check_name="lead_ids_are_unique", passed=rows == ids, metadata={"rows": rows, "lead_ids": ids}
    )


def completeness_check(db: Reader, lake: Lake, kind: LeadKind) -> AssetCheckResult:
    """Whether the leads of every staged file are in the published one, in that version or a newer one.

    Compares counts by day from footers; leads are looked at where the counts of a day differ, as two days' windows
    hold the leads of midnight. Raises StorageError.
    """
    _, rows = db.query(
        "select day, fingerprint from pipeline.loaded_files where table_name = $table", {"table": kind.table}
    )
    loaded = dict(rows)
    files = {file.day: file for file in lake.staged_files(kind.table) if loaded.get(file.day) == file.fingerprint}
    counts: list[tuple[Any, ...]] = []
    if files:
        _, counts = db.query(
            statement("checks/staged_rows").format(table=kind.table),
            {
                "days": list(files),
                "paths": [str(file.path) for file in files.values()],
                "patterns": [glob_literal(file.path) for file in files.values()],
            },
        )
    short = [day for day, staged_rows, rows in counts if rows < staged_rows and day in files]
    too_many = [day for day, staged_rows, rows in counts if rows > staged_rows and (day in files or day not in loaded)]
    missing = 0
    if short:
        _, not_loaded = db.query(
            statement("checks/leads_not_loaded").format(table=kind.table),
            {"patterns": [glob_literal(files[day].path) for day in short]},
        )
        out = lake.suppression.read().out
        missing = sum(not out.is_known(kind.name, lead_id) for (lead_id,) in not_loaded)
    return AssetCheckResult(
        asset_key=kind.table,
        check_name="staged_rows_add_up",
        passed=not missing and not too_many,
        metadata={
            "days": len(files),
            "staged_rows": sum(staged for day, staged, _ in counts if day in files),
            "rows": sum(rows for day, _, rows in counts if day in files),
            "leads_missing": missing,
            "days_with_more_than_staged": [day.isoformat() for day in too_many],
        },
    )


def wholeness_check(lake: Lake, publication: Publication) -> AssetCheckResult:
    """Whether anything is damaged or gone that nothing whole has replaced. Raises StorageError."""
    damaged = damaged_files(lake)
    lines = [damage_message(damaged)] if damaged else []
    lines += [
        f"The {kind} leads of {day} stay as they are published: their staged files are damaged or gone. The day is "
        "staged anew by itself."
        for kind, day in publication.kept[:NAMED]
    ]
    return AssetCheckResult(
        asset_key="landed_windows",
        check_name="files_are_whole",
        passed=not lines,
        description="\n".join(lines) or "All are.",
        metadata={"damaged": len(damaged), "days_not_staged": len(publication.kept)},
    )


def names_check(trouble: str | None) -> AssetCheckResult:
    """Whether the file of names was read; what is wrong with it otherwise."""
    return AssetCheckResult(
        asset_key="branches",
        check_name="names_are_read",
        passed=trouble is None,
        severity=AssetCheckSeverity.WARN,
        description=f"{trouble} Until then the names stay as they were." if trouble else "They are, or none are set.",
    )


def drift_check(db: Reader) -> AssetCheckResult:
    """Whether the contract knows everything that the published file holds. Nothing is lost where it doesn't."""
    columns, rows = db.query("select * from drift order by last_seen_day desc, leads desc, kind, field, value")
    shown = [{name: _plain(value) for name, value in zip(columns, row, strict=True)} for row in rows[:_NAMED_CHANGES]]
    return AssetCheckResult(
        asset_key="drift",
        check_name="contract_knows_what_comes",
        passed=not rows,
        severity=AssetCheckSeverity.WARN,
        description=_changes_in_words(shown, len(rows)),
        metadata={"changes": len(rows)}
        | ({"newest": MetadataValue.table([TableRecord(row) for row in shown])} if shown else {}),
    )


def _changes_in_words(shown: Sequence[Mapping[str, str | int]], changes: int) -> str:
    """What to do about them, with the lines that do it: the table below them is wider than most screens."""
    if not changes:
        return "The portal sends nothing that the contract doesn't know."
    lines = [f"- {row['kind']}: `{row['declaration']}`" for row in shown if row["declaration"]]
    takes_in = f"Lines for contract.py that take in {len(lines)} of them (docs/architecture.md, A field):\n\n"
    return "\n\n".join(
        [
            f"{changes} changes at the portal that the contract doesn't know. Nothing is lost: `_extra` or the column "
            "has each.",
            "What reads … came from fewer than three people, and may be a person's.",
            *([takes_in + "\n".join(lines)] if lines else []),
        ]
    )


def _plain(value: object) -> str | int:
    return value if isinstance(value, int) else str(value or "")
