"""Commands of the documents, as a newcomer's shell runs them."""

import os
import subprocess
import sys
from pathlib import Path

BIN = Path(sys.executable).parent


def bare(folder: Path) -> dict[str, str]:
    """What a newcomer's shell has: no setting of ours."""
    return {"HOME": str(folder), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}


def run(
    command: str, folder: Path, environment: dict[str, str]
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(  # noqa: S602 - the documents' own lines, as a shell reads them
        command,
        shell=True,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
