"""How the pipeline is doing: `status`, `findings`, `acknowledge`.

None of them needs Dagster.
"""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

import click
from rich.filesize import decimal

from leads_pipeline.cli.installation import facts_now
from leads_pipeline.cli.output import json_option, show_indented
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.figures import CountedByState, Figures
from leads_pipeline.health.findings import Finding, Level, find
from leads_pipeline.health.findings import acknowledge as take_note
from leads_pipeline.raw.windows import WindowState
from leads_pipeline.words import counted, moment

# In seconds. Moments that are less than two of a unit ago are told in the next one.
_UNITS = {"day": 86_400, "hour": 3600, "minute": 60}

_COLOURS = {Level.ERROR: "red", Level.WARNING: "yellow", Level.HINT: "cyan"}


@click.command()
@json_option
def status(as_json: bool) -> None:
    """Show the pipeline's figures and its open findings.

    Asks no service, needs no secret, and changes nothing.

    Exit code 0 if no error is open, 1 if one is, 2 if it can't tell.
    """
    facts = facts_now()
    figures = Figures.of(facts)

    if as_json:
        click.echo(json.dumps(figures.as_json(), indent=2, default=datetime.isoformat))
    else:
        for name, value in _lines(figures, facts).items():
            click.echo(f"{name:<17} {value}")
        click.echo()
        _show(figures.findings)

    sys.exit(0 if figures.is_well else 1)


def _lines(figures: Figures, facts: Facts) -> dict[str, str]:
    """Return the figures in words, by the words before them."""
    sizes = ", ".join(f"{name} {decimal(size)}" for name, size in figures.size_bytes.items())
    service = "not running: nothing is pulled by itself"
    if figures.service_seen_at:
        service = f"seen {_ago(figures.service_seen_at, figures.at)}"

    return {
        "leads": _leads(figures),
        "windows": _windows(figures, facts),
        "last landing": _ago(figures.last_landing_at, figures.at),
        "last publication": _ago(figures.last_publication_at, figures.at),
        "last backup": _ago(figures.last_backup_at, figures.at),
        **{one.name: _counted(one, figures.at) for one in figures.of_features},
        "service": service,
        "sizes": sizes,
        "free disk": decimal(figures.free_bytes),
    }


def _leads(figures: Figures) -> str:
    if figures.leads is None:
        return "unknown: leads.duckdb can't be read"
    counts = [f"{count:,} {kind}" for kind, count in figures.leads.items()]
    return ", ".join(counts) or "none published"


def _windows(figures: Figures, facts: Facts) -> str:
    counts = [f"{count} {state}" for state, count in figures.windows.items() if count]
    if not counts:
        return "none"
    in_words = ", ".join(counts).replace(WindowState.OPEN, "open (not due yet)")
    return f"{in_words}, since {facts.windows[0].day}"


@click.command()
@json_option
def findings(as_json: bool) -> None:
    """List the open findings: errors first, then the oldest first.

    Exit code 0 if no error is open, 1 if one is, 2 if it can't tell.
    """
    found = find(facts_now())
    if as_json:
        answer = {"findings": [asdict(one) for one in found]}
        click.echo(json.dumps(answer, indent=2, default=datetime.isoformat))
    else:
        _show(found)
    sys.exit(1 if any(one.level is Level.ERROR for one in found) else 0)


@click.command()
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
def acknowledge(keys: Sequence[str]) -> None:
    """Hide a finding about lost leads or new fields.

    KEY is the key of a finding, such as windows-lost/2026-11-19. windows-lost alone means all
    findings of that kind.
    """
    for one in take_note(facts_now(), keys):
        click.echo(f"Hidden: {one.key}")


def _show(found: Sequence[Finding]) -> None:
    """Print the findings.

    If several in a row ask for the same, it is printed once, after the last of them.
    """
    for one, after in zip(found, [*found[1:], None], strict=True):
        since = f", since {moment(one.since)}" if one.since else ""
        level = click.style(
            f"{one.level:<8}", fg=_COLOURS[one.level], bold=one.level is Level.ERROR
        )
        click.echo(f"{level} {click.style(one.key, bold=True)}{since}")
        show_indented(one.message, 9)
        if after is None or after.what_to_do != one.what_to_do:
            click.echo(f"         → {one.what_to_do}")

    if found:
        click.echo("\n`leads-pipeline explain KEY` says what a finding means and what to do.")

    levels = Counter(one.level for one in found)
    counts = ", ".join(counted(levels[level], level) for level in Level if levels[level])
    is_well = not (levels[Level.ERROR] or levels[Level.WARNING])
    well = click.style("No errors or warnings.", fg="green") if is_well else ""
    click.echo(f"{well} {counts}{'.' if counts else ''}".strip())


def _counted(one: CountedByState, now: datetime) -> str:
    """How many are in each state, and when the last one was done."""
    counts = ", ".join(f"{count} {state}" for state, count in one.by_state.items() if count)
    return f"{counts}, last {_ago(one.last_at, now)}" if counts else "none"


def _ago(at: datetime | None, now: datetime) -> str:
    """A moment, and how long ago it was."""
    if at is None:
        return "never"
    seconds = max(0, (now - at).total_seconds())
    unit = next((name for name, length in _UNITS.items() if seconds >= 2 * length), "minute")
    return f"{moment(at)}, {counted(round(seconds / _UNITS[unit]), unit)} ago"
