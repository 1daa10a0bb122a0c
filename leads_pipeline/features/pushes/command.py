"""Take leads that the portal pushes: `receive`."""

import logging
import os
from contextlib import suppress

import click

from leads_pipeline.cli.installation import open_folder
from leads_pipeline.cli.output import HOST, Number, address_of, listening
from leads_pipeline.errors import SettingsError, StorageError
from leads_pipeline.features.pushes.findings import SEEN
from leads_pipeline.features.pushes.placement import Placement
from leads_pipeline.features.pushes.receiver import PATH, Receiver, server
from leads_pipeline.features.pushes.settings import PushSettings
from leads_pipeline.portal.credentials import read_secret
from leads_pipeline.raw.durable import check_writable
from leads_pipeline.settings import Settings, origin


@click.command()
@click.option("--host", default=HOST, show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=Number(0, 65535),
    default=8750,
    show_default=True,
    help="Port to listen on; 0 takes a free one.",
)
def receive(host: str, port: int) -> None:
    """Take leads that the portal pushes, and land them at once.

    Pushes carry the key of LEADS_RECEIVE_KEY. The receiver speaks HTTP: put nginx or Caddy with TLS
    in front of it.
    """
    settings = Settings.from_variables(os.environ)
    key = settings.of(PushSettings).receive_key

    if key is None:
        raise SettingsError(
            "Set LEADS_RECEIVE_KEY or LEADS_RECEIVE_KEY_FILE to the key that the portal's pushes "
            "carry. Make one with: openssl rand -hex 32"
        )

    check_writable(settings.data_dir)
    data = open_folder(settings)
    data.want_restored()
    receiver = Receiver(data.raw, Placement(settings.scopes, settings.zone), read_secret(key))

    if settings.base_url:
        data.state.claim(origin(settings.base_url))

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")

    def each_minute() -> None:
        with suppress(StorageError):  # on a full disk
            data.state.touch(SEEN)
        with suppress(StorageError):  # the bucket is away, and nothing can land
            data.gate.exchange_with_bucket()

    with listening(host, port) as listener:
        address = address_of(host, listener.getsockname()[1])
        click.echo(f"Pushes go to http://{address}{PATH} (ctrl-C stops it).")
        server(receiver, each_minute).run([listener])
