"""Tokens as a certified OpenID provider gives them, which we didn't write."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from leads_pipeline.portal import ClientCredentials, Tokens
from leads_pipeline.portal.run import Requests, RequestSpec, Service
from leads_pipeline.settings import AuthMethod, Secret
from leads_pipeline_tests.support.newcomer import PATIENCE_SECONDS
from leads_pipeline_tests.support.npm import install_pinned_packages

SPEC = RequestSpec(path="/leads", parameters={}, about="a test", advice={})
OAUTH_FOLDER = Path(__file__).parent / "oauth_server"
CERTIFIED_SECRET = """b:%+ /&="'\\c"""  # the server has it too


@pytest.fixture(scope="module")
def oauth_server() -> Iterator[str]:
    node = shutil.which("node")
    npm = shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("node and npm are not installed: no certified OAuth server to test against")
    install_pinned_packages(npm, OAUTH_FOLDER)
    process = subprocess.Popen(
        [node, "server.mjs"],
        cwd=OAUTH_FOLDER,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("port "):
            break
    else:
        pytest.fail("the OAuth server did not start:\n" + "".join(lines))
    yield f"http://127.0.0.1:{lines[-1].split()[1]}"
    process.communicate(timeout=PATIENCE_SECONDS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("client_id", "method", "scope"),
    [
        ("body client", AuthMethod.BODY, None),
        ("basic:client/1 +%", AuthMethod.BASIC, "api/api_access"),
    ],
)
def test_a_certified_server_takes_both_forms(
    oauth_server: str, tmp_path: Path, client_id: str, method: AuthMethod, scope: str | None
) -> None:
    credentials = ClientCredentials(
        token_url=f"{oauth_server}/oauth2/token",
        client_id=client_id,
        secret=Secret("A_SECRET", CERTIFIED_SECRET),
        method=method,
        audience="https://portal.example",
        scope="api/api_access",
    )
    service = Service(base_url=oauth_server, tokens=Tokens(credentials, tmp_path / "tokens"))

    with closing(Requests(service)) as run:
        first = run.fetch(SPEC, json.loads).value
        second = run.fetch(SPEC, json.loads).value

    assert first["client"] == client_id
    assert first.get("scope") == scope
    assert first["tokenRequests"] == second["tokenRequests"]
