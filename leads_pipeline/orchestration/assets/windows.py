"""Checks on the windows of the published file: landed in time, not refused, looked at again when that is due.

Belongs here: which windows somebody should know of, and what to do about them. Doesn't: finding
them (sql/windows/), their states (sql/mart_coverage.sql), what is asked for next (domain/due.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from dagster import AssetCheckResult, AssetCheckSeverity, AssetCheckSpec

from leads_pipeline.domain.due import LOOKS
from leads_pipeline.domain.window import RETENTION
from leads_pipeline.orchestration.assets.checks import NAMED, attempted
from leads_pipeline.storage.branches import shown
from leads_pipeline.transform.duck import statement
from leads_pipeline.transform.reading import Reader

# How long before the portal begins to delete a window that isn't landed the coverage check warns, and fails.
WARN_DAYS_BEFORE = 7
FAIL_DAYS_BEFORE = 3


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
                f"Landed windows were asked for again {', '.join(str(look.days) for look in LOOKS[1:])} days after "
                "their end, for leads that came late, moved or were corrected"
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
    name = "windows_are_landed_in_time"
    missed = _windows(db, name, {"now": now, "soon": now + timedelta(days=WARN_DAYS_BEFORE)})
    urgent = [one for one in missed if one.deleted_from <= now + timedelta(days=FAIL_DAYS_BEFORE)]
    return _result(
        name,
        missed,
        "windows are not landed and will soon be deleted at the portal.",
        "Take them up with: ",
        "Every window is landed, or has more than a week left.",
        is_warning=not urgent,
        metadata={"urgent_windows": len(urgent)},
    )


def refused_check(db: Reader, now: datetime) -> AssetCheckResult:
    """Whether the portal refuses any window that it still has: the one failure that doesn't pass by itself."""
    name = "no_window_is_refused"
    return _result(
        name,
        _windows(db, name, {"now": now}),
        "windows are refused until somebody changes something; each says what. They are asked for again about daily, "
        "and within minutes of a start of the service, for example with a corrected secret.",
        "Once it is changed, ask for them with: ",
        "No window is refused.",
    )


def looks_check(db: Reader, now: datetime) -> AssetCheckResult:
    """Whether any landed window waits for more than a day to be looked at again."""
    name = "windows_are_looked_at_again"
    return _result(
        name,
        _windows(db, name, {"now": now, "retention": RETENTION, "looks": [look.days for look in LOOKS]}),
        "landed windows were due for another look more than a day ago; leads that came late to them would be deleted "
        "unseen. The sensor retry_failed_partitions asks for them; its runs say what failed.",
        "Or look now: ",
        "Every landed window was looked at when it was due.",
        is_warning=True,
    )


class _Window(NamedTuple):
    """A row of each statement in sql/windows/."""

    kind: str
    day: date
    scope: str
    branch: str
    deleted_from: datetime
    what: str
    error: str | None

    def __str__(self) -> str:
        window = f"{self.kind} {self.day}|{shown(self.scope, self.branch)}"
        line = f"{window}: {self.what}, deleted from {self.deleted_from:%Y-%m-%d %H:%M} UTC"
        return f"{line}. {self.error}" if self.error else line


def _windows(db: Reader, check: str, parameters: Mapping[str, object]) -> list[_Window]:
    _, rows = db.query(statement(f"windows/{check}"), parameters)
    return [_Window(*row) for row in rows]


def _result(
    name: str,
    windows: Sequence[_Window],
    problem: str,
    remedy: str,
    well: str,
    *,
    is_warning: bool = False,
    metadata: Mapping[str, int] = MappingProxyType({}),
) -> AssetCheckResult:
    days = [window.day for window in windows]
    return AssetCheckResult(
        asset_key="mart_coverage",
        check_name=name,
        passed=not windows,
        severity=AssetCheckSeverity.WARN if is_warning else AssetCheckSeverity.ERROR,
        description="\n".join(
            [
                f"{len(windows)} {problem}",
                *(f"- {window}" for window in windows[:NAMED]),
                f"{remedy}leads-pipeline backfill --from {min(days)} --to {max(days)}",
            ]
        )
        if windows
        else well,
        metadata={"windows": len(windows), **metadata},
    )
