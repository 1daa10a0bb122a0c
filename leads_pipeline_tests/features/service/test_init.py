"""`leads-pipeline init`: what an installation needs that has no checkout."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.newcomer import ROOT

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


# --- the unit -------------------------------------------------------------------------------------


def test_the_unit_runs_this_program_in_this_folder_and_writes_nowhere_else(folder: Path) -> None:
    told = unit(folder / "leads-pipeline.service")

    assert told["ExecStart"] == f'"{PROGRAM}" serve --port 3000'
    assert told["WorkingDirectory"] == str(folder)
    assert told["ReadWritePaths"] == f'"{folder}"'
    assert told["ProtectSystem"] == "strict"
    # `yes` would hide a folder or a program in somebody's home.
    assert told["ProtectHome"] == "read-only"


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


# --- what is there already ------------------------------------------------------------------------


def test_a_file_that_is_there_is_left_and_named(folder: Path) -> None:
    (folder / ".env").write_text("LEADS_BRANCH_IDS=101\n")
    (folder / "compose.yaml").unlink()

    again = run("init", folder)

    assert again.exit_code == 0
    assert "Wrote compose.yaml" in again.output
    assert "Left as they were: .env, leads-pipeline.service" in again.output
    assert (folder / ".env").read_text() == "LEADS_BRANCH_IDS=101\n"
