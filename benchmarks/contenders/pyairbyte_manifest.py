# /// script
# dependencies = ["airbyte==0.71.3"]
# ///
"""PyAirbyte: a declarative source, so without Docker and in this process, into its DuckDB cache, then SQL.

The manifest's concurrency level is what is allowed at once, a window is a partition, and the cache merges by key. It
keeps what is nested as JSON, so SQL, as one would use dbt after Airbyte, makes the tables of it, each lead once, by the
structure that DuckDB finds. Offline mode, no telemetry.
"""

import json
import os
import re
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

FOLDER = Path(os.environ["LEADS_DATA_DIR"])
os.environ.update(
    {
        "AIRBYTE_OFFLINE_MODE": "1",
        "DO_NOT_TRACK": "1",
        "AIRBYTE_PROJECT_DIR": str(FOLDER / "airbyte"),
        "AIRBYTE_LOGGING_ROOT": str(FOLDER / "airbyte"),
    }
)

import airbyte  # noqa: E402 - reads the environment
import duckdb  # noqa: E402
from airbyte.caches import DuckDBCache  # noqa: E402

BASE_URL = os.environ["LEADS_BASE_URL"]
FILE = FOLDER / "leads.duckdb"
TEXTS = "id enquiryType message portalLeadId portalBranchId portalCompanyId portalGroupId sourceBranchId recipientEmail"
TEXTS += " intent propertyUse consumerSituation consumerPostcode leadSource portalSource"
FIELDS = {
    "string": TEXTS,
    "boolean": "isOverseas organiseViewing requestPropertyDetails",
    "object": "contact searchCriteria listingDetails",
    "array": "viewingTimes",
}
SCHEMA = {name: {"type": ["null", kind]} for kind, names in FIELDS.items() for name in names.split()}
SCALARS = ("string", "boolean")
NESTED = FIELDS["object"].split()
SCHEMA["createdAt"] = {"type": ["null", "string"]}  # the cache's DuckDB refuses a moment without seconds


def manifest(windows: list[str]) -> dict:
    """The source."""
    authenticator = {
        "type": "OAuthAuthenticator",
        "token_refresh_endpoint": f"{BASE_URL}/oauth2/token",
        "grant_type": "client_credentials",
        "client_id": "{{ config['client_id'] }}",
        "client_secret": "{{ config['client_secret'] }}",
        "refresh_request_body": {"audience": BASE_URL},
    }
    requester = {
        "type": "HttpRequester",
        "url_base": BASE_URL,
        "path": "/applicant-leads",
        "authenticator": authenticator,
        "request_parameters": {
            name: f"{{{{ stream_partition['window'].split(' ')[{number}] }}}}"
            for number, name in enumerate(("from-time", "to-time", "branch-id"))
        },
    }
    extractor = {"type": "DpathExtractor", "field_path": ["applicants"]}
    stream = {
        "type": "DeclarativeStream",
        "name": "raw_leads",
        "primary_key": ["id"],
        "schema_loader": {"type": "InlineSchemaLoader", "schema": {"type": "object", "properties": SCHEMA}},
        "retriever": {
            "type": "SimpleRetriever",
            "requester": requester,
            "record_selector": {"type": "RecordSelector", "extractor": extractor},
            "partition_router": {"type": "ListPartitionRouter", "cursor_field": "window", "values": windows},
        },
    }
    return {
        "version": "7.39.1",
        "type": "DeclarativeSource",
        "check": {"type": "CheckStream", "stream_names": ["raw_leads"]},
        "streams": [stream],
        "concurrency_level": {
            "type": "ConcurrencyLevel",
            "default_concurrency": int(os.environ["LEADS_MAX_CONCURRENCY"]),
        },
        "spec": {"type": "Spec", "connection_specification": {"type": "object", "properties": {}}},
    }


def columns(structure: dict, path: str) -> Iterator[str]:
    """Select a struct's fields, under names in snake case with their path before; lists are left to others."""
    for key, kind in structure.items():
        if isinstance(kind, dict):
            yield from columns(kind, f"{path}.{key}")
        elif not isinstance(kind, list):
            yield f'{path}."{key}" as "{snake(f"{path}.{key}")}"'


def snake(path: str) -> str:
    """A column's name."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", path.replace(".", "_")).lower()


# One row a lead, then its lists' elements.
ONCE = """
    create or replace temp table raw as
    select distinct on (id) * from raw_leads order by id, _airbyte_extracted_at desc
"""
ELEMENTS = """
    create or replace table {table} as
    select id as lead_id, unnest(from_json({source}, '{structure}'), recursive := true) from raw
"""
MOMENT = r"""
    create or replace temp macro moment(text) as regexp_replace(text, 'T(\d\d:\d\d)(Z|[+-])', 'T\1:00\2')::timestamptz
"""


def flatten(db: duckdb.DuckDBPyConnection) -> None:
    """The cache's raw table as tables: leads, viewing times, images."""
    db.execute(ONCE)
    db.execute(MOMENT)
    found = [name for (name,) in db.execute("select column_name from (describe raw)").fetchall()]
    raw = {name.replace("_", "").lower(): name for name in found if not name.startswith("_airbyte")}
    own = [f'"{raw[name.lower()]}" as "{snake(name)}"' for name in SCHEMA if SCHEMA[name]["type"][1] in SCALARS]
    structs, selected, lists = [], [], {}
    for name in ("contact", "searchCriteria", "listingDetails", "viewingTimes"):
        column = f'"{raw[name.lower()]}"'
        structure = json.loads(db.execute(f"select json_group_structure({column}) from raw").fetchone()[0])
        if isinstance(structure, dict):
            lists |= {f"{column}->'{key}'": kind for key, kind in structure.items() if isinstance(kind, list)}
            structs.append(f"""from_json({column}, '{json.dumps(structure)}') as "{name}\"""")
            selected += columns(structure, name)
        else:
            lists[column] = structure
    db.execute(
        f"create or replace table leads as select * exclude ({', '.join(NESTED)}), {', '.join(selected)} "
        f"from (select {', '.join(own + structs)} from raw)"
    )
    for source, structure in lists.items():
        table = "listing_images" if "images" in source else "viewing_times"
        db.execute(ELEMENTS.format(table=table, source=source, structure=json.dumps(structure)))
    db.execute("create or replace table leads as select * replace (moment(created_at) as created_at) from leads")
    ends = ", ".join(f"moment({end}) as {end}" for end in ("earliest", "latest"))
    db.execute(f"create or replace table viewing_times as select * replace ({ends}) from viewing_times")


def main() -> None:
    """Read into the cache, make the tables, copy them out."""
    first, last = (date.fromisoformat(os.environ[f"BENCH_{which}_DAY"]) for which in ("FIRST", "LAST"))
    days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
    branches = os.environ["LEADS_BRANCH_IDS"].split(",")
    windows = [f"{day}T00:00:00Z {day + timedelta(days=1)}T00:00:00Z {branch}" for day in days for branch in branches]
    config = {f"client_{part}": os.environ[f"LEADS_CLIENT_{part.upper()}"] for part in ("id", "secret")}
    source = airbyte.get_source("source-portal", config, source_manifest=manifest(windows), streams="*")
    cache = DuckDBCache(db_path=FILE, schema_name="main", cache_dir=FOLDER / "airbyte")
    source.read(cache, write_strategy="merge", skip_validation=True)
    cache.close()  # or the file can't be opened
    with duckdb.connect(str(FILE)) as db:
        flatten(db)
        for table in ("leads", "viewing_times", "listing_images"):
            db.execute(f"copy {table} to '{FOLDER}/{table}.parquet' (format parquet, compression zstd)")


if __name__ == "__main__":
    main()
