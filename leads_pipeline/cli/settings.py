"""Which settings there are, what each is set to, and where that comes from: `settings`."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence, Set

import click

from leads_pipeline.cli.output import json_option
from leads_pipeline.settings import Settings, described, filled_in


@click.command()
@json_option
@click.pass_obj
def settings(from_env_file: Set[str], as_json: bool) -> None:
    """Show each variable with its value, where that comes from, and its help.

    Secrets show as "set".

    Exit code 2 if a value is wrong.
    """
    given = filled_in(os.environ)
    rows = list(_rows(given, from_env_file, Settings.from_variables(given).missing))

    if as_json:
        click.echo(json.dumps({row.pop("name"): row for row in rows}, indent=2))
        return

    section = None
    for row in rows:
        if row["section"] != section:
            section = row["section"]
            click.echo(f"\n{click.style(section, bold=True)}\n")
        unset = "not set (required)" if row["is_missing"] else "not set"
        click.echo(
            f"  {row['name']}: "
            + (unset if row["value"] is None else f"{row['value']}  ({row['from']})")
        )
        click.echo(click.wrap_text(f"{row['help']}.", 80, "      ", "      "))


def _rows(
    given: Mapping[str, str], from_env_file: Set[str], missing: Sequence[str]
) -> Iterator[dict[str, str | bool | None]]:
    for one in described():
        name = f"{one.name}_FILE" if one.is_secret and f"{one.name}_FILE" in given else one.name
        value, origin = one.default or None, "default"
        if name in given:
            value = "set" if one.is_secret else given[name].strip()
            origin = ".env" if name in from_env_file else "environment"
        if name != one.name:
            origin = f"file {given[name].strip()}"
        yield {
            "name": one.name,
            "value": value,
            "from": None if value is None else origin,
            "is_missing": one.name in missing,
            "section": one.section,
            "help": one.help,
        }
