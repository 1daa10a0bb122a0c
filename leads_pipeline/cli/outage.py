"""`demo-outage`: the portal fails, windows turn red, the portal is back, and the sensors take up what is missing.

Belongs here: the order of events, and telling them. Doesn't: anything that makes it come right, which is the daemon's.
"""

import json
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from subprocess import Popen
from tempfile import TemporaryDirectory
from typing import TypeVar
from urllib.parse import urlencode

import click
from dagster import RunsFilter
from rich.markup import escape

from leads_pipeline.cli.demo import DEMO_BRANCHES, simulator
from leads_pipeline.cli.session import EXIT_INTERRUPTED, Session, out, plain_errors, table
from leads_pipeline.cli.ui import HOST, dagster_ui, is_listening, port_option, refuse_taken
from leads_pipeline.contract import LEAD_KINDS
from leads_pipeline.definitions import PULL_JOB, variables
from leads_pipeline.partitions import Partitions
from leads_pipeline.settings import Settings
from leads_pipeline.status import KEYS_IN_CONFIG_TAG, LIVE, WindowCoverage, WindowState, coverage
from leads_pipeline.warehouse import Warehouse
from leads_pipeline.window import day_interval, today

# Three days that are over for long enough: what closed last night is the nightly schedule's until the morning.
FIRST_DAYS_AGO, LAST_DAYS_AGO = 4, 2
# How long the portal stays away once somebody can see it in red.
LOOK_SECONDS = 60
# What takes longer than this, on a slow machine too, has gone wrong.
PATIENCE_SECONDS = 300

Found = TypeVar("Found")


@click.command("demo-outage", short_help="See the portal fail, and how what is missing comes in.")
@port_option
@click.option("--once", is_flag=True, help="End when the story is over, instead of leaving the UI open.")
def demo_outage(port: int, once: bool) -> None:
    """See the portal's simulator fail, windows turn red, and the sensors take up what is missing, in three minutes.

    In a folder of its own, which is removed at the end. Exit code 1 if a lead is lost or doubled.
    """
    is_well: bool | None = None
    with plain_errors():
        refuse_taken(port)
    with plain_errors(), TemporaryDirectory(prefix="leads-outage-") as folder, simulator(DEMO_BRANCHES):
        variables().pop("DAGSTER_HOME", None)
        variables()["LEADS_DATA_DIR"] = str(Path(folder, "data"))
        settings = Settings.from_variables(variables())
        first = today(settings.zone, datetime.now(UTC)) - timedelta(days=FIRST_DAYS_AGO)
        variables()["LEADS_START_DATE"] = first.isoformat()
        out.print(
            "[bold]leads_pipeline demo-outage[/bold]: what happens when a portal fails, in some three minutes, in a "
            "folder of its own.\n"
        )
        _portal_fails(settings)
        # What failed is taken up again after seconds, where it is minutes else.
        log = Path(folder, "dagster.log")
        with dagster_ui(settings.data_dir, port, module="leads_pipeline.cli.hurried", log=log) as process:
            story = _Story(process, f"http://{HOST}:{port}", first, log)
            is_well = story.tell(port, 0 if once else LOOK_SECONDS)
            if not once:
                _say(f"Look around at {story.address} as long as you like. ctrl-C ends it and removes its folder.")
                process.wait()
    if is_well is None:
        sys.exit(EXIT_INTERRUPTED)
    sys.exit(0 if is_well else 1)


@dataclass(frozen=True, slots=True)
class _Story:
    """What happens, as it happens: Dagster's process, the address of its pages, the first of the days, its log."""

    dagster: "Popen[bytes]"
    address: str
    first: date
    log: Path

    def tell(self, port: int, look_seconds: float) -> bool:
        """From the first page to the comparison; whether no lead is lost or doubled."""
        _say(f"Daemon and UI start at {self.address}. The sensor catch_up_missing_windows pulls what was never pulled.")
        is_listening(self.dagster, port)
        with Session.opened() as session:
            red = self._until(lambda: _failed(session))
            self._show_red(session, red)
            if look_seconds:
                _say(f"In {look_seconds:.0f} seconds the portal is back. Time for a look at that page.")
                time.sleep(look_seconds)
            _set_faults(session.settings, [])
            _say(
                "The portal is back. Nobody presses a button: the sensor retry_failed_windows asks again, here within "
                "a minute, with a real portal within a quarter of an hour and then ever later."
            )
            landed = self._until(lambda: _all_landed(session))
            self._show_green(session, landed)
            self._until(lambda: _is_published(session))
            return self._compare(session)

    def _until(self, look: Callable[[], Found]) -> Found:
        """What `look` finds, as soon as that is anything."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (answer := look()):
            if self.dagster.poll() is not None:
                raise click.ClickException(f"Dagster has ended:\n{self.log.read_text()[-2000:]}")
            if time.monotonic() > deadline:
                raise click.ClickException(f"Nothing new for {PATIENCE_SECONDS} s; {self.address}/runs shows why.")
            time.sleep(1)
        return answer

    def _show_red(self, session: Session, red: list[WindowCoverage]) -> None:
        landed = [one for one in _asked_for(session) if one.state in _LANDED]
        _say(f"{len(landed)} windows are landed and stay. {len(red)} are red:")
        reasons = Counter((one.window.scope.key, one.kind.name, one.failed.reason) for one in red if one.failed)
        for (scope, kind, reason), count in sorted(reasons.items()):
            out.print(f"          {count} of {scope}, {kind} leads: {escape(reason)}", highlight=False)
        [run, *_] = session.runner.instance.get_runs(RunsFilter(job_name=PULL_JOB), limit=1)
        _say(
            f"See it: {self.address}/assets/raw_applicant_leads?view=partitions has them in red, "
            f"{self.address}/runs/{run.run_id} the reasons."
        )

    def _show_green(self, session: Session, landed: int) -> None:
        again = session.runner.instance.get_runs(RunsFilter(job_name=PULL_JOB, tags={KEYS_IN_CONFIG_TAG: "true"}))
        _say(
            f"All {landed} windows are green. The sensor asked in {len(again)} "
            f"{'run' if len(again) == 1 else 'runs'}, for what was red alone: {self.address}/runs/{again[0].run_id}"
        )

    def _compare(self, session: Session) -> bool:
        """The warehouse beside the ledger of the portal, which has never heard of the pipeline."""
        rows, is_well = [], True
        for kind in LEAD_KINDS:
            ledger = _ledger(session.settings, kind.name, self.first)
            _, published = Warehouse(session.lake).query(
                f"select lead_id from {kind.table} where lead_day <= $last",  # noqa: S608 - our own name
                {"last": _last(session.settings)},
            )
            ids = [lead_id for (lead_id,) in published]
            lost, doubled = len(ledger - set(ids)), len(ids) - len(set(ids))
            is_well = is_well and not lost and not doubled
            rows.append((kind.name, len(ledger), len(ids), lost, doubled))
        _say("leads.duckdb is published by itself. Compared with the portal's own ledger:")
        out.print(table(("kind", "in the ledger", "published", "lost", "doubled"), rows))
        out.print("Nothing is lost, nothing is doubled." if is_well else "[bold red]This should not be.[/bold red]")
        return is_well


_LANDED = (WindowState.LANDED, WindowState.EMPTY)
_NOT_ASKED_FOR = (WindowState.MISSING, WindowState.OPEN)


def _asked_for(session: Session) -> list[WindowCoverage]:
    """Every window that the daemon is to have by now; from the morning on, those of yesterday too."""
    partitions = Partitions.of(session.settings, session.first_day)
    now = datetime.now(UTC)
    windows = coverage(session.runner.instance, session.settings, partitions, session.lake, session.first_day, now)
    last = _last(session.settings)
    return [one for one in windows if one.window.day <= last or one.state not in _NOT_ASKED_FOR]


def _failed(session: Session) -> list[WindowCoverage]:
    """What is red once the run that made it so is over."""
    if session.runner.instance.get_runs(RunsFilter(job_name=PULL_JOB, statuses=LIVE), limit=1):
        return []
    return [one for one in _asked_for(session) if one.failed]


def _all_landed(session: Session) -> int:
    """How many windows are landed, once all are."""
    windows = _asked_for(session)
    return len(windows) if all(one.state in _LANDED for one in windows) else 0


def _is_published(session: Session) -> bool:
    """Whether the warehouse has every window that is landed."""
    warehouse = Warehouse(session.lake)
    if not warehouse.path.exists():
        return False
    _, [(count,)] = warehouse.query("select count(*) from landed_windows")
    return bool(count == len(_asked_for(session)))


def _last(settings: Settings) -> date:
    return today(settings.zone, datetime.now(UTC)) - timedelta(days=LAST_DAYS_AGO)


def _portal_fails(settings: Settings) -> None:
    """Have it answer one branch as it should, one with an error, one with a web page for half of its leads."""
    whole, down, odd = (scope.key for scope in settings.scopes)
    _set_faults(
        settings,
        [
            {"when": {"scope": down}, "then": {"status": 503}},
            {"when": {"scope": odd, "path": "/applicant-leads"}, "then": {"shape": "html"}},
        ],
    )
    _say(
        f"A made-up portal runs at {settings.base_url}, and fails: it answers {whole} as it should, {down} with "
        f"503 Service Unavailable, and {odd} with a web page where applicant leads should be."
    )


def _set_faults(settings: Settings, rules: list[dict[str, object]]) -> None:
    body = json.dumps({"rules": rules}).encode()
    _ask(urllib.request.Request(f"{settings.base_url}/_simulator/faults", body, method="PUT"))  # noqa: S310 - our own


def _ledger(settings: Settings, kind: str, first: date) -> set[str]:
    """The ids of all leads that the portal has of those days."""
    start, end = day_interval(first, settings.zone)[0], day_interval(_last(settings), settings.zone)[1]
    question = {"kind": kind, "scope": "all", "from-time": f"{start:%Y-%m-%dT%H:%M:%SZ}"}
    question["to-time"] = f"{end - timedelta(seconds=1):%Y-%m-%dT%H:%M:%SZ}"  # both ends are included
    address = f"{settings.base_url}/_simulator/truth?{urlencode(question)}"
    return set(json.loads(_ask(urllib.request.Request(address)))["ids"])  # noqa: S310 - our own


def _ask(request: urllib.request.Request) -> bytes:
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - our own
        return bytes(answer.read())


def _say(text: str) -> None:
    out.print(f"[bold]{datetime.now():%H:%M:%S}[/bold]  {escape(text)}", soft_wrap=True, highlight=False)  # noqa: DTZ005 - a person's clock
