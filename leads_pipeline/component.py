"""The pipeline as a component, for projects of `dg`.

Belongs here: what defs.yaml may say, and a first defs.yaml. Doesn't: the definitions (definitions.py), what a setting
means (settings.py).
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
from pydantic import Field

from leads_pipeline.definitions import build_definitions
from leads_pipeline.errors import SettingsError
from leads_pipeline.settings import unknown

# A setting that has several values is a list in YAML. Places to search for have commas in them.
_SEPARATORS = {"INVENTORY_ADDRESSES": ";"}

Value = str | int | Sequence[str | int]

# The text of a variable, and nothing around it.
_OF_ENVIRONMENT: Final = re.compile(r"\{\{\s*env\.(\w+)\s*\}\}")


def _resolved(context: ResolutionContext, settings: Mapping[str, Any]) -> dict[str, Value]:
    """Resolve the templates in settings.

    Dagster reads the text that a template gives as Python: of a secret 1_000 it would make 1000. A variable of the
    environment is taken as it is. Raises SettingsError if there is none.
    """
    resolved: dict[str, Value] = {}
    for name, value in settings.items():
        named = _OF_ENVIRONMENT.fullmatch(value.strip()) if isinstance(value, str) else None
        if named is None:
            resolved[name] = context.resolve_value(value)
        elif named[1] in os.environ:
            resolved[name] = os.environ[named[1]]
        else:
            raise SettingsError(f"settings: {name} is the variable {named[1]} of the environment, which isn't set.")

    return resolved


class LeadsPipelineScaffolder(Scaffolder[Any]):
    """Writes a first defs.yaml, with what a real account needs."""

    def scaffold(self, request: ScaffoldRequest[Any]) -> None:
        """Write it. Its secret and its ids come from the environment of `dg`."""
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

    The definitions are guests: every name begins with `key_prefix`, and nothing runs before somebody starts it.
    """

    key_prefix: Annotated[
        str | Sequence[str],
        Field(description="What the keys of all assets begin with, and the names of jobs, schedules and sensors."),
    ]
    settings: Annotated[
        Mapping[str, Value],
        Resolver(_resolved, model_field_type=Mapping[str, Value], inject_before_resolve=False),
        Field(
            repr=False,  # it has secrets
            description=(
                "The variables of the settings page, by their names. A secret is {{ env.LEADS_CLIENT_SECRET }}, or a "
                "file: LEADS_CLIENT_SECRET_FILE. LEADS_DATA_DIR is an absolute path."
            ),
        ),
    ]
    owners: Annotated[Sequence[str], Field(description="Owners of all assets: addresses, and teams as team:data.")] = ()
    tags: Annotated[Mapping[str, str] | None, Field(description="Tags that all assets get besides their own.")] = None

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
        return spec.replace_attributes(owners=[*spec.owners, *more_owners], tags=tags)

    def build_defs(self, context: ComponentLoadContext) -> Definitions:  # noqa: ARG002 - as any component
        """Build the definitions.

        Raises SettingsError for a value that can't be right, and for a name that isn't known.
        """
        hints = unknown(self.settings)
        if hints:
            raise SettingsError(f"settings: {' '.join(hints)}")
        definitions = build_definitions(self.variables, key_prefix=self.key_prefix)
        return definitions.map_asset_specs(func=self.get_asset_spec)


def _text_of(name: str, value: Value) -> str:
    if isinstance(value, str | int):
        return str(value)
    return _SEPARATORS.get(name, ",").join(map(str, value))
