"""The `leads-pipeline` command.

Belongs here: arguments, progress, tables, exit codes. Doesn't: launching runs (runs.py), or anything about leads.
Exit code 0 means that all that was asked for was done, 1 that some of it wasn't, 2 that the question was wrong.
"""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn, Self

import click
from dagster import DagsterInstance, build_resources
from dotenv import load_dotenv
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.syntax import Syntax
from rich.table import Table

from leads_pipeline import status
from leads_pipeline.contract import LEAD_KINDS, LeadKind
from leads_pipeline.credentials import FileSecret, StaticSecret, write_key_pair
from leads_pipeline.damage import DAMAGE_ADVICE, damages, give_up
from leads_pipeline.definitions import LATE_DAYS, build_definitions, first_day, resources, variables, whole_paths
from leads_pipeline.doctor import Finding, Light, examine
from leads_pipeline.errors import LeadsPipelineError, SettingsError
from leads_pipeline.flatten import unstaged_days
from leads_pipeline.lake import Lake
from leads_pipeline.partitions import Partitions, consecutive, rectangles
from leads_pipeline.receiver import Limits, Receiver, read_key, serve
from leads_pipeline.resources import origin
from leads_pipeline.runs import PullReport, Runner, dagster_home
from leads_pipeline.settings import Settings, path_of
from leads_pipeline.spool import Spool
from leads_pipeline.status import WindowCoverage, WindowState
from leads_pipeline.warehouse import Warehouse
from leads_pipeline.window import RETENTION, Scope, Window, days, today

# What else than leads a backfill can pull.
INVENTORY = "inventory"

DEMO_DAYS = 7
DEMO_BRANCHES = 3

# A century: no installation is older, and the calendar ends somewhere.
MAX_COVERAGE_DAYS = 36_525

# How many failed windows are listed with their reason; the rest are counted.
LISTED_FAILURES = 20

out = Console()
err = Console(stderr=True)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Pull the leads of a property portal into Parquet and DuckDB."""
    with _plain_errors():
        _read_env_file(Path.cwd() / ".env")
    # Dagster then plans a run's partitions in one transaction; see event_log.py.
    variables().setdefault("DAGSTER_EVENT_BATCH_SIZE", "1000")


def _read_env_file(path: Path) -> None:
    variables()  # leaves the empty ones out, whose place .env may take
    try:
        if path.exists() and not path.is_file() and not path.is_fifo():
            raise SettingsError(
                f"{path} is not a file. Make it one, with lines like LEADS_BRANCH_IDS=101,102, or remove it."
            )
        load_dotenv(path, encoding="utf-8-sig")  # some editors put a byte order mark first
    except OSError as error:
        raise SettingsError(f"{path} can't be read ({error.strerror}). Let this user read it.") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path} is not UTF-8 text. Save it as UTF-8.") from None


# --- backfill ------------------------------------------------------------------------------------------------------


class _Day(click.ParamType[date]):
    name = "day"

    def convert(self, value: str | date, param: click.Parameter | None, ctx: click.Context | None) -> date:
        if isinstance(value, date):
            return value
        try:
            return date.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not a day. Write 2026-11-19.", param, ctx)


@main.command()
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
    with _plain_errors(), _Session.opened() as session:
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
        _show_report(report, troubles)
    sys.exit(0 if report.succeeded and not troubles else 1)


# --- demo and dev ----------------------------------------------------------------------------------------------------


@main.command()
def demo() -> None:
    """Run the main job on the portal's simulator: the last 7 days of 3 branches, raw to a first query."""
    with _plain_errors(), _simulator(DEMO_BRANCHES), _Session.opened(DEMO_DAYS) as session:
        first, last = session.today - timedelta(days=DEMO_DAYS), session.today - timedelta(days=1)
        out.print(
            f"[bold]leads_pipeline demo[/bold]: a made-up portal runs at {session.settings.base_url}. "
            f"{len(session.settings.scopes)} branches, {DEMO_DAYS} days ({first} to {last}), both kinds of leads.\n"
        )
        due = session.due(days(first, last))
        total = DEMO_DAYS * len(session.settings.scopes)
        out.print(f"{total - len(due)} of {total} windows are landed and closed; {len(due)} are pulled for each kind.")
        report = session.pull(due, LEAD_KINDS)
        troubles = session.pull_inventory() + session.refresh({window.day for window in due})
        _show_report(report, troubles)
        _show_demo(session, first)
    sys.exit(0 if report.succeeded and not troubles else 1)


@main.command()
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=3000,
    show_default=True,
    help="Port of the Dagster UI, on 127.0.0.1.",
)
def dev(port: int) -> None:
    """Start the Dagster UI with its daemon; with the simulator where LEADS_BASE_URL isn't set."""
    try:
        with socket.create_server(("127.0.0.1", port)):
            pass
    except OSError as error:
        raise click.ClickException(
            f"127.0.0.1, port {port} can't be listened on: {error.strerror}. Name another with --port."
        ) from None
    with _plain_errors(), _simulator(DEMO_BRANCHES, unless_set=True):
        settings = Settings.from_variables(variables())
        home = dagster_home(variables(), settings.data_dir)
        # Dagster gives an .env in its working directory precedence over the environment, even its empty lines: it
        # would take the simulator's place. So Dagster works in its home, and gets what we have read, in full.
        variables().update({"DAGSTER_HOME": str(home), "LEADS_DATA_DIR": str(settings.data_dir)})
        variables().update(whole_paths(variables()))
        out.print(f"Dagster UI: http://127.0.0.1:{port} (ctrl-C stops it). Leads come from {settings.base_url}.")
        dagster = [sys.executable, "-W", "ignore::FutureWarning", "-m", "dagster"]  # dg works in checkouts alone
        command = [*dagster, "dev", "-m", "leads_pipeline.definitions", "-h", "127.0.0.1", "-p", str(port)]
        # A shell that starts us in the background has us ignore ctrl-C, and with us Dagster, which knows no other end.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        process = subprocess.Popen(command, cwd=home)  # noqa: S603 - our own command
        _until_it_ends(process)
    sys.exit(0 if process.returncode in (0, -signal.SIGINT) else 1)


@main.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def simulate(arguments: Sequence[str]) -> NoReturn:
    """Start the portal's stand-in alone; `leads-pipeline simulate --help` lists its options."""
    os.execv(sys.executable, [sys.executable, "-m", "leads_pipeline.simulator", *arguments])  # noqa: S606 - no shell


# How long the simulator may take to listen; it needs about a second.
_SIMULATOR_START_SECONDS = 30


@contextmanager
def _simulator(branches: int, *, unless_set: bool = False) -> Iterator[None]:
    """A simulator in a process of its own, and the environment variables that point at it."""
    if unless_set and variables().get("LEADS_BASE_URL"):
        yield
        return
    with TemporaryDirectory() as folder:
        ready = Path(folder) / "simulator.env"
        command = [sys.executable, "-m", "leads_pipeline.simulator", "--port", "0", "--branches", str(branches)]
        command += ["--ready-file", str(ready)]
        # A session of its own, so that ctrl-C ends Dagster first and the simulator after it.
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)  # noqa: S603 - our own
        try:
            deadline = time.monotonic() + _SIMULATOR_START_SECONDS
            while not ready.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise click.ClickException("The simulator doesn't start; `leads-pipeline simulate` shows why.")
                time.sleep(0.05)
            # Settings of a real service must not mix with the simulator's.
            for name in [name for name in variables() if name.startswith(("LEADS_", "INVENTORY_"))]:
                if name not in ("LEADS_DATA_DIR", "LEADS_MAX_CONCURRENCY", "LEADS_START_DATE"):
                    del variables()[name]
            variables()["LEADS_TIMEZONE"] = "Europe/London"
            load_dotenv(ready)
            yield
        finally:
            process.terminate()
            process.wait()


def _until_it_ends(process: "subprocess.Popen[bytes]") -> None:
    """Wait for a child that shares our terminal; whatever asks us to end, ends it by ctrl-C and waits for it."""
    signal.signal(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGINT))
    while process.returncode is None:
        try:
            process.wait()
        except KeyboardInterrupt:
            continue  # the child has had the ctrl-C too, and is closing down


# --- coverage --------------------------------------------------------------------------------------------------------


@main.command()
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
    with _plain_errors(), _Session.opened() as session:
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
        out.print(_table(("state", "windows", "leads", "last looked at (UTC)"), rows, f"{kind.name} leads"))
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
    table = Table("kind", "window", "state", "days left", "attempts", "last error", title=f"{len(lost)} not landed")
    for one in lost[:LISTED_FAILURES]:
        left = "deleted" if one.window.is_deleted(now) else f"{max(0.0, one.window.days_left(now)):.1f}"
        attempts, error = (str(one.failure.attempts), one.failure.last_error) if one.failure else ("0", "")
        state = f"{one.state}, refused" if one.failure and one.failure.is_refused else one.state
        table.add_row(one.kind.name, one.window.partition_key, state, left, attempts, escape(error))
    out.print(table)
    if len(lost) > LISTED_FAILURES:
        out.print(f"… and {len(lost) - LISTED_FAILURES} more.")
    wanted = [one.window.day for one in lost if not one.window.is_deleted(now)]
    if wanted:
        out.print(f"Take them up with: leads-pipeline backfill --from {wanted[0]} --to {wanted[-1]}", highlight=False)


# --- damaged ---------------------------------------------------------------------------------------------------------


@main.command()
@click.option("--give-up", "keys", multiple=True, metavar="KEY", help="Give this one up for good; repeat for more.")
@click.option("--yes", is_flag=True, help="Don't ask again before giving up.")
def damaged(keys: Sequence[str], yes: bool) -> None:
    """List what is damaged or gone in the data folder, and give up what can't be had again.

    What a window held when it was last whole stays staged and published until it is whole again, or given up here: then
    those leads are deleted, and what was set aside of the file. Exit code 1 if something is damaged.
    """
    with _plain_errors(), _Session.opened() as session:
        found = {damage.key: damage for damage in damages(session.lake)}
        if unknown := [key for key in keys if key not in found]:
            raise click.UsageError(f"{', '.join(unknown)}: not damaged. `leads-pipeline damaged` lists what is.")
        if found and not keys:
            rows = [(one.key, one.leads, len(one.files)) for one in found.values()]
            out.print(_table(("key", "leads still kept", "files in quarantine/"), rows, f"{len(found)} damaged"))
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


# --- doctor ----------------------------------------------------------------------------------------------------------

_COLOURS = {Light.GREEN: "green", Light.YELLOW: "yellow", Light.RED: "red"}


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines.")
def doctor(as_json: bool) -> None:
    """Say whether settings, secret, token, services and data folder work, and what to do where they don't.

    Exit code 1 if anything is red.
    """
    findings = []
    for finding in _findings():
        findings.append(finding)
        if not as_json:
            click.echo(f"{click.style(f'{finding.light:<6}', _COLOURS[finding.light])} {finding.check}: {finding.said}")
    is_well = all(finding.light is not Light.RED for finding in findings)
    if as_json:
        click.echo(json.dumps({"is_well": is_well, "findings": [asdict(finding) for finding in findings]}, indent=2))
    sys.exit(0 if is_well else 1)


def _findings() -> Iterator[Finding]:
    try:
        settings = Settings.from_variables(variables())
    except SettingsError as error:
        yield Finding("settings", Light.RED, str(error))
        return
    data, leads, inventory = resources(settings, variables())
    # Dagster reads the secrets' variables, as it does in a run.
    with build_resources({"data": data, "leads": leads, "inventory": inventory}) as opened:
        yield from examine(settings, opened.data, opened.leads, opened.inventory)


# --- receive ---------------------------------------------------------------------------------------------------------


@main.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8750,
    show_default=True,
    help="Port to listen on; 0 takes a free one.",
)
def receive(host: str, port: int) -> None:
    """Take leads that the portal delivers by itself; the pipeline's next run takes them in.

    Deliveries carry the key of LEADS_RECEIVE_KEY. The receiver speaks HTTP: a proxy with TLS belongs in front of it.
    """
    with _plain_errors():
        settings = Settings.from_variables(variables())
        file, value = (variables().get(name) for name in ("LEADS_RECEIVE_KEY_FILE", "LEADS_RECEIVE_KEY"))
        if bool(file) == bool(value):
            raise SettingsError(
                "Set either LEADS_RECEIVE_KEY or LEADS_RECEIVE_KEY_FILE: what the portal's deliveries carry. "
                "`openssl rand -hex 32` makes one."
            )
        key = FileSecret(path_of(file)) if file else StaticSecret(value or "")
        read_key(key)
        lake = Lake(settings.data_dir)
        if settings.base_url:
            lake.claim(origin(settings.base_url))
        logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
        limits = Limits()
        serve(
            Receiver(Spool(lake), key, limits),
            host,
            port,
            limits,
            lambda address: click.echo(f"Deliveries are taken at {address} (ctrl-C stops it)."),
        )


# --- credentials -----------------------------------------------------------------------------------------------------


credentials = click.Group("credentials", help="Make what the portal needs to send you a client secret.")
main.add_command(credentials)


@credentials.command("new-key")
@click.option("--user-id", default="leads-pipeline", show_default=True, help='Whose key it is, as "Agency <it@…>".')
@click.option(
    "--private-key",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="LEADS_PGP_PRIVATE_KEY_FILE",
    default="leads-private-key.asc",
    show_default=True,
    help="Where the private key goes. An existing file is never overwritten.",
)
def new_key(user_id: str, private_key: Path) -> None:
    """Make an RSA key pair with 4096 bits: the private key into a file, the public one printed, to be sent.

    The passphrase is LEADS_PGP_PASSPHRASE, or what LEADS_PGP_PASSPHRASE_FILE holds, or asked for.
    """
    with _plain_errors():
        value, file = (variables().get(name) for name in ("LEADS_PGP_PASSPHRASE", "LEADS_PGP_PASSPHRASE_FILE"))
        passphrase = (
            FileSecret(path_of(file)).read()
            if file and not value
            else value or click.prompt("New passphrase", hide_input=True, confirmation_prompt=True, err=True)
        )
        with err.status("Making a key of 4096 bits; this can take a minute"):
            public = write_key_pair(user_id, passphrase, private_key)
    click.echo(public, nl=False)
    click.echo(
        f"\nThe private key is in {private_key}, locked with the passphrase. Keep both: neither can be recovered.\n"
        "1. Send the public key above to the portal's technical contact.\n"
        "2. Save the message that comes back, from BEGIN PGP MESSAGE to END PGP MESSAGE, in a file.\n"
        f"3. Set LEADS_CLIENT_SECRET_PGP_FILE to it, LEADS_PGP_PRIVATE_KEY_FILE={private_key}, and the passphrase.\n"
        "4. `leads-pipeline doctor` says whether it works.",
        err=True,
    )


# --- what commands share ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Session:
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
        settings = Settings.from_variables(variables())
        if not settings.scopes:
            raise SettingsError(
                "LEADS_BRANCH_IDS is not set: name the branches to pull, as 101,102, in .env or the environment."
            )
        variables()["DAGSTER_HOME"] = str(dagster_home(variables(), settings.data_dir))
        lake, day = Lake(settings.data_dir), today(settings.zone, datetime.now(UTC))
        if settings.start_date is None:
            lake.remember_start_date(day - timedelta(days=days_at_first))
        with DagsterInstance.get() as instance:
            runner = Runner(build_definitions(variables()), instance)
            yield cls(settings, lake, runner, first_day(settings), day)

    def chosen_scopes(self, keys: Sequence[str]) -> list[Scope]:
        """The scopes named, or all; in the order of the settings. A scope that isn't in the settings is refused."""
        chosen = {Scope.parse(key) for key in keys} or set(self.settings.scopes)
        if unknown := chosen - set(self.settings.scopes):
            names = ", ".join(sorted(scope.key for scope in unknown))
            raise SettingsError(f"{names}: not among LEADS_BRANCH_IDS or LEADS_SCOPES. Add it there first.")
        return [scope for scope in self.settings.scopes if scope in chosen]

    def due(self, wanted: Iterable[date]) -> list[Window]:
        """What a routine pull of those days would take up: what isn't landed since it closed, and the last days."""
        due = []
        for day in wanted:
            landed = [{w.scope for w in self.lake.landed_windows(kind, day) if w.is_closed} for kind in LEAD_KINDS]
            is_recent = day >= self.today - timedelta(days=LATE_DAYS)
            due += [
                Window.of(day, scope, self.settings.zone)
                for scope in self.settings.scopes
                if is_recent or not all(scope.key in scopes for scopes in landed)
            ]
        return due

    def pull(self, windows: Sequence[Window], kinds: Sequence[LeadKind]) -> PullReport:
        """Pull those windows of those kinds, with a progress bar."""
        report = PullReport()
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

            for area in rectangles(windows, self.settings.scopes):
                self.runner.pull(kinds, area, report, advance)
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
        out.print(f"The inventory of {self.today} is landed.")
        return []

    def unstaged(self) -> set[date]:
        """Days that are landed and not staged."""
        since = self.today - 2 * RETENTION
        return {day for kind in LEAD_KINDS for day in unstaged_days(self.lake, kind, since) if day >= self.first_day}

    def refresh(self, touched: Set[date]) -> list[str]:
        """Flatten those days and publish the warehouse; what went wrong, if anything did.

        Also what an earlier command landed and didn't come to flatten, as it was killed.
        """
        troubles = []
        if left := self.unstaged() - touched:
            out.print(f"Landed earlier and not staged yet: {', '.join(map(str, sorted(left)))}. Staged now as well.")
            touched = touched | left
        with err.status("Flattening"):
            for first, last in consecutive(touched):
                troubles.append(self.runner.stage(first, last))
        with err.status("Publishing leads.duckdb"):
            troubles.append(self.runner.publish())
        return [trouble for trouble in troubles if trouble]


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Show the pipeline's own errors as a sentence, and exit 2: they are about settings, not about the program."""
    try:
        yield
    except LeadsPipelineError as error:
        err.print(f"[bold red]{error.reason}:[/bold red] {escape(str(error))}", highlight=False)
        sys.exit(2)


def _show_report(report: PullReport, troubles: Sequence[str]) -> None:
    landed = ", ".join(f"{count} of {kind.replace('_', ' ')}" for kind, count in sorted(report.landed.items()))
    out.print(f"Landed windows: {landed or 'none'}; {report.leads} leads in them, {report.new} of them new.")
    by_reason: dict[str, list[tuple[str, str, str]]] = {}
    for (kind, key), (reason, message) in sorted(report.failed.items()):
        by_reason.setdefault(reason, []).append((kind, key, message))
    for reason, windows in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        named = ", ".join(f"{kind} {key}" for kind, key, _ in windows[:LISTED_FAILURES])
        more = f" and {len(windows) - LISTED_FAILURES} more" if len(windows) > LISTED_FAILURES else ""
        out.print(
            f"\n[bold red]Failed, {reason}: {len(windows)}[/bold red] ({named}{more})", soft_wrap=True, highlight=False
        )
        out.print(f"  {escape(windows[0][2])}", soft_wrap=True, highlight=False)
    for trouble in (*report.broken, *troubles):
        err.print(f"[bold red]failed:[/bold red] {escape(trouble)}", highlight=False)


# --- how the demo ends --------------------------------------------------------------------------------------


# What an analyst would ask first, and the answer that `make demo` ends with.
FIRST_QUERY = """\
select scope,
       sum(leads) filter (kind = 'applicant') as applicants,
       sum(leads) filter (kind = 'appraisal') as appraisals,
       count(distinct person) as people
from mart_people_daily
group by scope
order by scope"""


def _show_demo(session: _Session, first: date) -> None:
    """What there is now, a first query with its answer, and where to go from here."""
    warehouse = Warehouse(session.lake)
    names, rows = warehouse.query(
        "select kind, state, count(*) as windows, sum(rows) as leads from mart_coverage "
        "where day >= $first group by all order by kind, state",
        {"first": first},
    )
    out.print(_table(names, rows, f"Windows since {first}"))
    out.print("\nA first analyst's query:\n")
    out.print(Syntax(FIRST_QUERY, "sql", theme="ansi_dark", background_color="default"))
    out.print(_table(*warehouse.query(FIRST_QUERY)))
    folder = _short(session.settings.data_dir)
    out.print(
        "\n[bold]What to do next[/bold]\n"
        f'1. Ask your own question: `{_short(Path(sys.executable))} -c "import duckdb; '
        f"duckdb.connect('{folder}/leads.duckdb', read_only=True).sql('from mart_coverage').show()\"`\n"
        f"2. See it all in the Dagster UI: `{_short(Path(sys.executable).with_name('leads-pipeline'))} dev`, then "
        "http://127.0.0.1:3000/asset-groups\n"
        "3. Use your own credentials: the README says which six variables to write into .env, here. Set\n"
        "   LEADS_DATA_DIR to another folder, since made-up and real leads don't mix.",
        highlight=False,
        soft_wrap=True,
    )


def _table(names: Sequence[str], rows: Sequence[Sequence[object]], title: str | None = None) -> Table:
    table = Table(*names, title=title, title_justify="left")
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row))
    return table


def _short(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
