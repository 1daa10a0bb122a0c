"""The staged assets: one day over all scopes, typed and flattened, with child tables.

Belongs here: which days a run stages, what it says of them, the checks that compare raw with staged. Doesn't: the
flattening (flatten/).
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

from dagster import (
    AssetCheckKey,
    AssetCheckResult,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetExecutionContext,
    AssetKey,
    AssetMaterialization,
    AssetsDefinition,
    AssetSpec,
    AutomationCondition,
    BackfillPolicy,
    DagsterInstance,
    Failure,
    TableColumn,
    TableSchema,
    multi_asset,
)

from leads_pipeline.assets.raw import failure
from leads_pipeline.contract import LeadKind
from leads_pipeline.duck import Column
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.flatten.batches import flatten_days
from leads_pipeline.flatten.columns import staged_columns, windows_table
from leads_pipeline.flatten.counts import StagedDay, UnbalancedError
from leads_pipeline.lake.staged import STAGED_VERSION
from leads_pipeline.partitions import Partitions, requested_keys
from leads_pipeline.resources import DataFolder
from leads_pipeline.settings import Settings
from leads_pipeline.status import last_evaluation
from leads_pipeline.window import RETENTION

# When a day is staged, and the warehouse published. `eager()` would wait for ever for a day of which one branch is
# missing, and forgets what it has asked for once; so the condition is put together here. Its parts are of Any, as
# conditions on assets and on checks don't meet in Dagster's types.

# By the moments of the update and of the last request: what lands while its day is staged was not read, and is staged
# next. `since_last_handled()` would count it as handled by the run under way, and so would any trigger or reset that is
# put together of several conditions: Dagster then compares no moments (SinceCondition.evaluate).
_HAS_NEW_SOURCES: AutomationCondition[Any] = AutomationCondition.any_deps_match(
    AutomationCondition.newly_updated()
).since(AutomationCondition.newly_requested())

# What was staged before a field was declared, or with another time zone's days, is staged again. A change of the zone
# changes the partitions, which `since_last_handled()` takes for a reason to begin anew with nothing to do.
_IS_DECLARED_ANEW: AutomationCondition[Any] = (
    AutomationCondition.code_version_changed() & ~AutomationCondition.missing()
).since(AutomationCondition.newly_requested())

# A run that failed or was killed has used its request up; and what landed before the daemon ever ran caused none.
_IS_LEFT_BEHIND: AutomationCondition[Any] = AutomationCondition.cron_tick_passed("0 * * * *") & (
    AutomationCondition.execution_failed()
    | (
        # As far back as a command would. To look at a year of 500 scopes takes Dagster 26 s.
        AutomationCondition.in_latest_time_window(2 * RETENTION)
        & AutomationCondition.missing()
        & AutomationCondition.any_deps_match(~AutomationCondition.missing())
    )
)

IS_FREE: AutomationCondition[Any] = ~AutomationCondition.in_progress() & ~AutomationCondition.any_deps_in_progress()

FOLLOWS_ITS_SOURCES = (_HAS_NEW_SOURCES | _IS_DECLARED_ANEW | _IS_LEFT_BEHIND) & IS_FREE


def staged_leads_asset(kind: LeadKind, settings: Settings, partitions: Partitions) -> AssetsDefinition:
    """`stg_applicant_leads` or `stg_appraisal_leads` with its child tables, by day."""
    main = f"stg_{kind.table}"
    specs = [_spec(table, columns, kind, settings) for table, columns in staged_columns(kind).items()]

    @multi_asset(
        name=main,
        specs=specs,
        partitions_def=partitions.days,
        backfill_policy=BackfillPolicy.single_run(),
        group_name="staged",
        # None of them holds the warehouse back: a day that doesn't add up has its files of before, and is staged anew.
        check_specs=[
            AssetCheckSpec(
                "rows_add_up",
                asset=main,
                description="Every raw row is a staged row, or a repeat of one",
            ),
            AssetCheckSpec("lead_ids_are_unique", asset=main, description="A day holds each lead id once"),
            AssetCheckSpec(
                "no_unexplained_problems",
                asset=main,
                description="No key field is empty that the payload has, unless the lead's _problems say why",
            ),
            AssetCheckSpec(
                "no_values_with_problems",
                asset=main,
                description="Every value fits the type that the contract declares; one that doesn't is kept in raw",
            ),
        ],
    )
    def staged_leads(
        context: AssetExecutionContext, data: DataFolder
    ) -> Iterator[AssetMaterialization | AssetCheckResult]:
        days = [date.fromisoformat(key) for key in requested_keys(context, partitions.days)]
        staged: list[StagedDay] = []
        failures: dict[date, LeadsPipelineError] = {}
        try:
            data.lake.refresh(days)
        except LeadsPipelineError as error:
            raise failure(f"No {kind.name} leads could be staged", error) from None
        for day, result in flatten_days(data.lake, kind, days, settings.zone):
            if isinstance(result, UnbalancedError):
                staged.append(result.staged)  # for the checks to show
            if isinstance(result, LeadsPipelineError):
                failures[day] = result
                continue
            staged.append(result)
            yield from materializations(kind, result)
        yield from _checks(context.instance, main, kind.table, staged)
        if failures:
            first = min(failures)
            raise Failure(
                f"{len(failures)} of {len(days)} days could not be staged, the first is {first}: {failures[first]}",
                allow_retries=False,
            )

    return staged_leads


def _spec(table: str, columns: Sequence[Column], kind: LeadKind, settings: Settings) -> AssetSpec:
    described = {kind.table: kind.description, windows_table(kind): "One row per landed window"}
    described |= {child.name: child.description for child in kind.children}
    return AssetSpec(
        f"stg_{table}",
        deps=[f"raw_{kind.table}", "raw_push"],
        description=f"{described[table]}. One Parquet file per day in staged/{table}/.",
        # A run stages all tables of a day, this one last: so it alone is evaluated. Dagster stores each evaluation that
        # differs from the one before, at some 60 kB.
        automation_condition=FOLLOWS_ITS_SOURCES if table == windows_table(kind) else None,
        code_version=_version(kind, settings),
        kinds={"duckdb", "parquet"},
        skippable=True,
        metadata={
            "dagster/column_schema": TableSchema(
                [TableColumn(column.name, column.type.upper(), column.description) for column in columns]
            )
        },
    )


# What a check's metadata has by day: how many rows or leads are wrong, or which fields.
_WRONG_DAYS = "wrong_days"


def _version(kind: LeadKind, settings: Settings) -> str:
    """Changes with the declared fields, with the zone that decides a lead's day, and with what a file holds beside."""
    fields = [
        (table, column.name, column.type) for table, columns in staged_columns(kind).items() for column in columns
    ]
    return hashlib.sha256(repr((STAGED_VERSION, settings.zone.key, fields)).encode()).hexdigest()[:16]


def materializations(kind: LeadKind, staged: StagedDay) -> Iterator[AssetMaterialization]:
    """The record of a staged day, one for each of its tables."""
    for table, rows in staged.rows.items():
        yield AssetMaterialization(
            f"stg_{table}",
            partition=staged.day.isoformat(),
            metadata={"dagster/partition_row_count": rows, **(_counts(staged) if table == kind.table else {})},
        )


def _counts(staged: StagedDay) -> dict[str, int]:
    return {
        "raw_rows": staged.raw_rows,
        "duplicates": staged.duplicates,
        "values_with_problems": sum(staged.problems.values()),
        "unknown_fields": sum(staged.extra.values()),
    }


def _checks(
    instance: DagsterInstance, asset: str, table: str, staged: Sequence[StagedDay]
) -> Iterator[AssetCheckResult]:
    """The checks' results over this run's days and those that are still wrong; none where there is nothing to judge.

    A day that an earlier run found wrong stays named until it is staged again, so that no green day hides it.
    """
    counts: dict[str, Callable[[StagedDay], object]] = {
        "rows_add_up": lambda day: day.raw_rows - day.duplicates - day.rows[table],
        "lead_ids_are_unique": lambda day: day.rows[table] - day.lead_ids,
        "no_unexplained_problems": lambda day: day.unexplained,
        "no_values_with_problems": lambda day: dict(day.problems),
    }
    again = {day.day.isoformat() for day in staged}
    a_while_ago = (datetime.now(UTC) - RETENTION).date().isoformat()
    for check, find in counts.items():
        is_of_values = check == "no_values_with_problems"  # which staging again doesn't mend
        before = _wrong_before(instance, AssetCheckKey(AssetKey(asset), check))
        wrong = {
            day: what for day, what in before.items() if day not in again and not (is_of_values and day < a_while_ago)
        }
        wrong |= {day.day.isoformat(): what for day in staged if (what := find(day))}
        if staged or wrong:
            yield AssetCheckResult(
                asset_key=asset,
                check_name=check,
                passed=not wrong,
                severity=AssetCheckSeverity.WARN if is_of_values else AssetCheckSeverity.ERROR,
                description=f"Each stays named until it is staged again: {', '.join(sorted(wrong))}."
                if wrong
                else None,
                metadata={"days": len(staged), _WRONG_DAYS: wrong},
            )


def _wrong_before(instance: DagsterInstance, check: AssetCheckKey) -> Mapping[str, object]:
    """The days that the check's last result named."""
    evaluation = last_evaluation(instance, check)
    named = evaluation.metadata.get(_WRONG_DAYS) if evaluation else None
    return named.value if named is not None and isinstance(named.value, Mapping) else {}
