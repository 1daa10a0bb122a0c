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
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from click import Command, Context, Group

from leads_pipeline.cli import main
from leads_pipeline.cli.settings import variables
from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.health.finding import all_finders
from leads_pipeline.simulator.__main__ import main as simulate
from leads_pipeline_tests.docs import (
    findings_page,
    llms_page,
    questions_page,
    reference_pages,
)
from leads_pipeline_tests.docs.pages import (
    DOCS,
    DOCUMENTS,
    MADE,
    PAGES,
    README,
    ROOT,
    prose,
    text_of,
)
from leads_pipeline_tests.support.house import House


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# --- the contract ---------------------------------------------------------------------------------


def test_the_rows_of_a_published_file_are_as_the_json_schema_says(tmp_path: Path) -> None:
    house = House(tmp_path / "data")
    for kind in LEAD_KINDS:
        house.land(
            kind.name,
            [{"id": "a", "createdAt": "2026-11-19T10:00Z", "new": 1, "viewingTimes": [{}]}],
        )
    house.publish()
    rows = {table: house.rows(f'from "{table}"') for table in house.tables()}
    schema = json.loads(text_of(DOCS / "reference" / "leads.schema.json"))

    validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
    for row in (row for table in rows.values() for row in table if row.get("_extra")):
        row["_extra"] = json.loads(row["_extra"])
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


def test_the_site_builds_and_every_link_in_it_leads_somewhere_and_it_loads_nothing_from_elsewhere() -> (
    None
):
    """One test, as each building empties the folder that other processes would read."""
    done = subprocess.run(["make", "docs"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list((ROOT / "site").rglob("*.html"))) == len(PAGES) + 1  # and 404.html
    linked = re.findall(r"\]\(([^)]*)\)", text_of(ROOT / "site" / "llms.txt"))
    assert len(linked) == len(PAGES) - 1  # the first page
    assert [address for address in linked if not (ROOT / "site" / address).is_file()] == []
    loaded = [
        address
        for path in (ROOT / "site").rglob("*")
        if path.suffix in (".html", ".css", ".svg")
        for address in re.findall(
            r"(?:\bsrc|<link[^>]*href)=\"((?:https?:)?//[^\"]*)|(?:url\(|@import )[\"']?((?:https?:)?//[^)\"']*)",
            path.read_text(encoding="utf-8"),
        )
    ]
    assert loaded == []
    # The theme would fetch what draws these.
    assert [
        path.name for path in PAGES if re.search(r"^```mermaid", text_of(path), re.MULTILINE)
    ] == []


def test_the_reference_is_what_the_code_says() -> None:
    """If not: make pages."""
    made = reference_pages.pages() | llms_page.pages() | questions_page.pages()
    assert {path: text_of(path) for path in made} == made


def test_the_runbook_has_each_finding_in_the_words_of_its_finder() -> None:
    """If not: make pages."""
    assert text_of(findings_page.PAGE) == findings_page.page()
    text = findings_page.page()
    assert all(
        text.count(f"**{word}**") == len(all_finders()) + 1 for word in ("Meaning", "Do", "Over")
    )


# --- what pages name ------------------------------------------------------------------------------


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_every_file_and_heading_that_a_document_links_to_is_there(document: Path) -> None:
    for path, heading in re.findall(r"\]\((?!http)([^)#]*)(?:#([^)]+))?\)", text_of(document)):
        target = document.parent / path if path else document
        assert target.exists(), path
        if heading:
            titles = re.findall(r"^#+ (.+)$", text_of(target), re.MULTILINE)
            assert heading in {
                re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles
            }


WRITTEN = [page for page in PAGES if page not in MADE] + [README]


def texts() -> str:
    """Everything that users read and that isn't made from the code."""
    return "\n".join(map(text_of, WRITTEN))


@pytest.mark.parametrize(
    "name", sorted(set(re.findall(r"\bmake ([a-z]+)(?= *(?:`|$|#|\n))", texts())))
)
def test_every_make_target_exists(name: str) -> None:
    done = subprocess.run(
        ["make", "-n", name], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


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
        options = {
            name
            for parameter in command.params
            for name in (*parameter.opts, *parameter.secondary_opts)
        }
        assert {word for word in words if word.startswith("--")} <= options | {"--help"}, line


def test_every_variable_exists() -> None:
    named = set(re.findall(r"\b(?:LEADS|INVENTORY)_[A-Z_]*[A-Z]\b", texts()))
    assert named - variables() == set()


def test_every_table_column_asset_and_finding_exists() -> None:
    made = "\n".join(map(text_of, MADE))
    known = {
        name for names in re.findall(r"`(\w+)`|^##+ (\w+)$", made, re.MULTILINE) for name in names
    }
    named = set(re.findall(r"`(?:pipeline\.)?([a-z]+(?:_[a-z0-9]+)+)`", texts()))
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


def test_every_file_that_a_document_names_is_there() -> None:
    folders = "benchmarks|deploy|docs|examples|leads_pipeline|leads_pipeline_tests|spec"
    named = set(re.findall(rf"`((?:{folders})/[\w./-]+)`", texts()))
    assert {name for name in named if not (ROOT / name).exists()} == {
        "leads_pipeline/features/marts/sql/mart_listings_weekly.sql"
    }


def test_every_document_that_code_and_deployments_name_is_there() -> None:
    paths = [
        path
        for name in ("leads_pipeline", "deploy")
        for path in (ROOT / name).rglob("*")
        if path.is_file()
    ]
    named = {
        (relative(path), name)
        for path in paths
        if path.suffix != ".pyc"
        for name in re.findall(r"\bdocs/[\w./-]+\.md\b", path.read_text(encoding="utf-8"))
    }
    assert named
    assert {one for one in named if not (ROOT / one[1]).exists()} == set()


# --- how they are written -------------------------------------------------------------------------

LONG = 25


def test_sentences_are_short() -> None:
    """At most two of a hundred have more than 25 words. The failure lists them, longest first."""
    counted = [
        (len(re.findall(r"\w[\w'’./-]*", one)), relative(page), one)
        for page in WRITTEN
        for one in prose(page)
    ]
    sentences = [one for one in counted if one[0] >= 5]  # the others are cells of tables
    long = sorted((one for one in sentences if one[0] > LONG), reverse=True)
    assert len(long) <= 0.02 * len(sentences), "\n".join(
        f"{words} {page}: {one}" for words, page, one in long
    )
