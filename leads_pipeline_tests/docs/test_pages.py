"""The documents name only what there is: pages, headings, commands, variables, tables, columns and
files.

Belongs here: what can be seen without running what a page shows. Doesn't: its blocks
(test_blocks.py, test_tutorials.py).
"""

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from click import Command, Context, Group

from docs.makers import findings_page, llms_page, questions_page, reference_pages
from leads_pipeline.cli import main
from leads_pipeline.cli.settings import variables
from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.health.finding import all_finders
from leads_pipeline.simulator.__main__ import main as simulate
from leads_pipeline_tests.docs.pages import (
    DOCS,
    DOCUMENTS,
    MADE,
    PAGES,
    README,
    ROOT,
    blocks,
    prose,
    text_of,
)
from leads_pipeline_tests.support.house import House


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# --- the contract ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_rows_of_a_published_file_are_as_the_json_schema_says(house: House) -> None:
    lead = {"id": "a", "createdAt": "2026-11-19T10:00Z", "new": 1, "viewingTimes": [{}]}
    for kind in LEAD_KINDS:
        house.land(kind.name, [lead])
    house.publish()
    rows = {table: house.rows(f'from "{table}"') for table in house.tables()}
    for row in chain(*rows.values()):
        if row.get("_extra"):
            row["_extra"] = json.loads(row["_extra"])

    schema = json.loads(text_of(DOCS / "reference" / "leads.schema.json"))
    validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
    validator.validate(json.loads(json.dumps(rows, default=_plain)))
    assert rows.keys() == schema["properties"].keys()


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    return value.isoformat() if isinstance(value, date) else str(value)


# --- the site -------------------------------------------------------------------------------------


def navigation(entries: Any) -> Iterator[str]:
    for entry in entries:
        [value] = entry.values()
        yield from [value] if isinstance(value, str) else navigation(value)


def test_the_navigation_has_each_page_once() -> None:
    named = list(navigation(tomllib.loads(text_of(ROOT / "zensical.toml"))["project"]["nav"]))
    assert sorted(named) == [page.relative_to(DOCS).as_posix() for page in PAGES]


@pytest.mark.slow
def test_the_site_builds_and_every_link_in_it_leads_somewhere_and_it_loads_nothing_from_elsewhere() -> (
    None
):
    """One test, as each building empties the folder that other processes would read."""
    done = subprocess.run(["make", "docs"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

    site = ROOT / "site"
    assert len(list(site.rglob("*.html"))) == len(PAGES) + 1  # and 404.html
    linked = re.findall(r"\]\(([^)]*)\)", text_of(site / "llms.txt"))
    assert len(linked) == len(PAGES) - 1  # the first page
    assert [address for address in linked if not (site / address).is_file()] == []
    elsewhere = re.compile(
        r"(?:\bsrc|<link[^>]*href)=\"(?:https?:)?//|(?:url\(|@import )[\"']?(?:https?:)?//"
    )
    for path in site.rglob("*"):
        if path.suffix in (".html", ".css", ".svg"):
            assert not elsewhere.search(text_of(path)), path
    # The theme would fetch what draws these.
    for page in PAGES:
        assert "\n```mermaid" not in text_of(page), page


@pytest.mark.slow
def test_the_reference_is_what_the_code_says() -> None:
    """If not: make pages."""
    made = reference_pages.pages() | llms_page.pages() | questions_page.pages()
    assert {path: text_of(path) for path in made} == made


def test_the_runbook_has_each_finding_in_the_words_of_its_finder() -> None:
    """If not: make pages."""
    text = findings_page.page()
    assert text_of(findings_page.PAGE) == text
    for word in ("Meaning", "Do", "Over"):
        assert text.count(f"**{word}**") == len(all_finders()) + 1


# --- what pages name ------------------------------------------------------------------------------


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_every_file_and_heading_that_a_document_links_to_is_there(document: Path) -> None:
    for path, heading in re.findall(r"\]\((?!http)([^)#]*)(?:#([^)]+))?\)", text_of(document)):
        target = document.parent / path if path else document
        assert target.exists(), path
        if heading:
            titles = re.findall(r"^#+ (.+)$", text_of(target).lower(), re.MULTILINE)
            addresses = [re.sub(r"[^\w -]", "", title).replace(" ", "-") for title in titles]
            assert heading in addresses


WRITTEN = [page for page in PAGES if page not in MADE] + [README]


def texts() -> str:
    """Everything that users read and that isn't made from the code."""
    return "\n".join(map(text_of, WRITTEN))


def test_every_make_target_exists() -> None:
    named = set(re.findall(r"\bmake ([a-z]+)(?= *(?:`|$|#|\n))", texts()))
    targets = re.findall(r"^([a-z]+):", text_of(ROOT / "Makefile"), re.MULTILINE)
    assert named - set(targets) == set()


def test_every_command_and_option_exists() -> None:
    for line in re.findall(
        r"(?<!now )(?<!namespace )\b(?:leads-pipeline|lp) ([a-z].*?)(?=`|  #|\n|$)", texts()
    ):
        command: Command = main
        words = line.split()
        while words and isinstance(command, Group) and not words[0].startswith("-"):
            found = command.get_command(Context(command), words[0])
            assert found, line
            command = found
            words = words[1:]
        if command.name == "simulate":
            command = simulate
        options = {"--help"}.union(*(one.opts + one.secondary_opts for one in command.params))
        assert {word for word in words if word.startswith("--")} <= options, line


def test_every_variable_exists() -> None:
    named = set(re.findall(r"\b(?:LEADS|INVENTORY)_[A-Z_]*[A-Z]\b", texts()))
    assert named - variables() == set()


def test_every_table_column_asset_and_finding_exists() -> None:
    made = "\n".join(map(text_of, MADE))
    known = {
        name for names in re.findall(r"`(\w+)`|^##+ (\w+)$", made, re.MULTILINE) for name in names
    }
    named = set(re.findall(r"`(?:pipeline\.)?([a-z]+(?:_[a-z0-9]+)+)`", texts()))
    named |= set(re.findall(r">(\w+)</text>", text_of(DOCS / "reference" / "tables.svg")))
    assert named - known - NOT_OURS == set()


# The package, a file's name, a key of a message, settings of other programs, and what the pages
# make up.
NOT_OURS = {
    "leads_pipeline",
    "person_key",
    "still_open",
    "occurred_at",
    "env_vars",
    "rgw_frontends",
    "try_cast",
    "listing_details_epc_rating",
    "mart_listings_weekly",
    "opening_hours",
    # Names of Dagster, and of examples/company/ with its prefix.
    "event_log_storage",
    "run_retries",
    "run_monitoring",
    "leads_portal",
    "leads_leads_portal",
    "key_prefix",
    "group_prefix",
    "get_asset_spec",
    "on_publication",
    "after_leads",
    "dbt_build",
    "leads_publish",
    "leads_pull_daily",
    "leads_pull_leads",
    "leads_raw",
}


def test_the_drawing_of_the_folders_has_those_of_the_rule() -> None:
    [(_, drawn)] = blocks(ROOT / "CONTRIBUTING.md", "mermaid")
    shown = re.findall(r">(\w+)</text>", text_of(DOCS / "explanation" / "layers.svg"))
    assert set(shown) == set(re.findall(r"\w+", drawn)) - {"flowchart", "TD"}


def test_every_file_that_a_document_names_is_there() -> None:
    folders = "benchmarks|deploy|docs|examples|leads_pipeline|leads_pipeline_tests|spec"
    named = set(re.findall(rf"`((?:{folders})/[\w./-]+)`", texts()))
    assert {name for name in named if not (ROOT / name).exists()} == {
        "leads_pipeline/features/marts/sql/mart_listings_weekly.sql"
    }


def test_every_document_that_code_and_deployments_name_is_there() -> None:
    for path in [*ROOT.glob("leads_pipeline/**/*"), *ROOT.glob("deploy/**/*")]:
        if path.is_file() and path.suffix != ".pyc":
            for name in re.findall(r"\bdocs/[\w./-]+\.md\b", text_of(path)):
                assert (ROOT / name).exists(), path


# --- how they are written -------------------------------------------------------------------------


def test_sentences_are_short() -> None:
    """At most two of a hundred have more than 25 words. The failure lists these."""
    lengths = {}
    for page in WRITTEN:
        for sentence in prose(page):
            lengths[relative(page), sentence] = len(re.findall(r"\w[\w'’./-]*", sentence))

    sentences = [words for words in lengths.values() if words >= 5]  # others are cells of tables
    long = [sentence for sentence, words in lengths.items() if words > 25]
    assert len(long) <= 0.02 * len(sentences), long
