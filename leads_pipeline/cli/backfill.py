"""Pull days of leads and publish them, without the UI: `backfill`."""

import os
import re
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import click

from leads_pipeline.cli.installation import move_demo_option, offer_to_move_demo
from leads_pipeline.cli.output import day
from leads_pipeline.cli.pulled_today import pulled_today
from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.domain.window import RETENTION, Scope, Window, days, today
from leads_pipeline.errors import QuestionError, SettingsError
from leads_pipeline.settings import Settings

if TYPE_CHECKING:
    from leads_pipeline.cli.session import Session

# A backfill can pull these too.
_PULLED_TODAY = {one.name: one for one in pulled_today()}
_KINDS = [*(kind.name for kind in LEAD_KINDS), *_PULLED_TODAY]
_AND_TODAY = "".join(f", and the {name} if today is among the days" for name in _PULLED_TODAY)


def last_days(text: str) -> timedelta:
    """Read a number of days, as 10d. Raises BadParameter."""
    if match := re.fullmatch(r"([1-9][0-9]{0,4})d", text, re.ASCII):
        return timedelta(days=int(match[1]))
    raise click.BadParameter(
        f"{text!r} is not a number of days. Write {text if text.isdecimal() else 10}d."
    )


@click.command()
@click.option("--from", "first", type=day, metavar="DAY", help="First day, as 2026-11-01.")
@click.option("--to", "last", type=day, metavar="DAY", help="Last day, included.")
@click.option(
    "--last",
    "recent",
    type=last_days,
    metavar="DAYS",
    help="Instead: the last days and today, as 10d.",
)
@click.option(
    "--scope", "scope_keys", multiple=True, help="Only this scope, as branch-101; repeat for more."
)
@click.option(
    "--kind",
    "kind_names",
    multiple=True,
    type=click.Choice(_KINDS),
    help=f"Only this kind; repeat for more. Default: all{_AND_TODAY}.",
)
@move_demo_option
def backfill(
    first: date | None,
    last: date | None,
    recent: timedelta | None,
    scope_keys: Sequence[str],
    kind_names: Sequence[str],
    *,
    move_demo: bool,
) -> None:
    """Pull days of leads and publish them in leads.duckdb, without the Dagster UI.

    Exit code 0 if every window landed and is published, 1 if something failed, 2 if an argument, a
    setting or the folder is wrong. Windows that landed are published in any case.
    """
    # Loaded here, as they load Dagster.
    from leads_pipeline.cli.session import Session
    from leads_pipeline.raw.data_folder import FIRST_DAYS

    kinds = [kind for kind in LEAD_KINDS if not kind_names or kind.name in kind_names]
    settings = Settings.from_variables(os.environ)

    if kinds:
        settings.want_portal()

    pulls_asked_for = [
        _PULLED_TODAY[name] for name in dict.fromkeys(kind_names) if name in _PULLED_TODAY
    ]
    for one in pulls_asked_for:
        if reason := one.reason_against(settings):
            raise SettingsError(reason)

    scopes = _scopes(settings, scope_keys)
    this_day = today(settings.zone, datetime.now(UTC))
    first, last = _days_asked_for(settings, this_day, first, last, recent)
    for one in pulls_asked_for:
        if last < this_day:
            raise click.UsageError(
                f"--kind {one.name}: the API knows the present only. Let --to be today, {this_day}."
            )

    offer_to_move_demo(settings, is_wanted=move_demo)

    with Session.opened(FIRST_DAYS) as session:
        click.echo(f"Dagster home: {settings.dagster_folder}", err=True)
        first = _since_first_partition(session, first, is_recent=recent is not None)
        windows = [
            Window.of(one, scope, settings.zone) for one in days(first, last) for scope in scopes
        ]
        other_pulls = pulls_asked_for
        if not kind_names and last == this_day:
            other_pulls = [
                one for one in _PULLED_TODAY.values() if one.reason_against(settings) is None
            ]
        is_done = session.bring(dict.fromkeys(kinds, windows), other_pulls)

    sys.exit(0 if is_done else 1)


def _scopes(settings: Settings, keys: Sequence[str]) -> list[Scope]:
    """Return the named scopes, or all. Raises QuestionError for one that isn't in the settings."""
    from leads_pipeline.words import some

    configured = [scope.key for scope in settings.scopes]
    if unknown := [key for key in keys if key not in configured]:
        raise QuestionError(
            f"--scope: {', '.join(unknown)} is not among the scopes of LEADS_BRANCH_IDS or "
            f"LEADS_SCOPES. They are {some(configured)}."
        )
    return [scope for scope in settings.scopes if not keys or scope.key in keys]


def _days_asked_for(
    settings: Settings,
    this_day: date,
    first: date | None,
    last: date | None,
    recent: timedelta | None,
) -> tuple[date, date]:
    """Return the first and the last day that were asked for. Raises UsageError."""
    if recent is not None and first is None and last is None:
        return this_day - recent, this_day
    if first is None or last is None or recent is not None:
        raise click.UsageError("Name the days: either --last 10d, or --from and --to.")
    if last < first:
        raise click.UsageError(f"--to {last} lies before --from {first}.")
    if last > this_day:
        raise click.UsageError(
            f"--to {last} is in the future: today in {settings.zone.key} is {this_day}."
        )

    return first, last


def _since_first_partition(session: "Session", first: date, *, is_recent: bool) -> date:
    """Return the first day to pull. Recent days before the first partition don't count.

    Raises UsageError if somebody named one.
    """
    if first >= session.first_day:
        return first
    if is_recent:
        return session.first_day
    raise click.UsageError(
        f"--from {first} is before the first day of this data folder, {session.first_day}. To "
        f"begin earlier, set LEADS_START_DATE={first}. The portal keeps leads for "
        f"{RETENTION.days} days."
    )
