"""Try what pulls depend on: `doctor`."""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click
from dagster import build_resources

from leads_pipeline.cli.session import show_finding
from leads_pipeline.errors import SettingsError
from leads_pipeline.observe.doctor import (
    Finding,
    Light,
    examine,
    examine_env_file,
    examine_home,
    examine_names,
)
from leads_pipeline.orchestration.resources import InventoryService, LeadsService
from leads_pipeline.settings import Settings, variables
from leads_pipeline.storage.data_folder import DataFolder


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines.")
def doctor(as_json: bool) -> None:
    """Say whether settings, secret, token, services and data folder work, and what to do where they don't.

    Exit code 1 if anything is red.
    """
    findings = []
    for finding in _findings():
        findings.append(finding)
        if not as_json:
            show_finding(finding)
    is_well = all(finding.light is not Light.RED for finding in findings)
    if as_json:
        click.echo(json.dumps({"is_well": is_well, "findings": [asdict(finding) for finding in findings]}, indent=2))
    sys.exit(0 if is_well else 1)


def _findings() -> Iterator[Finding]:
    yield from examine_env_file(Path.cwd() / ".env")
    yield examine_names(variables())
    try:
        settings = Settings.from_variables(variables())
        data = DataFolder.of(settings)
    except SettingsError as error:
        yield Finding("settings", Light.RED, str(error))
        return
    # Dagster reads the secrets' variables, as it does in a run. The folder stays as it is, unlike in a run.
    used = {
        "leads": LeadsService.of(settings, data),
        "inventory": InventoryService.of(settings, data),
    }
    with build_resources(used) as made:
        yield from examine(settings, data, made.leads, made.inventory)
    home = settings.dagster_folder
    variables()["DAGSTER_HOME"] = str(home)  # its dagster.yaml asks for it
    yield examine_home(home)
