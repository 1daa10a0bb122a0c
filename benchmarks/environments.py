"""Environments of scripts that bring their own packages, as contenders do.

They are made once, and kept in .venv-bench. What a script needs stands in its head, pinned, as PEP
723 has it.
"""

import hashlib
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

FOLDER = Path(__file__).parent.parent / ".venv-bench"


def packages(script: Path) -> list[str]:
    """What the script names in its head, pinned."""
    head = re.search(r"^# /// script\n((?:# .*\n)+)# ///$", script.read_text(), re.MULTILINE)
    assert head, f"{script.name} has no head as PEP 723 has it."
    text = re.sub("^# ", "", head[1], flags=re.MULTILINE)
    found: list[str] = tomllib.loads(text)["dependencies"]
    return found


def interpreter(script: Path) -> Path:
    """The Python to run the script with, in an environment that is made on the first use."""
    folder = (
        FOLDER
        / f"{script.stem}-{hashlib.sha256(' '.join(packages(script)).encode()).hexdigest()[:8]}"
    )
    python = folder / "bin" / "python"
    complete = folder / ".complete"
    if not complete.exists():
        print(f"Making {folder.name} for {script.name} (once) ...", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        uv = shutil.which("uv")
        pip = (
            [uv, "pip", "install", "--python", str(python)]
            if uv
            else [str(python), "-m", "pip", "install"]
        )
        subprocess.run([*pip, "--quiet", *packages(script)], check=True)
        complete.touch()
    return python
