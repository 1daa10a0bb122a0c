"""The documents of the project, and what a test needs of them."""

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
TUTORIALS = DOCS / "tutorials"
GUIDES = DOCS / "guides"

# The first command of the README and of the first tutorial.
CLONE = "git clone ADDRESS-OF-THIS-REPOSITORY leads_pipeline && cd leads_pipeline"

# The pages of the site, and what lies around the code.
PAGES = sorted(DOCS.rglob("*.md"))
DOCUMENTS = [
    *PAGES,
    *sorted(ROOT.glob("*.md")),
    *(ROOT / name / "README.md" for name in ("data", "benchmarks")),
]

# These are made from the code.
_NAMES = "settings commands exit-codes tables metrics assets questions macros"
MADE = {DOCS / "findings.md", *(DOCS / "reference" / f"{name}.md" for name in _NAMES.split())}


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, *languages: str) -> list[tuple[str, str]]:
    """The blocks of these languages in their order, as (language, text)."""
    found = re.findall(r"^ *```(\w+)\n(.*?)^ *```", text_of(page), re.MULTILINE | re.DOTALL)
    return [(language, dedent(text)) for language, text in found if language in languages]


def prose(page: Path) -> Iterator[str]:
    """The sentences of a page: without blocks, tables' heads, headings, comments and addresses of
    links.
    """
    text = re.sub(
        r"^ *```.*?^ *```|<!--.*?-->", "\n", text_of(page), flags=re.MULTILINE | re.DOTALL
    )
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    for paragraph in re.split(
        r"\n\s*\n|^\s*(?:[-*]|\d+\.) |^\||\|\s*$| \| ", text, flags=re.MULTILINE
    ):
        words = " ".join(paragraph.split())
        if words and not words.startswith(("#", "    ")):
            yield from re.split(r"(?<=[.?!]) |(?<=[.?!]\*\*) ", words)
