"""The assets of tables of one's own, for the catalog."""

from dagster import AssetSpec

from leads_pipeline.features.own_tables.own_marts import read_folder
from leads_pipeline.features.own_tables.settings import OwnTablesSettings
from leads_pipeline.orchestration.catalog import OWN, code_reference, table_metadata
from leads_pipeline.orchestration.names import Names
from leads_pipeline.settings import Settings
from leads_pipeline.warehouse.contents import table_names
from leads_pipeline.warehouse.tables import Table


def own_specs(settings: Settings, names: Names) -> list[AssetSpec]:
    """Describe each file of LEADS_MARTS_DIR.

    The publication makes the table, and records each time that it did.

    Nobody can run one by itself. So files may come and go while a code location is loaded.
    """
    files = {
        one.name: one
        for one in read_folder(settings.of(OwnTablesSettings).marts_dir).files
        if one.name
    }
    readable = table_names() | files.keys()
    specs = []
    for name, one in files.items():
        what = one.mart.description if one.mart else "A file as it is"
        # One with a problem reads nothing. One may read itself in a circle.
        reads = [] if one.problem else sorted(one.reads & readable - {name})
        spec = AssetSpec(
            names.key(name),
            deps=[names.key(read) for read in reads],
            description=f"{what}\n\nMade from {one.file}.",
            group_name=names.name(OWN),
            kinds={"duckdb"},
            metadata={
                **table_metadata(one.mart or Table(name, "", ()), {}, names),
                **code_reference(one.file),
            },
        )
        specs.append(spec)
    return specs
