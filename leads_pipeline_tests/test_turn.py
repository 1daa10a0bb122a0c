"""A turn at a suite that is too long: its order, and its end."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from leads_pipeline_tests import turn
from leads_pipeline_tests.turn import ROOT, SEED_VARIABLE, Turn, imported_files

NAMES = [f"test-{number}" for number in range(40)]


def order(seed: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv(SEED_VARIABLE, seed)
    return Turn(5).ordered(NAMES, str, lambda name: {name})


def test_a_seed_repeats_its_turn_and_another_one_takes_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "touched_files", frozenset)
    assert order("1", monkeypatch) == order("1", monkeypatch) != order("2", monkeypatch)
    assert sorted(order("1", monkeypatch)) == sorted(NAMES)


def test_what_a_change_touches_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "touched_files", lambda: frozenset({"test-7", "test-30", "README.md"}))
    assert set(order("3", monkeypatch)[:2]) == {"test-7", "test-30"}


def test_without_minutes_everything_runs_in_its_own_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "touched_files", lambda: frozenset(NAMES[30:]))
    whole = Turn(None)
    assert whole.ordered(NAMES, str, lambda name: {name}) == NAMES
    assert not whole.is_over


def test_a_test_is_about_the_modules_that_it_imports() -> None:
    files = imported_files(Path(__file__).with_name("test_spool.py"))
    assert {"leads_pipeline_tests/test_spool.py", "leads_pipeline/spool.py", "leads_pipeline/lake/raw.py"} <= files
    assert "leads_pipeline/auth/__init__.py" not in files


@pytest.mark.chaos
def test_make_starts_a_turn_that_pytest_understands(tmp_path: Path) -> None:
    """`--minutes 10` made pytest read 10 as a folder, leave out our tests, and then not know our options."""
    dry = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", "chaos", "MINUTES=10"],
        cwd=ROOT,
        # `make test` hands its own options down, under which this one prints more than it would run.
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
        capture_output=True,
        text=True,
        check=True,
    )
    command = dry.stdout.strip().splitlines()[-1]
    assert "pytest -m chaos" in command
    environment = {
        **os.environ,
        "PYTEST_ADDOPTS": f"-p no:cacheprovider --ignore-glob=*/test_*.py --basetemp={tmp_path}",
    }
    alone = [*shlex.split(command), "--numprocesses=0"]  # workers of its own would only take time
    done = subprocess.run(alone, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, done.stderr


def test_a_turn_that_is_over_begins_no_further_test() -> None:
    """From outside, as `make chaos MINUTES=…` has it: of these, none is begun."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--minutes=0"]
    done = subprocess.run(
        [*command, "leads_pipeline_tests/test_errors.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "not in this turn" in done.stdout
    assert "passed" not in done.stdout
