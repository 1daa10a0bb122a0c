"""Packages of npm that tests use: pinned by a lock file in a folder of theirs.

Belongs here: installing them. Doesn't: what a test does with them.
"""

import hashlib
import subprocess
from pathlib import Path

import filelock

from leads_pipeline_tests.support.newcomer import PATIENCE_SECONDS


def install_pinned_packages(npm: str, folder: Path) -> None:
    """npm ci, once for each lock file, also with several test processes."""
    wanted = hashlib.sha256((folder / "package-lock.json").read_bytes()).hexdigest()
    modules = folder / "node_modules"
    modules.mkdir(exist_ok=True)
    with filelock.FileLock(folder / "node_modules.lock"):
        done = modules / ".installed"
        if done.exists() and done.read_text() == wanted:
            return
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        result = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_SECONDS
        )
        assert result.returncode == 0, f"npm ci failed:\n{result.stderr}"
        done.write_text(wanted)
