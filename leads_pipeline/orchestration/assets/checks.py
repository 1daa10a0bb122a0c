"""The checks of the published file as Dagster shows them.

Belongs here: specs and results. Doesn't: what is checked (sql/checks/), how it is run (transform/checks.py).
They hold nothing back but `is_error` ones: a branch may have a quiet week, and the portal may drop a field.
"""

from collections.abc import Callable, Iterator
from functools import partial

from dagster import AssetCheckResult, AssetCheckSeverity, AssetCheckSpec

from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.transform.checks import Check, checks, problems
from leads_pipeline.transform.reading import Reader

# How many lines a check's description has.
NAMED = 20


def published_check_specs() -> list[AssetCheckSpec]:
    """The checks, for the asset that publishes."""
    return [
        AssetCheckSpec(check.name, asset=check.table, blocking=check.is_error, description=check.description)
        for check in checks()
    ]


def published_checks(db: Reader) -> Iterator[AssetCheckResult]:
    """Judge the published file as it is."""
    for check in checks():
        yield attempted(check.table, check.name, partial(_result, db, check))


def attempted(asset: str, name: str, check: Callable[[], AssetCheckResult]) -> AssetCheckResult:
    """The check's result; where it couldn't be made, a failed one that says so and leaves what it judges alone."""
    try:
        return check()
    except LeadsPipelineError as error:
        return AssetCheckResult(
            asset_key=asset,
            check_name=name,
            passed=False,
            description=f"The check itself broke, so nothing is known: {error} What it looks at was published whole.",
        )


def _result(db: Reader, check: Check) -> AssetCheckResult:
    found = problems(db, check)
    return AssetCheckResult(
        asset_key=check.table,
        check_name=check.name,
        passed=not found,
        severity=AssetCheckSeverity.ERROR if check.is_error else AssetCheckSeverity.WARN,
        description="\n".join(f"- {line}" for line in found[:NAMED]) or "No problems.",
        metadata={"problems": len(found)},
    )
