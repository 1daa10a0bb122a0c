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
    to_day = today(zone, now)
    grid = Grid(settings.scopes, settings.first_day, zone)
    gates = [of_feature(data) for of_feature in brought("former_gate")]
    follow_list = [of_feature(data) for of_feature in brought("follow_list")]

    def of_features(field: Field) -> Iterator[Step]:
        for of_feature in brought(field):
            yield from of_feature(data, settings, now)

    return [
        LoadLeads(windows, gates, zone, data.state.person_key()),
        # Of loading_ahead (step.py): leads that were loaded before this publication.
        *of_features("loading_steps"),
        CheckLeads(),
        # What marts read besides leads.
        NoteWindowStates(data.store, windows, grid, now, is_first_of_day=is_first_of_day),
        NoteObjections(data),
        # It reads the states of windows.
        MakeBranches(settings.branches),
        # It reads the leads, and marts show the new values that it finds.
        FindDrift(to_day),
        # For example of own_tables (own_marts.py) and lake (step.py). What they fill is there for
        # marts.
        *of_features("steps"),
        MakeMarts(zone, to_day),
        # After the swap, and after what features make then from what is published.
        DeleteUnclaimed(data, {pattern for feature in FEATURES for pattern in feature.derives}),
        # Before anything is read, it takes out of raw whom the list keeps out. And the folder
        # follows the list once nothing that is made holds anybody who had to go.
        *(follow_list or [ShowEverybody(data)]),
    ]
