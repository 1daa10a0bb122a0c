"""Which variables there are, what each is set to, and where that comes from: `settings`.

Belongs here: what this command, the pages, `.env.example` and hints show of the models. Doesn't:
the models, and reading variables (leads_pipeline/settings.py).
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

import click

from leads_pipeline.cli.output import json_option
from leads_pipeline.settings import Secret, Settings, filled_in, models, secrets

# The names of our variables begin with these.
OURS: Final = ("LEADS_", "INVENTORY_", "DAGSTER_HOME")


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
        value = one.default or None
        origin = "default"
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


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable as documents show it.

    A secret can also be in the file that the variable with _FILE names.
    """

    name: str
    section: str
    help: str
    link: str
    default: str
    proposal: str
    is_secret: bool


def described() -> Iterator[Variable]:
    """All variables in the order of the models, by section: the core's, then each feature's."""
    for model in models():
        for one in model.model_fields.values():
            more = one.json_schema_extra
            if not isinstance(more, dict):
                continue

            has_default = one.default_factory is None and one.default not in (None, ())
            yield Variable(
                name=str(one.validation_alias),
                section=str(more["section"]),
                help=" ".join((one.description or "").split()),
                link=str(more["link"]),
                default=str(one.default) if has_default else "",
                proposal=str(more["proposal"]),
                is_secret=one.annotation == Secret | None,
            )


def variables() -> frozenset[str]:
    """The names of all variables of ours, with the _FILE of each secret."""
    return frozenset(one.name for one in described()) | {f"{name}_FILE" for name in secrets()}


def hints_about_unknown(names: Iterable[str]) -> list[str]:
    """Return a hint for each name that no variable has: it is never read."""
    our_names = variables()
    # A model may also read a variable of other tools, such as AWS_ENDPOINT_URL.
    fields = [field for model in models() for field in model.model_fields.values()]
    read_names = our_names | {str(field.validation_alias) for field in fields}

    hints = []
    for name in sorted({*names} - read_names):
        guess = get_close_matches(name, our_names, 1, cutoff=0.8)
        what_to_do = f"did you mean {guess[0]}?" if guess else "Remove it."
        hints.append(
            f"{name} isn't known, so it is never read{'; ' if guess else '. '}{what_to_do}"
        )
    return hints
