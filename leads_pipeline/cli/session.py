"""What the commands share: an installation, opened, and how its errors and results are shown."""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Self

import click
from dagster import DagsterError, DagsterInstance
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from leads_pipeline.branches import Branches, read_branches
from leads_pipeline.contract import LEAD_KINDS, LeadKind
from leads_pipeline.definitions import LATE_DAYS, build_definitions, first_day, variables
from leads_pipeline.doctor import Finding, Light, same_portal, some_of, writable
from leads_pipeline.errors import LeadsPipelineError, QuestionError, SettingsError
from leads_pipeline.flatten.windows import unstaged_days
from leads_pipeline.lake import Lake
from leads_pipeline.partitions import consecutive, rectangles
from leads_pipeline.runs import PullReport, Runner, dagster_home
from leads_pipeline.settings import Settings
from leads_pipeline.spool import Spool
from leads_pipeline.warehouse import Warehouse
from leads_pipeline.window import RETENTION, Scope, Window, today

# How many failed windows are listed with their reason; the rest are counted.
LISTED_FAILURES = 20

# 128 and the signal's number, as shells have it.
EXIT_INTERRUPTED = 130

out = Console()
err = Console(stderr=True)


@dataclass(frozen=True, slots=True)
class Session:
    """An installation, opened: its settings, its data folder, its Dagster instance."""

    settings: Settings
    lake: Lake
    runner: Runner
    first_day: date
    today: date

    @classmethod
    @contextmanager
    def opened(cls, days_at_first: int = RETENTION.days) -> Iterator[Self]:
        """`days_at_first` is how far back the partitions of a new data folder go."""
        settings = configured()
        writable(settings.data_dir)
        home = dagster_home(settings)
        variables()["DAGSTER_HOME"] = str(home)
        lake, day = Lake.of(settings), today(settings.zone, datetime.now(UTC))
        fetch_from_store(settings)
        if settings.start_date is None:
            lake.remember_start_date(day - timedelta(days=days_at_first))
        with _instance(home) as instance:
            runner = Runner(build_definitions(variables()), instance)
            yield cls(settings, lake, runner, first_day(settings), day)

    def chosen_scopes(self, keys: Sequence[str]) -> list[Scope]:
        """The scopes named, or all; in the order of the settings. A scope that isn't in the settings is refused."""
        configured = [scope.key for scope in self.settings.scopes]
        if unknown := [key for key in keys if key not in configured]:
            raise QuestionError(
                f"--scope: {', '.join(unknown)} is not among the scopes of LEADS_BRANCH_IDS or LEADS_SCOPES. They are "
                f"{some_of(configured)}."
            )
        return [scope for scope in self.settings.scopes if not keys or scope.key in keys]

    def due(self, wanted: Iterable[date]) -> list[Window]:
        """What a routine pull of those days would take up: what isn't landed since it closed, and the last days."""
        due = []
        for day in wanted:
            landed = [file for kind in LEAD_KINDS for file in self.lake.landed_windows(kind, day)]
            is_recent = day >= self.today - timedelta(days=LATE_DAYS)
            for scope in self.settings.scopes:
                window = Window.of(day, scope, self.settings.zone)
                files = [file for file in landed if file.scope == scope.key and file.has_landed(window)]
                if is_recent or len(files) < len(LEAD_KINDS):
                    due.append(window)
        return due

    def branches(self) -> Branches:
        """What the branches are called; where that can't be read, a line that says why, and keys alone."""
        try:
            return read_branches(self.settings.branches_file)
        except SettingsError as error:
            err.print(escape(str(error)), highlight=False)
            return Branches()

    def pull(self, windows: Sequence[Window], kinds: Sequence[LeadKind]) -> PullReport:
        """Pull those windows of those kinds, with a progress bar."""
        report, began = PullReport(), datetime.now(UTC)
        wanted: dict[date, set[str]] = defaultdict(set)
        for window in windows:
            wanted[window.day].add(window.scope.key)
        if self.lake.is_pulling():
            err.print("Another pull is under way, perhaps of the daemon. This one begins when it has ended.")
        bar = Progress(
            TextColumn("[bold]Pulling"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("windows,"),
            TextColumn("{task.fields[leads]} leads, {task.fields[failed]} failed"),
            TimeElapsedColumn(),
            console=err,
        )
        with bar:
            task = bar.add_task("pull", total=len(windows) * len(kinds), leads=0, failed=0)

            def advance() -> None:
                done = sum(report.landed.values()) + len(report.failed)
                bar.update(task, completed=done, leads=report.leads, failed=len(report.failed))

            try:
                for area in rectangles(windows, self.settings.scopes):
                    self.runner.pull(kinds, area, report, advance)
            except KeyboardInterrupt:
                bar.stop()
                # Counted by the files: Dagster's events of the last moment were not heard any more.
                count = sum(
                    file.scope in scopes and file.looked_at >= began
                    for kind in kinds
                    for day, scopes in wanted.items()
                    for file in self.lake.known_windows(kind, day)
                )
                err.print(f"{count} windows are landed and stay. `leads-pipeline coverage` tells which are left.")
                raise
        return report

    def take_in(self) -> tuple[Set[date], list[str]]:
        """Take in what waits in the receiver's spool: the days that it belongs to; what went wrong, if anything did."""
        if not Spool(self.lake).waiting():
            return set(), []
        with err.status("Taking in pushed leads"):
            touched, trouble = self.runner.take_in(self.today)
        return touched, [trouble] if trouble else []

    def pull_inventory(self) -> list[str]:
        """Pull today's inventory; what went wrong, if anything did."""
        with err.status("Pulling the inventory"):
            trouble = self.runner.pull_inventory(self.today)
        if trouble:
            return [trouble]
        out.print(f"Landed the inventory of {self.today}.")
        return []

    def unstaged(self) -> set[date]:
        """Days that are landed and not staged."""
        since = self.today - 2 * RETENTION
        return {day for kind in LEAD_KINDS for day in unstaged_days(self.lake, kind, since) if day >= self.first_day}

    @contextmanager
    def looking_for_unstaged(self) -> Iterator[Future[set[date]]]:
        """Have a thread look for them meanwhile: a pull waits for the portal most of its time."""
        with ThreadPoolExecutor(1, "looking-for-unstaged") as aside:
            yield aside.submit(self.unstaged)

    def refresh(self, touched: Set[date], unstaged: Future[set[date]] | None = None) -> list[str]:
        """Flatten those days and publish the warehouse; what went wrong, if anything did.

        Also what an earlier command landed and didn't come to flatten, as it was killed; `unstaged` is the look for it,
        where one has begun.
        """
        troubles = []
        if left := (self.unstaged() if unstaged is None else unstaged.result()) - touched:
            out.print(f"Flattening also days that an earlier command left: {', '.join(map(str, sorted(left)))}.")
            touched = touched | left
        with err.status("Flattening"):
            for first, last in consecutive(touched):
                troubles.append(self.runner.stage(first, last))
        with err.status("Publishing leads.duckdb"):
            troubles.append(trouble := self.runner.publish())
        if trouble is None:
            out.print(f"Published: {Warehouse(self.lake).path}", highlight=False, soft_wrap=True)
        return [trouble for trouble in troubles if trouble]


def fetch_from_store(settings: Settings) -> None:
    """Have this machine's folder hold what the store has, which takes minutes on a new machine; nothing without one."""
    lake = Lake.of(settings)
    if lake.store is not None:
        lake.share_memory()
        same_portal(settings, lake)  # before anything of another's is fetched
        with err.status(f"Fetching what {lake.store.address} has"):
            lake.refresh()


def configured() -> Settings:
    """The settings of an installation that has something to pull. Raises SettingsError."""
    settings = Settings.from_variables(variables())
    if not settings.scopes:
        raise SettingsError(
            "LEADS_BRANCH_IDS is not set: name the branches to pull, as 101,102, in .env or the environment."
        )
    return settings


def _instance(home: Path) -> DagsterInstance:
    """Open Dagster's own state. Raises SettingsError for a dagster.yaml that Dagster refuses."""
    try:
        return DagsterInstance.get()
    except DagsterError as error:  # its message may quote a password of the file
        raise SettingsError(
            f"Dagster refuses {home / 'dagster.yaml'} ({type(error).__name__}). Correct the file and the variables "
            "that it names. Or move it away: the next start writes a new one, with a new history. The leads stay."
        ) from None


@contextmanager
def plain_errors() -> Iterator[None]:
    """Show the pipeline's own errors as a sentence, and exit 2: they are about settings, not about the program."""
    try:
        yield
    except LeadsPipelineError as error:
        err.print(f"[bold red]{error.reason}:[/bold red] {escape(str(error))}", highlight=False)
        sys.exit(2)
    except KeyboardInterrupt:
        err.print("Stopped.")
        sys.exit(EXIT_INTERRUPTED)


def show_report(report: PullReport, troubles: Sequence[str], branches: Branches) -> None:
    """Print what landed, and what failed: windows by reason, then what went wrong after the pull."""
    landed = " and ".join(f"{count} of {kind.replace('_', ' ')}" for kind, count in sorted(report.landed.items()))
    out.print(f"Landed windows: {landed or 'none'}. They hold {report.leads} leads, {report.new} of them new.")
    by_reason: dict[str, list[tuple[str, str, str]]] = {}
    for (kind, key), (reason, message) in sorted(report.failed.items()):
        by_reason.setdefault(reason, []).append((kind, key, message))
    for reason, windows in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        named = ", ".join(f"{kind} {branches.shown_window(key)}" for kind, key, _ in windows[:LISTED_FAILURES])
        more = f" and {len(windows) - LISTED_FAILURES} more" if len(windows) > LISTED_FAILURES else ""
        out.print(
            f"\n[bold red]Failed, {reason}: {len(windows)}[/bold red] ({escape(named)}{more})",
            soft_wrap=True,
            highlight=False,
        )
        out.print(f"  {escape(windows[0][2])}", soft_wrap=True, highlight=False)
    for trouble in (*report.broken, *troubles):
        err.print(f"[bold red]failed:[/bold red] {escape(trouble)}", highlight=False)


_COLOURS = {Light.GREEN: "green", Light.YELLOW: "yellow", Light.RED: "red"}


def show_finding(finding: Finding) -> None:
    """Print the finding in a line."""
    click.echo(f"{click.style(f'{finding.light:<6}', _COLOURS[finding.light])} {finding.check}: {finding.message}")


def table(names: Sequence[str], rows: Sequence[Sequence[object]], title: str | None = None) -> Table:
    """Rows as rich prints them; None as nothing."""
    shown = Table(*names, title=title, title_justify="left")
    for row in rows:
        shown.add_row(*("" if value is None else str(value) for value in row))
    return shown
