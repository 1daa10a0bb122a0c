"""The work of a night, before its publication.

Belongs here: what the core does, asking the features for theirs, and what was done, as counts.
Doesn't: when it runs (publish_sensor.py), publishing what it changed
(features/publication_steps.py).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from leads_pipeline.domain.window import RETENTION
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.settings import Settings


@dataclass(slots=True)
class Night:
    """The result of a night, as counts without personal data.

    `troubles` say what couldn't be done, and why. `warnings` say what a person should look at.
    """

    counts: dict[str, int] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def attempt(self, trouble: str, work: Callable[[], None]) -> None:
        """Do some work, and note a trouble if it fails.

        Other work goes on. The next night repeats the failed work.
        """
        try:
            work()
        except LeadsPipelineError as error:
            self.troubles.append(f"{trouble}: {error}")


NightWork = Callable[[DataFolder, Settings, datetime, Night], None]


def work_of_night(
    data: DataFolder, settings: Settings, now: datetime, of_features: Iterable[NightWork]
) -> Night:
    """Do the core's work and that of features, and forget old answers at the end."""
    night = Night()
    night.attempt("What killed processes left couldn't be deleted", data.delete_drafts)

    for work in of_features:
        work(data, settings, now, night)

    night.attempt(
        "Old answers that couldn't be read couldn't be deleted",
        lambda: data.quarantine.forget_answers(now - RETENTION),
    )
    return night
