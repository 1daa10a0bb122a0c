"""How the whole is doing: `status` for a person and for a probe, `metrics` for Prometheus."""

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event

import click
from dagster import DagsterError, DagsterInstance
from rich.markup import escape
from sqlalchemy.exc import SQLAlchemyError

from leads_pipeline.cli.output import out, plain_errors
from leads_pipeline.cli.ports import HOST, refuse_taken
from leads_pipeline.cli.session import configured
from leads_pipeline.errors import StorageError
from leads_pipeline.observe.doctor import writable
from leads_pipeline.observe.health import Health, examine_health
from leads_pipeline.settings import variables
from leads_pipeline.storage.data_folder import DataFolder, first_day
from leads_pipeline.storage.service_lock import is_served


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def status(as_json: bool) -> None:
    """Say how it is doing: what landed and was published when, what isn't landed, until when it can be had.

    Exit code 0 if all is well, 1 if somebody has to look into something, which is then said, 2 if it can't be known.
    Asks no service, needs no secret, and makes nothing.
    """
    with plain_errors():
        health = look()
    if as_json:
        click.echo(json.dumps(_as_json(health), indent=2))
    else:
        for name, value in _lines(health):
            out.print(f"{name:<18} {value}", highlight=False, soft_wrap=True)
        for trouble in health.troubles:
            out.print(f"[bold red]trouble[/bold red]            {escape(trouble)}", highlight=False, soft_wrap=True)
        if health.is_well:
            out.print("[green]well[/green]               Nobody has to look into anything.", highlight=False)
    sys.exit(0 if health.is_well else 1)


@click.command()
@click.option("--port", type=click.IntRange(1, 65535), help="Serve them at this port's /metrics, until ctrl-C.")
@click.option("--host", default=HOST, show_default=True, help="Address to listen on.")
def metrics(port: int | None, host: str) -> None:
    """Print the figures of `status` as Prometheus reads them, for a textfile, or serve them with --port."""
    # Loaded here, as no other command needs it.
    from leads_pipeline.observe.metrics import exposition, serve_metrics

    with plain_errors():
        if port is None:
            click.echo(exposition(look), nl=False)
            return
        configured()
        refuse_taken(port, host)
        logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
        serve_metrics(look, host, port)
        click.echo(f"Metrics are at http://{host}:{port}/metrics (ctrl-C stops it).")
        Event().wait()


def look() -> Health:
    """The figures of the installation that the variables name, as they are now. Raises LeadsPipelineError."""
    settings = configured()
    if not settings.data_dir.exists():
        writable(settings.data_dir)
    home = settings.dagster_folder
    with _books(home) as instance:
        return examine_health(
            instance,
            settings,
            first_day(settings),
            DataFolder.of(settings),
            home,
            datetime.now(UTC),
            is_served=is_served(home),
        )


@contextmanager
def _books(home: Path) -> Iterator[DagsterInstance]:
    """What Dagster has noted; nothing, where there is no home yet. Raises StorageError."""
    try:
        is_there = (home / "dagster.yaml").exists()
        variables()["DAGSTER_HOME"] = str(home)  # its dagster.yaml asks for it
        with DagsterInstance.from_config(str(home)) if is_there else DagsterInstance.ephemeral() as instance:
            yield instance
    except (DagsterError, SQLAlchemyError, OSError) as error:
        raise StorageError(
            f"Dagster's own state in {home} can't be read ({type(error).__name__}). `leads-pipeline coverage` or the "
            "Dagster UI shows more; with a broken home moved away, the next start makes a new one."
        ) from error


def _lines(health: Health) -> Iterator[tuple[str, str]]:
    yield "last landing", _ago(health, health.last_landing_at)
    yield "last publication", _ago(health, health.last_publication_at)
    yield "last backup", _ago(health, health.last_backup_at)
    yield "daemon", f"seen {_ago(health, health.daemon_seen_at)}"
    yield (
        "windows",
        f"{health.missing} missing, {health.failed} failed{', a pull is under way' if health.is_pulling else ''}",
    )
    for reason, count in health.failed_by_reason.items():
        yield "", f"{count} failed: {escape(reason)}"
    if health.next_deletion_at is not None:
        hours = (health.next_deletion_at - health.at) / timedelta(hours=1)
        when = f"begins in {hours:.0f} hours" if hours > 0 else "has begun"
        yield "next deletion", f"at the portal, of what isn't landed: {when}"
    else:
        yield "next deletion", "nothing that the portal still has is missing"
    yield "damaged", f"{health.damaged} files; {health.quarantined_files} files in quarantine/"
    yield "sizes", ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in health.sizes.items())
    yield "free", f"{health.free_bytes / 1e9:.1f} GB"


def _ago(health: Health, moment: datetime | None) -> str:
    if moment is None:
        return "never"
    seconds = max(0, (health.at - moment).total_seconds())
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds:.0f} seconds ago"


def _as_json(health: Health) -> dict[str, object]:
    def shown(moment: datetime | None) -> str | None:
        return moment.isoformat() if moment is not None else None

    deletion = health.next_deletion_at
    hours = None if deletion is None else round(max(0.0, (deletion - health.at) / timedelta(hours=1)), 1)
    return {
        "is_well": health.is_well,
        "troubles": health.troubles,
        "at": shown(health.at),
        "last_landing_at": shown(health.last_landing_at),
        "last_publication_at": shown(health.last_publication_at),
        "last_backup_at": shown(health.last_backup_at),
        "daemon_seen_at": shown(health.daemon_seen_at),
        "missing": health.missing,
        "failed": health.failed,
        "failed_by_reason": health.failed_by_reason,
        "is_pulling": health.is_pulling,
        "next_deletion_at": shown(deletion),
        "hours_until_deletion": hours,
        "damaged": health.damaged,
        "quarantined_files": health.quarantined_files,
        "bytes": {**health.sizes, "free": health.free_bytes},
    }
