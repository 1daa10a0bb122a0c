"""`docs/llms.txt`: the pages of the site for programs that read it, in the form of llmstxt.org.

`make pages` writes it, from the navigation.
"""

import tomllib
from pathlib import Path
from typing import Any, Final

from docs.makers import ROOT

DOCS: Final = ROOT / "docs"
PAGE: Final = DOCS / "llms.txt"


def pages() -> dict[Path, str]:
    """Give the text of the file, by its path."""
    return {PAGE: page()}


def page() -> str:
    """Give the text of the file: what the project is, then each part of the site with its pages."""
    project = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    _, introduction, *_ = (DOCS / "index.md").read_text(encoding="utf-8").split("\n\n")
    head = f"# {project['site_name']}\n\n> {project['site_description']}\n\n{introduction}\n"
    parts = [
        _part(name, entries)
        for one in project["nav"]
        for name, entries in one.items()
        if name != "Home"
    ]
    return "\n".join([head, *parts])


def _part(name: str, entries: list[dict[str, Any]]) -> str:
    # The site has a page of HTML for each file.
    links = [
        f"- [{title}]({path.removesuffix('.md')}.html)\n"
        for entry in entries
        for title, path in entry.items()
    ]
    return f"## {name}\n\n{''.join(links)}"
