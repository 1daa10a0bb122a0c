"""The surface that users touch stays as it is recorded. A deliberate change is accepted by one command."""

import difflib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from leads_pipeline_tests.promises.surface import RECORDED, ROOT

ACCEPT = "python -m leads_pipeline_tests.promises.surface --accept"


def test_the_surface_is_the_recorded_one(tmp_path: Path) -> None:
    # A process of its own: the surface is taken from a whole installation, with its variables and its umask.
    said = subprocess.run(
        [sys.executable, "-m", "leads_pipeline_tests.promises.surface"],
        cwd=ROOT,
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    recorded = RECORDED.read_text(encoding="utf-8")
    difference = difflib.unified_diff(
        recorded.splitlines(), said.stdout.splitlines(), "recorded/surface.txt", "the surface now", lineterm="", n=2
    )
    message = "\n".join(["The surface has changed.", *difference, f"If that is meant, run: {ACCEPT}"])
    if said.stdout != recorded:
        pytest.fail(message, pytrace=False)
