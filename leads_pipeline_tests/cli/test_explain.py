"""`leads-pipeline explain`: the runbook in the terminal, for who has no page of the docs."""

import re
import subprocess
import sys

import pytest

from docs.makers import findings_page
from leads_pipeline.health.finding import all_finders
from leads_pipeline.warehouse.checks import checks
from leads_pipeline_tests.support.command_line import run

FINDINGS = [*all_finders(), "finder-failed"]
CHECKS = sorted({check.name for check in checks()})


def explain(*key: str) -> str:
    shown = run("explain", *key)
    assert shown.exit_code == 0
    return shown.output


def words(text: str) -> str:
    """The text without the marks of Markdown and without line breaks."""
    return " ".join(re.sub(r"\*\*|^- ", "", text, flags=re.MULTILINE).split())


@pytest.mark.parametrize("name", FINDINGS)
def test_each_entry_says_in_the_terminal_what_the_page_says(name: str) -> None:
    entry = findings_page.page().split(f"\n## {name}\n")[1].split("\n## ")[0]

    shown = explain(name)

    assert words(shown.split("Checks:")[0]) == f"{name}: {words(entry.split('| check |')[0])}"
    assert not re.search(r"\*\*|^#|^\||\]\(", shown, re.MULTILINE), "marks of Markdown"


def test_a_finding_is_explained_by_its_whole_key_too() -> None:
    """Fault 110: messages named a page that a wheel doesn't have."""
    assert explain("windows-refused/refused-403") == explain("windows-refused")


@pytest.mark.parametrize("name", [*CHECKS, "windows", "files"])
def test_each_check_that_dagster_shows_can_be_explained(name: str) -> None:
    assert explain(name).startswith(f"{name}: ")


def test_explain_alone_lists_each_finding_and_each_check_in_one_line() -> None:
    shown = explain()

    names = re.findall(r"^  (\S+)", shown, re.MULTILINE)
    assert names == [*FINDINGS, "windows", "files", "yesterday_has_landed", *CHECKS]
    assert re.search("^  disk +The disk of the data folder is nearly full.$", shown, re.MULTILINE)


def test_a_key_that_there_is_not_is_refused_with_the_nearest_one_and_the_way_to_list_them() -> None:
    refused = run("explain", "window-refused/refused-403")

    assert refused.exit_code == 2
    assert "Did you mean windows-refused?" in refused.output
    assert "`leads-pipeline explain` lists them" in refused.output


@pytest.mark.slow
def test_explain_needs_no_settings_and_no_dagster() -> None:
    program = (
        "import sys; from leads_pipeline.cli import main; main(['explain', 'disk'], "
        "standalone_mode=False); print('dagster' in sys.modules)"
    )
    shown = subprocess.check_output([sys.executable, "-c", program], env={}, text=True)

    assert shown.endswith("\nFalse\n")
