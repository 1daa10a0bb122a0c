"""Each tutorial works as it is written, step by step, with the simulator in place of the portal."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from dagster import AssetCheckKey, AssetKey, DagsterInstance

from leads_pipeline.definitions import build_definitions
from leads_pipeline_tests.docs.pages import CLONE, TUTORIALS, blocks, text_of
from leads_pipeline_tests.docs.shell import bare, run
from leads_pipeline_tests.support.analyst import query
from leads_pipeline_tests.support.newcomer import (
    PATIENCE_SECONDS,
    copy_checkout,
    newcomer,
    wait_for,
)
from leads_pipeline_tests.support.serving import free_port

pytestmark = pytest.mark.slow


# --- the demo -------------------------------------------------------------------------------------


# What says of a lead or a window that it was looked at once more.
CONFIRMATIONS = ("sequence", "looked_at", "last_looked_at")


def contents(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """The rows of every table, but for what a further look alone changes."""
    select = f"select columns(lambda c: c not in {CONFIRMATIONS})"
    tables = query(path, "select table_name from duckdb_tables() where schema_name = 'main'")
    return {name: query(path, f"{select} from {name} order by all") for (name,) in tables}


def checks_that_did_not_pass(data: Path) -> dict[AssetCheckKey, bool | None]:
    """What the UI shows of them, as a newcomer sees it first; None is a check that nothing has run."""
    definitions = build_definitions({"LEADS_DATA_DIR": str(data)})
    planned = definitions.resolve_asset_graph().asset_check_keys
    with DagsterInstance.get() as instance:
        found = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(planned))
    passed: dict[AssetCheckKey, bool | None] = dict.fromkeys(planned)
    passed |= {key: one.evaluation.passed for key, one in found.items() if one.evaluation}
    return {key: has_passed for key, has_passed in passed.items() if not has_passed}


class Tried(NamedTuple):
    """A folder in which somebody ran the demo, and what it printed."""

    folder: Path
    output: str


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Tried:
    """A checkout, whose own code the commands run."""
    folder = tmp_path_factory.mktemp("checkout")
    copy_checkout(folder)
    done = run("leads-pipeline demo", folder, {**bare(folder), "PYTHONPATH": str(folder)})
    assert done.returncode == 0, done.stderr
    return Tried(folder, done.stdout)


def test_the_demo_ends_with_an_answer(tried: Tried) -> None:
    answer = "select scope, count(distinct person) from lead_facts group by scope"
    for scope, people in rows(tried.folder, answer):
        assert re.search(rf"{scope}\b.*\b{people}\b", tried.output), (scope, people)


def test_the_demo_says_what_to_do_next_and_the_question_of_ones_own_is_answered(
    tried: Tried,
) -> None:
    assert "What to do next" in tried.output
    [question] = re.findall(r"Ask your own question: `(.*)`$", tried.output, re.MULTILINE)
    assert "branch" in run(question, tried.folder, bare(tried.folder)).stdout


def test_after_the_demo_the_ui_shows_no_red_window_and_one_check_that_did_not_pass(
    tried: Tried,
) -> None:
    """It pulled the last days, and the simulator sends fields that the contract doesn't know."""
    late = "select count(*) from mart_coverage where state in ('missing', 'failed')"
    assert rows(tried.folder, late) == [(0,)]
    os.environ["DAGSTER_HOME"] = str(tried.folder / "data" / ".dagster")
    drifted = AssetCheckKey(AssetKey("drift"), "contract_knows_what_comes")
    assert checks_that_did_not_pass(tried.folder / "data") == {drifted: False}


def test_the_demo_changes_nothing_the_second_time(tried: Tried) -> None:
    before = contents(tried.folder / "data" / "leads.duckdb")

    again = run("leads-pipeline demo", tried.folder, bare(tried.folder))

    assert "0 of them new." in " ".join(again.stdout.split())
    assert contents(tried.folder / "data" / "leads.duckdb") == before


def test_the_ui_starts_on_the_simulator_and_ends_when_it_is_told(tmp_path: Path) -> None:
    with going_on(f"leads-pipeline dev --port {free_port()}", tmp_path, bare(tmp_path)) as log:
        wait_for(partial(says, log, "Dagster UI: "))
    assert says(log, "Stopped. Landed leads stay.")


# --- each tutorial --------------------------------------------------------------------------------

RUNS_ON = "  # in a terminal of its own"


def steps(page: str) -> list[tuple[str, str]]:
    """The blocks of a tutorial in their order: JSON, commands and SQL. Each command is a step."""
    found = []
    for language, text in blocks(TUTORIALS / page, "sh", "sql", "json"):
        parts = text.splitlines() if language == "sh" else [text]
        found += [(language, part) for part in parts if part]
    return [(language, part) for language, part in found if not part.startswith("export PATH=")]


@contextmanager
def going_on(command: str, folder: Path, environment: dict[str, str]) -> Iterator[Path]:
    """A command that ends with ctrl-C. Gives the file with what it prints."""
    log = folder / "output"
    with log.open("wb") as output:
        shell = ["/bin/sh", "-c", f"exec {command}"]
        process = subprocess.Popen(shell, cwd=folder, env=environment, stdout=output, stderr=output)
    try:
        yield log
        assert process.poll() is None, log.read_text()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_SECONDS)


def says(log: Path, words: str) -> bool:
    return words in log.read_text()


def rows(folder: Path, statement: str) -> list[tuple[Any, ...]]:
    return query(folder / "data" / "leads.duckdb", statement)


def test_first_run(tried: Tried) -> None:
    demo = tried.folder
    for language, text in steps("first-run.md"):
        if language == "sql":
            (demo / "question.sql").write_text(text, encoding="utf-8")
            assert len(rows(demo, text)) == 3
        # The demo ran, and the tests above start the UI.
        elif text not in (CLONE, "make demo", "make dev"):
            done = run(text, demo, bare(demo))
            assert done.returncode == 0, done.stderr
            assert "branch-101" in done.stdout
    assert (demo / "data" / "reports" / "leads.html").exists()


def test_first_mart(tried: Tried) -> None:
    demo = tried.folder
    (name,) = re.findall(r"Save this as\s`([\w/.]+)`", text_of(TUTORIALS / "first-mart.md"))
    (_, mart), (_, command), (_, query) = steps("first-mart.md")
    (demo / name).write_text(mart, encoding="utf-8")
    done = run(command, demo, {**bare(demo), "PYTHONPATH": str(demo)})
    assert done.returncode == 0, done.stderr
    leads = sum(row[1] for row in rows(demo, query))
    assert [(leads,)] == rows(demo, "select count(listing_id) from lead_facts")


def test_first_real_day(tmp_path: Path) -> None:
    with (
        newcomer(tmp_path, "--branches", "2", "--leads-per-day", "3") as me,
        ExitStack() as terminals,
    ):
        port = str(free_port())
        for _, text in steps("first-real-day.md"):
            if text.startswith("install "):
                me.fill_in(LEADS_DATA_DIR=str(tmp_path / "data"))
            elif text == "leads-pipeline serve":
                log = terminals.enter_context(
                    going_on(f"{text} --port {port}", tmp_path, me.environment)
                )
                wait_for(partial(says, log, "Dagster UI: "))
            else:
                done = me.run(*text.split())
                # Older windows are missing until the service has pulled them.
                assert done.returncode in ((0, 1) if "coverage" in text else (0,)), (
                    done.stdout + done.stderr
                )
        assert me.published("applicant") > set()


def test_when_the_portal_fails(tmp_path: Path) -> None:
    port = str(free_port())
    codes = []
    with ExitStack() as terminals:
        for language, text in steps("when-the-portal-fails.md"):
            if language == "json":
                (tmp_path / "faults.json").write_text(text, encoding="utf-8")
                continue
            command = text.replace("8099", port)
            if command.endswith(RUNS_ON):
                terminals.enter_context(
                    going_on(command.removesuffix(RUNS_ON), tmp_path, bare(tmp_path))
                )
                wait_for((tmp_path / ".env").exists)
                continue
            done = run(command, tmp_path, bare(tmp_path))
            codes.append(done.returncode)
    assert codes == [1, 1, 0, 0, 0]  # pull, coverage, curl, pull, coverage
