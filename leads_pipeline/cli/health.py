"""How the pipeline is doing: `status`, `findings`, `acknowledge`, `metrics`. None of them needs Dagster."""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from threading import Event

import click
from rich.markup import escape

from leads_pipeline.cli.output import out, plain_errors
from leads_pipeline.cli.ports import HOST, refuse_taken
from leads_pipeline.errors import SettingsError
from leads_pipeline.observe.finding import counted
from leads_pipeline.observe.findings import Finding, Level, find
from leads_pipeline.observe.findings import acknowledge as take_note
from leads_pipeline.observe.known import Known
from leads_pipeline.settings import Settings, variables
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.windows import WindowState

_COLOURS = {Level.ERROR: "bold red", Level.WARNING: "yellow", Level.HINT: "cyan"}

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")


def known() -> Known:
    """Return the facts of the installation that the variables name, as they are now. Raises SettingsError."""
    settings = Settings.from_variables(variables())
    data = DataFolder.of(settings)
    if data.is_of_earlier_release:
        raise SettingsError(
            f"{data.folder} has files of an earlier version of leads-pipeline, and looking changes nothing. Start the "
            "service, or run `leads-pipeline backfill --last 1d`: both take the files over first. Then look again.",
            reason="earlier version's data folder",
        )
    return Known.of(settings, data, datetime.now(UTC))


@click.command()
@json_option
def status(as_json: bool) -> None:
    """Show the pipeline's figures and its open findings.

    Exit code 0 if no error is open, 1 if one is, 2 if it can't tell. Asks no service, needs no secret, and changes
    nothing.
    """
    # Loaded here, as `findings` has no figures.
    from leads_pipeline.observe.figures import Figures

    with plain_errors():
        figures = Figures.of(known())
    if as_json:
        told = asdict(figures) | {"is_well": figures.is_well, "findings": _as_json(figures.findings)}
        click.echo(json.dumps(told, indent=2, default=datetime.isoformat))
    else:
        leads = ", ".join(f"{count:,} {kind}" for kind, count in (figures.leads or {}).items())
        windows = ", ".join(f"{count} {state}" for state, count in figures.windows.items() if count)
        windows = windows.replace(WindowState.OPEN, "not over yet")
        sizes = ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in figures.size_bytes.items())
        lines = {
            "leads": leads or ("none published" if figures.leads == {} else "unknown: leads.duckdb can't be read"),
            "windows": f"{windows or 'none'}, of the last 30 days",
            "last landing": _ago(figures.last_landing_at, figures.at),
            "last publication": _ago(figures.last_publication_at, figures.at),
            "last backup": _ago(figures.last_backup_at, figures.at),
            "service": f"seen {_ago(figures.service_seen_at, figures.at)}"
            if figures.service_seen_at
            else "not running",
            "sizes": f"{sizes}, {figures.free_bytes / 1e9:.1f} GB free",
        }
        for name, value in lines.items():
            out.print(f"{name:<17} {value}", highlight=False, soft_wrap=True)
        out.print()
        show(figures.findings)
    sys.exit(0 if figures.is_well else 1)


@click.command()
@json_option
def findings(as_json: bool) -> None:
    """List the open findings: errors first, then the oldest first.

    Exit code 0 if no error is open, 1 if one is, 2 if it can't tell.
    """
    with plain_errors():
        found = find(known())
    if as_json:
        click.echo(json.dumps({"findings": _as_json(found)}, indent=2, default=datetime.isoformat))
    else:
        show(found)
    sys.exit(1 if any(finding.level is Level.ERROR for finding in found) else 0)


@click.command()
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
def acknowledge(keys: Sequence[str]) -> None:
    """Hide a finding about lost leads or new fields.

    KEY is the key of a finding, such as windows-lost/2026-11-19. windows-lost alone means all findings of that kind.
    """
    with plain_errors():
        for finding in take_note(known(), keys):
            out.print(f"Hidden: {escape(finding.key)}", highlight=False, soft_wrap=True)


@click.command()
@click.option("--port", type=click.IntRange(1, 65535), help="Serve them at this port's /metrics, until ctrl-C.")
@click.option("--host", default=HOST, show_default=True, help="Address to listen on.")
def metrics(port: int | None, host: str) -> None:
    """Print the figures of `status` in Prometheus' format, for a textfile, or serve them with --port."""
    from prometheus_client import generate_latest, start_http_server

    from leads_pipeline.observe.figures import Figures, registry

    with plain_errors():
        if port is None:
            figures = Figures.of(known())
            click.echo(generate_latest(registry(lambda: figures)), nl=False)
            return
        Settings.from_variables(variables())
        refuse_taken(port, host)
        start_http_server(port, host, registry(lambda: Figures.of(known())))
        click.echo(f"Metrics are at http://{host}:{port}/metrics (ctrl-C stops it).")
        Event().wait()


def show(found: Sequence[Finding]) -> None:
    """Print the findings. If several in a row ask for the same, it is printed once, after the last of them."""
    for finding, after in zip(found, [*found[1:], None], strict=True):
        since = f", since {finding.since:%Y-%m-%d %H:%M} UTC" if finding.since else ""
        out.print(
            f"[{_COLOURS[finding.level]}]{finding.level:<8}[/] [bold]{escape(finding.key)}[/bold]{since}",
            highlight=False,
        )
        out.print(f"         {escape(finding.message)}", highlight=False, soft_wrap=True)
        if after is None or after.what_to_do != finding.what_to_do:
            out.print(f"         → {escape(finding.what_to_do)}", highlight=False, soft_wrap=True)
    levels = Counter(finding.level for finding in found)
    counts = ", ".join(counted(levels[level], level) for level in Level if levels[level])
    is_well = not (levels[Level.ERROR] or levels[Level.WARNING])
    well = "[green]No errors or warnings.[/green]" if is_well else ""
    out.print(f"{well} {counts}{'.' if counts else ''}".strip(), highlight=False)


def _as_json(found: Sequence[Finding]) -> list[dict[str, object]]:
    return [asdict(finding) for finding in found]


def _ago(moment: datetime | None, now: datetime) -> str:
    if moment is None:
        return "never"
    seconds = max(0, (now - moment).total_seconds())
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds:.0f} seconds ago"
