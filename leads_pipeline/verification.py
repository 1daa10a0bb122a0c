"""Whether all that a data folder holds is whole, and adds up from raw to the marts.

Belongs here: going through all of it once, after a restore or at any time. Doesn't: what whole is, and what adds up,
which the layers know (lake/, flatten/, assets/), and say of what a run has just made.
"""

from collections.abc import Iterator
from datetime import date

from leads_pipeline.assets.published import completeness_check, uniqueness_check
from leads_pipeline.contract import LEAD_KINDS, LeadKind
from leads_pipeline.doctor import Finding, Light
from leads_pipeline.duck import WAREHOUSE_FILE, quoted
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.flatten.columns import staged_tables
from leads_pipeline.flatten.windows import damage_message, damaged_files, staged_ids, unstaged_days
from leads_pipeline.lake import Lake
from leads_pipeline.spool import Spool, is_whole_delivery
from leads_pipeline.warehouse import Reader, Warehouse

# Marts that count each lead once, in a column `leads`.
_COUNTING_MARTS = ("mart_leads_daily", "mart_people_daily")

_REFRESH = "The daemon does it within minutes, and so does any `leads-pipeline backfill`."


def verify(lake: Lake) -> Iterator[Finding]:
    """Read every file, compare every seal, then count from layer to layer. Raises StorageError."""
    windows = {kind: sum(len(lake.landed_windows(kind, day)) for day in lake.landed_days(kind)) for kind in LEAD_KINDS}
    pushed = sum(len(lake.pushed_files(kind, day)) for kind in LEAD_KINDS for day in lake.landed_days(kind))
    inventory = len(lake.inventory_files())
    # What is damaged was set aside by now.
    damaged = damaged_files(lake)
    yield _finding(
        "raw files",
        f"{sum(windows.values())} windows, {pushed} files of pushed leads, {inventory} of the inventory, each whole.",
        [damage_message(damaged)] if damaged else [],
    )
    waiting = Spool(lake).waiting()
    broken = [path.name for path in waiting if not is_whole_delivery(path.read_bytes())]
    yield _finding(
        "spool",
        f"{len(waiting)} deliveries wait, each whole.",
        [f"{len(broken)} of {len(waiting)} deliveries are damaged; the next run sets them aside."] if broken else [],
    )
    for kind in LEAD_KINDS:
        yield from _staged(lake, kind)
    with Warehouse(lake).reading() as db:
        try:
            for kind in LEAD_KINDS:
                yield from _published(db, lake, kind, windows[kind])
        except LeadsPipelineError as error:
            yield Finding(WAREHOUSE_FILE, Light.RED, str(error))


def _staged(lake: Lake, kind: LeadKind) -> Iterator[Finding]:
    files = [(table, file) for table in staged_tables(kind) for file in lake.staged_files(table)]
    broken = [f"{table} of {file.day}" for table, file in files if lake.whole_staged(table, file.day) is None]
    yield _finding(
        f"staged files of {kind.name} leads",
        f"{len(files)}, each whole.",
        [f"Damaged: {', '.join(broken)}. Their days are staged anew from raw after the next publication."]
        if broken
        else [],
    )
    troubles, leads = [], 0
    if unstaged := unstaged_days(lake, kind, date.min):
        troubles.append(f"Landed and not staged yet: {', '.join(map(str, unstaged))}. {_REFRESH}")
    if lake.is_behind:
        troubles.append(
            "The folder isn't in line with the suppression list. Run `leads-pipeline privacy apply`, or publish."
        )
    for day in lake.landed_days(kind):
        raw, staged = lake.lead_ids(kind, day), staged_ids(lake, kind, day)
        leads += len(raw)
        if missing := len(raw - staged):
            troubles.append(f"Of {day}, {missing} of {len(raw)} leads in raw aren't staged. {_REFRESH}")
        if more := len(staged - raw):
            troubles.append(f"Of {day}, {more} leads are staged that raw doesn't have.")
    yield _finding(f"raw to staged, {kind.name} leads", f"{leads} leads of raw are staged, day by day.", troubles)


def _published(db: Reader, lake: Lake, kind: LeadKind, windows: int) -> Iterator[Finding]:
    complete, unique = completeness_check(db, lake, kind), uniqueness_check(db, kind.table)
    days = len(lake.staged_files(kind.table))
    figures = {name: value.value for name, value in complete.metadata.items()}
    troubles = []
    if figures["days"] != days:
        troubles.append(f"{figures['days']} of {days} staged days are published. {_REFRESH}")
    if not complete.passed:
        troubles.append(f"Staged rows don't add up in leads.duckdb: {figures}.")
    if not unique.passed:
        troubles.append("Some leads are in leads.duckdb twice.")
    _, [(rows,)] = db.query(f"select count(*) from {quoted(kind.table)}")  # noqa: S608 - our own name
    _, [(landed,)] = db.query("select count(*) from landed_windows where kind = $kind", {"kind": kind.name})
    if landed < windows:
        troubles.append(f"{landed} of {windows} landed windows are published. {_REFRESH}")
    yield _finding(
        f"staged to leads.duckdb, {kind.name} leads", f"{rows} leads of {days} days and {landed} windows.", troubles
    )
    counted = {}
    for mart in _COUNTING_MARTS:
        sql = f"select coalesce(sum(leads), 0) from {mart} where kind = $kind"  # noqa: S608 - our own name
        _, [(counted[mart],)] = db.query(sql, {"kind": kind.name})
    yield _finding(
        f"leads.duckdb to marts, {kind.name} leads",
        f"{rows} leads in each of {', '.join(_COUNTING_MARTS)}.",
        [f"{mart} counts {leads} leads, the table has {rows}." for mart, leads in counted.items() if leads != rows],
    )


def _finding(check: str, well: str, troubles: list[str]) -> Finding:
    return Finding(check, Light.RED, " ".join(troubles)) if troubles else Finding(check, Light.GREEN, well)
