"""The component in a project of `dg`: found, scaffolded, checked, twice in one project."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from traceback import format_exception
from typing import Any

import pytest
import yaml
from dagster import (
    AssetKey,
    AssetSpec,
    Definitions,
    load_from_defs_folder,
)
from dagster.components import ScaffoldRequest

from leads_pipeline import LeadsPipelineComponent
from leads_pipeline.features.component.component import LeadsPipelineScaffolder

TYPE = "leads_pipeline.LeadsPipelineComponent"
PYPROJECT = """
[project]
name = "my_project"

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "my_project"
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty project of `dg`, which can be imported."""
    module = tmp_path / "src" / "my_project"
    for folder in (module, module / "defs"):
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    monkeypatch.syspath_prepend(str(tmp_path / "src"))
    os.environ.update(LEADS_CLIENT_ID="me", LEADS_CLIENT_SECRET="s3cret")

    yield tmp_path

    for name in [name for name in sys.modules if name.partition(".")[0] == "my_project"]:
        del sys.modules[name]


def scaffold(project: Path, name: str) -> Path:
    """Make an instance as `dg scaffold defs` does. Return its file."""
    folder = project / "src" / "my_project" / "defs" / name
    folder.mkdir()
    LeadsPipelineScaffolder().scaffold(
        ScaffoldRequest(
            type_name=TYPE,
            target_path=folder,
            scaffold_format="yaml",
            project_root=project,
            params=None,
        )
    )
    return folder / "defs.yaml"


def change(file: Path, **attributes: Any) -> None:
    """Change attributes of an instance. Settings are added to those that are there."""
    content = yaml.safe_load(file.read_text())
    content["attributes"]["settings"] |= attributes.pop("settings", {})
    content["attributes"] |= attributes
    file.write_text(yaml.safe_dump(content))


def defs_of(project: Path) -> Definitions:
    return load_from_defs_folder(path_within_project=project / "src" / "my_project")


def specs_of(project: Path) -> Mapping[AssetKey, AssetSpec]:
    return {spec.key: spec for spec in defs_of(project).resolve_all_asset_specs()}


def test_dg_finds_the_component_and_the_command_line_does_not_wait_for_it() -> None:
    [found] = entry_points(group="dagster_dg_cli.registry_modules", name="leads_pipeline")
    assert "LeadsPipelineComponent" in dir(found.load())

    loaded = "import sys, leads_pipeline.cli; print('dagster' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", loaded], text=True) == "False\n"


def test_what_is_scaffolded_twice_loads_as_two_installations(project: Path, tmp_path: Path) -> None:
    for name in ("agency", "sister"):
        change(scaffold(project, name), settings={"LEADS_DATA_DIR": str(tmp_path / name)})

    specs = specs_of(project)

    assert AssetKey(["agency", "raw_applicant_leads"]) in specs
    assert AssetKey(["sister", "raw_applicant_leads"]) in specs
    assert specs[AssetKey(["agency", "mart_leads_daily"])].group_name == "agency_marts"


def test_owners_tags_and_a_prefix_of_groups_are_added_to_each_asset(
    project: Path, tmp_path: Path
) -> None:
    change(
        scaffold(project, "agency"),
        settings={"LEADS_DATA_DIR": str(tmp_path / "data"), "LEADS_OWNERS": "team:data"},
        owners=["team:web"],
        tags={"cost": "small"},
        group_prefix="web",
    )

    spec = specs_of(project)[AssetKey(["agency", "applicant_leads"])]

    assert list(spec.owners) == ["team:data", "team:web"]
    assert spec.tags.keys() >= {"cost", "pii"}
    assert str(spec.group_name).startswith("web_")


def test_a_subclass_changes_how_assets_are_shown(project: Path, tmp_path: Path) -> None:
    file = scaffold(project, "agency")
    change(file, settings={"LEADS_DATA_DIR": str(tmp_path / "data")})
    module = project / "src" / "my_project" / "shown"
    module.with_suffix(".py").write_text(
        "from leads_pipeline import LeadsPipelineComponent\n\n\n"
        "class Ours(LeadsPipelineComponent):\n"
        "    def get_asset_spec(self, spec):\n"
        "        return super().get_asset_spec(spec).replace_attributes(group_name='leads')\n"
    )
    file.write_text(file.read_text().replace(TYPE, "my_project.shown.Ours"))

    assert {spec.group_name for spec in specs_of(project).values()} == {"leads"}


@pytest.mark.parametrize("name", ["LEADS_TIMEZON", "LEED_TIMEZONE"])
def test_a_wrong_setting_is_told_by_dg_check(project: Path, name: str) -> None:
    change(scaffold(project, "agency"), settings={name: "Europe/London"})

    with pytest.raises(Exception, match=r"defs\.yaml") as told:
        defs_of(project)

    assert "did you mean LEADS_TIMEZONE" in str(told.value.__cause__)


def test_a_variable_that_other_tools_share_is_taken(project: Path, tmp_path: Path) -> None:
    settings = {"LEADS_DATA_DIR": str(tmp_path), "AWS_ENDPOINT_URL": "https://objects.example"}
    change(scaffold(project, "agency"), settings=settings)

    assert specs_of(project)


# Dagster would read the first two as Python.
@pytest.mark.parametrize("secret", ["1_000", '"quoted"', "{{ no template }}"])
def test_a_variable_of_the_environment_is_taken_as_it_is_wherever_it_stands(
    project: Path, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    components: list[LeadsPipelineComponent] = []

    def build_defs(component: LeadsPipelineComponent, _: object) -> Definitions:
        components.append(component)
        return Definitions()

    monkeypatch.setattr(LeadsPipelineComponent, "build_defs", build_defs)
    os.environ["A_SECRET"] = secret
    of_both = "{{ env.A_SECRET }}, {{ env('A_TEAM', '1_0') }}"
    change(
        scaffold(project, "agency"),
        settings={"LEADS_CLIENT_SECRET": "{{ env.A_SECRET }}", "LEADS_OWNERS": of_both},
    )

    defs_of(project)

    [component] = components
    assert component.variables["LEADS_CLIENT_SECRET"] == secret
    assert component.variables["LEADS_OWNERS"] == f"{secret}, 1_0"
    assert "settings" not in repr(component)


def test_a_variable_that_is_not_set_is_named(project: Path) -> None:
    change(scaffold(project, "agency"), settings={"LEADS_BRANCH_IDS": ["101", "{{ env.UNKNOWN }}"]})

    with pytest.raises(Exception, match=r"defs\.yaml") as told:
        defs_of(project)

    assert (
        "LEADS_BRANCH_IDS needs the variable UNKNOWN of the environment, which isn't set"
        in "".join(format_exception(told.value))
    )


def test_several_values_are_a_list() -> None:
    component = LeadsPipelineComponent(
        key_prefix="agency",
        settings={"LEADS_BRANCH_IDS": [101, "102"], "INVENTORY_ADDRESSES": ["York", "Leeds, LS1"]},
    )

    assert component.variables == {
        "LEADS_BRANCH_IDS": "101,102",
        "INVENTORY_ADDRESSES": "York;Leeds, LS1",
    }
