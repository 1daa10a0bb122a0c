"""The pictures of the Dagster UI in docs/, taken after a demo. Needs Chromium.

`python -m leads_pipeline_tests.docs.pictures` writes them. reference_pages.py makes the drawings.
"""

import os
import subprocess
import tempfile
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


def take(folder: Path, target: Path) -> None:
    """Run the demo in an empty folder, and take each picture of its UI."""
    environment = {
        "HOME": str(folder),
        "PATH": os.environ["PATH"],
        "LEADS_OWNERS": "team:data,maria@agency.example",
    }
    program = str(BIN / "leads-pipeline")
    port = free_port()
    subprocess.run(
        [program, "demo"], cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL
    )
    service = subprocess.Popen([program, "dev", "--port", str(port)], cwd=folder, env=environment)
    try:
        wait_for(lambda: _answers(port))
        for name, (page, width, height) in PICTURES.items():
            options = "--headless=new --no-sandbox --hide-scrollbars --virtual-time-budget=30000"
            where = [f"--user-data-dir={folder}/chromium", f"--window-size={width},{height}"]
            where += [f"--screenshot={target / name}", f"http://127.0.0.1:{port}/{page}"]
            command = ["chromium", *options.split(), *where]
            subprocess.run(command, env=environment, check=True, capture_output=True, timeout=120)
    finally:
        service.terminate()
        service.wait(60)


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/server_info").is_success
    except httpx.TransportError:
        return False


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as empty:
        take(Path(empty), DOCS)
