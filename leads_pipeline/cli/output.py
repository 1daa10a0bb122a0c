"""How commands print and listen: consoles, tables, errors as sentences, ports.

Belongs here: what every command needs. Doesn't: Dagster and the settings' model, so that `--help`
is quick.
"""

import errno
import os
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from traceback import walk_tb
from typing import IO, Any

import click
from rich.console import Console
from rich.table import Table

from leads_pipeline.errors import LeadsPipelineError, SettingsError

# 128 and the signal's number, as shells have it.
EXIT_INTERRUPTED = 130

# How many things of one cause are listed. The rest are counted.
LISTED = 20

# The address that commands listen on, unless they are told another.
HOST = "127.0.0.1"

out = Console(highlight=False, soft_wrap=True)
err = Console(highlight=False, soft_wrap=True, stderr=True)

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object instead of text."
)


class Number(click.IntRange):
    """A whole number within bounds, called so if the text is none."""

    name = "whole number"


def day(text: str) -> date:
    """Read a day that an option names. Raises BadParameter."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a day. Write 2026-11-19.") from None


class Refusal(click.ClickException):
    """Nothing was done: a setting, an argument or the folder is wrong. Printed after `Error:`."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it, if there is a place that takes it."""
        try:
            super().show(file)
        except OSError:
            _give_up(sys.stderr)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Show the pipeline's own errors, and those of a disk, as a sentence, and exit 2."""
    try:
        yield
    except LeadsPipelineError as error:
        raise Refusal(str(error)) from None
    except KeyboardInterrupt as stop:
        click.echo(f"\n{str(stop) or 'Stopped. Landed leads stay.'}", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except (click.ClickException, click.Abort, click.exceptions.Exit):
        raise
    except Exception as error:
        if isinstance(error, OSError) and _is_of_output(error):
            _give_up(sys.stdout)
            raise Refusal(
                f"The output can't be written: {error.strerror}. Send it to another file or "
                "device. What the command has done stays."
            ) from error
        if message := _disk_trouble(error):
            raise Refusal(message) from error
        raise


def _is_of_output(error: OSError) -> bool:
    """Whether the error comes from printing, by the module that raised it.

    A pipe that nobody reads is left to click.
    """
    *_, (innermost, _) = walk_tb(error.__traceback__)
    package = innermost.f_globals["__name__"].partition(".")[0]
    return package in ("click", "rich") and error.errno != errno.EPIPE


def _give_up(output: IO[str]) -> None:
    """Send to nowhere what can't be printed. Python would try again at its end, and complain."""
    try:
        output.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, output.fileno())
        os.close(nowhere)


def _disk_trouble(error: Exception) -> str | None:
    """Advice for a full disk or a broken database of Dagster. None if the error is another one."""
    from leads_pipeline.raw.durable import MORE_FILES
    from leads_pipeline.raw.room import (
        full_disk_message,
        is_short_of_files,
        sqlite_error,
        tightest_of,
    )
    from leads_pipeline.settings import Settings

    settings = Settings.from_variables(os.environ)
    folders = [settings.data_dir, settings.dagster_folder, Path(tempfile.gettempdir())]

    if (folder := tightest_of(error, folders)) is not None:
        return f"{full_disk_message(folder)} Landed leads are safe."

    if (failure := sqlite_error(error)) is not None:
        if is_short_of_files():
            return (
                f"Dagster's database in {settings.dagster_folder} can't be used: {failure}. "
                f"{MORE_FILES}"
            )
        return (
            f"Dagster's database in {settings.dagster_folder} can't be used: {failure}. Check the "
            "disk, then run again. Landed leads are safe."
        )

    return None


def show_indented(text: str, width: int) -> None:
    """Print text that nobody pastes, wrapped within the terminal."""
    click.echo(click.wrap_text(text, out.width, " " * width, " " * width))


def table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """Rows as rich prints them; None as nothing."""
    shown = Table(*names)
    for row in rows:
        shown.add_row(*("" if value is None else str(value) for value in row))
    return shown


def address_of(host: str, port: int) -> str:
    """Return `host:port` as it stands in an address: a host of IPv6 is in brackets."""
    is_bare_ipv6 = ":" in host and not host.startswith("[")
    return f"[{host}]:{port}" if is_bare_ipv6 else f"{host}:{port}"


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens there. Raises SettingsError if nobody can."""
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except OSError as error:
        # Python repeats the address in brackets.
        why = str(error.strerror or error).partition(" (")[0]
        raise SettingsError(
            f"Can't listen on {address_of(host, port)}: {why}. Name another host or port."
        ) from None
