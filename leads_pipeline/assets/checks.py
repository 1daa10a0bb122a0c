"""Checks that compare the newest days of the published file with what is usual there: nulls, volumes, freshness.

Belongs here: what is usual, and how far from it is too far. Doesn't: whether layers agree (staged.py, published.py).
They warn and hold nothing back: a branch may have a quiet week, and the portal may drop a field.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from dagster import AssetCheckResult, AssetCheckSeverity, AssetCheckSpec

from leads_pipeline.branches import shown
from leads_pipeline.contract import LEAD_KINDS, LeadKind
from leads_pipeline.duck import quoted, statement
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.warehouse import Reader

# A week against the four before it: the same weekdays, and enough leads of a small branch.
RECENT_DAYS = 7
HABIT_DAYS = 28
# Below this there is no share to speak of.
_FEWEST_LEADS = 20
# A field may be empty this much more often than usual, in percentage points, before anybody should look.
SHARE_RISE_PERCENT = 20

# Counts scatter like their square root, so that twice their roots scatter by about 1 whatever the size of the branch
# (Anscombe 1948), and busy branches by more, which their own days show. Four such deviations are about one false alarm
# a quarter with a hundred branches.
DEVIATIONS = 4
# Too few days are no habit; and of a branch with so few leads, none on a day is nothing unusual.
_FEWEST_HABIT_DAYS = 14
_FEWEST_USUAL_LEADS = 5

# The daily schedule lands yesterday at 01:15; until then the newest closed day is the one before.
STALE_DAYS = 2

# How many lines a check's description has.
NAMED = 20


def habit_check_specs() -> list[AssetCheckSpec]:
    """The checks, for the asset that publishes."""
    return [
        *(
            AssetCheckSpec(
                "key_fields_are_filled_as_usual",
                asset=kind.table,
                description=(
                    f"No key field is empty in {SHARE_RISE_PERCENT} percentage points more of the last {RECENT_DAYS} "
                    f"days' leads than in the {HABIT_DAYS} days before"
                ),
            )
            for kind in LEAD_KINDS
        ),
        AssetCheckSpec(
            "volumes_are_as_usual",
            asset="mart_leads_daily",
            description=(
                f"No branch's newest closed day lies {DEVIATIONS} standard deviations from the {HABIT_DAYS} days before"
            ),
        ),
        AssetCheckSpec(
            "answers_count",
            asset="answers",
            description="Every row of your own answers, where there are any, is of a lead and has a moment after it",
        ),
        AssetCheckSpec(
            "every_branch_is_fresh",
            asset="mart_coverage",
            description=f"Of every branch a day no older than {STALE_DAYS} days is landed",
        ),
    ]


def habit_checks(db: Reader) -> Iterator[AssetCheckResult]:
    """Judge the published file as it is."""
    for kind in LEAD_KINDS:
        yield attempted(kind.table, "key_fields_are_filled_as_usual", partial(_key_fields, db, kind))
    yield attempted("mart_leads_daily", "volumes_are_as_usual", partial(_volumes, db))
    yield attempted("answers", "answers_count", partial(_answers, db))
    yield attempted("mart_coverage", "every_branch_is_fresh", partial(_freshness, db))


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


def _key_fields(db: Reader, kind: LeadKind) -> AssetCheckResult:
    fields = [field.column for field in kind.fields if field.is_key]
    empty = ", ".join(f"count(*) filter (coalesce({quoted(field)}::varchar, '') = '')" for field in fields)
    _, rows = db.query(
        statement("checks/key_fields").format(table=quoted(kind.table), empty=empty),
        {"recent": RECENT_DAYS, "habit": HABIT_DAYS},
    )
    counts = {is_recent: (leads, dict(zip(fields, empties, strict=True))) for is_recent, leads, *empties in rows}
    (recent, now), (before, usual) = (counts.get(is_recent, (0, {})) for is_recent in (True, False))
    risen = {}
    if min(recent, before) >= _FEWEST_LEADS:
        shares = {field: (100 * usual[field] / before, 100 * now[field] / recent) for field in fields}
        risen = {field: pair for field, pair in shares.items() if pair[1] - pair[0] > SHARE_RISE_PERCENT}
    return _result(
        kind.table,
        "key_fields_are_filled_as_usual",
        [f"{field}: empty in {share:.0f} % of leads, usually in {old:.0f} %" for field, (old, share) in risen.items()],
        {"leads": recent, "leads_before": before},
    )


def _volumes(db: Reader) -> AssetCheckResult:
    _, rows = db.query(
        statement("checks/volumes_are_as_usual"),
        {
            "habit_days": HABIT_DAYS,
            "fewest_days": _FEWEST_HABIT_DAYS,
            "fewest_leads": _FEWEST_USUAL_LEADS,
            "deviations": DEVIATIONS,
        },
    )
    lines = [
        f"{kind} {day}|{shown(scope, branch)}: {leads} leads, usually {usual:.0f}"
        for kind, scope, branch, day, leads, usual in rows
    ]
    return _result("mart_leads_daily", "volumes_are_as_usual", lines, {"windows": len(rows)})


def _answers(db: Reader) -> AssetCheckResult:
    _, rows = db.query(statement("checks/answers_count"))
    lines = [f"{count} rows: {problem}" for problem, count in rows]
    return _result("answers", "answers_count", lines, {"answers": sum(count for _, count in rows)})


def _freshness(db: Reader) -> AssetCheckResult:
    _, rows = db.query(statement("checks/every_branch_is_fresh"), {"stale_days": STALE_DAYS})
    lines = [
        f"{kind} {shown(scope, branch)}: {f'newest day {newest}' if newest else 'nothing landed yet'}"
        for kind, scope, branch, newest in rows
    ]
    return _result("mart_coverage", "every_branch_is_fresh", lines, {"stale_branches": len(rows)})


def _result(asset: str, name: str, unusual: Sequence[str], figures: Mapping[str, Any]) -> AssetCheckResult:
    return AssetCheckResult(
        asset_key=asset,
        check_name=name,
        passed=not unusual,
        severity=AssetCheckSeverity.WARN,
        description="\n".join(f"- {line}" for line in unusual[:NAMED]) if unusual else "As usual.",
        metadata=figures,
    )
