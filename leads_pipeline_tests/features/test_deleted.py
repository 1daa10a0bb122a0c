"""A feature is a folder and a line. Without it, the rest pulls, publishes and answers."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from leads_pipeline.features import FEATURES

PACKAGE = Path(__file__).parents[2] / "leads_pipeline"


def without(names: list[str], folder: Path) -> Path:
    """Copy the code without these features. Return the folder that Python finds it in."""
    package = folder / "leads_pipeline"
    shutil.copytree(PACKAGE, package, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    listed = package / "features" / "__init__.py"
    text = listed.read_text()
    for name in names:
        shutil.rmtree(package / "features" / name)
        assert f'    "{name}",\n' in text
        text = text.replace(f'    "{name}",\n', "")
    listed.write_text(text)
    return folder


def leads_pipeline(code: Path, *arguments: str) -> str:
    """Run a command of that code in an empty place, and return what it prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LEADS_", "DAGSTER_"))}
    done = subprocess.run(
        [sys.executable, "-c", "from leads_pipeline.cli import main; main()", *arguments],
        cwd=code,
        env={**environment, "PYTHONPATH": str(code)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("names", [*([one.name] for one in FEATURES), [one.name for one in FEATURES]], ids="+".join)
def test_without_a_feature_the_rest_pulls_and_publishes(names: list[str], tmp_path: Path) -> None:
    code = without(names, tmp_path)

    leads_pipeline(code, "demo")

    with duckdb.connect(code / "data" / "leads.duckdb", read_only=True) as db:
        [(leads,)] = db.execute("select count(*) from applicant_leads").fetchall()
    assert leads > 0
    said = leads_pipeline(code, "--help")
    commands = {name for one in FEATURES if one.name in names for name in one.commands}
    assert not commands & {line.split()[0] for line in said.splitlines() if line.startswith("  ")}
