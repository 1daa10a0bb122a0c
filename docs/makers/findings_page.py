"""`docs/findings.md`, the runbook, made from the docstrings of the finders.

`make pages` writes it.
"""

from pathlib import Path

from docs.makers import ROOT
from leads_pipeline.health.findings import CHECKS
from leads_pipeline.health.runbook import Entry, finding_entries
from leads_pipeline.warehouse.checks import checks

PAGE = ROOT / "docs" / "findings.md"

HEAD = """\
<!-- `make pages` makes this page. Change the docstrings of the finders in leads_pipeline/health/, then run it. -->

# Findings: what each means, and what to do

`leads-pipeline findings` lists the open ones. So do `status`, `doctor`, alerts, and the checks `windows` and `files` in
the Dagster UI. Each has a key, such as `windows-refused/refused-403`. The part before the slash is a heading here, and
`leads-pipeline explain KEY` prints that part of this page. On a server, write
[`lp`](guides/install-on-a-server.md#start) for `leads-pipeline`.

A **window** is one day of one branch, for one kind of lead. An **error** means that leads are late, unreadable or lost,
or soon will be. A **warning** becomes an error if nobody acts. A **hint** is shown and never alerted. With the
simulator, what was never set up is a hint; with a real portal, it is a warning.
"""

TABLE_HEAD = "| finding | what | how bad |\n|---|---|---|\n"


def pages() -> dict[Path, str]:
    """Give the text of the page, by its path."""
    return {PAGE: page()}


def page() -> str:
    """Give the text of the page."""
    entries = finding_entries()
    rows = "".join(map(_row, entries))
    return f"{HEAD}\n{TABLE_HEAD}{rows}" + "".join(map(_section, entries))


def _row(entry: Entry) -> str:
    how_bad = entry.parts["How bad"].rstrip(".")
    return f"| [{entry.name}](#{entry.name}) | {entry.title} | {how_bad} |\n"


def _section(entry: Entry) -> str:
    lines = [f"- **{word}**: {text}\n" for word, text in entry.parts.items()]
    table = f"\n{_checks()}\n" if entry.name == CHECKS else ""
    return f"\n## {entry.name}\n\n**{entry.title}**\n\n{''.join(lines)}{table}"


def _checks() -> str:
    """Give the table of the checks, each once for both kinds of leads."""
    rows = {one.name: (one.description, one.what_to_do) for one in checks() if one.what_to_do}
    lines = [f"| `{name}` | {what} | {do} |" for name, (what, do) in sorted(rows.items())]
    return "\n".join(["| check | what should hold | if it doesn't |", "|---|---|---|", *lines])
