"""`.env.example` and docs/reference/settings.md, made from the model of the settings.

`python -m leads_pipeline_tests.support.settings_pages` writes both. test_settings.py compares them.
"""

from itertools import groupby
from pathlib import Path
from textwrap import wrap

from leads_pipeline.settings import DESCRIBED, Variable

ROOT = Path(__file__).parents[2]
ENV_EXAMPLE = ROOT / ".env.example"
PAGE = ROOT / "docs" / "reference" / "settings.md"

WIDTH = 120
HEAD = """\
# Copy to .env and fill in. A real service needs the first part; of two forms of the secret, it needs one. Dagster and
# the command line load .env by themselves. An empty variable counts as not set. `leads-pipeline settings` shows what is
# set, and from where.

"""

PAGE_HEAD = """\
<!-- Made by leads_pipeline_tests.support.settings_pages. Change settings.py, then run it. -->

# Settings

Settings are environment variables, or lines of `.env`. An empty variable counts as not set. A secret is in its
variable, or in a file that the variable with `_FILE` names. Setting both is an error. `leads-pipeline settings` shows
each variable, its value and where the value comes from.
"""


def env_example() -> str:
    """Give the text of `.env.example`. DAGSTER_HOME is a comment, as an empty value there would win in Dagster."""
    lines = [HEAD]
    for section, variables in groupby(DESCRIBED, lambda one: one.section):
        lines.append(f"# --- {section} ".ljust(WIDTH, "-") + "\n\n")
        for one in variables:
            default = f" Default: {one.default}." if one.default else ""
            link = f" More: docs/{one.link.partition('#')[0]}" if one.link else ""
            lines += [f"# {line}\n" for line in wrap(f"{one.help}.{default}{link}", WIDTH - 2, break_on_hyphens=False)]
            lines.append(f"{'# ' if one.name == 'DAGSTER_HOME' else ''}{one.name}=\n")
            if one.is_secret:
                lines += ["# Or a file that holds it alone, in a line\n", f"{one.name}_FILE=\n"]
        lines.append("\n")
    return "".join(lines).rstrip("\n") + "\n"


def page() -> str:
    """Give the page of all variables, in Markdown."""
    text = PAGE_HEAD
    for section, variables in groupby(DESCRIBED, lambda one: one.section):
        rows = "".join(map(_row, variables))
        text += f"\n## {section}\n\n| variable | meaning | default |\n|---|---|---|\n{rows}"
    return text


def _row(one: Variable) -> str:
    names = f"`{one.name}`, `{one.name}_FILE`" if one.is_secret else f"`{one.name}`"
    more = f" ([more](../{one.link}))" if one.link else ""
    return f"| {names} | {one.help}{more} | {f'`{one.default}`' if one.default else ''} |\n"


if __name__ == "__main__":
    ENV_EXAMPLE.write_text(env_example(), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
