"""Environments of the contenders that bring their own packages: made once, kept in .venv-bench.

What a script needs stands in its head, pinned, as PEP 723 has it.
"""

import hashlib
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

FOLDER = Path(__file__).parent.parent / ".venv-bench"


def interpreter(script: Path) -> Path:
    """The Python to run the script with; this one where the script names no packages."""
    head = re.search(r"^# /// script\n((?:# .*\n)+)# ///$", script.read_text(), re.MULTILINE)
    if head is None:
        return Path(sys.executable)
    wanted = tomllib.loads(head[1].replace("# ", ""))["dependencies"]
    folder = FOLDER / f"{script.stem}-{hashlib.sha256(' '.join(wanted).encode()).hexdigest()[:8]}"
    python = folder / "bin" / "python"
    if not (folder / ".complete").exists():
        print(f"Making {folder.name} for {script.name} (once) ...", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        uv = shutil.which("uv")
        pip = [uv, "pip", "install", "--python", str(python)] if uv else [str(python), "-m", "pip", "install"]
        subprocess.run([*pip, "--quiet", *wanted], check=True)
        (folder / ".complete").touch()
    return python


def versions(script: Path) -> str:
    """The packages that the script names, with their versions."""
    head = re.search(r"^# dependencies = (\[.*\])$", script.read_text(), re.MULTILINE)
    return ", ".join(tomllib.loads(f"x = {head[1]}")["x"]) if head else ""
