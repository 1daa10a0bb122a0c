"""Copy the data folder to another disk, and bring it back: `backup`, `restore`."""

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.filesize import decimal

from leads_pipeline.cli.installation import open_existing_folder, publish
from leads_pipeline.cli.output import Number, err
from leads_pipeline.features.backup.restoring import end_restore
from leads_pipeline.features.backup.restoring import restore as put_back
from leads_pipeline.features.backup.snapshots import back_up
from leads_pipeline.health.facts import Facts
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.settings import Settings
from leads_pipeline.warehouse.published import LeadsFile
from leads_pipeline.words import counted, some

# Two weeks of nights.
KEPT_BACKUPS = 14


@click.command()
@click.argument("target", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--keep",
    type=Number(1),
    default=KEPT_BACKUPS,
    show_default=True,
    help="How many backups to keep.",
)
def backup(target: Path, keep: int) -> None:
    """Back up the data folder to TARGET, a folder on another disk. The service can keep running.

    Each backup is a folder in TARGET, named by its date and time. Only changed files take new
    space.

    Exit code 1 if a file of the data folder is damaged or missing, or an old backup can't be
    deleted, 2 if there is no new backup.
    """
    settings, data = open_existing_folder()
    with err.status("Copying files that have changed"):
        done = back_up(data, target, keep, datetime.now(UTC))

    click.echo(
        f"Backup {target / done.name}: {counted(done.files, 'file')}, {decimal(done.bytes)}. "
        f"Copied now: {counted(done.new, 'file')}, {decimal(done.new_bytes)}. Older backups "
        f"deleted: {done.removed}."
    )
    if done.is_first:
        click.echo(f"This is the first backup in {target}.")

    if target.stat().st_dev == settings.data_dir.stat().st_dev:
        click.echo(
            "It is on the same disk as the data folder. If that disk fails, both are lost.",
            err=True,
        )

    facts = Facts(settings, data, datetime.now(UTC), is_thorough=True)
    damaged_by_facts = {raw.key for raw in facts.damaged}
    damaged = sorted(damaged_by_facts.union(done.damaged))

    if damaged:
        click.echo(
            f"Damaged or missing in the data folder: {some(damaged)}. This backup may lack them. "
            "`leads-pipeline verify` says what to do.",
            err=True,
        )

    if done.troubles:
        click.echo(f"This backup is complete. {' '.join(done.troubles)}", err=True)

    sys.exit(1 if damaged or done.troubles else 0)


@click.command()
@click.argument("source", type=click.Path(exists=True, file_okay=False, path_type=Path))
def restore(source: Path) -> None:
    """Restore a backup into the data folder, which has to be empty, and publish.

    SOURCE is a backup, or the TARGET of backups: then the newest one is restored. People who were
    erased since the backup stay erased if the suppression list is newer, or is in
    LEADS_PRIVACY_DIR.

    Exit code 1 if a file was left out or publishing failed, 2 if nothing was restored or a setting
    is wrong.
    """
    settings = Settings.from_variables(os.environ)
    data = DataFolder.of(settings)

    with err.status("Restoring"):
        done = put_back(source, data, datetime.now(UTC))

    click.echo(f"Restored {done.files} files of {done.source} to {settings.data_dir}.")
    if done.damaged:
        click.echo(
            f"Damaged files of the backup were left out: {some(done.damaged)}. Their leads come "
            "from leads.duckdb.",
            err=True,
        )

    with err.status("Publishing leads.duckdb"):
        trouble = publish()

    if trouble:
        click.echo(f"Restored, but not published: {trouble} Run the same command again.", err=True)
    else:
        end_restore(data)
        file = LeadsFile(data)
        click.echo(
            f"Published: {file.path}. It holds {counted(sum(file.lead_counts().values()), 'lead')}."
        )
        click.echo("Next, pull the leads that came since: leads-pipeline backfill --last 30d")

    sys.exit(1 if done.damaged or trouble else 0)
