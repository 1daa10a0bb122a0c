"""Checks each page of the site in Chromium: WCAG 2.2 AA by axe-core, and no scrolling sideways.

make docs && npm install --no-save --prefix leads_pipeline_tests/docs axe-core@4.14.1
.venv/bin/python -m leads_pipeline_tests.docs.axe
"""

import json
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

import httpx
from websockets.sync.client import ClientConnection, connect

from leads_pipeline_tests.docs.pages import ROOT
from leads_pipeline_tests.support.newcomer import wait_for

AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
# The theme's script changes a page after it is loaded, and colours would change slowly.
CHECK = """new Promise((done) => setTimeout(done, 500)).then(async () => {
  document.head.insertAdjacentHTML("beforeend", "<style>* {transition: none !important}</style>");
  document.body.dataset.mdColorScheme = "SCHEME";
  const {violations} = await axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]});
  const found = violations.flatMap(({id, nodes}) => nodes.map(({html}) => `${id} ${html.slice(0, 120)}`));
  const page = document.documentElement;
  return page.scrollWidth > page.clientWidth ? [...found, "scrolls-sideways"] : found;
})"""


def call(tab: ClientConnection, method: str, **parameters: Any) -> Any:
    """Give what a method of Chromium's DevTools protocol answers."""
    tab.send(json.dumps({"id": 1, "method": method, "params": parameters}))
    while (answer := json.loads(tab.recv(60))).get("id") != 1:
        pass
    return answer["result"]


def problems(tab: ClientConnection, page: Path, width: int, scheme: str) -> list[str]:
    """Give the rules that a page breaks, each with its element."""
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width == 390}
    call(tab, "Emulation.setDeviceMetricsOverride", **size)
    call(tab, "Page.navigate", url=page.as_uri())
    call(tab, "Runtime.evaluate", expression=AXE.read_text(encoding="utf-8"))
    run = {"expression": CHECK.replace("SCHEME", scheme), "awaitPromise": True}
    answer = call(tab, "Runtime.evaluate", **run, returnByValue=True)
    return [f"{one}, {page.stem}, {width} wide, {scheme}" for one in answer["result"]["value"]]


FLAGS = ["--headless", "--no-sandbox", "--remote-debugging-port=0"]
with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
    chromium = subprocess.Popen(["chromium", *FLAGS, f"--user-data-dir={profile}"])
    try:
        port = Path(profile) / "DevToolsActivePort"
        wait_for(port.exists)
        tabs = httpx.get(f"http://127.0.0.1:{port.read_text().split()[0]}/json/list").json()
        # 404.html needs a server at the root of its address.
        pages = [page for page in (ROOT / "site").rglob("*.html") if page.stem != "404"]
        with connect(tabs[0]["webSocketDebuggerUrl"], max_size=None) as tab:
            for page, width, scheme in product(pages, (390, 1280), ("default", "slate")):
                found = problems(tab, page, width, scheme)
                sys.stdout.writelines(f"{one}\n" for one in found)
    finally:
        chromium.terminate()
        chromium.wait()
