"""What outlives the disk: `backup` copies what nobody can give back, `restore` brings it back, `verify` counts it."""

import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import click

from leads_pipeline.cli.output import err, plain_errors
from leads_pipeline.cli.session import opened, show_finding
from leads_pipeline.errors import SettingsError, StorageError
from leads_pipeline.observe.doctor import Light
from leads_pipeline.observe.verification import verify as verify_folder
from leads_pipeline.settings import Settings, variables
from leads_pipeline.storage.backup import Backup, Roots, Store, back_up, settings_files
from leads_pipeline.storage.backup import restore as restore_backup
from leads_pipeline.storage.backup.parts import DAGSTER, DATA, PRIVACY
from leads_pipeline.storage.backup.restoring import SETTINGS_FOLDER
from leads_pipeline.storage.backup.store import in_words
from leads_pipeline.storage.state import State

# How many backups a target keeps: two weeks of nights.
KEPT_BACKUPS = 14

_TARGET = click.argument("target", type=click.Path(file_okay=False, path_type=Path))


def _roots(settings: Settings, data_dir: Path) -> Roots:
    """Where an installation keeps what is copied."""
    return {
        DATA: data_dir,
        DAGSTER: settings.dagster_folder,
        PRIVACY: settings.privacy_dir or data_dir / "privacy",
    }


@click.command()
@_TARGET
@click.option("--keep", type=click.IntRange(1), default=KEPT_BACKUPS, show_default=True, help="How many backups stay.")
@click.option("--with-secrets", is_flag=True, help="Copy secrets and the files that hold them as well.")
def backup(target: Path, keep: int, with_secrets: bool) -> None:
    """Copy what can't be had again to TARGET, a folder on another disk, while everything runs.

    Only what has changed since the last backup is copied. Exit code 1 if a file wasn't whole, older backups couldn't be
    removed or the data folder can't note it, 2 if there is no new backup.
    """
    with plain_errors():
        settings = Settings.from_variables(variables())
        if opened(settings).bucket is not None:
            raise SettingsError(
                "The data lies in a bucket, and a backup copies a folder. Have the bucket keep versions, or replicate "
                "it: docs/operate.md says how."
            )
        files = settings_files(variables(), with_secrets=with_secrets)
        with err.status("Copying what has changed"):
            done = back_up(_roots(settings, settings.data_dir), target, files, keep, datetime.now(UTC))
    if done.is_first:
        click.echo(f"{target} had no backup yet: this is the first one there.")
    click.echo(
        f"Backup {done.name}: {done.files} files, {_megabytes(done.bytes)}. Copied now: {done.written}, "
        f"{_megabytes(done.written_bytes)}. Older backups removed: {done.forgotten}."
    )
    if settings.dagster_postgres:
        click.echo(
            "Dagster's history is in Postgres, and in no backup of ours: copy it with pg_dump. Leads need none of it."
        )
    if done.damaged:
        click.echo(
            f"{len(done.damaged)} files aren't whole: {in_words(done.damaged)}. Where the backup before had them "
            "whole, this one keeps that. `leads-pipeline doctor` says what to do.",
            err=True,
        )
    if done.not_forgotten:
        click.echo(f"No older backup was removed: {done.not_forgotten}", err=True)
    if done.not_noted:
        click.echo(
            f"The data folder doesn't know of it, so an alert may say that none was made: {done.not_noted}", err=True
        )
    sys.exit(1 if done.damaged or done.not_forgotten or done.not_noted else 0)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


@click.command()
@_TARGET
@click.option("--to", "folder", type=click.Path(file_okay=False, path_type=Path), help="Instead of LEADS_DATA_DIR.")
@click.option("--backup", "name", help="Its name; else the newest.")
@click.option("--leave-out-damaged", is_flag=True, help="Restore what is whole where the backup is damaged.")
def restore(target: Path, folder: Path | None, name: str | None, leave_out_damaged: bool) -> None:
    """Bring the newest backup in TARGET back into an empty data folder. Nothing is ever overwritten.

    Every file is compared with its checksum before the first is put in place. Exit code 1 if something was left out, 2
    if nothing was restored.
    """
    with plain_errors():
        settings = Settings.from_variables(variables())
        roots = _roots(settings, folder or settings.data_dir)
        if folder is not None:
            roots = {**roots, DAGSTER: folder.absolute() / ".dagster"}
        store = Store(target)
        wanted = _chosen(store, name)
        with err.status(f"Restoring {wanted.name}"):
            done = restore_backup(store, wanted, roots, leave_out_damaged=leave_out_damaged)
    data = roots[DATA]
    # Where nobody goes on making backups, that is to ring.
    with suppress(StorageError):
        State(data).note_backup(wanted.made_at)
    click.echo(f"Restored {done.files} files of {done.backup}, made at {wanted.made_at:%Y-%m-%d %H:%M} UTC, to {data}.")
    for path in done.kept:
        click.echo(f"{path} was there already and stays as it is: it is newer than the backup's.")
    if (data / SETTINGS_FOLDER).is_dir():
        click.echo(f"The settings of then are in {data / SETTINGS_FOLDER}; nothing reads them there.")
    click.echo(
        "Start the pipeline, or run `leads-pipeline backfill` over the last 30 days: what has come since is pulled, "
        "and leads.duckdb is made anew. Then `leads-pipeline verify` says whether all adds up."
    )
    click.echo(
        "Who was erased after the backup was made is back with it; `leads-pipeline privacy apply` erases whom the "
        "suppression list names."
    )
    if not done.kept:
        click.echo("That list may be as old as the backup: see your own notes for whom it lacks, and erase them again.")
    if done.damaged:
        click.echo(f"{len(done.damaged)} damaged files were left out: {in_words(done.damaged)}.", err=True)
    sys.exit(1 if done.damaged else 0)


def _chosen(store: Store, name: str | None) -> Backup:
    names = store.names()
    if not names:
        raise SettingsError(f"{store.target} has no backup: no `leads-pipeline backup` to it has come to its end.")
    if name is not None and name not in names:
        raise SettingsError(f"{store.target} has no backup of that name. It has {', '.join(names)}.")
    return store.read(name or names[-1])


@click.command()
@click.option(
    "--backup",
    "target",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Read the newest backup in this folder instead.",
)
def verify(target: Path | None) -> None:
    """Read every file, compare every seal, and count the leads from raw to leads.duckdb to the marts.

    A damaged raw file is set aside, as by any run. Exit code 1 if something is red.
    """
    with plain_errors():
        if target is not None:
            is_well = _verify_backup(Store(target))
        else:
            is_well = True
            settings = Settings.from_variables(variables())
            for finding in verify_folder(opened(settings)):
                is_well &= finding.light is not Light.RED
                show_finding(finding)
    sys.exit(0 if is_well else 1)


def _verify_backup(store: Store) -> bool:
    backup = _chosen(store, None)
    with err.status(f"Reading {backup.name}"):
        damaged = [entry.path for entry in backup.files if not store.is_whole(entry)]
    if damaged:
        click.echo(
            f"{len(damaged)} of {len(backup.files)} files of {backup.name} are damaged or gone: {in_words(damaged)}. "
            "Have the disk looked at, and make a new backup in another folder while the originals are there.",
            err=True,
        )
    else:
        click.echo(f"{backup.name}: {len(backup.files)} files, each as it was written.")
    return not damaged
