"""Pull days of leads and publish them, without the UI: `backfill`."""

import re
import sys
from collections.abc import Sequence
from datetime import date, timedelta

import click

from leads_pipeline.cli.output import plain_errors
from leads_pipeline.cli.session import Session
from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.domain.window import RETENTION, Window, days

# What else than leads a backfill can pull.
INVENTORY = "inventory"


class _Day(click.ParamType[date]):
    name = "day"

    def convert(self, value: str | date, param: click.Parameter | None, ctx: click.Context | None) -> date:
        if isinstance(value, date):
            return value
        try:
            return date.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not a day. Write 2026-11-19.", param, ctx)


class _Days(click.ParamType[timedelta]):
    name = "days"

    def convert(self, value: str | timedelta, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        match = re.fullmatch(r"([1-9][0-9]{0,4})d", value, re.ASCII)
        if match is None:
            self.fail(f"{value!r} is not a number of days. Write 10d.", param, ctx)
        return timedelta(days=int(match[1]))


@click.command()
@click.option("--from", "first", type=_Day(), help="First day, as 2026-11-01.")
@click.option("--to", "last", type=_Day(), help="Last day, included.")
@click.option("--last", "recent", type=_Days(), help="The last days and today, as 10d, instead of --from and --to.")
@click.option("--scope", "scope_keys", multiple=True, help="Only this scope, as branch-101; repeat for more.")
@click.option(
    "--kind",
    "kind_names",
    multiple=True,
    type=click.Choice([*(kind.name for kind in LEAD_KINDS), INVENTORY]),
    help="Only this kind; repeat for more. Default: all, and the inventory if today is among the days.",
)
def backfill(
    first: date | None,
    last: date | None,
    recent: timedelta | None,
    scope_keys: Sequence[str],
    kind_names: Sequence[str],
) -> None:
    """Pull days of leads and publish them in leads.duckdb, without the Dagster UI.

    Exit code 0 if every window landed, 1 if one did not, 2 if the question, a setting or the folder is wrong. Windows
    that landed are published in any case.
    """
    with plain_errors(), Session.opened() as session:
        scopes = session.chosen_scopes(scope_keys)
        first, last = _chosen_days(session, first, last, recent)
        if INVENTORY in kind_names and last < session.today:
            raise click.UsageError(
                f"--kind {INVENTORY}: the API knows the present only. Have --to name today, {session.today}."
            )
        kinds = [kind for kind in LEAD_KINDS if not kind_names or kind.name in kind_names]
        windows = [Window.of(day, scope, session.settings.zone) for day in days(first, last) for scope in scopes]
        is_today = not kind_names and last == session.today and not session.settings.no_inventory
        is_done = session.bring(dict.fromkeys(kinds, windows), inventory=is_today or INVENTORY in kind_names)
    sys.exit(0 if is_done else 1)


def _chosen_days(
    session: Session, first: date | None, last: date | None, recent: timedelta | None
) -> tuple[date, date]:
    """The first and the last day that were asked for. Recent days before the first partition don't count."""
    if recent is not None and first is None and last is None:
        return max(session.first_day, session.today - recent), session.today
    if first is None or last is None or recent is not None:
        raise click.UsageError("Name the days: either --last 10d, or --from and --to.")
    if last < first:
        raise click.UsageError(f"--to {last} lies before --from {first}.")
    if last > session.today:
        raise click.UsageError(
            f"--to {last} is in the future: today in {session.settings.zone.key} is {session.today}."
        )
    if first < session.first_day:
        setter = (
            "LEADS_START_DATE says so"
            if session.settings.start_date
            else "the first start of this data folder chose it"
        )
        raise click.UsageError(
            f"--from {first} is before the first day, {session.first_day}: {setter}. To begin earlier, set "
            f"LEADS_START_DATE={first}. The portal keeps leads for {RETENTION.days} days."
        )
    return first, last
