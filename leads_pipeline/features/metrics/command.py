"""Print or serve the figures for Prometheus: `metrics`."""

import os
from threading import Event

import click
from prometheus_client import generate_latest, start_http_server

from leads_pipeline.cli.installation import facts_now
from leads_pipeline.cli.output import HOST, Number, address_of, listening
from leads_pipeline.features.metrics.gauges import registry
from leads_pipeline.health.figures import Figures
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.settings import Settings


@click.command()
@click.option(
    "--port",
    type=Number(1, 65535),
    help="Serve the figures at /metrics on this port, until ctrl-C.",
)
@click.option("--host", default=HOST, show_default=True, help="Address to listen on.")
def metrics(port: int | None, host: str) -> None:
    """Print the figures of `status` for Prometheus, or serve them.

    The printed ones are for the textfile collector of its node exporter.

    Exit code 0 if the figures can be read, also with open errors, 2 if not.
    """
    if port is None:
        figures = Figures.of(facts_now())
        click.echo(generate_latest(registry(lambda: figures)), nl=False)
        return

    DataFolder.of(Settings.from_variables(os.environ)).want_format()  # the folder may come later
    listening(host, port).close()
    start_http_server(port, host, registry(lambda: Figures.of(facts_now())))
    click.echo(f"Metrics are at http://{address_of(host, port)}/metrics (ctrl-C stops it).")
    Event().wait()
