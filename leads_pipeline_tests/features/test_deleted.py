"""A feature is a folder and a line. Without it, the rest pulls, publishes and answers."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from leads_pipeline.features import FEATURES
from leads_pipeline.simulator.app import Config
from leads_pipeline.simulator.server import running
from leads_pipeline_tests.support.analyst import query

pytestmark = pytest.mark.slow

PACKAGE = Path(__file__).parents[2] / "leads_pipeline"

# Nobody listens there.
ANY_PORTAL = """
LEADS_BASE_URL=http://127.0.0.1:9
LEADS_AUTH_URL=http://127.0.0.1:9
LEADS_CLIENT_ID=me
LEADS_CLIENT_SECRET=mine
LEADS_BRANCH_IDS=101
"""


def copied(folder: Path) -> Path:
    """Copy the code. Return the folder that Python finds it in."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, folder / "leads_pipeline", symlinks=True, ignore=ignored)
    return folder


def take_out(code: Path, names: list[str]) -> None:
    """Delete these features: a folder and a line each."""
    features = code / "leads_pipeline" / "features"
    listed = features / "__init__.py"
    text = listed.read_text()
    for name in names:
        shutil.rmtree(features / name)
        assert f'    "{name}",\n' in text
        text = text.replace(f'    "{name}",\n', "")
    listed.write_text(text)


def leads_pipeline(code: Path, *arguments: str) -> str:
    """Run a command of that code in an empty place, and return what it prints."""
    done = started(code, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def started(code: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of that code in an empty place, to its end."""
    return subprocess.run(
        [sys.executable, "-c", "from leads_pipeline.cli import main; main()", *arguments],
        cwd=code,
        env={**os.environ, "PYTHONPATH": str(code)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "names", [*([one.name] for one in FEATURES), [one.name for one in FEATURES]], ids="+".join
)
def test_without_a_feature_the_rest_pulls_and_publishes(names: list[str], tmp_path: Path) -> None:
    code = copied(tmp_path)
    take_out(code, names)

    if "service" in names:  # it has the demo
        with running(Config(branches=3)) as portal:
            variables = portal.environment().items()
            (code / ".env").write_text("\n".join(f"{name}={value}" for name, value in variables))
            leads_pipeline(code, "backfill", "--last", "2d")
    else:
        leads_pipeline(code, "demo")

    assert query(code / "data" / "leads.duckdb", "select lead_id from applicant_leads")
    said = leads_pipeline(code, "--help")
    commands = {name for one in FEATURES if one.name in names for name in one.commands}
    assert commands.isdisjoint(re.findall(r"^  (\w\S*)", said, re.MULTILINE))


def test_without_the_bucket_nothing_is_pulled_into_a_folder_in_its_place(tmp_path: Path) -> None:
    code = copied(tmp_path)
    (code / ".env").write_text(f"{ANY_PORTAL}LEADS_DATA_DIR=s3://leads/here\n")
    take_out(code, ["bucket"])

    for command in ("backfill --last 1d", "status", "demo"):
        done = started(code, *command.split())
        assert done.returncode == 2
        assert "LEADS_DATA_DIR names a store" in done.stderr
        assert "it lacks the feature `bucket`: name a folder" in " ".join(done.stderr.split())

    assert not (code / "data").exists()


def test_what_a_feature_made_of_people_goes_with_it(tmp_path: Path) -> None:
    code = copied(tmp_path)
    leads_pipeline(code, "demo")
    assert list((code / "data" / "tables").glob("*/*/*.parquet"))

    take_out(code, ["lake"])
    leads_pipeline(code, "demo")

    assert not (code / "data" / "tables").is_symlink()
    assert list((code / "data" / ".versions").glob("tables-*")) == []


def test_a_home_whose_dagster_yaml_names_the_quick_event_log_works_without_it(
    tmp_path: Path,
) -> None:
    code = copied(tmp_path)
    leads_pipeline(code, "demo")
    config = (code / "data" / ".dagster" / "dagster.yaml").read_text()
    assert "leads_pipeline.orchestration.event_log" in config

    take_out(code, ["quick_event_log"])

    leads_pipeline(code, "demo")


@pytest.mark.parametrize(
    "variables", ["", "LEADS_PRIVACY_DIR=list\n"], ids=["in the data folder", "elsewhere"]
)
def test_privacy_is_no_switch(tmp_path: Path, variables: str) -> None:
    code = copied(tmp_path)
    (code / ".env").write_text(f"{ANY_PORTAL}{variables}")
    leads_pipeline(code, "demo")
    file = code / "data" / "leads.duckdb"
    [(email,)] = query(file, "select min(contact_email) from applicant_leads")
    leads_pipeline(code, "privacy", "erase", "--email", email, "--shared", "--yes")
    published = file.resolve()

    take_out(code, ["privacy"])

    folder = tmp_path / "exported"
    for command in ("demo", "backfill --last 1d", f"export mart_people --to {folder} --format csv"):
        done = started(code, *command.split())
        assert done.returncode != 0
        assert "There is a suppression list" in done.stderr
        assert "Nothing is landed or published" in done.stderr
    assert file.resolve() == published
    assert not folder.exists()
