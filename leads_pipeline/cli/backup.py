"""What outlives the disk: `backup` copies it, `restore` brings it back, `verify` counts it."""

import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from leads_pipeline.cli.output import err, plain_errors
from leads_pipeline.cli.session import Session, configured, opened
from leads_pipeline.errors import SettingsError
from leads_pipeline.settings import Settings, variables
from leads_pipeline.storage.backup import back_up
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.restore import end_restore
from leads_pipeline.storage.restore import restore as put_back

# Two weeks of nights.
KEPT_BACKUPS = 14

LISTED_FILES = 5


@click.command()
@click.argument("target", type=click.Path(file_okay=False, path_type=Path))
@click.option("--keep", type=click.IntRange(1), default=KEPT_BACKUPS, show_default=True, help="How many backups stay.")
def backup(target: Path, keep: int) -> None:
    """Back up the data folder to TARGET, a folder on another disk, while everything runs.

    Each backup is a folder in TARGET, named by its date and time. It costs what has changed since the one before.

    Exit code 1 if a file of the data folder is damaged, 2 if there is no new backup.
    """
    with plain_errors():
        settings = Settings.from_variables(variables())
        if settings.store is None and not settings.data_dir.is_dir():
            raise SettingsError(f"{settings.data_dir} is not there, so there is nothing to copy. Set LEADS_DATA_DIR.")
        data = opened(settings)
        with err.status("Copying what has changed"):
            done = back_up(data, target, keep, datetime.now(UTC))
    click.echo(
        f"Backup {target / done.name}: {done.files} files, {done.bytes / 1e6:.1f} MB. Copied now: {done.new} files, "
        f"{done.new_bytes / 1e6:.1f} MB. Older backups deleted: {done.removed}."
    )
    if done.is_first:
        click.echo(f"This is the first backup in {target}.")
        if target.stat().st_dev == settings.data_dir.stat().st_dev:
            click.echo("It is on the same disk as the data folder. If that disk fails, both are lost.", err=True)
    if done.damaged:
        click.echo(
            f"Damaged files in the data folder: {_counted(done.damaged)}. If the backup before has them whole, the new "
            "one has them too. Run `leads-pipeline verify`.",
            err=True,
        )
    sys.exit(1 if done.damaged else 0)


@click.command()
@click.argument("source", type=click.Path(exists=True, file_okay=False, path_type=Path))
def restore(source: Path) -> None:
    """Restore a backup into the data folder, which has to be empty, and publish.

    SOURCE is a backup, or the TARGET of backups: then the newest one is restored. People who were erased since the
    backup stay erased if the suppression list is newer, or is in LEADS_PRIVACY_DIR.

    Exit code 1 if a file was left out or publishing failed, 2 if nothing was restored or a setting is wrong.
    """
    with plain_errors():
        settings = configured()
        data = DataFolder.of(settings)
        with err.status("Restoring"):
            done = put_back(source, data, datetime.now(UTC))
        click.echo(f"Restored {done.files} files of {done.source} to {settings.data_dir}.")
        if done.damaged:
            click.echo(
                f"Damaged files of the backup, left out: {_counted(done.damaged)}. Their leads are in leads.duckdb, if "
                "that is whole. Their windows are pulled again while the portal has them.",
                err=True,
            )
        with Session.opened() as session:
            troubles = session.refresh()
        if not troubles:
            end_restore(data)
    for trouble in troubles:
        click.echo(f"Publishing failed: {trouble} Then run the same command again.", err=True)
    sys.exit(1 if done.damaged or troubles else 0)


def _counted(keys: list[str]) -> str:
    more = f" and {len(keys) - LISTED_FILES} more" if len(keys) > LISTED_FILES else ""
    return f"{len(keys)} ({', '.join(keys[:LISTED_FILES])}{more})"
