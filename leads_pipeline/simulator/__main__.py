"""`python -m leads_pipeline.simulator`: the simulator alone, until it is stopped."""

import shlex
import threading
from pathlib import Path

import click

from leads_pipeline.simulator import faults
from leads_pipeline.simulator.app import CRM_PATH, CRM_SECRET, Config
from leads_pipeline.simulator.faults import FaultError, Rule, read_rules
from leads_pipeline.simulator.server import running

_DEFAULTS = Config()


def _read_faults(_: click.Context, __: click.Parameter, path: Path | None) -> tuple[Rule, ...]:
    try:
        return read_rules(path.read_bytes()) if path else ()
    except FaultError as error:
        raise click.BadParameter(str(error)) from None


# The form of a fault file as faults.py describes it. \b keeps the lines of a paragraph as they are.
_FORM = (faults.__doc__ or "").partition("\n\n")[2].strip().split("\n\n")


@click.command(
    context_settings={"show_default": True, "max_content_width": 120},
    epilog="\n\n".join(f"\b\n{paragraph}" for paragraph in _FORM),
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8099,
    help="Port to listen on; 0 takes a free one.",
)
@click.option(
    "--seed", default=_DEFAULTS.seed, help="Another seed makes other people, streets and leads."
)
@click.option(
    "--branches",
    type=click.IntRange(1, 5000),
    default=_DEFAULTS.branches,
    help="Branches 101, 102, …",
)
@click.option(
    "--leads-per-day",
    type=click.FloatRange(0, 10_000),
    default=_DEFAULTS.leads_per_day,
    help="Mean number of applicant leads of a branch and day. There are a quarter as many "
    "appraisal leads.",
)
@click.option(
    "--faults",
    "rules",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    callback=_read_faults,
    help="JSON file with fault rules. Their form is below.",
)
@click.option(
    "--ready-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write the environment variables to once it is listening.",
)
def main(
    port: int,
    seed: int,
    branches: int,
    leads_per_day: float,
    rules: tuple[Rule, ...],
    ready_file: Path | None,
) -> None:
    """Serve made-up leads, tokens and inventory on this machine as the portal would.

    The endpoints below /_simulator/ (faults, truth, push, crm) are the simulator's own: the portal
    has none of them.
    """
    try:
        with running(
            Config(seed=seed, branches=branches, leads_per_day=leads_per_day, faults=rules),
            port=port,
        ) as portal:
            crm = {
                "LEADS_DELIVERY_URL": portal.base_url + CRM_PATH,
                "LEADS_DELIVERY_SECRET": CRM_SECRET,
            }
            environment = portal.environment() | crm
            lines = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
            click.echo(
                f"The simulator listens at {portal.base_url}; Ctrl-C stops it. To point the "
                "pipeline at it:\n"
            )
            click.echo("\n".join(f"export {line}" for line in lines))
            if ready_file is not None:
                new = ready_file.with_name(f"{ready_file.name}.new")
                new.write_text("\n".join((*lines, "")), encoding="utf-8")
                new.replace(ready_file)
            threading.Event().wait()
    except OSError as error:
        raise click.UsageError(f"It can't start: {error}. Name another port or file.") from None
    except KeyboardInterrupt:
        click.echo("\nStopped.")


if __name__ == "__main__":
    main(prog_name="leads-pipeline simulate")
