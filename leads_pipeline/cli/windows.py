"""Windows from the command line: `backfill` pulls them, `coverage` counts them, `damaged` lists what is broken."""

import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

import click
from rich.markup import escape
from rich.table import Table

from leads_pipeline import status
from leads_pipeline.cli.session import LISTED_FAILURES, Session, err, out, plain_errors, show_report, table
from leads_pipeline.contract import LEAD_KINDS
from leads_pipeline.damage import DAMAGE_ADVICE, damages, give_up
from leads_pipeline.partitions import Partitions
from leads_pipeline.status import WindowCoverage, WindowState
from leads_pipeline.window import RETENTION, Window, days

# What else than leads a backfill can pull.
INVENTORY = "inventory"

# A century: no installation is older, and the calendar ends somewhere.
MAX_COVERAGE_DAYS = 36_525


class _Day(click.ParamType[date]):
    name = "day"

    def convert(self, value: str | date, param: click.Parameter | None, ctx: click.Context | None) -> date:
        if isinstance(value, date):
            return value
        try:
            return date.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not a day. Write 2026-11-19.", param, ctx)


@click.command()
@click.option("--from", "first", type=_Day(), required=True, help="First day, as 2026-11-01.")
@click.option("--to", "last", type=_Day(), required=True, help="Last day, included.")
@click.option("--scope", "scope_keys", multiple=True, help="Only this scope, as branch-101; repeat for more.")
@click.option(
    "--kind",
    "kind_names",
    multiple=True,
    type=click.Choice([*(kind.name for kind in LEAD_KINDS), INVENTORY]),
    help="Only this kind; repeat for more. Else all that is configured, the inventory where today is among the days.",
)
def backfill(first: date, last: date, scope_keys: Sequence[str], kind_names: Sequence[str]) -> None:
    """Pull days of leads, flatten them and publish the warehouse, without the Dagster UI.

    Leads that the portal has pushed in the meantime, of any day, are taken in as well.
    """
    with plain_errors(), Session.opened() as session:
        scopes = session.chosen_scopes(scope_keys)
        if last < first:
            raise click.UsageError(f"--to {last} lies before --from {first}.")
        for day, name in ((first, "--from"), (last, "--to")):
            if not session.first_day <= day <= session.today:
                raise click.UsageError(
                    f"{name} {day} is no partition: they go from {session.first_day} to {session.today}. "
                    "LEADS_START_DATE sets the first one."
                )
        if INVENTORY in kind_names and last < session.today:
            raise click.UsageError(
                f"--kind {INVENTORY}: the API knows the present only. Have --to name today, {session.today}."
            )
        kinds = [kind for kind in LEAD_KINDS if not kind_names or kind.name in kind_names]
        windows = [Window.of(day, scope, session.settings.zone) for day in days(first, last) for scope in scopes]
        report = session.pull(windows if kinds else [], kinds)
        pushed, troubles = session.take_in()
        if INVENTORY in kind_names or (not kind_names and last == session.today and session.settings.has_inventory):
            troubles += session.pull_inventory()
        troubles += session.refresh({window.day for window in windows if kinds} | pushed)
        show_report(report, troubles)
    sys.exit(0 if report.succeeded and not troubles else 1)


@click.command()
@click.option(
    "--days",
    "count",
    type=click.IntRange(0, MAX_COVERAGE_DAYS),
    default=RETENTION.days,
    show_default=True,
    help="How many days back, today not counted.",
)
def coverage(count: int) -> None:
    """Say which windows are landed, empty, failed or missing, when they were looked at, and how long they can be had.

    From the files and Dagster's log as they are now. Exit code 1 if a window is failed or missing.
    """
    now = datetime.now(UTC)
    with plain_errors(), Session.opened() as session:
        windows = list(
            status.coverage(
                session.runner.instance,
                session.settings,
                Partitions.of(session.settings, session.first_day),
                session.lake,
                session.today - timedelta(days=count),
                now,
            )
        )
        unstaged = session.unstaged()
    for kind in LEAD_KINDS:
        rows = []
        for state in WindowState:
            if found := [one for one in windows if (one.kind, one.state) == (kind, state)]:
                looks = [one.looked_at for one in found if one.looked_at is not None]
                looked_at = f"{min(looks):%Y-%m-%d %H:%M} to {max(looks):%Y-%m-%d %H:%M}" if looks else "never"
                rows.append((state, len(found), sum(one.rows or 0 for one in found), looked_at))
        out.print(table(("state", "windows", "leads", "last looked at (UTC)"), rows, f"{kind.name} leads"))
    lost = [one for one in windows if one.state in (WindowState.DAMAGED, WindowState.FAILED, WindowState.MISSING)]
    if lost:
        _show_lost(lost, now)
    if unstaged:
        out.print(
            f"Landed and not staged yet: {', '.join(map(str, sorted(unstaged)))}. The daemon does it within minutes, "
            "and so does any `leads-pipeline backfill`."
        )
    sys.exit(1 if lost or unstaged else 0)


def _show_lost(lost: Sequence[WindowCoverage], now: datetime) -> None:
    """The windows that aren't landed, soonest deleted first, and the command that pulls them."""
    lost = sorted(lost, key=lambda one: one.window)
    listed = Table("kind", "window", "state", "days left", "attempts", "last error", title=f"{len(lost)} not landed")
    for one in lost[:LISTED_FAILURES]:
        left = "deleted" if one.window.is_deleted(now) else f"{max(0.0, one.window.days_left(now)):.1f}"
        attempts, error = (str(one.failure.attempts), one.failure.last_error) if one.failure else ("0", "")
        state = f"{one.state}, refused" if one.failure and one.failure.is_refused else one.state
        listed.add_row(one.kind.name, one.window.partition_key, state, left, attempts, escape(error))
    out.print(listed)
    if len(lost) > LISTED_FAILURES:
        out.print(f"… and {len(lost) - LISTED_FAILURES} more.")
    wanted = [one.window.day for one in lost if not one.window.is_deleted(now)]
    if wanted:
        out.print(f"Take them up with: leads-pipeline backfill --from {wanted[0]} --to {wanted[-1]}", highlight=False)


@click.command()
@click.option("--give-up", "keys", multiple=True, metavar="KEY", help="Give this one up for good; repeat for more.")
@click.option("--yes", is_flag=True, help="Don't ask again before giving up.")
def damaged(keys: Sequence[str], yes: bool) -> None:
    """List what is damaged or gone in the data folder, and give up what can't be had again.

    What a window held when it was last whole stays staged and published until it is whole again, or given up here: then
    those leads are deleted, and what was set aside of the file. Exit code 1 if something is damaged.
    """
    with plain_errors(), Session.opened() as session:
        found = {damage.key: damage for damage in damages(session.lake)}
        if unknown := [key for key in keys if key not in found]:
            raise click.UsageError(f"{', '.join(unknown)}: not damaged. `leads-pipeline damaged` lists what is.")
        if found and not keys:
            rows = [(one.key, one.leads, len(one.files)) for one in found.values()]
            out.print(table(("key", "leads still kept", "files in quarantine/"), rows, f"{len(found)} damaged"))
            out.print(DAMAGE_ADVICE, highlight=False)
        if keys and not yes:
            leads = sum(found[key].leads or 0 for key in keys)
            click.confirm(f"Delete what is kept of {len(keys)}, {leads} leads or fewer, for good?", abort=True)
        for key in keys:
            give_up(session.lake, found.pop(key), session.settings.zone)
        trouble = session.runner.publish() if keys else None
        if trouble:
            err.print(f"[bold red]failed:[/bold red] {escape(trouble)}", highlight=False)
        elif not found:
            out.print("Nothing is damaged.")
    sys.exit(1 if found or trouble else 0)
