"""The README keeps its word: each command, table, variable and snippet in it is there and runs."""

import ast
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent

import duckdb
import pytest

from leads_pipeline.simulator import Config, running
from leads_pipeline_tests.test_architecture import LAYERS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BIN = Path(sys.executable).parent


def blocks(language: str) -> list[str]:
    return [dedent(block) for block in re.findall(rf"^ *```{language}\n(.*?)^ *```", README, re.MULTILINE | re.DOTALL)]


def commands() -> list[str]:
    lines = "".join(blocks("sh")).splitlines()
    return sorted({line.split("#")[0].strip() for line in lines if line.strip()})


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder with data/ filled by the README's own backfill command, and the environment it ran in."""
    folder = tmp_path_factory.mktemp("installation")
    with running(Config(branches=2, leads_per_day=5)) as simulator:
        environment = {
            **os.environ,
            **simulator.environment(),
            "LEADS_TIMEZONE": "Europe/London",
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        }
        today = datetime.now(UTC).date()
        command = next(line for line in commands() if line.startswith("leads-pipeline backfill"))
        days = iter((today - timedelta(days=4), today - timedelta(days=2)))
        command = re.sub(r"\d{4}-\d{2}-\d{2}", lambda _: next(days).isoformat(), command)
        done = run(command, folder, environment)
        assert done.returncode == 0, done.stderr
        yield folder, environment


def run(command: str, folder: Path, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(  # noqa: S602 - the README's own lines, as a shell reads them
        command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_the_readme_begins_with_the_two_commands() -> None:
    assert [line.split("#")[0].strip() for line in blocks("sh")[0].splitlines()] == ["make demo", "make test"]
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_every_command_is_one_that_is_tested_here() -> None:
    known = {"make demo", "make test", "make dev", "cp .env.example .env", "leads-pipeline doctor"}
    rest = [line for line in commands() if line not in known]
    assert [line.split(" -")[0] for line in rest] == [
        "duckdb",
        "leads-pipeline backfill",
        "leads-pipeline coverage",
        "leads-pipeline credentials new-key",  # takes 4096 bits' worth of time: test_credentials.py
    ]


@pytest.mark.parametrize("command", ["leads-pipeline doctor", "leads-pipeline coverage"])
def test_the_commands_that_look_answer(command: str, installation: tuple[Path, dict[str, str]]) -> None:
    done = run(command, *installation)
    assert done.stdout.strip()
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`make ([a-z]+)`", README)) | {"demo", "test", "dev"}))
def test_every_make_target_exists(name: str) -> None:
    done = subprocess.run(["make", "-n", name], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603, S607
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`leads-pipeline ([a-z]+)", README))))
def test_every_subcommand_exists(name: str) -> None:
    done = run(f"leads-pipeline {name} --help", ROOT, {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"})
    assert done.returncode == 0
    for option in re.findall(rf"`leads-pipeline {name}[^`]*?(--[a-z]+)", README):
        assert option in done.stdout


def bare(folder: Path) -> dict[str, str]:
    """What a newcomer's shell has: no setting of ours."""
    return {"HOME": str(folder), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}


def test_the_demo_ends_with_an_answer_and_changes_nothing_the_second_time(tmp_path: Path) -> None:
    first = run("leads-pipeline demo", tmp_path, bare(tmp_path))
    assert first.returncode == 0, first.stderr
    assert "What to do next" in first.stdout
    with duckdb.connect(tmp_path / "data" / "leads.duckdb", read_only=True) as db:
        # Its page shows the days that it pulled, and none before them in red.
        assert db.sql("select count(*) from mart_coverage where state in ('missing', 'failed')").fetchall() == [(0,)]
    before = (tmp_path / "data" / "leads.duckdb").stat()
    again = run("leads-pipeline demo", tmp_path, bare(tmp_path))
    assert "12 of 21 windows are landed and closed; 9 are pulled for each kind." in again.stdout
    after = (tmp_path / "data" / "leads.duckdb").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.chaos
def test_the_ui_starts_on_the_simulator_and_ends_when_it_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(BIN / "leads-pipeline"), "dev", "--port", str(port)]
    process = subprocess.Popen(command, cwd=tmp_path, env=bare(tmp_path), stdout=subprocess.DEVNULL)  # noqa: S603 - ours
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info") as answer:
                    assert b"dagster_version" in answer.read()
                break
            except OSError:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.5)
    finally:
        process.terminate()
        assert process.wait(60) == 0


def test_the_duckdb_command_line_answers(installation: tuple[Path, dict[str, str]]) -> None:
    command = next(line for line in commands() if line.startswith("duckdb "))
    done = run(command, *installation)
    assert done.returncode == 0, done.stderr
    assert "branch-101" in done.stdout


@pytest.mark.parametrize("snippet", blocks("python"))
def test_every_python_snippet_runs(snippet: str, installation: tuple[Path, dict[str, str]]) -> None:
    folder, environment = installation
    done = subprocess.run(  # noqa: S603 - the README's own lines
        [sys.executable, "-W", "error", "-c", snippet],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("statement", "".join(blocks("sql")).strip().rstrip(";").split(";"))
def test_every_query_runs(statement: str, installation: tuple[Path, dict[str, str]]) -> None:
    with duckdb.connect(installation[0] / "data" / "leads.duckdb", read_only=True) as db:
        assert db.sql(statement).fetchall()


def test_the_tables_are_those_of_the_file(installation: tuple[Path, dict[str, str]]) -> None:
    section = README.split("## Ask the data")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    with duckdb.connect(installation[0] / "data" / "leads.duckdb", read_only=True) as db:
        there = {
            name for (name,) in db.sql("select table_name from duckdb_tables() where schema_name = 'main'").fetchall()
        }
    assert named == there


def test_the_settings_are_those_of_env_example() -> None:
    example = set(re.findall(r"^#? ?([A-Z_]+)=", (ROOT / ".env.example").read_text(encoding="utf-8"), re.MULTILINE))
    section = README.split("## All settings")[1].split("\n## ")[0]
    assert set(re.findall(r"`((?:LEADS|INVENTORY|DAGSTER)_[A-Z_]+)`", section)) == example


def test_the_notebook_runs_and_holds_nothing_that_it_printed(installation: tuple[Path, dict[str, str]]) -> None:
    """Its cells one after the other, as a kernel would run them, with the last line of each shown."""
    notebook = json.loads((ROOT / "examples" / "first_look.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] for cell in cells)
    script = ""
    for cell in cells:
        *statements, shown = ast.parse("".join(cell["source"])).body
        script += "\n".join(ast.unparse(statement) for statement in statements) + f"\nprint({ast.unparse(shown)})\n"
    # What pandas 3 has deprecated is called by DuckDB's own df().
    warnings = ["-W", "error", "-W", "ignore:The inplace keyword"]
    done = subprocess.run(  # noqa: S603 - the project's own notebook
        [sys.executable, *warnings, "-c", script], cwd=installation[0], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "mart_hidden_valuations" in done.stdout


def test_every_picture_and_file_named_is_there() -> None:
    for path in [*re.findall(r"\]\((?!http)([^)#]+)\)", README), "data/README.md", ".env.example"]:
        assert (ROOT / path).is_file(), path


def test_the_architecture_names_the_layers_that_the_code_is_held_to() -> None:
    section = (
        (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split("## The layers")[1].split("\n## ")[0]
    )
    rows = [tuple(re.findall(r"`(\w+)`", line.split("|")[2])) for line in section.splitlines() if line.startswith("| ")]
    assert [row for row in rows if row] == list(LAYERS)


@pytest.mark.parametrize("document", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: path.stem)
def test_every_file_that_a_document_links_to_is_there(document: Path) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)[^)]*\)", document.read_text(encoding="utf-8")):
        assert (document.parent / target).exists(), target
