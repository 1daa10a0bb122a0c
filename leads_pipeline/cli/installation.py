"""The installation that the variables name: its settings, its data folder and the facts about it.

Belongs here: what each command opens first. Doesn't: Dagster (session.py), so that commands that
look are quick.
"""

import os
import sys
from datetime import UTC, datetime

import click

from leads_pipeline.errors import LeadsPipelineError, SettingsError
from leads_pipeline.extensions import brought
from leads_pipeline.health.facts import Facts
from leads_pipeline.raw.data_folder import DataFolder, check_portal, move_demo
from leads_pipeline.raw.durable import check_writable
from leads_pipeline.settings import THIS_MACHINE, Settings, origin


def existing_folder() -> tuple[Settings, DataFolder]:
    """Return the settings and the data folder. Nothing is made or changed.

    Raises SettingsError if nothing was ever pulled into the folder: a mistyped name would look like
    an empty folder.
    """
    settings = Settings.from_variables(os.environ)
    data = DataFolder.of(settings)
    data.want_format()
    data.want_restored()

    if data.bucket is None and not any(
        (data.folder / name).exists() for name in ("raw", ".versions")
    ):
        state = "has no leads" if data.folder.exists() else "doesn't exist"
        raise SettingsError(
            f"The data folder {data.folder} {state}. If that is the wrong folder, correct "
            "LEADS_DATA_DIR. If it is new, pull first: run `leads-pipeline backfill --last 3d`, "
            "or start the pull in your own Dagster."
        )

    return settings, data


def facts_now() -> Facts:
    """Return the facts of an existing installation, as they are now. Raises SettingsError."""
    settings, data = existing_folder()
    return Facts(settings, data, datetime.now(UTC))


def want_writable(settings: Settings) -> None:
    """Raise SettingsError for another version's folder, StorageError if nothing can be written."""
    check_writable(settings.data_dir)  # by a file without a name
    DataFolder.of(settings).want_format()


move_demo_option = click.option(
    "--move-demo",
    is_flag=True,
    help="Move the demo's data aside first, if the data folder holds it.",
)


def offer_to_move_demo(settings: Settings, *, is_wanted: bool) -> None:
    """Move the demo's data aside before real leads come, if a person wants it.

    The person says so by the option, or on a terminal.
    """
    if settings.store or not settings.base_url or origin(settings.base_url) == THIS_MACHINE:
        return

    want_writable(settings)
    data = DataFolder.of(settings)
    if data.state.claimed_by() != THIS_MACHINE:
        return

    question = f"{data.folder} holds the demo's leads. Move them aside, and go on with real ones?"
    if is_wanted or (sys.stdin.isatty() and click.confirm(question, err=True)):
        aside = move_demo(data, settings.dagster_folder, datetime.now(UTC))
        click.echo(f"Moved the demo's data to {aside}.", err=True)


def open_folder(settings: Settings) -> DataFolder:
    """Return the data folder, ready to work in.

    Its format is noted, and facts that all machines share are exchanged with the bucket. Raises
    SettingsError for the folder or the bucket of another version or portal, or an unfit bucket.
    """
    data = DataFolder.of(settings)
    data.want_format()
    if data.bucket is not None:
        [feature] = brought("bucket")
        feature.want_fit(data.bucket)
    check_portal(settings, data)
    data.note_format()
    data.exchange_with_bucket()
    return data


def open_existing_folder() -> tuple[Settings, DataFolder]:
    """Return the settings and the data folder, ready to work in (see `open_folder`).

    Raises SettingsError as `existing_folder` does, too.
    """
    settings, _ = existing_folder()
    return settings, open_folder(settings)


def publish() -> str | None:
    """Publish what has landed, without leads of people who were erased.

    Return the reason if that fails.
    """
    from leads_pipeline.cli.session import Session  # Dagster takes a second

    try:
        with Session.opened() as session:
            return session.publish()
    except LeadsPipelineError as error:
        return str(error)
