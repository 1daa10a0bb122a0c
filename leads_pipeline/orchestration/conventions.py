"""Metadata of assets: owners, tags, freshness, and links to their code."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from dagster import (
    AssetsDefinition,
    AssetSpec,
    CodeReferencesMetadataValue,
    FreshnessPolicy,
    LocalFileCodeReference,
    map_asset_specs,
    with_source_code_references,
)

import leads_pipeline
from leads_pipeline.settings import Settings

# Whatever has one of these columns holds leads, or knows who asked.
_PERSONAL = frozenset({"lead_id", "person"})

# The group of marts and files of one's own. What they hold isn't known, so they count as personal.
OWN = "own"

# An installed package has no code to link to.
_IS_CHECKOUT = Path(leads_pipeline.__file__).parents[1].joinpath("pyproject.toml").exists()


def with_conventions(assets: Iterable[AssetsDefinition | AssetSpec], settings: Settings) -> Sequence[Any]:
    """Add owners, tags, freshness and links to code to each asset."""
    # The daily pull is at 01:15 and the publication of the night at two. Without a portal nothing is ever fresh.
    fresh = FreshnessPolicy.cron("0 6 * * *", timedelta(hours=6), settings.zone.key) if settings.base_url else None

    def add(spec: AssetSpec) -> AssetSpec:
        columns = {column.name for column in getattr(spec.metadata.get("dagster/column_schema"), "columns", ())}
        is_searched = spec.key.to_user_string() != "raw_inventory" or not settings.no_inventory
        return spec.replace_attributes(
            owners=settings.owners,
            tags={
                "layer": spec.group_name or "",
                **({"pii": ""} if columns & _PERSONAL or spec.group_name == OWN else {}),
            },
            freshness_policy=fresh if is_searched else None,
        )

    found = map_asset_specs(add, assets)
    return with_source_code_references(found) if _IS_CHECKOUT else found


def code_reference(file: Path) -> dict[str, Any]:
    """Return the metadata that links an asset to a file besides its function."""
    references = CodeReferencesMetadataValue(code_references=[LocalFileCodeReference(file_path=str(file))])
    return {"dagster/code_references": references} if _IS_CHECKOUT else {}
