"""`docs/findings.md`, the runbook, made from the docstrings of the finders.

`python -m leads_pipeline_tests.support.findings_page` writes it. docs/test_pages.py compares it.
"""

import inspect
from pathlib import Path

from leads_pipeline.observe.finding import FAILED, Finder, Level
from leads_pipeline.observe.findings import FINDERS
from leads_pipeline.transform.checks import checks

PAGE = Path(__file__).parents[2] / "docs" / "findings.md"

HEAD = """\
<!-- leads_pipeline_tests.support.findings_page makes this page from the finders in leads_pipeline/observe/. -->

# Findings: what each means, and what to do

`leads-pipeline findings` lists the open ones. So do `status`, `doctor`, alerts, and the checks `windows` and `files` in
the Dagster UI. Each has a key, such as `windows-refused/refused-403`. The part before the slash is a heading here. On
a server, write [`lp`](guides/install-on-a-server.md#start) for `leads-pipeline`.

A **window** is one day of one branch, for one kind of lead. An **error** means that leads are late, unreadable or lost,
or soon will be. A **warning** becomes an error if nobody acts. A **hint** is shown and never alerted. With the
simulator, what was never set up is a hint; with a real portal, it is a warning.
"""

TABLE_HEAD = "| finding | what | how bad |\n|---|---|---|\n"

CANNOT_LOOK = f"""
## {FAILED}

**A check can't be made.**

- **How bad**: error.
- **Meaning**: the disk, the bucket or `leads.duckdb` can't be read. Nobody is told of what this check would find.
- **Do**: do what the message says.
- **Over**: when the check can be made. What it found before is neither over nor new.
"""


def page() -> str:
    """Give the text of the page."""
    rows = "".join(f"| [{one.name}](#{one.name}) | {_title(one)} | {_levels(one)} |\n" for one in FINDERS.values())
    rows += f"| [{FAILED}](#{FAILED}) | A check can't be made. | error |\n"
    return f"{HEAD}\n{TABLE_HEAD}{rows}" + "".join(map(_entry, FINDERS.values())) + CANNOT_LOOK


def _title(finder: Finder) -> str:
    return (inspect.getdoc(finder.look) or "").partition("\n")[0]


def _levels(finder: Finder) -> str:
    """How bad it can be, by the levels that its function names."""
    source = inspect.getsource(finder.look).replace("never_set_up", "Level.WARNING Level.HINT")
    return " or ".join(level.value for level in Level if f"Level.{level.name}" in source)


def _entry(finder: Finder) -> str:
    title, _, rest = (inspect.getdoc(finder.look) or "").partition("\n\n")
    text = " ".join(rest.split())
    for word in ("Meaning", "Do", "Over"):
        text = text.replace(f"{word}: ", f"\n- **{word}**: ", 1)
    lines = "\n".join(line.rstrip() for line in text.splitlines())
    lines += "\n\n" + _checks() if finder.name == "checks" else ""
    how_bad = f"- **How bad**: {_levels(finder)}."
    return f"\n## {finder.name}\n\n**{title}**\n\n{how_bad}{lines}\n"


def _checks() -> str:
    """Give the table of the checks, each once for both kinds of leads."""
    rows = {one.name: (one.description, one.what_to_do) for one in checks() if one.what_to_do}
    lines = [f"| `{name}` | {what} | {do} |" for name, (what, do) in sorted(rows.items())]
    return "\n".join(["| check | what should hold | if it doesn't |", "|---|---|---|", *lines])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
