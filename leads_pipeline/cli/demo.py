"""The portal's simulator, alone and behind the pipeline: `demo`, `simulate`."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

import click
from dotenv import load_dotenv
from rich.syntax import Syntax

from leads_pipeline.cli.output import out, plain_errors, table
from leads_pipeline.cli.session import Session
from leads_pipeline.domain.window import days
from leads_pipeline.settings import variables
from leads_pipeline.transform.reading import LeadsFile

DEMO_DAYS = 7
DEMO_BRANCHES = 3


@click.command()
def demo() -> None:
    """Run the main job on the portal's simulator: the last 7 days of 3 branches, raw to a first query."""
    with plain_errors(), simulator(DEMO_BRANCHES), Session.opened(DEMO_DAYS) as session:
        first, last = session.today - timedelta(days=DEMO_DAYS), session.today - timedelta(days=1)
        out.print(
            f"[bold]leads_pipeline demo[/bold]: the simulated portal runs at {session.settings.base_url}.\n"
            f"The demo pulls {DEMO_DAYS} days ({first} to {last}) of {len(session.settings.scopes)} branches.\n",
            highlight=False,
            soft_wrap=True,
        )
        due = session.due(days(first, last))
        total, count = 2 * DEMO_DAYS * len(session.settings.scopes), sum(map(len, due.values()))
        rest = "" if count == total else " The others are complete."
        out.print(f"Pulling {count} of {total} windows.{rest} A window is one kind of lead, one day and one branch.")
        is_done = session.bring(due, inventory=True)
        _show_demo(session, first)
    sys.exit(0 if is_done else 1)


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def simulate(arguments: Sequence[str]) -> NoReturn:
    """Start the portal's stand-in alone; `leads-pipeline simulate --help` lists its options."""
    os.execv(sys.executable, [sys.executable, "-m", "leads_pipeline.simulator", *arguments])  # noqa: S606 - no shell


# How long the simulator may take to listen; it needs about a second.
_SIMULATOR_START_SECONDS = 30

# What says where and how, and nothing of a service.
_KEPT = {"LEADS_DATA_DIR", "LEADS_PRIVACY_DIR", "LEADS_MAX_CONCURRENCY", "LEADS_START_DATE", "LEADS_TABLES"}


@contextmanager
def simulator(branches: int, *, unless_set: bool = False) -> Iterator[None]:
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
                if name not in _KEPT:
                    del variables()[name]
            variables()["LEADS_TIMEZONE"] = "Europe/London"
            load_dotenv(ready)
            yield
        finally:
            process.terminate()
            process.wait()


# What an analyst would ask first, and the answer that `make demo` ends with.
FIRST_QUERY = """\
select scope,
       sum(leads) filter (kind = 'applicant') as applicants,
       sum(leads) filter (kind = 'appraisal') as appraisals,
       count(distinct person) as people
from mart_people_daily
group by scope
order by scope"""


def _show_demo(session: Session, first: date) -> None:
    """What there is now, a first query with its answer, and where to go from here."""
    warehouse = LeadsFile(session.data)
    names, rows = warehouse.query(
        "select kind, state, count(*) as windows from mart_coverage "
        "where day >= $first group by all order by kind, state",
        {"first": first},
    )
    out.print(table(names, rows, f"Since {first}"))
    out.print("\nA first query:\n")
    out.print(Syntax(FIRST_QUERY, "sql", theme="ansi_dark", background_color="default"))
    out.print(table(*warehouse.query(FIRST_QUERY)))
    folder = _short(session.settings.data_dir)
    out.print(
        "\n[bold]What to do next[/bold]\n"
        f'1. Ask your own question: `{_short(Path(sys.executable))} -c "import duckdb; '
        f"duckdb.connect('{folder}/leads.duckdb', read_only=True).sql('from mart_leads_daily').show()\"`\n"
        f"2. Open the Dagster UI: `{_short(Path(sys.executable).with_name('leads-pipeline'))} dev`, then "
        "http://127.0.0.1:3000/assets\n"
        "   The asset `drift` shows a warning, as it should: the simulated portal sends fields that are new.\n"
        "3. Use your own credentials: the README names the six variables for `.env`. Also set LEADS_DATA_DIR to a\n"
        "   new folder, because simulated and real leads never mix.",
        highlight=False,
        soft_wrap=True,
    )


def _short(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
