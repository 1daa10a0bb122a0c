"""The example of a company's own Dagster project, and the guide that explains it, work as they are
written.

Belongs here: examples/company/ and docs/guides/add-to-your-dagster.md. Doesn't: the names and runs
of a guest (orchestration/test_guest.py).
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
from dagster import DagsterInstance, Definitions, build_sensor_context

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.orchestration.asking import raw_key
from leads_pipeline.orchestration.names import NEEDED, SERVED, Names
from leads_pipeline_tests.docs.pages import GUIDES, ROOT, blocks
from leads_pipeline_tests.docs.shell import BIN, run
from leads_pipeline_tests.support.analyst import query
from leads_pipeline_tests.support.installation import Installation, installation

EXAMPLE = ROOT / "examples" / "company"
GUIDE = GUIDES / "add-to-your-dagster.md"
LEADS = Names.of("leads")


@dataclass(frozen=True)
class Company:
    """The example in a folder of its own, merged with an installation."""

    folder: Path
    here: Installation
    definitions: Definitions

    def pull(self) -> None:
        """Land both kinds of leads."""
        config = {"config": {"partition_keys": sorted(self.here.keys([1, 2]))}}
        keys = [raw_key(kind, LEADS) for kind in LEAD_KINDS]
        self.run("leads_pull_leads", {key.to_python_identifier(): config for key in keys})

    def publish(self) -> None:
        """Publish what has landed."""
        self.run("leads_publish")

    def run(self, name: str, ops: Mapping[str, Any] | None = None) -> None:
        """Run a job to its end, with such a configuration of its steps."""
        job = self.definitions.resolve_job_def(name)
        assert job.execute_in_process(
            instance=self.here.instance, run_config={"ops": ops or {}}
        ).success

    def tick_sensor(self, cursor: str | None) -> tuple[int, str | None]:
        """Evaluate the company's sensor. Return how many runs it asks for, and its new cursor."""
        sensor = self.definitions.resolve_sensor_def("on_publication")
        repository = self.definitions.get_repository_def()
        with build_sensor_context(
            instance=self.here.instance,
            cursor=cursor,
            repository_def=repository,
            sensor_name=sensor.name,
        ) as context:
            tick = sensor.evaluate_tick(context)
        return len(tick.run_requests or ()), tick.cursor


@dataclass(frozen=True)
class Shell:
    """A shell in a folder of the company's."""

    folder: Path
    environment: dict[str, str]

    def run(self, command: str, where: str = ".") -> str:
        """Run commands of the guide, and return what they print."""
        # What the package needs is there already, and the network isn't needed.
        command = command.replace(
            "pip install /srv", "pip install --no-deps --no-build-isolation /srv"
        )
        command = command.replace("/srv/leads_pipeline", str(ROOT))
        done = run(command, self.folder / where, self.environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


# The company's own, and the sign of `serve`.
NOT_IN_ENV = {"DAGSTER_HOME", SERVED}


@pytest.fixture
def company(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Company]:
    folder = tmp_path / "company"
    shutil.copytree(EXAMPLE, folder)
    with installation(tmp_path, first=3) as here:
        defs = run_path(str(folder / "definitions.py"))["defs"]
        monkeypatch.chdir(folder)
        yield Company(folder, here, defs())


def commands(word: str) -> str:
    """The one block of commands of the guide with that word, for a shell that ends at the first
    error.
    """
    [found] = [text for _, text in blocks(GUIDE, "sh") if word in text]
    return f"set -e\n{found}"


# --- the example ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_sensor_of_the_company_starts_its_job_once_after_each_publication(
    company: Company,
) -> None:
    nothing, cursor = company.tick_sensor(cursor=None)
    company.pull()
    nothing_yet, cursor = company.tick_sensor(cursor)
    company.publish()
    first, cursor = company.tick_sensor(cursor)
    nothing_new, cursor = company.tick_sensor(cursor)
    company.publish()
    second, cursor = company.tick_sensor(cursor)

    assert [nothing, nothing_yet, first, nothing_new, second] == [0, 0, 1, 0, 1]
    company.run("after_leads")


@pytest.mark.slow
def test_dbt_builds_its_model_on_the_published_leads_and_tests_it(company: Company) -> None:
    installed = run(commands("dbt-venv"), company.folder, dict(os.environ))
    if installed.returncode:
        pytest.skip("dbt can't be installed here by pip")
    os.environ["PATH"] = f"{company.folder}/dbt-venv/bin{os.pathsep}{os.environ['PATH']}"
    company.pull()
    company.publish()

    company.run("dbt_build")

    built = dict(
        query(company.folder / "company.duckdb", "select branch, leads from branch_totals")
    )
    of_branches = "select scope, count(*) from lead_facts group by scope"
    published = dict(query(company.here.data.folder / "leads.duckdb", of_branches))
    assert len(built) == len(company.here.settings.scopes)
    assert built == published


def test_the_merge_in_the_guide_is_that_of_the_example() -> None:
    [(_, merge)] = blocks(GUIDE, "python")
    lines = {line for line in merge.splitlines() if "key_prefix" in line or "merge" in line}
    assert len(lines) == 2
    assert lines <= set((EXAMPLE / "definitions.py").read_text(encoding="utf-8").splitlines())


# --- the guide ------------------------------------------------------------------------------------


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A shell of the company, with its own Dagster home and the settings of the pipeline in `.env`."""
    with installation(tmp_path, first=3) as here:
        programs = own_environment(tmp_path / "venv")
        (tmp_path / "theirs").mkdir()
        lines = [
            f"{name}={value}" for name, value in here.environment.items() if name not in NOT_IN_ENV
        ]
        (tmp_path / ".env").write_text("\n".join([*lines, ""]))
        environment = {
            "HOME": str(tmp_path),
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "DAGSTER_HOME": str(tmp_path / "theirs"),
        }
        yield Shell(tmp_path, environment)


def own_environment(folder: Path) -> Path:
    """Make a Python environment that has our dependencies, but not the package.

    Return its folder of programs.
    """
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    programs = folder / "bin"
    packages = next(folder.glob("lib/python*/site-packages"))
    ours = next(BIN.parent.glob("lib/python*/site-packages"))
    # A line that begins with a path adds the folder, without its own .pth files: one of them names
    # this checkout.
    (packages / "dependencies.pth").write_text(f"{ours}\n")
    (programs / "dagster").write_text(f'#!/bin/sh\nexec {programs}/python -m dagster "$@"\n')
    (programs / "dagster").chmod(0o755)
    return programs


@pytest.mark.slow
def test_a_company_adds_the_code_location_as_the_guide_says(shell: Shell) -> None:
    [(_, workspace)] = blocks(GUIDE, "yaml")
    workspace = workspace.replace("/srv/leads_pipeline/.venv/bin", str(BIN))
    (shell.folder / "workspace.yaml").write_text(workspace)

    done = shell.run(commands("workspace.yaml"))

    assert "Validation successful for code location leads" in done


@pytest.mark.slow
def test_a_company_merges_the_example_and_starts_what_it_needs_as_the_guide_says(
    shell: Shell,
) -> None:
    done = shell.run(commands("examples/company"))
    assert "All code locations passed validation" in done

    started = shell.run(
        f"{commands('sensor start')}dagster schedule list -f definitions.py\n", "company"
    )

    assert "leads_pull_daily [RUNNING]" in started
    assert "leads_pull_hourly [STOPPED]" in started
    with DagsterInstance.from_config(shell.environment["DAGSTER_HOME"]) as instance:
        running = {one.instigator_name for one in instance.all_instigator_state() if one.is_running}
    needed = (*NEEDED, "pull_inventory_daily", "alert", "deliver", "mail_report")
    assert running == {f"leads_{name}" for name in needed}
