"""The entries of Dagster's catalog: columns, lineage, owners, tags, freshness, and links to code.

Belongs here: metadata of definitions. Doesn't: what a run records (pull.py, warehouse.py), columns
of tables (warehouse/tables.py, sql/).
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from dagster import (
    AssetsDefinition,
    AssetSpec,
    CodeReferencesMetadataValue,
    FreshnessPolicy,
    LocalFileCodeReference,
    TableColumn,
    TableColumnDep,
    TableColumnLineage,
    TableSchema,
    map_asset_specs,
    with_source_code_references,
)

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.orchestration.checks import FRESH_HOUR
from leads_pipeline.orchestration.names import Names
from leads_pipeline.settings import Settings
from leads_pipeline.warehouse.contents import other_tables
from leads_pipeline.warehouse.duck import tables_read
from leads_pipeline.warehouse.marts import EVERY_LEAD, Mart, marts
from leads_pipeline.warehouse.tables import Table, lead_tables

# A table with one of these columns holds leads, or knows who asked.
_PERSONAL = frozenset({"lead_id", "person"})

# The group of marts and files of one's own. Their content isn't known, so they count as personal.
OWN = "own"

# An installed package has no code to link to.
_IS_CHECKOUT = Path(__file__).parents[2].joinpath("pyproject.toml").exists()

_RAW_LEADS = [f"raw_{kind.table}" for kind in LEAD_KINDS]


def with_conventions(
    assets: Iterable[AssetsDefinition | AssetSpec],
    settings: Settings,
    names: Names,
    *,
    are_expected: bool = True,
) -> Sequence[Any]:
    """Add owners, tags, freshness and links to code to each asset.

    Assets that nobody expects are never late.
    """
    # The daily pull is at 01:15 and the publication of the night at two. Without a portal nothing
    # is ever fresh. Of raw leads a check says it, because a policy counts any old window.
    fresh = (
        FreshnessPolicy.cron(f"0 {FRESH_HOUR} * * *", timedelta(hours=6), settings.zone.key)
        if settings.base_url and are_expected
        else None
    )

    def add(spec: AssetSpec) -> AssetSpec:
        columns = {
            column.name
            for column in getattr(spec.metadata.get("dagster/column_schema"), "columns", ())
        }
        layer = (spec.group_name or "").removeprefix(names.name(""))
        is_personal = layer == OWN or not columns.isdisjoint(_PERSONAL)
        return spec.replace_attributes(
            owners=settings.owners,
            tags={"layer": layer, **({"pii": ""} if is_personal else {})},
            freshness_policy=fresh if spec.key.path[-1] not in _RAW_LEADS else None,
        )

    found = map_asset_specs(add, assets)
    return with_source_code_references(found) if _IS_CHECKOUT else found


def table_spec(table: Table, names: Names) -> AssetSpec:
    """Describe a table of leads.duckdb that is no mart."""
    own = [f"raw_{kind.table}" for kind in LEAD_KINDS if table.name in kind.tables]
    deps = [*table.reads] or own or _RAW_LEADS
    has_payloads = bool(own) or any(one.startswith("raw_") for one in table.reads)

    return AssetSpec(
        names.key(table.name),
        deps=[names.key(name) for name in deps],
        description=f"{table.description}. A table of leads.duckdb.",
        group_name=names.name("warehouse"),
        kinds={"duckdb"},
        metadata=table_metadata(
            table, dict.fromkeys(deps, ("payload",)) if has_payloads else {}, names
        ),
    )


def mart_spec(mart: Mart, names: Names) -> AssetSpec:
    """Describe a mart."""
    other_marts = [other for other in marts() if other is not mart]
    tables = [*lead_tables(), *other_tables(), *other_marts]
    columns_of = {table.name: [*table.descriptions] for table in tables}

    names_read = tables_read(mart.statement)
    own = names_read & columns_of.keys()
    if EVERY_LEAD in names_read:
        own |= {kind.table for kind in LEAD_KINDS}

    # One that reads no table reads what is known of the windows.
    deps = sorted(own) or _RAW_LEADS
    what = "table" if mart.is_by_day else "view"
    return AssetSpec(
        names.key(mart.name),
        deps=[names.key(name) for name in deps],
        description=f"{mart.description}\n\nA {what} of leads.duckdb.",
        group_name=names.name("marts"),
        kinds={"duckdb", "sql"},
        metadata={
            **table_metadata(mart, {name: columns_of[name] for name in sorted(own)}, names),
            **code_reference(mart.file),
        },
    )


def table_metadata(
    table: Table, sources: Mapping[str, Iterable[str]], names: Names
) -> dict[str, Any]:
    """Return the table's name, its columns, and the source columns that each one comes from.

    A lead's columns come from its `payload`.
    """
    schema = TableSchema(
        [TableColumn(one.name, one.type.upper(), one.description) for one in table.columns]
    )
    lineage = {name: _sources_of(name, sources, names) for name in table.descriptions}

    return {
        # As SQL names it, once leads.duckdb is attached under this name.
        "dagster/table_name": f"{names.database}.main.{table.name}",
        "dagster/column_schema": schema,
        "dagster/column_lineage": TableColumnLineage(lineage),
    }


def _sources_of(
    column: str, sources: Mapping[str, Iterable[str]], names: Names
) -> list[TableColumnDep]:
    """Return the source columns of that name, and leads' payloads."""
    found: list[TableColumnDep] = []
    for source, source_columns in sources.items():
        sought = [name for name in source_columns if name in (column, "payload")]
        found += [TableColumnDep(names.key(source), name) for name in sought]
    return found


def code_reference(file: Path) -> dict[str, Any]:
    """Return the metadata that links an asset to a file besides its function."""
    references = CodeReferencesMetadataValue(
        code_references=[LocalFileCodeReference(file_path=str(file))]
    )
    return {"dagster/code_references": references} if _IS_CHECKOUT else {}
