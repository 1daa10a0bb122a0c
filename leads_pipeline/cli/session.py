"""Dagster runs in this process: pulling and publishing without the UI, and showing the outcome.

Belongs here: what the commands that start runs share. Doesn't: the runs (orchestration/runs.py). It
loads Dagster.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Self

import click
from dagster import DagsterError, DagsterInstance, Definitions
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

from leads_pipeline.cli.installation import open_folder, want_writable
from leads_pipeline.cli.output import err
from leads_pipeline.cli.pulled_today import PulledToday
from leads_pipeline.cli.windows import show_windows
from leads_pipeline.definitions import build_definitions
from leads_pipeline.domain.contract import LeadKind
from leads_pipeline.domain.window import Window, today
from leads_pipeline.errors import LeadsPipelineError, SettingsError
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.window_findings import pull_command, what_comes_next
from leads_pipeline.orchestration.home import dagster_home, keeps_its_own_state
from leads_pipeline.orchestration.names import PUBLISH_JOB
from leads_pipeline.orchestration.runs import PullReport, pull, run_job
from leads_pipeline.raw.data_folder import DataFolder, first_day
from leads_pipeline.raw.windows import WindowRow, window_table
from leads_pipeline.settings import Settings, filled_in
from leads_pipeline.warehouse.published import LeadsFile
from leads_pipeline.words import counted


@dataclass(frozen=True, slots=True)
class _Outcome:
    """How the jobs of a command went.

    `others` has what was pulled besides leads, with what went wrong. `not_published` is why the
    publication failed.
    """

    pulled: PullReport
    others: Mapping[str, str | None]
    not_published: str | None

    @property
    def troubles(self) -> list[str]:
        """What went wrong, but for single windows."""
        return [*filter(None, (self.pulled.error, *self.others.values(), self.not_published))]


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
    def opened(cls, pulled_from: timedelta | None = None) -> Iterator[Self]:
        """Open the installation.

        A command that pulls says how far back the partitions of a new data folder go. One that only
        publishes needs no settings: days are days of the folder's time zone.
        """
        environment = filled_in(os.environ)
        settings = Settings.from_variables(environment)

        if pulled_from is None and (zone := DataFolder.of(settings).state.time_zone()):
            settings = Settings.from_variables(
                environment := {"LEADS_TIMEZONE": zone, **environment}
            )

        want_writable(settings)
        home = dagster_home(settings)
        os.environ["DAGSTER_HOME"] = str(home)
        data = open_folder(settings)
        day = today(settings.zone, datetime.now(UTC))

        if pulled_from is not None:
            data.want_restored()
            if settings.start_date is None:
                data.state.remember_start_date(day - pulled_from)

        with dagster_instance(home) as instance:
            _look_at_home(data, home)
            yield cls(
                settings, data, build_definitions(environment), instance, first_day(settings), day
            )

    def bring(
        self, windows: Mapping[LeadKind, Sequence[Window]], other_pulls: Sequence[PulledToday]
    ) -> bool:
        """Pull those windows and other things, then publish.

        Return whether all went well. Prints what landed and was published, then what failed, by
        cause.
        """
        if any(windows.values()) and self.data.state.is_pulling():
            click.echo(
                "Another pull is under way, perhaps of the service. This one starts when it ends.",
                err=True,
            )

        leads_before = self._leads()
        outcome = self._run_all(windows, other_pulls)
        self._show(outcome, leads_before)

        return outcome.pulled.succeeded and not outcome.troubles

    def _run_all(
        self, windows: Mapping[LeadKind, Sequence[Window]], other_pulls: Sequence[PulledToday]
    ) -> _Outcome:
        """Run one job after the other, with a bar that shows how far they are."""
        pulled = PullReport()
        troubles_of_others: dict[str, str | None] = {}

        with Progress(
            "[bold]{task.description}",
            BarColumn(),
            MofNCompleteColumn(),
            "windows",
            TimeElapsedColumn(),
            console=err,
        ) as bar:
            task = bar.add_task("Pulling leads", total=sum(map(len, windows.values())))

            def advance(so_far: PullReport) -> None:
                failed = f", {len(so_far.failed)} failed" if so_far.failed else ""
                done = sum(so_far.landed.values()) + len(so_far.failed)
                bar.update(task, description=f"Pulling leads{failed}", completed=done)

            if any(windows.values()):
                pulled = self._pull(windows, advance)

            for one in other_pulls:
                bar.update(task, description=f"Pulling the {one.name}")
                tags = {"dagster/partition": self.today.isoformat()}
                troubles_of_others[one.name] = run_job(
                    self.definitions, self.instance, one.job, tags=tags
                )

            bar.update(task, description="Publishing leads.duckdb")
            return _Outcome(pulled, troubles_of_others, self.publish())

    def _show(self, outcome: _Outcome, leads_before: int) -> None:
        landed = [
            f"{counted(count, 'window')} of {kind.replace('_', ' ')}"
            for kind, count in sorted(outcome.pulled.landed.items())
        ]
        landed += [f"the {name}" for name, trouble in outcome.others.items() if trouble is None]
        click.echo(f"Pulled: {', '.join(landed) or 'nothing'}.")

        if outcome.not_published is None:
            leads = self._leads()
            new = f", {max(0, leads - leads_before):,} of them new" if leads_before else ""
            click.echo(
                f"Published: {LeadsFile(self.data).path}. It holds {counted(leads, 'lead')}{new}."
            )

        if outcome.pulled.failed:
            self._show_failed(outcome.pulled.failed)

        for trouble in outcome.troubles:
            click.echo(f"{click.style('failed:', fg='red', bold=True)} {trouble}", err=True)

    def _pull(
        self,
        windows: Mapping[LeadKind, Sequence[Window]],
        on_progress: Callable[[PullReport], None],
    ) -> PullReport:
        """Pull the windows.

        Raises KeyboardInterrupt that says how many have landed, if ctrl-C ends the run.
        """
        began_at = datetime.now(UTC)
        keys = _keys(windows)

        try:
            return pull(self.definitions, self.instance, keys, on_progress)
        except KeyboardInterrupt:
            landed = 0
            for kind, of_kind in windows.items():
                rows = window_table(self.data.store, kind, of_kind, datetime.now(UTC))
                landed += sum(
                    1 for row in rows if row.fetched_at is not None and row.fetched_at >= began_at
                )
            raise KeyboardInterrupt(
                f"Cancelled. {counted(landed, 'window')} landed and stay. To pull the others, run "
                "the command again."
            ) from None

    def publish(self) -> str | None:
        """Publish what has landed. Return the reason if that fails."""
        return run_job(self.definitions, self.instance, PUBLISH_JOB)

    def _leads(self) -> int:
        """Count the published leads, 0 if the file is missing or can't be read.

        Then a publication makes a new one.
        """
        with suppress(LeadsPipelineError):
            return sum(LeadsFile(self.data).lead_counts().values())
        return 0

    def _show_failed(self, failed: Mapping[tuple[str, str], tuple[str, str]]) -> None:
        """Print the failed windows by cause, and the command that pulls them again."""
        facts = Facts(self.settings, self.data, datetime.now(UTC))
        first = min(key for _, key in failed).partition("|")[0]
        causes: defaultdict[str, list[WindowRow]] = defaultdict(list)
        messages: dict[str, str] = {}

        for row in facts.windows_from(date.fromisoformat(first)):
            if failure := failed.get((f"{row.kind}_leads", row.window.partition_key)):
                reason, message = failure
                causes[reason].append(row)
                messages.setdefault(reason, message)

        for reason, rows in sorted(causes.items(), key=lambda cause: -len(cause[1])):
            show_windows(
                f"{counted(len(rows), 'window')} failed: {reason}",
                messages[reason],
                rows,
                facts.branches,
            )

        rows = list(chain(*causes.values()))
        left = [row for row in rows if not row.window.is_deleted(facts.now)]
        click.echo()

        for sentence in what_comes_next(rows, facts.now) if facts.is_served else ():
            click.echo(sentence)

        if left:
            click.echo(f"Pull them again with: {pull_command(facts, left)}")


def _keys(windows: Mapping[LeadKind, Sequence[Window]]) -> dict[LeadKind, list[str]]:
    return {
        kind: [window.partition_key for window in of_kind]
        for kind, of_kind in windows.items()
        if of_kind
    }


def _look_at_home(data: DataFolder, home: Path) -> None:
    """Warn if the service works with another Dagster home.

    With one database of Postgres, both homes show all runs. Raises SettingsError if these leads are
    a guest in this home: a command knows no prefix, so it would record its runs under keys of
    somebody else's assets.
    """
    noted = data.state.dagster_home()
    if noted is None:
        return

    of_service, key_prefix = noted
    is_here = of_service.resolve() == home.resolve()

    if is_here and key_prefix:
        raise SettingsError(
            f"In the Dagster of DAGSTER_HOME={home}, these leads have the key_prefix {key_prefix}, "
            "and this command would record its run under other keys. Start a run there, or unset "
            "DAGSTER_HOME for this command. Then it works with a home of its own. The leads are "
            "the same."
        )
    if is_here or not keeps_its_own_state(home):
        return

    to_see = "" if key_prefix else f" To see the next run there, set DAGSTER_HOME={of_service}."
    click.echo(
        f"{click.style('warning:', fg='yellow', bold=True)} The service works with another Dagster "
        f"home, {of_service}. Its UI doesn't show what this command runs in {home}. The leads are "
        f"the same.{to_see}",
        err=True,
    )


def dagster_instance(home: Path) -> DagsterInstance:
    """Open Dagster's own state. Raises SettingsError for a dagster.yaml that Dagster refuses."""
    try:
        return DagsterInstance.get()
    except DagsterError as error:  # its message may quote a password of the file
        raise SettingsError(
            f"Dagster refuses {home / 'dagster.yaml'} ({type(error).__name__}). Correct the file "
            "and the variables that it names. Or move it away: the next start writes a new one, "
            "with a new history. The leads stay."
        ) from None
