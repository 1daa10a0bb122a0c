"""What a feature may bring to the core.

A field exists because a feature uses it. What needs Dagster or another large package is named as
`module:object`, and loaded when it is used: `--help` doesn't wait for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Command(NamedTuple):
    """A command: where it is, as `module:object`, and its line of help."""

    place: str
    help: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """What a feature brings. It imports the core, and no other feature.

    - `settings`: its variables, a FeatureSettings.
    - `definitions`: a function of Settings and Names. Its Definitions, merged with the core's.
    - `needed`: a function of Settings. The names of its schedules and sensors without which
      something would be late.
    - `published_asset`: a function of Names. The asset that the job `publish` makes after
      leads.duckdb.
    - `assets`: a function of Settings and Names. Assets of the catalog that no job makes by itself.
    - `finders`: the module of its finders.
    - `bucket`: the module that opens the bucket of Settings, reads it through a folder of this
      machine, and tries out whether it is fit.
    - `gatekeeper`: a function of the parts of a data folder. Its Gatekeeper, which keeps people
      out.
    - `former_gate`: a function of DataFolder. A FormerGate, which leads pass that raw has lost.
    - `follow_list`: a function of DataFolder. The step that has raw files follow the suppression
      list.
    - `night`: a function of DataFolder, Settings, the moment and Night. Work of the night, before
      it is published.
    - `loading_steps`: a function of DataFolder, PublicationSettings and the moment. Steps right
      after leads are loaded, before they are checked.
    - `steps`: the same. Steps before the marts.
    - `during_pull`: a function of Settings and the number of windows. A context that a pull has.
    - `derives`: patterns of the personal files below the data folder that it makes from the leads.
      Without the feature they are deleted.
    - `inputs`: a function of Settings. A text that changes with what it publishes, besides what
      lands.
    - `figures`: a function of DataFolder. CountedByState, for `status` and `metrics`.
    - `holds_people`: a function of DataFolder. HoldsPeople, which erasures and access requests ask.
    - `questions`: a function of Facts. Answers for `doctor`, as Seen.
    - `verifier`: a function of DataFolder, the published file as it is open, and its number.
      Answers for `verify`.
    - `demo`: a function of Settings, DataFolder and the first day. It shows itself in `demo`, and
      returns a sentence.
    - `dagster_yaml`: a function of Settings. A section of the dagster.yaml that a new home gets.
    - `pulled_today`: a PulledToday, for `backfill` and `demo`.
    - `table`: a Table that its step fills.
    - `has_marts`: whether its folder `sql` holds marts, as the core's does.
    - `made_tables`: a function of an Edition. The names of tables that the last publication made.
    """

    name: str
    settings: str = ""
    commands: Mapping[str, Command] = field(default_factory=dict)
    definitions: str = ""
    needed: str = ""
    published_asset: str = ""
    assets: str = ""
    finders: str = ""
    bucket: str = ""
    gatekeeper: str = ""
    former_gate: str = ""
    follow_list: str = ""
    night: str = ""
    loading_steps: str = ""
    steps: str = ""
    during_pull: str = ""
    derives: tuple[str, ...] = ()
    inputs: str = ""
    made_tables: str = ""
    figures: str = ""
    holds_people: str = ""
    questions: str = ""
    verifier: str = ""
    demo: str = ""
    dagster_yaml: str = ""
    pulled_today: str = ""
    table: str = ""
    has_marts: bool = False
