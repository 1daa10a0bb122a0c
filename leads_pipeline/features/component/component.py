"""The pipeline as a component, for projects of `dg`.

Belongs here: what defs.yaml may say, and a first defs.yaml. Doesn't: the definitions
(definitions.py), what a setting means (settings.py).
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from dagster import (
    AssetSpec,
    Component,
    ComponentLoadContext,
    Definitions,
    Model,
    ResolutionContext,
    Resolvable,
    Resolver,
    Scaffolder,
    ScaffoldRequest,
    scaffold_with,
)
from dagster.components import scaffold_component
from jinja2 import StrictUndefined, Template
from pydantic import Field

from leads_pipeline.cli.settings import hints_about_unknown
from leads_pipeline.definitions import build_definitions
from leads_pipeline.errors import SettingsError
from leads_pipeline.orchestration.names import Names

# A setting that has several values is a list in YAML. Places to search for have commas in them.
_SEPARATORS = {"INVENTORY_ADDRESSES": ";"}

Value = str | int | Sequence[str | int]

# Text that Dagster would evaluate, and variables of the environment in it.
_TEMPLATE: Final = re.compile(r"\{[{%#]")
_ENVIRONMENT: Final = re.compile(r"\benv\b")
_VARIABLE: Final = re.compile(r"\benv\.(\w+)")


def _resolved(context: ResolutionContext, settings: Mapping[str, Any]) -> dict[str, Value]:
    """Resolve the templates in settings.

    Raises SettingsError if a variable of the environment isn't set.
    """
    return {name: _value_of(context, name, value) for name, value in settings.items()}


def _value_of(context: ResolutionContext, name: str, value: Any) -> Any:
    """Resolve the templates in the value of a setting, or in each one of its list.

    Dagster reads texts as Python: it would make 1000 of a secret 1_000. So plain texts are taken as
    they are, and a template that reads the environment gives text. Any other template gives what
    Dagster makes of it, such as a list.
    """
    if isinstance(value, list):
        return [_value_of(context, name, one) for one in value]
    if not isinstance(value, str) or not _TEMPLATE.search(value):
        return value
    if not _ENVIRONMENT.search(value):
        return context.resolve_value(value)

    for variable in _VARIABLE.findall(value):
        if variable not in os.environ:
            raise SettingsError(
                f"settings: {name} needs the variable {variable} of the environment, which isn't "
                "set."
            )

    return Template(value, undefined=StrictUndefined).render(context.scope)


class LeadsPipelineScaffolder(Scaffolder[Any]):
    """Writes a first defs.yaml, with what a real account needs."""

    def scaffold(self, request: ScaffoldRequest[Any]) -> None:
        """Write defs.yaml. Its secret and its ids come from the environment of `dg`."""
        name = request.target_path.name
        settings = {
            "LEADS_BASE_URL": "https://services.zoopla.co.uk",
            "LEADS_AUTH_URL": "https://services-auth.services.zoopla.co.uk",
            "LEADS_CLIENT_ID": "{{ env.LEADS_CLIENT_ID }}",
            "LEADS_CLIENT_SECRET": "{{ env.LEADS_CLIENT_SECRET }}",
            "LEADS_BRANCH_IDS": [101, 102],
            "LEADS_TIMEZONE": "Europe/London",
            "LEADS_DATA_DIR": f"/srv/{name}",
        }

        scaffold_component(request, {"key_prefix": name, "settings": settings})


@scaffold_with(LeadsPipelineScaffolder)
class LeadsPipelineComponent(Component, Resolvable, Model):
    """Leads of a property portal, pulled day by day and branch by branch into Parquet and DuckDB.

    The definitions are guests: every name begins with `key_prefix`, and nothing runs before
    somebody starts it.
    """

    key_prefix: Annotated[
        str | Sequence[str],
        Field(
            description="What the keys of all assets begin with, and the names of jobs, schedules "
            "and sensors."
        ),
    ]
    settings: Annotated[
        Mapping[str, Value],
        Resolver(_resolved, model_field_type=Mapping[str, Value], inject_before_resolve=False),
        Field(
            repr=False,  # it has secrets
            description=(
                "The variables of the settings page, by their names. They also switch features on, "
                "for example LEADS_DELIVERY_URL, and off: LEADS_TABLES: none. A secret is "
                "{{ env.LEADS_CLIENT_SECRET }}, or a file: LEADS_CLIENT_SECRET_FILE. "
                "LEADS_DATA_DIR is an absolute path."
            ),
        ),
    ]
    group_prefix: Annotated[
        str | None,
        Field(
            description="What the names of groups begin with, in place of key_prefix. An empty "
            "text: nothing."
        ),
    ] = None
    owners: Annotated[
        Sequence[str], Field(description="Owners of all assets: addresses, and teams as team:data.")
    ] = ()
    tags: Annotated[
        Mapping[str, str] | None, Field(description="Tags that all assets get besides their own.")
    ] = None

    @property
    def variables(self) -> dict[str, str]:
        """The settings as variables of the environment hold them."""
        return {name: _text_of(name, value) for name, value in self.settings.items()}

    def get_asset_spec(self, spec: AssetSpec) -> AssetSpec:
        """Return the spec of an asset as the catalog shows it.

        Override it to change anything but the key.
        """
        more_owners = [owner for owner in self.owners if owner not in spec.owners]
        tags = {**spec.tags, **(self.tags or {})}
        return spec.replace_attributes(
            owners=[*spec.owners, *more_owners], tags=tags, group_name=self._group_of(spec)
        )

    def _group_of(self, spec: AssetSpec) -> str | None:
        if self.group_prefix is None or spec.group_name is None:
            return spec.group_name
        name = spec.group_name.removeprefix(Names.of(self.key_prefix).name(""))
        return f"{self.group_prefix}_{name}" if self.group_prefix else name

    def build_defs(self, context: ComponentLoadContext) -> Definitions:  # noqa: ARG002 - as any component
        """Build the definitions.

        Raises SettingsError for a value that can't be right, and for a name that isn't known.
        """
        hints = hints_about_unknown(self.settings)
        if hints:
            raise SettingsError(f"settings: {' '.join(hints)}")
        definitions = build_definitions(self.variables, key_prefix=self.key_prefix)
        return definitions.map_asset_specs(func=self.get_asset_spec)


def _text_of(name: str, value: Value) -> str:
    if isinstance(value, str | int):
        return str(value)
    return _SEPARATORS.get(name, ",").join(map(str, value))
