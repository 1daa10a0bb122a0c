"""The Dagster UI with its daemon: `serve` on a server, `dev` to try things out."""

import os
import sys
from contextlib import ExitStack

import click

from leads_pipeline.cli.installation import move_demo_option, offer_to_move_demo
from leads_pipeline.cli.output import HOST, Number
from leads_pipeline.features.service.demo import simulator
from leads_pipeline.settings import Settings

port_option = click.option(
    "--port", type=Number(1, 65535), default=3000, show_default=True, help="Port of the Dagster UI."
)


@click.command()
@port_option
@click.option(
    "--host", default=HOST, show_default=True, help="Address of the Dagster UI. It has no login."
)
def serve(port: int, host: str) -> None:
    """Run the Dagster UI, the daemon and the code location until ctrl-C or SIGTERM.

    If one of them ends by itself, the code location can't be reached for a minute, or the clock is
    set back by more than 10 minutes, all of them are ended. Then systemd or the container starts
    them again. Exit code 0 after ctrl-C or SIGTERM, 1 if something else ended them, 2 if a setting
    or the folder is wrong.

    The UI has no login: anybody who reaches it can start and stop everything. Put a proxy with TLS
    and a login in front of it, or use a tunnel. If people open the UI by a name, set LEADS_UI_HOSTS
    to that name. Requests of other websites are refused.
    """
    from leads_pipeline.features.service.processes import run_together  # loads Dagster

    settings = Settings.from_variables(os.environ)
    settings.want_portal()
    sys.exit(run_together(settings, host, port, "warning"))


@click.command()
@port_option
@move_demo_option
@click.option(
    "--log-level",
    type=click.Choice(["error", "warning", "info", "debug"]),
    default="warning",
    show_default=True,
    help="What Dagster prints here. With info it is about 20 lines a minute.",
)
def dev(port: int, log_level: str, *, move_demo: bool) -> None:
    """Start the Dagster UI and its daemon, and the simulated portal if LEADS_BASE_URL isn't set."""
    from leads_pipeline.features.service.processes import run_together  # loads Dagster

    with ExitStack() as stack:
        if not os.environ.get("LEADS_BASE_URL"):
            click.echo("LEADS_BASE_URL is not set, so leads come from the simulated portal.")
            stack.enter_context(simulator())
        settings = Settings.from_variables(os.environ)
        offer_to_move_demo(settings, is_wanted=move_demo)
        code = run_together(settings, HOST, port, log_level)
    sys.exit(code)
