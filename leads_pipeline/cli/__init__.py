"""The `leads-pipeline` command.

Belongs here: which commands there are, and .env. Doesn't: a command itself, which is a module of
its own.

Exit code 0: everything that was asked for is done. 1: a part of it isn't. 2: an argument, a setting
or the folder is wrong.
"""

import os
from pathlib import Path
from pkgutil import resolve_name

import click

from leads_pipeline.features import FEATURES
from leads_pipeline.features.feature import Command

# The module and the line of help of each command. The module is loaded when the command runs:
# `--help` is immediate, and commands that only look don't wait for Dagster.
_CORE = {
    "acknowledge": ("health", "Hide a finding about lost leads or new fields."),
    "backfill": ("backfill", "Pull days of leads and publish them, without the UI."),
    "coverage": ("windows", "Count windows by state: landed, open, failed or missing."),
    "explain": ("explain", "Show what a finding means and what to do about it."),
    "findings": ("health", "List the open findings and what to do about them."),
    "settings": ("settings", "Show each setting, its value and where the value comes from."),
    "status": ("health", "Show the pipeline's figures and open findings; --json for monitoring."),
}


def _all_commands() -> dict[str, Command]:
    """Return them by their names, those of features among them."""
    found = {
        name: Command(f"{__name__}.{module}:{name}", help_)
        for name, (module, help_) in _CORE.items()
    }
    for feature in FEATURES:
        found |= feature.commands
    return dict(sorted(found.items()))


_COMMANDS = _all_commands()


class Commands(click.Group):
    """The commands of the table, each loaded when it is needed."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments of all commands.

        Raises UsageError if one isn't UTF-8, as it can't be hashed or noted.
        """
        try:
            "".join(args).encode()
        except UnicodeEncodeError:
            raise click.UsageError(
                "An argument isn't UTF-8 text. Set the terminal to UTF-8, and type it again."
            ) from None
        try:
            return super().parse_args(ctx, args)
        except OSError:  # the help can't be printed
            from leads_pipeline.cli.output import plain_errors

            with plain_errors():
                raise

    def invoke(self, ctx: click.Context) -> object:
        """Run the command. The pipeline's own errors are shown as a sentence."""
        from leads_pipeline.cli.output import plain_errors

        with plain_errors():
            return super().invoke(ctx)

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Return their names."""
        return list(_COMMANDS)

    def get_command(self, _ctx: click.Context | None, cmd_name: str) -> click.Command | None:
        """Return the command, None if there is none of that name."""
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = resolve_name(_COMMANDS[cmd_name].place)
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table into the help, without loading a command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in _COMMANDS.items()])


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120}
)
@click.version_option(package_name="leads-pipeline")
@click.pass_context
def main(context: click.Context) -> None:
    """Pull the leads of a property portal into Parquet and DuckDB."""
    from leads_pipeline.cli.settings import OURS, hints_about_unknown
    from leads_pipeline.raw.durable import forgo_core_dumps
    from leads_pipeline.settings import filled_in

    forgo_core_dumps()
    # Nothing that a command makes is for other users, whatever the shell says. Dagster sets no
    # modes of its own.
    os.umask(os.umask(0o077) | 0o007)
    context.obj = _read_env_file(Path.cwd() / ".env")
    names = [name for name in filled_in(os.environ) if name.startswith(OURS)]
    for hint in hints_about_unknown(names):
        click.secho(hint, fg="yellow", err=True)
    # Dagster then plans a run's partitions in one transaction.
    os.environ.setdefault("DAGSTER_EVENT_BATCH_SIZE", "1000")


def _read_env_file(path: Path) -> frozenset[str]:
    """Put the file's variables into the environment, unless they are there. Return their names."""
    from dotenv import dotenv_values

    from leads_pipeline.errors import SettingsError
    from leads_pipeline.settings import filled_in

    try:
        if path.exists() and not path.is_file() and not path.is_fifo():
            raise SettingsError(
                f"{path} is not a file. Make it one, with lines like LEADS_BRANCH_IDS=101,102, or "
                "remove it."
            )
        # Some editors put a byte order mark first.
        lines = dotenv_values(path, encoding="utf-8-sig")
    except OSError as error:
        raise SettingsError(
            f"{path} can't be read ({error.strerror}). Let this user read it."
        ) from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path} is not UTF-8 text. Save it as UTF-8.") from None

    # An empty variable counts as none, so the file can fill it.
    given = filled_in(os.environ)
    from_file = {
        name: value for name, value in lines.items() if value is not None and name not in given
    }
    os.environ.update(from_file)
    return frozenset(from_file)
