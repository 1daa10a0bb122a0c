"""`leads-pipeline explain`: the runbook in the terminal, for who has no page of the docs."""

import re
import subprocess
import sys

import pytest

from leads_pipeline.observe.finding import all_finders
from leads_pipeline.warehouse.checks import checks
from leads_pipeline_tests.docs import findings_page
from leads_pipeline_tests.support.command_line import run


def words(text: str) -> str:
    """The text without the marks of Markdown and without line breaks."""
    return " ".join(re.sub(r"\*\*|^- ", "", text, flags=re.MULTILINE).split())


@pytest.mark.parametrize("key", ["windows-refused", "windows-refused/refused-403"])
def test_explain_prints_the_entry_of_a_finding_by_its_key_or_the_first_part(key: str) -> None:
    """Fault 110: messages named a page that a wheel doesn't have."""
    shown = run("explain", key)

    assert shown.exit_code == 0
    assert shown.output.startswith("windows-refused: The portal refuses windows.\n")
    assert "How bad: error" in shown.output
    assert "Meaning: the portal answers 403, for example" in shown.output
    assert "Over: when the windows land, or the branch is no longer configured." in shown.output


@pytest.mark.parametrize("name", [*all_finders(), "finder-failed"])
def test_each_entry_says_in_the_terminal_what_the_page_says(name: str) -> None:
    page = findings_page.page()
    entry = page.split(f"\n## {name}\n")[1].split("\n## ")[0]
    on_page = words(entry.split("| check |")[0])

    shown = words(run("explain", name).output.split("Checks:")[0])

    assert shown == f"{name}: {on_page}"


def test_the_text_for_the_terminal_has_no_marks_of_markdown() -> None:
    for name in all_finders():
        shown = run("explain", name).output
        assert not re.search(r"\*\*|^#|^\||\]\(", shown, re.MULTILINE), shown


def test_a_command_of_an_entry_stays_on_one_line() -> None:
    """So that it can be pasted."""
    shown = run("explain", "inventory").output

    assert "`leads-pipeline backfill --last 1d --kind inventory`" in shown
    assert max(map(len, shown.splitlines())) <= 120


@pytest.mark.parametrize("key", ["checks/answers_count/answers", "answers_count"])
def test_explain_prints_what_a_check_wants_and_what_to_do(key: str) -> None:
    shown = run("explain", key)

    assert shown.exit_code == 0
    assert shown.output.startswith("answers_count: ")
    assert "Every row of your own answers is of a lead and has a moment after it" in shown.output
    assert "Do: Mend these rows in your answers file." in shown.output


@pytest.mark.parametrize("name", sorted({check.name for check in checks()} | {"windows", "files"}))
def test_each_check_that_dagster_shows_can_be_explained(name: str) -> None:
    shown = run("explain", name)

    assert shown.exit_code == 0
    assert shown.output.startswith(f"{name}: ")


def test_explain_alone_lists_each_finding_and_each_check_in_one_line() -> None:
    shown = run("explain")

    assert shown.exit_code == 0
    lines = [line.split()[0] for line in shown.output.splitlines() if line.startswith("  ")]
    of_raw = ("windows", "files", "yesterday_has_landed")
    assert lines == [*all_finders(), "finder-failed", *of_raw, *sorted({check.name for check in checks()})]
    assert re.search("^  disk +The disk of the data folder is nearly full.$", shown.output, re.MULTILINE)


def test_a_key_that_there_is_not_is_refused_with_the_nearest_one_and_the_way_to_list_them() -> None:
    refused = run("explain", "window-refused/refused-403")

    assert refused.exit_code == 2
    assert "There is no finding and no check window-refused." in refused.output
    assert "Did you mean windows-refused?" in refused.output
    assert "`leads-pipeline explain` lists them" in refused.output


def test_explain_needs_no_settings_and_no_dagster() -> None:
    program = (
        "import sys; sys.argv = ['leads-pipeline', 'explain', 'disk']\n"
        "from leads_pipeline.cli import main\n"
        "main(standalone_mode=False)\n"
        "print('dagster' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], env={}, capture_output=True, text=True, check=True)

    assert done.stdout.endswith("\nFalse\n")
