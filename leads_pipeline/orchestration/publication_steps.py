"""The steps of a publication, in their order.

Belongs here: the list, what each step is given, and why it stands where it stands. Doesn't: the steps themselves,
the publication (warehouse/publication.py), when it is made (publish_sensor.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from leads_pipeline.domain.window import Scope, today
from leads_pipeline.privacy.publishing import DeleteCache, FollowList, GateForFormer, NoteObjections
from leads_pipeline.storage.branches import Branches
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.warehouse.answers import LoadAnswers
from leads_pipeline.warehouse.branch_names import MakeBranches
from leads_pipeline.warehouse.drift import FindDrift
from leads_pipeline.warehouse.inventory import LoadInventory
from leads_pipeline.warehouse.load_leads import LoadLeads
from leads_pipeline.warehouse.marts import MakeMarts
from leads_pipeline.warehouse.own_marts import MakeOwnTables
from leads_pipeline.warehouse.publication import publish
from leads_pipeline.warehouse.raw_windows import RawWindows
from leads_pipeline.warehouse.step import Publication, Step
from leads_pipeline.warehouse.typed import WriteTables
from leads_pipeline.warehouse.versions import Versions
from leads_pipeline.warehouse.window_states import Grid, NoteWindowStates


@dataclass(frozen=True, slots=True)
class Wanted:
    """The settings of a publication. `tables` is parquet, delta or none, `marts_dir` is LEADS_MARTS_DIR."""

    scopes: Sequence[Scope]
    first_day: date
    zone: ZoneInfo
    branches: Branches = field(default_factory=Branches)
    tables: str = "parquet"
    marts_dir: Path | None = None


def bring_up_to_date(data: DataFolder, wanted: Wanted, now: datetime) -> Publication:
    """Publish all that has landed. Raises StorageError and BugError. Then leads.duckdb is as before."""
    published_at = Versions(data.folder).published_at()
    is_first_of_day = published_at is None or today(wanted.zone, published_at) != today(wanted.zone, now)
    windows = RawWindows(data.store, data.gate, lambda: now)
    steps = steps_of(data, wanted, windows, now, is_first_of_day=is_first_of_day)
    return publish(
        data.folder,
        windows,
        steps,
        now,
        lock=data.state.publishing(),
        is_first_of_day=is_first_of_day,
    )


def steps_of(
    data: DataFolder, wanted: Wanted, windows: RawWindows, now: datetime, *, is_first_of_day: bool
) -> list[Step]:
    """Return the steps in their order."""
    zone, to_day = wanted.zone, today(wanted.zone, now)
    grid = Grid(wanted.scopes, wanted.first_day, zone)
    return [
        LoadLeads(windows, GateForFormer(data), zone, data.state.person_key()),
        # What marts read besides leads.
        NoteWindowStates(data.store, windows, grid, now, is_first_of_day=is_first_of_day),
        LoadInventory(data.inventory),
        LoadAnswers([wanted.marts_dir, data.folder], zone),
        NoteObjections(data),
        # It reads the states of windows.
        MakeBranches(wanted.branches),
        # It reads the leads, and marts show the new values that it finds.
        FindDrift(to_day),
        MakeMarts(zone, to_day),
        # They may read all of the above.
        MakeOwnTables(data.folder, wanted.marts_dir, to_day),
        # After the swap: they are written from what is published.
        WriteTables(data, wanted.tables),
        DeleteCache(data),
        # Before anything is read, it takes out of raw whom the list keeps out. And the folder follows the list once
        # nothing that is made holds anybody who had to go.
        FollowList(data),
    ]
