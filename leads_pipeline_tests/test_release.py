"""What a release needs: pinned actions and images, one version, its changelog, and forms that ask
for nobody's data.

`make lint` also runs zizmor, which knows more of workflows.
"""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"
RELEASE: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text())["jobs"]


# --- what is pinned -------------------------------------------------------------------------------


def test_images_begin_with_one_digest() -> None:
    files = [ROOT / "deploy" / "Containerfile", ROOT / ".devcontainer" / "Containerfile"]
    text = "\n".join(path.read_text() for path in files)
    stages = re.findall(r"^FROM (\S+)(?: AS (\w+))?", text, re.MULTILINE)

    names = {name for _, name in stages}
    [base] = {base for base, _ in stages} - names
    assert re.fullmatch(r"docker\.io/library/debian:bookworm-slim@sha256:[0-9a-f]{64}", base)


# --- what the workflow may do ---------------------------------------------------------------------


def test_nothing_is_public_before_it_is_tested_and_the_upload_to_pypi_comes_late() -> None:
    def before(name: str) -> set[str]:
        needs = RELEASE[name].get("needs", [])
        jobs = {needs} if isinstance(needs, str) else set(needs)
        return jobs.union(*map(before, jobs))

    assert before("images") == before("attest") == {"build"}
    assert before("pypi") == {"build", "attest", "images", "image"}
    assert before("github") == {*before("pypi"), "pypi"}
    commands = [step["run"] for step in RELEASE["build"]["steps"] if "run" in step]
    assert commands[1:] == ["make check", "make wheel", "make sbom"]


# --- the version ----------------------------------------------------------------------------------


def release_notes(tag: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [ROOT / ".ci" / "release_notes", tag], capture_output=True, text=True, check=False
    )


def test_the_changelog_begins_with_the_version_and_fits_on_a_screen() -> None:
    notes = release_notes(f"v{VERSION}")

    assert notes.returncode == 0, notes.stderr
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert re.findall(r"^## (.*)$", changelog, re.MULTILINE)[0] == VERSION
    assert notes.stdout.strip() in changelog
    assert len(notes.stdout.splitlines()) <= 60


def test_a_tag_of_another_version_is_refused() -> None:
    refused = release_notes("v9.9.9")

    assert refused.returncode == 1
    assert f"The tag is v9.9.9, and pyproject.toml has the version {VERSION}." in refused.stderr


def test_manifests_name_the_image_of_the_version() -> None:
    manifests = "".join(path.read_text() for path in (ROOT / "deploy").rglob("*.yaml"))
    assert set(re.findall(r"/leads-pipeline:([\w.-]+)", manifests)) == {VERSION}


# --- what contributors meet -----------------------------------------------------------------------


def test_a_form_says_first_that_nobodys_data_belongs_in_it() -> None:
    for form in ROOT.glob(".github/ISSUE_TEMPLATE/*.yml"):
        if form.name != "config.yml":
            first = yaml.safe_load(form.read_text())["body"][0]
            assert "Paste no lead, no person and no secret." in first["attributes"]["value"], form
