"""Whether all that a data folder holds is whole, and adds up from raw to the marts.

Belongs here: going through all of it once, at any time. Doesn't: what whole is (storage/, transform/).
"""

from collections.abc import Iterator

from leads_pipeline.domain.contract import LEAD_KINDS, LeadKind
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.observe.damage import damage_message, damaged_files
from leads_pipeline.observe.doctor import Finding, Light
from leads_pipeline.orchestration.publication import unpublished_days
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.raw import list_places
from leads_pipeline.transform.duck import WAREHOUSE_FILE, quoted
from leads_pipeline.transform.reading import LeadsFile, Version

# Marts that count each lead once, in a column `leads`.
_COUNTING_MARTS = ("mart_leads_daily", "mart_people_daily")

_REFRESH = "The daemon does it within minutes, and so does any `leads-pipeline backfill`."


def verify(data: DataFolder) -> Iterator[Finding]:
    """Read every file, compare every hash, then count from raw to the marts. Raises StorageError."""
    places = list_places(data.store)
    raw: dict[LeadKind, set[str]] = {kind: set() for kind in LEAD_KINDS}
    files = 0
    for place in places:
        contents = data.raw.read(place)
        files += len(contents.opened)
        raw[place.kind] |= {row.lead_id for row in contents.rows}
    searches = len([*data.inventory.searches()])
    # What is damaged was set aside by now.
    damaged = damaged_files(data)
    yield _finding(
        "raw files",
        f"{files} files of {len(places)} windows, {searches} of the inventory, each whole.",
        [damage_message(damaged)] if damaged else [],
    )
    behind = "The folder isn't in line with the suppression list. Run `leads-pipeline privacy apply`, or publish."
    days = unpublished_days(data)
    yield _finding(
        "raw to leads.duckdb",
        "Everything that is landed is published.",
        [
            *([f"Landed and not published yet: {', '.join(map(str, days))}. {_REFRESH}"] if days else []),
            *([behind] if data.is_behind else []),
        ],
    )
    with LeadsFile(data).reading() as db:
        try:
            _read_all(db)
            for kind in LEAD_KINDS:
                yield from _published(db, data, kind, raw[kind])
        except LeadsPipelineError as error:
            # The next publication then reads all of the file, and makes a new one.
            data.state.want_rewriting()
            yield Finding(WAREHOUSE_FILE, Light.RED, str(error))


def _read_all(db: Version) -> None:
    """Have DuckDB decode each value of each table, and compare each block with its checksum."""
    for schema, table in db.query("select schema_name, table_name from duckdb_tables() where not internal")[1]:
        db.query(f"select bit_xor(hash(rows)) from {quoted(schema)}.{quoted(table)} as rows")  # noqa: S608 - our own names


def _published(db: Version, data: DataFolder, kind: LeadKind, raw: set[str]) -> Iterator[Finding]:
    _, rows = db.query(f"select lead_id from {quoted(kind.table)}")  # noqa: S608 - our own name
    published = {lead_id for (lead_id,) in rows}
    out = data.gate.entries.read().out
    missing = [lead_id for lead_id in raw - published if not out.is_known(kind.name, lead_id)]
    troubles = [f"{len(missing)} of {len(raw)} leads in raw aren't published. {_REFRESH}"] if missing else []
    if len(rows) != len(published):
        troubles.append("Some leads are in leads.duckdb twice.")
    only_here = len(published - raw)
    kept = f" Of {only_here} raw has no file any more." if only_here else ""
    yield _finding(f"leads.duckdb, {kind.name} leads", f"{len(rows)} leads, each once.{kept}", troubles)
    wrong = []
    for mart in _COUNTING_MARTS:
        sql = f"select coalesce(sum(leads), 0) from {mart} where kind = $kind"  # noqa: S608 - our own name
        _, [(leads,)] = db.query(sql, {"kind": kind.name})
        wrong += [f"{mart} counts {leads} leads, the table has {len(rows)}."] if leads != len(rows) else []
    yield _finding(
        f"leads.duckdb to marts, {kind.name} leads",
        f"{len(rows)} leads in each of {', '.join(_COUNTING_MARTS)}.",
        wrong,
    )


def _finding(check: str, well: str, troubles: list[str]) -> Finding:
    return Finding(check, Light.RED, " ".join(troubles)) if troubles else Finding(check, Light.GREEN, well)
