"""Try the alert channels: `alert`."""

import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

import click

from leads_pipeline.errors import SettingsError
from leads_pipeline.features.alerts.alerts import AlertMemory
from leads_pipeline.features.alerts.channels import SET_UP, Heartbeat, channels_of
from leads_pipeline.features.alerts.digest import Digest
from leads_pipeline.mail import attempt
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.settings import Settings


@click.command()
@click.option(
    "--test",
    "is_test",
    is_flag=True,
    required=True,
    help="Send a message on each channel that is set up.",
)
def alert(is_test: bool) -> None:  # noqa: ARG001 - it is required, and there is no other
    """Send a message on each channel that is set up, and call the heartbeat, to try them.

    Exit code 1 if one doesn't work, 2 if none is set up.
    """
    settings = Settings.from_variables(os.environ)
    data = DataFolder.of(settings)
    data.want_format()
    now = datetime.now(UTC)
    sends: dict[str, Callable[[], str | None]] = {
        channel.name: partial(channel.send, Digest(now)) for channel in channels_of(settings)
    }
    if heartbeat := Heartbeat.of(settings):
        sends[heartbeat.name] = partial(heartbeat.beat, is_well=True)
    if not sends:
        raise SettingsError(f"No alert channel is set up. {SET_UP}")
    troubles = {}
    for name, send in sends.items():
        _, trouble = attempt(name, send)
        troubles[name] = trouble
        word = click.style("failed", fg="red") if trouble else click.style("sent  ", fg="green")
        click.echo(f"{word} {name}" + (f": {trouble}" if trouble else ""))
    state = data.state.path
    if state.exists():  # a test makes no data folder
        memory = AlertMemory.read(state)
        for name, trouble in troubles.items():
            memory.note_attempt(name, trouble, now)
        memory.write(state)
    sys.exit(1 if any(troubles.values()) else 0)
