"""The example of a company's own Dagster project, and the guide that explains it, work as they are written.

Belongs here: examples/company/ and docs/guides/add-to-your-dagster.md. Doesn't: the names and runs of a guest
(orchestration/test_guest.py).
"""

import os
import shutil
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import duckdb
import pytest
from dagster import (
    AssetKey,
    Definitions,
    ExecuteInProcessResult,
    build_sensor_context,
)

from leads_pipeline.domain.contract import APPLICANT, LEAD_KINDS
from leads_pipeline.domain.window import Window
from leads_pipeline.orchestration.names import Names
from leads_pipeline.orchestration.pulling import raw_key
from leads_pipeline_tests.docs.pages import ROOT
from leads_pipeline_tests.docs.shell import run
from leads_pipeline_tests.support.installation import Installation, installation

EXAMPLE = ROOT / "examples" / "company"
INSTALL_DBT = "python3 -m venv dbt-venv && dbt-venv/bin/pip install 'dbt-core<1.12' 'dbt-duckdb==1.11.*'"
LEADS = Names.of("leads")
DAYS_AGO = (1, 2)


@dataclass(frozen=True)
class Company:
    """The example in a folder of its own, merged with an installation."""

    folder: Path
    here: Installation
    definitions: Definitions

    def pull(self) -> None:
        """Land both kinds of leads."""
        config = {"config": {"partition_keys": sorted(self.here.keys(DAYS_AGO))}}
        keys = [raw_key(kind, LEADS) for kind in LEAD_KINDS]
        ops = {key.to_python_identifier(): config for key in keys}
        job = self.definitions.resolve_job_def("leads_pull_leads")
        assert job.execute_in_process(instance=self.here.instance, run_config={"ops": ops}).success

    def publish(self) -> None:
        """Publish what has landed."""
        job = self.definitions.resolve_job_def("leads_publish")
        assert job.execute_in_process(instance=self.here.instance).success

    def materialize(self, asset: str) -> ExecuteInProcessResult:
        """Run one of the company's own assets."""
        job = self.definitions.resolve_job_def("after_leads")
        return job.execute_in_process(instance=self.here.instance, asset_selection=[AssetKey(asset)])

    def tick_sensor(self, cursor: str | None) -> tuple[int, str | None]:
        """Evaluate the company's sensor. Return how many runs it asks for, and its new cursor."""
        sensor = self.definitions.resolve_sensor_def("on_publication")
        repository = self.definitions.get_repository_def()
        with build_sensor_context(
            instance=self.here.instance, cursor=cursor, repository_def=repository, sensor_name=sensor.name
        ) as context:
            tick = sensor.evaluate_tick(context)
        return len(tick.run_requests or ()), tick.cursor


@pytest.fixture
def company(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Company]:
    folder = tmp_path / "company"
    shutil.copytree(EXAMPLE, folder)
    with installation(tmp_path, first=3) as here:
        spec = spec_from_file_location("company_definitions", folder / "definitions.py")
        assert spec
        assert spec.loader
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        monkeypatch.chdir(folder)
        yield Company(folder, here, module.defs())


# --- the example ------------------------------------------------------------------------------------------------------


def test_an_asset_of_the_company_counts_the_applicants_of_each_branch(company: Company) -> None:
    company.pull()
    company.publish()

    done = company.materialize("applicants_by_branch")

    [materialization] = done.asset_materializations_for_node("applicants_by_branch")
    shown = {name: value.value for name, value in materialization.metadata.items()}
    assert truth_by_branch(company.here).items() <= shown.items()


def truth_by_branch(here: Installation) -> dict[str, int]:
    """The portal's own count of applicants of the pulled days, by branch. A lead of midnight is in two windows."""
    ids: dict[str, set[str]] = defaultdict(set)
    for ago in DAYS_AGO:
        for scope in here.settings.scopes:
            window = Window.of(here.day(ago), scope, here.settings.zone)
            ids[scope.key].update(here.simulator.truth(APPLICANT.name, scope.key, window.start, window.end))
    return {scope: len(found) for scope, found in ids.items()}


def test_the_sensor_of_the_company_starts_its_job_once_after_each_publication(company: Company) -> None:
    nothing, cursor = company.tick_sensor(cursor=None)
    company.pull()
    nothing_yet, cursor = company.tick_sensor(cursor)
    company.publish()
    first, cursor = company.tick_sensor(cursor)
    nothing_new, cursor = company.tick_sensor(cursor)
    company.publish()
    second, cursor = company.tick_sensor(cursor)

    assert [nothing, nothing_yet, first, nothing_new, second] == [0, 0, 1, 0, 1]


@pytest.mark.slow
def test_dbt_builds_its_model_on_the_published_leads_and_tests_it(
    company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = run(INSTALL_DBT, company.folder, dict(os.environ))
    if installed.returncode:
        pytest.skip("dbt can't be installed here by pip")
    monkeypatch.setenv("PATH", f"{company.folder}/dbt-venv/bin{os.pathsep}{os.environ['PATH']}")
    company.pull()
    company.publish()

    assert company.materialize("branch_totals").success

    with duckdb.connect(company.folder / "company.duckdb", read_only=True) as db:
        built = dict(db.sql("select branch, leads from branch_totals").fetchall())
    with duckdb.connect(company.here.settings.data_dir / "leads.duckdb", read_only=True) as db:
        published = dict(db.sql("select scope, count(*) from lead_facts group by scope").fetchall())
    assert len(built) == len(company.here.settings.scopes)
    assert built == published
