"""The newest state of every inventory item, typed as leads are."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import duckdb

from leads_pipeline.contract import INVENTORY_FIELDS, NOT_JSON
from leads_pipeline.duck import glob_literal, quoted
from leads_pipeline.flatten.repair import define_functions, unknown_members
from leads_pipeline.flatten.statement import columns_of, typed
from leads_pipeline.flatten.trees import tree_of

_INVENTORY: Final = f"""
select
    item_id, address as searched_address, fetched_at, payload, oddity,
    min(day) over item as first_seen_day,
    max(day) over item as last_seen_day,
    case when oddity = '{NOT_JSON}' then coalesce(mended(payload), payload) else payload end as body,
    body as doc
from (
    select null::bigint as sequence where false
    union all by name
    select * from read_parquet($files, hive_partitioning = false, union_by_name = true)
)
window item as (partition by item_id)
qualify row_number() over (
    partition by item_id order by day desc, coalesce(sequence, epoch_us(fetched_at)) desc, position desc
) = 1
"""  # noqa: S608 - put together from constants alone


def insert_inventory(db: duckdb.DuckDBPyConnection, files: Sequence[Path], table: str) -> None:
    """Fill the table, of INVENTORY_COLUMNS, with the newest state of every item in the inventory files."""
    tree = {"id": None} | tree_of(INVENTORY_FIELDS)
    ctes = typed(
        source=_INVENTORY,
        tree=tree,
        fields=INVENTORY_FIELDS,
        lists=(),
        extra="extra_of_item(body)",
        first_problem=f"coalesce(oddity, case when item is null then '{NOT_JSON}' end)",
    )
    define_functions(db, {"extra_of_item": (partial(unknown_members, tree), ["VARCHAR"], "VARCHAR")})
    db.execute(
        f"""
        insert into {quoted(table)}
        {ctes}
        select item_id, first_seen_day, last_seen_day, fetched_at, searched_address,
            {columns_of(INVENTORY_FIELDS)}, problems, extra_json
        from typed
        order by item_id
        """,  # noqa: S608 - put together from the contract's constants alone
        {"files": list(map(glob_literal, files))},
    )
