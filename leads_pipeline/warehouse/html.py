"""Pages for people, made from templates: the report, and the answer to a person.

Belongs here: how a template is read. Doesn't: what a page says.
"""

from collections.abc import Callable
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template


def template_of(path: Path, **filters: Callable[..., str]) -> Template:
    """Read a template. It escapes every text, and an unknown name in it is an error."""
    environment = Environment(
        loader=FileSystemLoader(path.parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters

    return environment.get_template(path.name)
