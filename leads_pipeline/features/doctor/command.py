"""Ask whether everything works: `doctor` asks the services, `verify` reads every file."""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click

from leads_pipeline.cli.installation import facts_now
from leads_pipeline.cli.output import json_option
from leads_pipeline.errors import SettingsError
from leads_pipeline.extensions import brought
from leads_pipeline.features.doctor.questions import ask_folder, ask_leads, ask_settings
from leads_pipeline.features.doctor.verify import verify as verify_files
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.seen import Light, Seen
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.settings import Settings

_COLOURS = {Light.GREEN: "green", Light.HINT: "cyan", Light.YELLOW: "yellow", Light.RED: "red"}


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Check settings, secret, services and data folder, and say what to do if one doesn't work.

    Sends one small request for each branch. Exit code 0 if no line is red, 1 if one is, 2 if a
    setting is missing or wrong.
    """
    _show(_answers(), as_json=as_json)


@click.command()
@json_option
def verify(as_json: bool) -> None:
    """Check every file by its hash, and compare counts from raw files to leads.duckdb and marts.

    Like every run, it moves damaged raw files to quarantine/. Exit code 0 if no line is red, 1 if
    one is, 2 if it can't tell.
    """
    facts = facts_now()
    facts.data.exchange_with_bucket()
    _show(verify_files(facts), as_json=as_json)


def _answers() -> Iterator[Seen]:
    # Loaded here, as verify needs no Dagster.
    from leads_pipeline.orchestration.resources import LeadsService

    try:
        settings = Settings.from_variables(os.environ)
        data = DataFolder.of(settings)
        data.want_format()
    except SettingsError as error:
        yield Seen(_SETTINGS, Light.RED, f"{error} Nothing else was checked.")
        return

    yield from ask_settings(settings, Path.cwd() / ".env")
    leads = LeadsService.of(settings, data)
    facts = Facts(settings, data, datetime.now(UTC))
    yield from ask_leads(facts, leads.secret, leads.tokens)

    for of_feature in brought("questions"):
        yield from of_feature(facts)

    yield from ask_folder(facts)


# The line that is red if a required setting is missing, or one is wrong.
_SETTINGS = "settings"


def _show(answers: Iterable[Seen], *, as_json: bool) -> None:
    """Print a line for each answer, as it comes.

    End with 1 if one is red, with 2 if that of the settings is.
    """
    shown = []
    for one in answers:
        shown.append(one)
        if not as_json:
            click.echo(
                f"{click.style(f'{one.light:<6}', _COLOURS[one.light])} {one.check}: {one.message}"
            )

    red = {one.check for one in shown if one.light is Light.RED}
    if as_json:
        click.echo(
            json.dumps({"is_well": not red, "findings": [asdict(one) for one in shown]}, indent=2)
        )

    if _SETTINGS in red:
        sys.exit(2)
    sys.exit(1 if red else 0)
