"""Dagster's checks: findings on raw windows and files, and sql/checks/ on published tables.

Belongs here: specs and results, and the failure of a run in our words. Doesn't: the findings
(health/findings.py), what a statement checks (sql/checks/).
A failed check with `is_error` stops the assets below it in the run. leads.duckdb is published all
the same.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from dagster import (
    AssetCheckResult,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetKey,
    Failure,
    MetadataValue,
)

from leads_pipeline.domain.contract import LeadKind
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.finding import explanation
from leads_pipeline.health.findings import Level, find
from leads_pipeline.health.runbook import RAW_CHECKS, YESTERDAY, YESTERDAY_TEXT
from leads_pipeline.health.window_findings import not_landed, what_to_do_about
from leads_pipeline.orchestration.names import Names
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.settings import Settings
from leads_pipeline.warehouse.checks import checks, problems
from leads_pipeline.warehouse.published import Edition

# The local hour at which yesterday's windows have landed and the night's publication is done.
FRESH_HOUR: Final = 6

# How many lines a check's description has.
LINES_SHOWN: Final = 20


def raw_check_specs(asset: AssetKey) -> list[AssetCheckSpec]:
    """Return the checks on the raw leads of a kind."""
    texts = {name: check.description for name, check in RAW_CHECKS.items()} | {
        YESTERDAY: YESTERDAY_TEXT
    }
    return [AssetCheckSpec(name, asset=asset, description=text) for name, text in texts.items()]


def raw_checks(
    settings: Settings, data: DataFolder, asset: AssetKey, kind: LeadKind, now: datetime
) -> Iterator[AssetCheckResult]:
    """Yield the results of the checks on raw leads.

    Hints leave a check green. The results come before the run's failure, because they say why.
    """
    facts = Facts(settings, data, now, (kind,))
    for name, check in RAW_CHECKS.items():
        found = [one for one in find(facts, check.finders) if one.level is not Level.HINT]
        is_error = any(one.level is Level.ERROR for one in found)
        yield _result(
            asset, name, [f"{one.message} {one.what_to_do}" for one in found], is_error=is_error
        )
    yield _yesterday(facts, asset)


def _yesterday(facts: Facts, asset: AssetKey) -> AssetCheckResult:
    """Say whether yesterday has landed.

    Before 06:00, windows that are still asked for don't count.
    """
    local = facts.now.astimezone(facts.zone)
    day = local.date() - timedelta(days=1)
    late = not_landed(facts, day)

    if late and local.hour < FRESH_HOUR:
        refused = [
            row for row in late if row.failure is not None and row.failure.verdict == "refused"
        ]
        day = day if refused else day - timedelta(days=1)
        late = refused or not_landed(facts, day)

    return AssetCheckResult(
        asset_key=asset,
        check_name=YESTERDAY,
        passed=not late,
        description=what_to_do_about(facts, late) if late else f"All windows of {day} have landed.",
        metadata={"day": day.isoformat()},
    )


def published_check_specs(names: Names) -> list[AssetCheckSpec]:
    """Return the checks on the published tables, for the asset that publishes them."""
    return [
        AssetCheckSpec(
            check.name,
            asset=names.key(check.table),
            blocking=check.is_error,
            description=check.description,
        )
        for check in checks()
    ]


def published_checks(db: Edition, names: Names) -> Iterator[AssetCheckResult]:
    """Yield their results. A check that breaks fails and leaves the published file as it is."""
    for check in checks():
        try:
            found = problems(db, check)
            is_error = check.is_error
        except LeadsPipelineError as error:
            found = [f"The check can't be made: {error} The tables were published as usual."]
            is_error = True
        yield _result(names.key(check.table), check.name, found, is_error=is_error)


def _result(
    asset: AssetKey, check: str, found: Sequence[str], *, is_error: bool
) -> AssetCheckResult:
    more = [f"- and {len(found) - LINES_SHOWN} more"] if len(found) > LINES_SHOWN else []
    return AssetCheckResult(
        asset_key=asset,
        check_name=check,
        passed=not found,
        severity=AssetCheckSeverity.ERROR if is_error else AssetCheckSeverity.WARN,
        description="\n".join([*(f"- {line}" for line in found[:LINES_SHOWN]), *more])
        or "No problems.",
        metadata={"problems": len(found)},
    )


def failure(tried: str, error: LeadsPipelineError, finder: str) -> Failure:
    """Return the run's failure for one of the pipeline's own errors.

    The finder's entry in the runbook says what to do. Dagster retries nothing: what is due is asked
    for again.
    """
    runbook = f"`{explanation(finder)}`"
    return Failure(
        f"{tried}. {error}\nWhat to do: {runbook}",
        metadata={"reason": error.reason, "runbook": MetadataValue.md(runbook)},
        allow_retries=False,
    )
