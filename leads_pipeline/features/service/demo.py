"""The portal's simulator, alone and behind the pipeline: `demo`, `simulate`."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NoReturn

import click
from dotenv import load_dotenv
from rich.syntax import Syntax

from leads_pipeline.cli.output import out, table
from leads_pipeline.cli.pulled_today import pulled_today
from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.domain.window import Window, days
from leads_pipeline.extensions import brought

if TYPE_CHECKING:
    from leads_pipeline.cli.session import Session

DEMO_DAYS = 7
DEMO_BRANCHES = 3


@click.command()
def demo() -> None:
    """Run the main job on the simulated portal: the last 7 days of 3 branches, to a first query."""
    from leads_pipeline.cli.session import Session  # loads Dagster

    with simulator(), Session.opened(timedelta(days=DEMO_DAYS)) as session:
        first = session.today - timedelta(days=DEMO_DAYS)
        last = session.today - timedelta(days=1)
        scopes = session.settings.scopes
        windows = [
            Window.of(day, scope, session.settings.zone)
            for day in days(first, last)
            for scope in scopes
        ]
        click.echo(
            f"The simulated portal runs at {session.settings.base_url}. The demo pulls {DEMO_DAYS} "
            f"days ({first} to {last}) of {len(scopes)} branches.\nA window is one kind of lead, "
            "one day and one branch.\n"
        )
        is_done = session.bring(dict.fromkeys(LEAD_KINDS, windows), pulled_today())
        for of_feature in brought("demo"):
            click.echo(of_feature(session.settings, session.data, first))
        _show_demo(session)

    sys.exit(0 if is_done else 1)


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def simulate(arguments: Sequence[str]) -> NoReturn:
    """Start the simulated portal alone; `leads-pipeline simulate --help` lists its options."""
    os.execv(sys.executable, [sys.executable, "-m", "leads_pipeline.simulator", *arguments])  # noqa: S606 - no shell


# How long the simulator may take to listen; it needs about a second.
_SIMULATOR_START_SECONDS = 30

# Settings that the demo keeps. None of them is a secret.
_KEPT = {
    "LEADS_DATA_DIR",
    "LEADS_PRIVACY_DIR",
    "LEADS_MARTS_DIR",
    "LEADS_MAX_CONCURRENCY",
    "LEADS_OWNERS",
    "LEADS_START_DATE",
    "LEADS_TABLES",
    "LEADS_UI_HOSTS",
}


@contextmanager
def simulator() -> Iterator[None]:
    """A simulator in a process of its own, and the environment variables that point at it."""
    with TemporaryDirectory() as folder:
        ready = Path(folder) / "simulator.env"
        command = [
            sys.executable,
            "-m",
            "leads_pipeline.simulator",
            "--port",
            "0",
            "--branches",
            str(DEMO_BRANCHES),
        ]
        command += ["--ready-file", str(ready)]
        # A session of its own, so that ctrl-C ends Dagster first and the simulator after it.
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)  # noqa: S603 - our own
        try:
            deadline = time.monotonic() + _SIMULATOR_START_SECONDS
            while not ready.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise click.ClickException(
                        "The simulator doesn't start. Run `leads-pipeline simulate` to see why."
                    )
                time.sleep(0.05)
            # Settings of a real service must not mix with the simulator's.
            for name in [name for name in os.environ if name.startswith(("LEADS_", "INVENTORY_"))]:
                if name not in _KEPT:
                    del os.environ[name]
            os.environ["LEADS_TIMEZONE"] = "Europe/London"
            load_dotenv(ready)
            yield
        finally:
            process.kill()  # it holds nothing, and a shell may have had it ignore SIGTERM
            process.wait()


# The first query. `leads-pipeline demo` ends with its answer.
FIRST_QUERY = """\
select scope,
       count(*) filter (kind = 'applicant') as applicants,
       count(*) filter (kind = 'appraisal') as appraisals,
       count(distinct person) as people
from lead_facts
group by scope
order by scope"""


def _show_demo(session: "Session") -> None:
    """Show a first query with its answer, and where to go from here."""
    from leads_pipeline.warehouse.published import LeadsFile

    published = LeadsFile(session.data)
    click.echo("\nA first query:\n")
    out.print(Syntax(FIRST_QUERY, "sql", theme="ansi_dark", background_color="default"))
    out.print(table(*published.query(FIRST_QUERY)))
    folder = _short(session.settings.data_dir)
    program = _short(Path(sys.executable).with_name("leads-pipeline"))
    file = f"duckdb.connect('{folder}/leads.duckdb', read_only=True)"
    by_day = "select lead_day, scope, count(*) as leads from lead_facts group by all order by all"
    question = f"\"import duckdb; {file}.sql('{by_day}').show()\""

    click.echo(
        f"\n{click.style('What to do next', bold=True)}\n"
        f"1. Ask your own question: `{_short(Path(sys.executable))} -c {question}`\n"
        f"2. Open the Dagster UI: `{program} dev`, then http://127.0.0.1:3000/assets\n"
        "   The asset `drift` shows a warning. That is right: the simulated portal sends new\n"
        "   fields.\n"
        f"3. Use your own credentials: `{program} init leads` makes a folder with an .env to\n"
        "   fill in. Then run `leads-pipeline doctor` there. In the demo's folder, `backfill` and\n"
        "   `dev` offer to move its data aside, because simulated and real leads never mix."
    )


def _short(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
