"""What the commands share: an installation, opened, and how its errors and results are shown."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Self

from dagster import DagsterError, DagsterEventType, DagsterInstance, Definitions, EventLogEntry
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from leads_pipeline.cli.output import err, out
from leads_pipeline.definitions import build_definitions
from leads_pipeline.domain.contract import LEAD_KINDS, LeadKind
from leads_pipeline.domain.window import Scope, Window, today
from leads_pipeline.errors import LeadsPipelineError, QuestionError, SettingsError
from leads_pipeline.observe.finding import some
from leads_pipeline.orchestration.home import dagster_home
from leads_pipeline.orchestration.pulling import INVENTORY_JOB, PUBLISH_JOB, due_windows
from leads_pipeline.orchestration.raw_inventory import NOT_PULLED
from leads_pipeline.orchestration.runs import PullReport, pull, run_job
from leads_pipeline.settings import Settings, variables
from leads_pipeline.storage.branches import Branches, read_branches
from leads_pipeline.storage.data_folder import FIRST_DAYS, DataFolder, check_portal, first_day
from leads_pipeline.storage.durable import check_writable
from leads_pipeline.storage.placement import Placement
from leads_pipeline.storage.proof import prove
from leads_pipeline.storage.service_lock import is_served
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
        check_writable(settings.data_dir)
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
                f"{some(configured)}."
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

    def bring(self, windows: Mapping[LeadKind, Sequence[Window]], *, inventory: bool) -> bool:
        """Pull those windows, and today's inventory if it is wanted, then publish. Return whether all went well.

        What happened is printed: what landed and was published, then what failed, by cause.
        """
        keys = {kind: [window.partition_key for window in of_kind] for kind, of_kind in windows.items() if of_kind}
        if keys and self.data.state.is_pulling():
            err.print("Another pull is under way, perhaps of the daemon. This one begins when it has ended.")
        before, began, report, troubles = self._published_leads(), datetime.now(UTC), PullReport(), list[str]()
        bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("windows, {task.fields[failed]} failed"),
            TimeElapsedColumn(),
            console=err,
        )
        try:
            with bar:
                task = bar.add_task("Pulling leads", total=sum(map(len, keys.values())), failed=0)

                def advance(so_far: PullReport) -> None:
                    done = sum(so_far.landed.values()) + len(so_far.failed)
                    bar.update(task, completed=done, failed=len(so_far.failed))

                if keys:
                    report = pull(self.definitions, self.instance, keys, advance)
                if inventory:
                    bar.update(task, description="Pulling the inventory")
                    troubles += self._pull_inventory()
                bar.update(task, description="Publishing leads.duckdb")
                published = self.publish()
        except KeyboardInterrupt:
            # Counted by the files: Dagster's last events were not heard any more.
            now = datetime.now(UTC)
            tables = (window_table(self.data.store, kind, of_kind, now) for kind, of_kind in windows.items())
            count = sum(row.looked_at is not None and row.looked_at >= began for rows in tables for row in rows)
            err.print(f"{count} windows are landed and stay. `leads-pipeline coverage` tells which are left.")
            raise
        landed = [f"{count} windows of {kind.replace('_', ' ')}" for kind, count in sorted(report.landed.items())]
        out.print(
            f"Landed: {', '.join([*landed, *(['the inventory'] if inventory and not troubles else [])]) or 'nothing'}."
        )
        if published is None:
            self._show_published(before)
        self._show_failed(report)
        troubles = [*([report.error] if report.error else []), *troubles, *([published] if published else [])]
        for trouble in troubles:
            err.print(f"[bold red]failed:[/bold red] {escape(trouble)}", highlight=False, soft_wrap=True)
        return report.succeeded and not troubles

    def publish(self) -> str | None:
        """Publish what is landed; what went wrong, if anything did."""
        return run_job(self.definitions, self.instance, PUBLISH_JOB)

    def refresh(self) -> list[str]:
        """The same, and say where it is published."""
        before = self._published_leads()
        with err.status("Publishing leads.duckdb"):
            trouble = self.publish()
        if trouble is None:
            self._show_published(before)
        return [trouble] if trouble else []

    def _pull_inventory(self) -> list[str]:
        """Pull today's inventory; what went wrong, if anything did."""
        reasons: list[str] = []

        def listen(entry: EventLogEntry) -> None:
            event = entry.dagster_event
            if event and event.event_type is DagsterEventType.ASSET_MATERIALIZATION:
                metadata = event.step_materialization_data.materialization.metadata
                reasons.extend([str(metadata[NOT_PULLED].value)] if NOT_PULLED in metadata else [])

        tags = {"dagster/partition": self.today.isoformat()}
        trouble = run_job(self.definitions, self.instance, INVENTORY_JOB, tags=tags, listen=listen)
        return [trouble] if trouble else reasons[:1]

    def _published_leads(self) -> int | None:
        """How many leads are published. None if the file can't be read: the next publication makes it anew."""
        file = LeadsFile(self.data)
        if not file.path.exists():
            return 0
        with suppress(LeadsPipelineError):
            return sum(file.lead_counts().values())
        return None

    def _show_published(self, before: int | None) -> None:
        count = self._published_leads()
        new = (
            "" if count is None or before is None else f" It holds {count} leads, {max(0, count - before)} of them new."
        )
        out.print(f"Published: {LeadsFile(self.data).path}.{new}", highlight=False, soft_wrap=True)

    def _show_failed(self, report: PullReport) -> None:
        """Print the failed windows: each cause, then the windows of each branch, counted."""
        causes: dict[str, list[tuple[str, str]]] = {}
        for window, (reason, _) in sorted(report.failed.items()):
            causes.setdefault(reason, []).append(window)
        branches = self.branches() if causes else Branches()
        for reason, windows in sorted(causes.items(), key=lambda item: -len(item[1])):
            count = "1 window" if len(windows) == 1 else f"{len(windows)} windows"
            out.print(f"\n[bold red]{count} failed: {escape(reason)}[/bold red]", highlight=False)
            out.print(f"  {escape(report.failed[windows[0]][1])}", soft_wrap=True, highlight=False)
            days: dict[str, list[str]] = {}
            for kind, key in windows:
                day, scope = key.split("|")
                days.setdefault(f"{kind.replace('_', ' ')}, {branches.shown(scope)}", []).append(day)
            for group, of_group in [*days.items()][:LISTED_FAILURES]:
                many = f"{len(of_group)} windows, {of_group[0]} to {of_group[-1]}"
                counted = many if len(of_group) > 1 else f"1 window, {of_group[0]}"
                out.print(f"  {escape(group)}: {counted}", highlight=False)
            if len(days) > LISTED_FAILURES:
                out.print(f"  … and {len(days) - LISTED_FAILURES} more branches", highlight=False)
        if report.failed:
            wanted = sorted(key.split("|")[0] for _, key in report.failed)
            again = f"leads-pipeline backfill --from {wanted[0]} --to {wanted[-1]}"
            daemon = "The daemon retries temporary errors. " if is_served(self.settings.dagster_folder) else ""
            out.print(f"\n{daemon}Pull them again with: {again}", highlight=False, soft_wrap=True)


def opened(settings: Settings) -> DataFolder:
    """The data folder. What an earlier release left in it is taken over, and what machines agree on is exchanged."""
    data = DataFolder.of(settings)
    if data.bucket is not None:
        prove(data.bucket)
    check_portal(settings, data)
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
