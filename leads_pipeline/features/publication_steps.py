"""The steps of a publication, the core's and the features', in their order.

Belongs here: the list, what each step is given, and why it stands where it stands. Doesn't: the
steps themselves, the publication (warehouse/publication.py), when it is made
(orchestration/publish_sensor.py).
"""

from collections.abc import Iterator
from datetime import datetime

from leads_pipeline.domain.window import today
from leads_pipeline.extensions import Field, brought
from leads_pipeline.features import FEATURES
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.warehouse.branch_names import MakeBranches
from leads_pipeline.warehouse.drift import FindDrift
from leads_pipeline.warehouse.editions import Editions
from leads_pipeline.warehouse.leftovers import DeleteUnclaimed
from leads_pipeline.warehouse.load_leads import CheckLeads, LoadLeads
from leads_pipeline.warehouse.marts import MakeMarts
from leads_pipeline.warehouse.publication import PublicationSettings, publish
from leads_pipeline.warehouse.shown import NoteObjections, ShowEverybody
from leads_pipeline.warehouse.step import Publication, Step
from leads_pipeline.warehouse.unpublished import RawWindows
from leads_pipeline.warehouse.window_states import Grid, NoteWindowStates


def bring_up_to_date(data: DataFolder, settings: PublicationSettings, now: datetime) -> Publication:
    """Publish all that has landed.

    Raises StorageError and BugError. Then leads.duckdb is as before.
    """
    published_at = Editions(data.folder).published_at()
    is_first_of_day = published_at is None or today(settings.zone, published_at) != today(
        settings.zone, now
    )
    windows = RawWindows(data.store, data.gate, lambda: now)
    steps = steps_of(data, settings, windows, now, is_first_of_day=is_first_of_day)

    return publish(
        data.folder,
        windows,
        steps,
        now,
        lock=data.state.publishing(),
        is_first_of_day=is_first_of_day,
    )


def steps_of(
    data: DataFolder,
    settings: PublicationSettings,
    windows: RawWindows,
    now: datetime,
    *,
    is_first_of_day: bool,
) -> list[Step]:
    """Return the steps in their order."""
    zone = settings.zone
    this_day = today(zone, now)
    grid = Grid(settings.scopes, settings.first_day, zone)
    gates_for_former = [make_gate(data) for make_gate in brought("former_gate")]
    follow_list = [make_step(data) for make_step in brought("follow_list")]

    def of_features(field: Field) -> Iterator[Step]:
        for make_steps in brought(field):
            yield from make_steps(data, settings, now)

    return [
        LoadLeads(windows, gates_for_former, zone, data.state.person_key()),
        # Of loading_ahead (step.py): leads that were loaded before this publication.
        *of_features("loading_steps"),
        CheckLeads(),
        # What marts read besides leads.
        NoteWindowStates(data.store, windows, grid, now, is_first_of_day=is_first_of_day),
        NoteObjections(data),
        # It reads the states of windows.
        MakeBranches(settings.branches),
        # It reads the leads, and marts show the new values that it finds.
        FindDrift(this_day),
        # For example of own_tables (own_marts.py) and lake (step.py). What they fill is there for
        # marts.
        *of_features("steps"),
        MakeMarts(zone, this_day),
        # After the swap, and after what features make then from what is published.
        DeleteUnclaimed(data, {pattern for feature in FEATURES for pattern in feature.derives}),
        # Its `before` takes out of raw whom the list keeps out, ahead of all reading. Its `after`
        # comes last: the folder follows the list once nothing that is made holds anybody who had
        # to go.
        *(follow_list or [ShowEverybody(data)]),
    ]
