"""What the commands share: an installation, opened, and how its errors and results are shown."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Self

import click
from dagster import DagsterError, DagsterEventType, DagsterInstance, Definitions, EventLogEntry
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from leads_pipeline.cli.output import err, out
from leads_pipeline.definitions import build_definitions
from leads_pipeline.domain.contract import LEAD_KINDS, LeadKind
from leads_pipeline.domain.window import Scope, Window, today
from leads_pipeline.errors import QuestionError, SettingsError
from leads_pipeline.observe.doctor import Finding, Light, same_portal, some_of, writable
from leads_pipeline.orchestration.assets.inventory import NOT_PULLED
from leads_pipeline.orchestration.home import dagster_home
from leads_pipeline.orchestration.pulling import INVENTORY_JOB, PUBLISH_JOB, due_windows
from leads_pipeline.orchestration.runs import PullReport, pull, run_job
from leads_pipeline.settings import Settings, variables
from leads_pipeline.storage.branches import Branches, read_branches
from leads_pipeline.storage.data_folder import FIRST_DAYS, DataFolder, first_day
from leads_pipeline.storage.placement import Placement
from leads_pipeline.storage.proof import prove
from leads_pipeline.storage.takeover import take_over_deliveries
from leads_pipeline.storage.windows import window_table
from leads_pipeline.transform.reading import LeadsFile

# How many failed windows are listed with their reason; the rest are counted.
LISTED_FAILURES = 20


@dataclass(frozen=True, slots=True)
class Session:
    """An installation, opened: its settings, its data folder, its Dagster instance."""

    settings: Settings
    data: DataFolder
    definitions: Definitions
    instance: DagsterInstance
    first_day: date
    today: date

    @classmethod
    @contextmanager
    def opened(cls, days_at_first: int = FIRST_DAYS.days) -> Iterator[Self]:
        """`days_at_first` is how far back the partitions of a new data folder go."""
        settings = configured()
        writable(settings.data_dir)
        home = dagster_home(settings)
        variables()["DAGSTER_HOME"] = str(home)
        data, day = opened(settings), today(settings.zone, datetime.now(UTC))
        if settings.start_date is None:
            data.state.remember_start_date(day - timedelta(days=days_at_first))
        with dagster_instance(home) as instance:
            yield cls(settings, data, build_definitions(variables()), instance, first_day(settings), day)

    def chosen_scopes(self, keys: Sequence[str]) -> list[Scope]:
        """The scopes named, or all; in the order of the settings. A scope that isn't in the settings is refused."""
        configured = [scope.key for scope in self.settings.scopes]
        if unknown := [key for key in keys if key not in configured]:
            raise QuestionError(
                f"--scope: {', '.join(unknown)} is not among the scopes of LEADS_BRANCH_IDS or LEADS_SCOPES. They are "
                f"{some_of(configured)}."
            )
        return [scope for scope in self.settings.scopes if not keys or scope.key in keys]

    def due(self, wanted: Iterable[date]) -> dict[LeadKind, list[Window]]:
        """The windows of those days that the daily pull would ask for now."""
        now = datetime.now(UTC)
        windows = [Window.of(day, scope, self.settings.zone) for day in wanted for scope in self.settings.scopes]
        return {kind: due_windows(window_table(self.data.store, kind, windows, now), now, now) for kind in LEAD_KINDS}

    def branches(self) -> Branches:
        """What the branches are called; where that can't be read, a line that says why, and keys alone."""
        try:
            return read_branches(self.settings.branches_file)
        except SettingsError as error:
            err.print(escape(str(error)), highlight=False)
            return Branches()

    def pull(self, windows: Mapping[LeadKind, Sequence[Window]]) -> PullReport:
        """Pull those windows of each kind, with a progress bar."""
        keys = {kind: [window.partition_key for window in of_kind] for kind, of_kind in windows.items() if of_kind}
        if not keys:
            return PullReport()
        if self.data.state.is_pulling():
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
        began = datetime.now(UTC)
        with bar:
            task = bar.add_task("pull", total=sum(map(len, keys.values())), leads=0, failed=0)

            def advance(report: PullReport) -> None:
                done = sum(report.landed.values()) + len(report.failed)
                bar.update(task, completed=done, leads=report.leads, failed=len(report.failed))

            try:
                return pull(self.definitions, self.instance, keys, advance)
            except KeyboardInterrupt:
                bar.stop()
                # Counted by the files: Dagster's events of the last moment were not heard any more.
                now = datetime.now(UTC)
                tables = (window_table(self.data.store, kind, of_kind, now) for kind, of_kind in windows.items())
                count = sum(row.looked_at is not None and row.looked_at >= began for rows in tables for row in rows)
                err.print(f"{count} windows are landed and stay. `leads-pipeline coverage` tells which are left.")
                raise

    def pull_inventory(self) -> list[str]:
        """Pull today's inventory; what went wrong, if anything did."""
        reasons: list[str] = []

        def listen(entry: EventLogEntry) -> None:
            event = entry.dagster_event
            if event and event.event_type is DagsterEventType.ASSET_MATERIALIZATION:
                metadata = event.step_materialization_data.materialization.metadata
                reasons.extend([str(metadata[NOT_PULLED].value)] if NOT_PULLED in metadata else [])

        with err.status("Pulling the inventory"):
            tags = {"dagster/partition": self.today.isoformat()}
            trouble = run_job(self.definitions, self.instance, INVENTORY_JOB, tags=tags, listen=listen)
        if trouble or reasons:
            return [trouble or reasons[0]]
        out.print(f"Landed the inventory of {self.today}.")
        return []

    def publish(self) -> str | None:
        """Publish what is landed; what went wrong, if anything did."""
        return run_job(self.definitions, self.instance, PUBLISH_JOB)

    def refresh(self) -> list[str]:
        """The same, and say where it is published."""
        with err.status("Publishing leads.duckdb"):
            trouble = self.publish()
        if trouble is None:
            out.print(f"Published: {LeadsFile(self.data).path}", highlight=False, soft_wrap=True)
        return [trouble] if trouble else []


def opened(settings: Settings) -> DataFolder:
    """The data folder. What an earlier release left in it is taken over, and what machines agree on is exchanged."""
    data = DataFolder.of(settings)
    if data.bucket is not None:
        prove(data.bucket)
    same_portal(settings, data)
    data.share()
    data.take_over()
    take_over_deliveries(data.bucket or data.store, data.raw, Placement(settings.scopes, settings.zone))
    return data


def configured() -> Settings:
    """The settings of an installation that has something to pull. Raises SettingsError."""
    settings = Settings.from_variables(variables())
    if not settings.scopes:
        raise SettingsError(
            "LEADS_BRANCH_IDS is not set: name the branches to pull, as 101,102, in .env or the environment."
        )
    return settings


def dagster_instance(home: Path) -> DagsterInstance:
    """Open Dagster's own state. Raises SettingsError for a dagster.yaml that Dagster refuses."""
    try:
        return DagsterInstance.get()
    except DagsterError as error:  # its message may quote a password of the file
        raise SettingsError(
            f"Dagster refuses {home / 'dagster.yaml'} ({type(error).__name__}). Correct the file and the variables "
            "that it names. Or move it away: the next start writes a new one, with a new history. The leads stay."
        ) from None


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
    for trouble in (*([report.error] if report.error else []), *troubles):
        err.print(f"[bold red]failed:[/bold red] {escape(trouble)}", highlight=False)


_COLOURS = {Light.GREEN: "green", Light.YELLOW: "yellow", Light.RED: "red"}


def show_finding(finding: Finding) -> None:
    """Print the finding in a line."""
    click.echo(f"{click.style(f'{finding.light:<6}', _COLOURS[finding.light])} {finding.check}: {finding.message}")
