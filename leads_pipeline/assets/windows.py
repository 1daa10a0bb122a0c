"""Checks on the windows of the published file: landed in time, not refused, looked at again when that is due.

Belongs here: which windows somebody should know of, and what to do about them. Doesn't: their states
(sql/mart_coverage.sql), what is asked for next (sensors.py).
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from dagster import AssetCheckResult, AssetCheckSeverity, AssetCheckSpec

from leads_pipeline.assets.checks import attempted
from leads_pipeline.retry import LOOKS_AFTER_DAYS
from leads_pipeline.warehouse import Reader
from leads_pipeline.window import RETENTION

# How long before the portal begins to delete a window that isn't landed the coverage check warns, and fails.
WARN_DAYS_BEFORE = 7
FAIL_DAYS_BEFORE = 3

# How many windows a check names.
NAMED_WINDOWS = 20

# One that the portal deletes at this moment, which takes it a day, is the most urgent of all.
_MISSED = """
select kind, day, scope, state, failed_attempts, last_error, deleted_from_at
from mart_coverage
where state in ('missing', 'failed', 'damaged') and is_configured
    and deleted_from_at > $now - interval 1 day and deleted_from_at <= $soon
order by deleted_from_at, kind, scope
"""

# While the portal deletes it, which takes it a day, what is left can still be had.
_REFUSED = """
select kind, day, scope, state, failed_attempts, last_error, deleted_from_at
from mart_coverage
where is_refused and is_configured and deleted_from_at > $now - interval 1 day
order by deleted_from_at, kind, scope
"""

# Landed windows whose last answer is from before a look that was due a day ago or more. A window's end is a day after
# its start, give or take an hour where clocks change.
_NOT_LOOKED_AT = """
select kind, day, scope, last_looked_at, deleted_from_at
from mart_coverage
where state in ('landed', 'empty') and is_configured and deleted_from_at > $now - interval 1 day
    and exists (
        select due_at
        from (
            select deleted_from_at - $retention + to_days(1 + days) as due_at from unnest($looks::integer[]) as _(days)
        )
        where due_at <= $now - interval 1 day and last_looked_at < due_at - interval 2 hour
    )
order by deleted_from_at, kind, scope
"""


def window_check_specs() -> list[AssetCheckSpec]:
    """The checks, for the asset that publishes."""
    return [
        AssetCheckSpec(
            "windows_are_landed_in_time",
            asset="mart_coverage",
            description=(
                f"No window waits until the portal deletes it: a warning {WARN_DAYS_BEFORE} days before, an error "
                f"{FAIL_DAYS_BEFORE} days before"
            ),
        ),
        AssetCheckSpec(
            "no_window_is_refused",
            asset="mart_coverage",
            description="No window waits for a change of settings or rights, or for a word with the portal",
        ),
        AssetCheckSpec(
            "windows_are_looked_at_again",
            asset="mart_coverage",
            description=(
                f"Landed windows were asked for again {', '.join(map(str, LOOKS_AFTER_DAYS))} days after their "
                "end, for leads that came late, moved or were corrected"
            ),
        ),
    ]


def window_checks(db: Reader, now: datetime) -> Iterator[AssetCheckResult]:
    """Judge the published file as it is."""
    yield attempted("mart_coverage", "windows_are_landed_in_time", partial(coverage_check, db, now))
    yield attempted("mart_coverage", "no_window_is_refused", partial(refused_check, db, now))
    yield attempted("mart_coverage", "windows_are_looked_at_again", partial(looks_check, db, now))


def coverage_check(db: Reader, now: datetime) -> AssetCheckResult:
    """Whether any window of the published file is still to be had and will soon be deleted at the portal."""
    _, missed = db.query(_MISSED, {"now": now, "soon": now + timedelta(days=WARN_DAYS_BEFORE)})
    urgent = [row for row in missed if row[-1] <= now + timedelta(days=FAIL_DAYS_BEFORE)]
    return AssetCheckResult(
        asset_key="mart_coverage",
        check_name="windows_are_landed_in_time",
        passed=not missed,
        severity=AssetCheckSeverity.ERROR if urgent else AssetCheckSeverity.WARN,
        description=_advice(missed) if missed else "Every window is landed, or has more than a week left.",
        metadata={"windows": len(missed), "urgent_windows": len(urgent)},
    )


def refused_check(db: Reader, now: datetime) -> AssetCheckResult:
    """Whether the portal refuses any window that it still has: the one failure that doesn't pass by itself."""
    _, refused = db.query(_REFUSED, {"now": now})
    return AssetCheckResult(
        asset_key="mart_coverage",
        check_name="no_window_is_refused",
        passed=not refused,
        severity=AssetCheckSeverity.ERROR,
        description=(
            f"{len(refused)} windows are refused until somebody changes something; each says what. They are asked for "
            "again about daily, and within minutes of a change of settings or secret.\n" + _named(refused)
            if refused
            else "No window is refused."
        ),
        metadata={"windows": len(refused)},
    )


def looks_check(db: Reader, now: datetime) -> AssetCheckResult:
    """Whether any landed window waits for more than a day to be looked at again."""
    _, late = db.query(_NOT_LOOKED_AT, {"now": now, "retention": RETENTION, "looks": list(LOOKS_AFTER_DAYS)})
    named = "\n".join(
        f"- {kind} {day}|{scope}: last looked at {looked_at:%Y-%m-%d %H:%M}, "
        f"deleted from {deleted_from:%Y-%m-%d %H:%M} UTC"
        for kind, day, scope, looked_at, deleted_from in late[:NAMED_WINDOWS]
    )
    days = [row[1] for row in late]
    return AssetCheckResult(
        asset_key="mart_coverage",
        check_name="windows_are_looked_at_again",
        passed=not late,
        severity=AssetCheckSeverity.WARN,
        description=(
            f"{len(late)} landed windows were due for another look more than a day ago; leads that came late to them "
            f"would be deleted unseen. The sensor look_again asks for them; the runs that it started say what failed.\n"
            f"{named}\nOr look now: leads-pipeline backfill --from {min(days)} --to {max(days)}"
            if late
            else "Every landed window was looked at when it was due."
        ),
        metadata={"windows": len(late)},
    )


def _advice(missed: Sequence[Sequence[Any]]) -> str:
    days = [row[1] for row in missed]
    return (
        f"{len(missed)} windows are not landed and will soon be deleted at the portal.\n{_named(missed)}\n"
        f"Take them up with: leads-pipeline backfill --from {min(days)} --to {max(days)}"
    )


def _named(windows: Sequence[Sequence[Any]]) -> str:
    return "\n".join(
        f"- {kind} {day}|{scope}: {state}, {attempts} attempts, deleted from {deleted_from:%Y-%m-%d %H:%M} UTC"
        + (f". {error}" if error else "")
        for kind, day, scope, state, attempts, error, deleted_from in windows[:NAMED_WINDOWS]
    )
