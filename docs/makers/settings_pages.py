"""`.env.example` and docs/reference/settings.md, made from the model of the settings.

`make pages` writes both.
"""

from itertools import groupby
from pathlib import Path

from docs.makers import ROOT
from leads_pipeline.cli.settings import Variable, described
from leads_pipeline.features.service.init import env_file

ENV_EXAMPLE = ROOT / ".env.example"
PAGE = ROOT / "docs" / "reference" / "settings.md"

PAGE_HEAD = """\
<!-- `make pages` makes this page. Change settings.py, then run it. -->

# Settings

Settings are environment variables, or lines of `.env`. An empty variable counts as not set. A secret is in its
variable, or in a file that the variable with `_FILE` names. Setting both is an error. `leads-pipeline settings` shows
each variable, its value and where the value comes from.
"""


def pages() -> dict[Path, str]:
    """Give the text of both, by its path."""
    return {ENV_EXAMPLE: env_file(), PAGE: _page()}


def _page() -> str:
    text = PAGE_HEAD
    for section, variables in groupby(described(), lambda one: one.section):
        rows = "".join(map(_row, variables))
        text += f"\n## {section}\n\n| variable | meaning | default |\n|---|---|---|\n{rows}"
    return text


def _row(one: Variable) -> str:
    names = f"`{one.name}`, `{one.name}_FILE`" if one.is_secret else f"`{one.name}`"
    more = f" ([more](../{one.link}))" if one.link else ""
    return f"| {names} | {one.help}{more} | {f'`{one.default}`' if one.default else ''} |\n"
