"""`leads-pipeline init`: what an installation needs that has no checkout."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from dotenv import dotenv_values

from leads_pipeline.cli.settings import variables
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.newcomer import ONLY_IN_A_CHECKOUT, ROOT

FILES = (".env", "leads-pipeline.service", "compose.yaml")
PROGRAM = Path(sys.executable).with_name("leads-pipeline")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that `init` has filled."""
    done = run("init", tmp_path / "leads")
    assert done.exit_code == 0, done.output
    return tmp_path / "leads"


def unit(path: Path) -> dict[str, str]:
    """The settings of a systemd unit."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        name, equals, value = line.partition("=")
        if equals:
            found[name] = value
    return found


def compose(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return content


def test_init_writes_an_env_file_a_unit_and_a_compose_file_for_their_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 110: a wheel had none of them."""
    monkeypatch.chdir(tmp_path)

    assert run("init").exit_code == 0

    assert {path.name for path in tmp_path.iterdir()} == set(FILES)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    assert Path(".env").read_text(encoding="utf-8") == (ROOT / ".env.example").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize("name", FILES)
def test_no_file_of_init_names_a_file_that_a_wheel_does_not_have(folder: Path, name: str) -> None:
    assert ONLY_IN_A_CHECKOUT.findall((folder / name).read_text(encoding="utf-8")) == []


# --- the unit -------------------------------------------------------------------------------------


def test_the_unit_runs_this_program_in_this_folder_and_writes_nowhere_else(folder: Path) -> None:
    told = unit(folder / "leads-pipeline.service")

    assert told["ExecStart"] == f'"{PROGRAM}" serve --port 3000'
    assert told["WorkingDirectory"] == str(folder)
    assert told["ReadWritePaths"] == f'"{folder}"'
    assert told["ProtectSystem"] == "strict"
    # `yes` would hide a folder or a program in somebody's home.
    assert told["ProtectHome"] == "read-only"


def test_the_rest_of_the_unit_is_that_of_a_server(folder: Path) -> None:
    ours = unit(folder / "leads-pipeline.service")
    theirs = unit(ROOT / "deploy" / "systemd" / "leads-pipeline.service")

    changed = {name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name)}

    of_here = {"ExecStart", "WorkingDirectory", "ReadWritePaths", "ProtectHome"}
    of_a_server = {"Environment", "StateDirectory", "StateDirectoryMode"}
    of_a_server |= {"ConfigurationDirectory", "ConfigurationDirectoryMode"}
    assert changed - {"User", "Group"} == of_here | of_a_server
    assert ours.keys().isdisjoint(of_a_server)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_unit_whatever_the_folder_is_called(tmp_path: Path) -> None:
    name = '50 % of "leads"'
    run("init", tmp_path / name)
    command = [
        "systemd-analyze",
        "verify",
        "--man=no",
        str(tmp_path / name / "leads-pipeline.service"),
    ]
    seen = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (seen.returncode, seen.stderr) == (0, "")


# --- the compose file -----------------------------------------------------------------------------


def test_the_compose_file_builds_the_image_from_the_package_and_needs_no_checkout(
    folder: Path,
) -> None:
    service = compose(folder / "compose.yaml")["services"]["pipeline"]

    assert service["env_file"] == ".env"
    assert service["build"].keys() == {"dockerfile_inline"}
    steps = service["build"]["dockerfile_inline"]
    assert "pip install --no-cache-dir 'leads-pipeline[delta,postgres,s3]==0.2.0'" in steps
    # Each file that a step copies is from the step before.
    assert [
        line
        for line in steps.splitlines()
        if line.startswith("COPY") and "--from=build" not in line
    ] == []
    assert "USER 10001:10001" in steps


def test_the_rest_of_the_compose_file_is_that_of_the_checkout(folder: Path) -> None:
    ours = compose(folder / "compose.yaml")
    theirs = compose(ROOT / "deploy" / "compose.yaml")

    for content in (ours, theirs):
        for part in (content["x-pipeline"], *content["services"].values()):
            part.pop("build", None)
            part.pop("env_file", None)
    assert ours == theirs


# --- what is there already ------------------------------------------------------------------------


def test_a_file_that_is_there_is_left_and_named(folder: Path) -> None:
    (folder / ".env").write_text("LEADS_BRANCH_IDS=101\n")
    (folder / "compose.yaml").unlink()

    again = run("init", folder)

    assert again.exit_code == 0
    assert "Wrote compose.yaml" in again.output
    assert "Left as they were: .env, leads-pipeline.service" in again.output
    assert (folder / ".env").read_text() == "LEADS_BRANCH_IDS=101\n"


def test_a_name_that_no_unit_can_hold_is_refused(tmp_path: Path) -> None:
    refused = run("init", tmp_path / "two\nlines")

    assert refused.exit_code == 2
    assert "Choose another name" in refused.output
    assert list(tmp_path.iterdir()) == []


def test_the_env_file_of_init_sets_nothing_until_it_is_filled_in(folder: Path) -> None:
    told = dotenv_values(folder / ".env")

    assert told.keys() == variables() - {"DAGSTER_HOME", "LEADS_KEEP_PERSONAL_DAYS"}
    assert set(told.values()) == {""}
