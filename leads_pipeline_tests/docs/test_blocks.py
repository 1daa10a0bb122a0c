"""Every block of the README and of the guides runs, on a portal's made-up leads.

Belongs here: SQL, Python, the notebook, and the commands that need nothing but a data folder.
Doesn't: tutorials (test_tutorials.py), and whether names are right (test_pages.py).
"""

import html
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from docs.makers.reference_pages import QUERIES as FIRST_QUERIES
from leads_pipeline.features.bucket.store import open_store
from leads_pipeline.features.lake.step import WriteTables
from leads_pipeline.portal.credentials import PgpSecret, client_secret
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.settings import Secret
from leads_pipeline.simulator.app import Config
from leads_pipeline.simulator.server import running
from leads_pipeline.warehouse.step import Publication
from leads_pipeline_tests.docs.pages import CLONE, DOCS, GUIDES, README, ROOT, blocks, text_of
from leads_pipeline_tests.docs.shell import BIN, bare, run
from leads_pipeline_tests.support.analyst import query
from leads_pipeline_tests.support.buckets import KEYS, new_bucket
from leads_pipeline_tests.support.gpg import PASSPHRASE, needs_gpg, running_gpg

pytestmark = pytest.mark.slow  # the installation takes ten seconds


def lines(page: Path) -> list[str]:
    """The commands of a page, without their comments."""
    found = "\n".join(text for _, text in blocks(page, "sh")).splitlines()
    return [line.split(" #")[0].strip() for line in found if line.strip()]


# Far enough back for the last seven days with one before them, and for the guide after a long stop.
DAYS_BACK = 11


@dataclass(frozen=True)
class Installation:
    """A folder with data/ filled by the README's own backfill command, and the environment it ran
    in.
    """

    folder: Path
    environment: dict[str, str]

    @property
    def file(self) -> Path:
        return self.folder / "data" / "leads.duckdb"


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("installation")
    with running(Config(branches=2, leads_per_day=10)) as simulator:
        environment = {
            **os.environ,
            **simulator.environment(),
            "LEADS_TIMEZONE": "Europe/London",
            "LEADS_MARTS_DIR": str(ROOT / "examples" / "marts"),
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        }
        command = next(line for line in lines(README) if line.startswith("leads-pipeline backfill"))
        command = re.sub(r"--last \d+d", f"--last {DAYS_BACK}d", command)
        done = run(command, folder, environment)
        assert done.returncode == 0, done.stderr
        yield Installation(folder, environment)


# --- the README -----------------------------------------------------------------------------------


def test_the_readme_begins_with_one_command_to_try() -> None:
    [(_, first), *_] = blocks(README, "sh")
    assert [line.split("#")[0].strip() for line in first.splitlines()] == [CLONE, "make demo"]


# --- SQL ------------------------------------------------------------------------------------------


STATEMENTS = [
    text
    for page in (README, DOCS / "reference" / "queries.md", *sorted(GUIDES.glob("*.md")))
    for _, text in blocks(page, "sql")
]


@pytest.mark.parametrize("statement", [*STATEMENTS, *FIRST_QUERIES.values()])
def test_every_query_runs(statement: str, installation: Installation) -> None:
    statement = statement.replace("data/raw", f"{installation.folder}/data/raw")
    query(installation.file, statement)


def test_the_duckdb_command_line_answers(installation: Installation) -> None:
    ask = lines(GUIDES / "ask-the-data.md")
    command = next(line for line in ask if line.startswith("duckdb "))

    done = run(command, installation.folder, installation.environment)

    assert done.returncode == 0, done.stderr
    assert "branch-101" in done.stdout


# --- Python ---------------------------------------------------------------------------------------

# test_company.py runs the blocks of this guide.
IN_DAGSTER = GUIDES / "add-to-your-dagster.md"
SNIPPETS = [
    text
    for page in sorted(GUIDES.glob("*.md"))
    if page != IN_DAGSTER
    for _, text in blocks(page, "python")
]


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_every_python_snippet_prints_something(
    snippet: str,
    installation: Installation,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    environment = dict(installation.environment)
    folder = installation.folder
    if "scan_delta" in snippet:
        folder = tmp_path
        shutil.copytree(installation.folder / "data", folder / "data", symlinks=True)
        WriteTables(DataFolder.at(folder / "data"), "delta").after(Publication())
    if "my-bucket" in snippet:
        bucket = new_bucket(request.getfixturevalue("moto"))
        for path in filter(Path.is_file, (folder / "data" / "tables").rglob("*")):
            key = path.relative_to(folder / "data").as_posix()
            open_store(f"{bucket}/leads", plain_http=True).create(key, path.read_bytes())
        snippet = snippet.replace("my-bucket", bucket.removeprefix("s3://"))
        environment |= KEYS | {"AWS_ENDPOINT_URL": os.environ["AWS_ENDPOINT_URL"]}

    command = [sys.executable, "-W", "error", "-c", snippet]
    shown = subprocess.check_output(command, cwd=folder, env=environment, text=True)

    assert shown.strip()


NOTEBOOK = ROOT / "examples" / "first_look.ipynb"


def test_jupyter_executes_the_notebook(installation: Installation, tmp_path: Path) -> None:
    # It holds nothing of a person.
    assert not any(cell.get("outputs") for cell in json.loads(text_of(NOTEBOOK))["cells"])
    shutil.copytree(NOTEBOOK.parent, tmp_path / "examples")
    (tmp_path / "data").symlink_to(installation.folder / "data")
    done = run(
        "jupyter nbconvert --to notebook --stdout --execute examples/first_look.ipynb",
        tmp_path,
        bare(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    shown = html.unescape(done.stdout)
    for path in NOTEBOOK.parent.glob("questions/*.sql"):
        question = text_of(path).split("\n")[0].removeprefix("-- ")
        assert question in shown


# --- commands of the guides -----------------------------------------------------------------------

# These want a machine of their own; test_deploy.py tries what they install, and test_pages.py their
# names.
ANOTHER_MACHINE = {"install-on-a-server.md", "run-in-containers.md", "run-on-kubernetes.md"}


@pytest.mark.parametrize("name", sorted(ANOTHER_MACHINE))
def test_each_file_of_ours_that_a_command_takes_is_there(name: str) -> None:
    text = "\n".join(text for _, text in blocks(GUIDES / name, "sh"))
    files = set(
        re.findall(
            r"(?<![\w/.-])deploy/(?:[\w.-]+/)*[\w.-]+\.\w+|requirements\.lock|\.env\.example", text
        )
    )
    assert files
    assert {file for file in files if not (ROOT / file).is_file()} == set()


TRIED = ["after-a-long-stop.md", "back-up-and-restore.md", "pull-by-hand.md", "see-what-failed.md"]


@pytest.mark.parametrize("guide", TRIED)
def test_each_command_of_a_guide_works(
    guide: str, installation: Installation, tmp_path: Path
) -> None:
    shutil.copytree(installation.folder / "data", tmp_path / "data", symlinks=True)
    for line in lines(GUIDES / guide):
        if line.startswith("leads-pipeline restore"):  # into an empty folder
            shutil.rmtree(tmp_path / "data")
        command = line.replace("/mnt/backup", f"{tmp_path}/backup").replace(
            "/srv/drill", f"{tmp_path}/drill"
        )
        done = run(command, tmp_path, installation.environment)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


@needs_gpg
def test_the_key_that_the_guide_makes_is_of_the_kind_that_the_portal_asks_for_and_opens_its_message(
    tmp_path: Path,
) -> None:
    """Fault 88: the portal asks for a 4096-bit RSA key, and the guide's command made another."""
    [(_, commands)] = blocks(GUIDES / "get-a-secret.md", "sh")
    with running_gpg() as agency, running_gpg() as portal:
        # As the guide's reader types them. This gpg answers the questions for the passphrase.
        gpg = tmp_path / "gpg"
        gpg.write_text(f'#!/bin/sh\nexec {shlex.join(agency.command())} "$@"\n')
        gpg.chmod(0o755)
        path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
        done = run(f"set -e\n{commands}", tmp_path, path)
        assert done.returncode == 0, done.stderr

        portal.run("--import", str(tmp_path / "leads-public-key.asc"))
        keys = portal.run("--list-keys", "--with-colons").decode()
        message = portal.encrypt(b"a-client-secret", "it@agency.example")
    (tmp_path / "leads-secret.asc").write_bytes(message)
    secret = PgpSecret(
        tmp_path / "leads-secret.asc",
        tmp_path / "leads-private-key.asc",
        Secret("LEADS_PGP_PASSPHRASE", PASSPHRASE),
    )
    assert client_secret(secret) == "a-client-secret"
    # The kind of key, its bits, and 1 for RSA.
    assert re.findall(r"^(pub|sub):[^:]*:(\d+):(\d+):", keys, re.MULTILINE) == [
        ("pub", "4096", "1"),
        ("sub", "4096", "1"),
    ]


def test_each_command_of_the_guide_to_answer_a_person_works(
    installation: Installation, tmp_path: Path
) -> None:
    shutil.copytree(installation.folder / "data", tmp_path / "data", symlinks=True)
    [(email,)] = query(installation.file, "select max(contact_email) from applicant_leads")
    (tmp_path / "request.txt").write_text(f"email: {email}\n", encoding="utf-8")
    environment = {**installation.environment, "LEADS_KEEP_PERSONAL_DAYS": "35"}
    objection = 0
    for line in lines(GUIDES / "answer-a-person.md"):
        if "--list" in line:
            (tmp_path / "data" / "privacy").rename(tmp_path / "copy")
        command = line.replace("/mnt/backup/leads", "copy").replace("lift 3", f"lift {objection}")
        if "correct" in command:
            command += " --new-email jane@home.example"
        if "lift" in command:
            command += " --yes"
        if command.split()[2] in ("find", "export", "correct", "erase", "object", "restrict"):
            command += " --from request.txt" + (" --yes" if "erase --case" in command else "")
        done = run(command, tmp_path, environment)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
        objection = int((re.findall(r"privacy lift (\d+)", done.stdout) or [objection])[0])
