"""`leads-pipeline init`: what an installation needs that has no checkout."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.newcomer import BIN, ROOT


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that `init` has filled."""
    done = run("init", tmp_path / "leads")
    assert done.exit_code == 0, done.output
    return tmp_path / "leads"


def test_init_writes_an_env_file_a_unit_and_a_compose_file_for_their_owner_alone(
    tmp_path: Path,
) -> None:
    """Fault 110: a wheel had none of them."""

    assert run("init").exit_code == 0

    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {".env": 0o600, "leads-pipeline.service": 0o600, "compose.yaml": 0o600}
    assert Path(".env").read_bytes() == (ROOT / ".env.example").read_bytes()


# --- the unit -------------------------------------------------------------------------------------


def test_the_unit_runs_this_program_in_this_folder_and_writes_nowhere_else(folder: Path) -> None:
    lines = (folder / "leads-pipeline.service").read_text(encoding="utf-8").splitlines()

    assert f'ExecStart="{BIN}/leads-pipeline" serve --port 3000' in lines
    assert f"WorkingDirectory={folder}" in lines
    assert f'ReadWritePaths="{folder}"' in lines
    assert "ProtectSystem=strict" in lines
    # `yes` would hide a folder or a program in somebody's home.
    assert "ProtectHome=read-only" in lines


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_unit_whatever_the_folder_is_called(tmp_path: Path) -> None:
    folder = tmp_path / '50 % of "leads"'
    run("init", folder)

    command = ["systemd-analyze", "verify", "--man=no", str(folder / "leads-pipeline.service")]
    seen = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (seen.returncode, seen.stderr) == (0, "")


# --- the compose file -----------------------------------------------------------------------------


def test_the_compose_file_builds_the_image_from_the_package_and_needs_no_checkout(
    folder: Path,
) -> None:
    compose = yaml.safe_load((folder / "compose.yaml").read_text(encoding="utf-8"))

    service = compose["services"]["pipeline"]
    assert service["env_file"] == ".env"
    assert service["build"].keys() == {"dockerfile_inline"}
    steps = service["build"]["dockerfile_inline"]
    assert "pip install --no-cache-dir 'leads-pipeline[delta,postgres,s3]==0.2.0'" in steps
    assert "USER 10001:10001" in steps
    # Each file that a step copies is from the step before.
    assert not re.search("^COPY(?!.*--from=build)", steps, re.MULTILINE)


# --- what is there already ------------------------------------------------------------------------


def test_a_file_that_is_there_is_left_and_named(folder: Path) -> None:
    (folder / ".env").write_text("LEADS_BRANCH_IDS=101\n")
    (folder / "compose.yaml").unlink()

    again = run("init", folder)

    assert again.exit_code == 0
    assert "Wrote compose.yaml" in again.output
    assert "Left as they were: .env, leads-pipeline.service" in again.output
    assert (folder / ".env").read_text() == "LEADS_BRANCH_IDS=101\n"
