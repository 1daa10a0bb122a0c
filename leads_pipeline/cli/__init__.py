"""The `leads-pipeline` command.

Belongs here: arguments, progress, tables, exit codes. Doesn't: launching runs (orchestration/runs.py), or anything
about leads.
Exit code 0 means that all that was asked for was done, 1 that some of it wasn't, 2 that the question was wrong.
"""

from pathlib import Path

import click
from dotenv import load_dotenv
from rich.markup import escape

from leads_pipeline.cli.backup import backup, restore, verify
from leads_pipeline.cli.demo import demo, simulate
from leads_pipeline.cli.health import metrics, status
from leads_pipeline.cli.privacy import privacy
from leads_pipeline.cli.services import alert, doctor, receive
from leads_pipeline.cli.serving import serve
from leads_pipeline.cli.session import err, plain_errors
from leads_pipeline.cli.settings import settings
from leads_pipeline.cli.ui import dev
from leads_pipeline.cli.windows import backfill, coverage
from leads_pipeline.definitions import variables
from leads_pipeline.errors import SettingsError
from leads_pipeline.observe.doctor import Light, examine_names


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="leads-pipeline")
@click.pass_context
def main(context: click.Context) -> None:
    """Pull the leads of a property portal into Parquet and DuckDB."""
    with plain_errors():
        context.obj = _read_env_file(Path.cwd() / ".env")
    names = examine_names(variables())
    if names.light is not Light.GREEN and context.invoked_subcommand != doctor.name:
        err.print(f"[yellow]{escape(names.message)}[/yellow]", highlight=False)
    # Dagster then plans a run's partitions in one transaction; see event_log/.
    variables().setdefault("DAGSTER_EVENT_BATCH_SIZE", "1000")


def _read_env_file(path: Path) -> frozenset[str]:
    """Put the file's variables into the environment, unless they are there. Return their names."""
    before = set(variables())  # without the empty ones, whose place .env may take
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
    return frozenset(set(variables()) - before)


for command in (
    alert,
    backfill,
    backup,
    coverage,
    demo,
    dev,
    doctor,
    metrics,
    privacy,
    receive,
    restore,
    serve,
    settings,
    simulate,
    status,
    verify,
):
    main.add_command(command)
