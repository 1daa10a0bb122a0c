"""The pictures of the Dagster UI in docs/, taken after a demo. Needs Chromium.

`python -m leads_pipeline_tests.docs.pictures` writes them. docs/test_pages.py says if one is stale,
docs/test_tutorials.py takes them anew. reference_pages.py makes the drawings.
"""

import os
import re
import struct
import subprocess
import tempfile
import zlib
from pathlib import Path

import httpx

from leads_pipeline_tests.support.newcomer import BIN, wait_for
from leads_pipeline_tests.support.serving import free_port

DOCS = Path(__file__).parents[2] / "docs"
# The page of the UI, width and height.
PICTURES = {
    "assets.png": ("assets", 1280, 843),
    "mart.png": ("assets/mart_leads_daily?view=overview", 1400, 900),
}
_NOTE = b"tEXtShows\0"


def shown() -> dict[str, str]:
    """Give the names that each picture shows, as the reference pages have them."""
    assets, tables = (
        (DOCS / "reference" / name).read_text(encoding="utf-8")
        for name in ("assets.md", "tables.md")
    )
    groups = re.split(r"^## Group ", assets.partition("\n## Checks")[0], flags=re.MULTILINE)[1:]
    names = sorted(
        f"{name} {group.split()[0]}"
        for group in groups
        for name in re.findall(r"^\| `(\w+)`", group, re.M)
    )
    mart = tables.partition("### mart_leads_daily\n")[2].partition("\n### ")[0]
    return {
        "assets.png": ", ".join(names[:11]),
        "mart.png": ", ".join(re.findall(r"^\| `(\w+)`", mart, re.M)),
    }


def noted(picture: Path) -> str:
    """Give the names that a picture was taken with."""
    return picture.read_bytes().partition(_NOTE)[2].partition(b"\n")[0].decode()


def take(folder: Path, target: Path) -> None:
    """Run the demo in an empty folder, and take each picture of its UI."""
    environment = {
        "HOME": str(folder),
        "PATH": os.environ["PATH"],
        "LEADS_OWNERS": "team:data,maria@agency.example",
    }
    program, port = str(BIN / "leads-pipeline"), free_port()
    subprocess.run(
        [program, "demo"], cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL
    )
    service = subprocess.Popen([program, "dev", "--port", str(port)], cwd=folder, env=environment)
    try:
        wait_for(lambda: _answers(port))
        for name, (page, width, height) in PICTURES.items():
            command = [
                "chromium",
                "--headless=new",
                "--no-sandbox",
                "--hide-scrollbars",
                "--virtual-time-budget=30000",
            ]
            command += [f"--user-data-dir={folder}/chromium", f"--window-size={width},{height}"]
            command += [f"--screenshot={target / name}", f"http://127.0.0.1:{port}/{page}"]
            subprocess.run(command, env=environment, check=True, capture_output=True, timeout=120)
            _note(target / name, shown()[name])
    finally:
        service.terminate()
        service.wait(60)


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/server_info").is_success
    except httpx.TransportError:
        return False


def _note(picture: Path, names: str) -> None:
    """Write the names into the PNG, as a text chunk behind its header."""
    content, chunk = picture.read_bytes(), _NOTE + names.encode() + b"\n"
    sealed = struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    picture.write_bytes(content[:33] + sealed + content[33:])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as empty:
        take(Path(empty), DOCS)
