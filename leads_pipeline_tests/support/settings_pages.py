"""`.env.example` and the table in docs/operate.md, made from the model of the settings.

`python -m leads_pipeline_tests.support.settings_pages` writes both. test_settings.py compares them.
"""

from itertools import groupby
from pathlib import Path
from textwrap import wrap

from leads_pipeline.settings import DESCRIBED, Variable

ROOT = Path(__file__).parents[2]
ENV_EXAMPLE = ROOT / ".env.example"
OPERATE = ROOT / "docs" / "operate.md"

WIDTH = 120
BEGIN, END = "<!-- The table is made by leads_pipeline_tests.support.settings_pages. -->\n\n", "\n## Commands\n"
HEAD = """\
# Copy to .env and fill in. A real service takes the first six variables. Dagster and the command line load .env by
# themselves. An empty variable counts as not set. `leads-pipeline settings` shows what is set, and from where.

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


def table() -> str:
    """Give the table of all variables, in Markdown."""
    rows = ["| variable | meaning | default |\n", "|---|---|---|\n"]
    return "".join(rows + [_row(one) for one in DESCRIBED])


def _row(one: Variable) -> str:
    names = f"`{one.name}`, `{one.name}_FILE`" if one.is_secret else f"`{one.name}`"
    page, _, place = one.link.partition("#")
    here = f"#{place}" if page == OPERATE.name else one.link
    more = f" ([more]({here}))" if one.link else ""
    return f"| {names} | {one.help}{more} | {f'`{one.default}`' if one.default else ''} |\n"


def operate(text: str) -> str:
    """Give the page with the table as it should be."""
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    return f"{before}{BEGIN}{table()}{END}{after}"


if __name__ == "__main__":
    ENV_EXAMPLE.write_text(env_example(), encoding="utf-8")
    OPERATE.write_text(operate(OPERATE.read_text(encoding="utf-8")), encoding="utf-8")
