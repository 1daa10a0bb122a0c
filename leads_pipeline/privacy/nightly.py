"""The nightly privacy work: the suppression list, retention, leftovers of killed processes.

Belongs here: the steps in their order, and what they did, as counts. Doesn't: each step (sweeping.py, retain.py), when
it runs (orchestration/publish_sensor.py), publishing what it changed (features/publication_steps.py).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Final

from leads_pipeline.domain.window import RETENTION
from leads_pipeline.errors import LeadsPipelineError, SettingsError
from leads_pipeline.privacy.carrying_out import carry_out
from leads_pipeline.privacy.requests import open_entries
from leads_pipeline.privacy.retain import cut_days, due_before
from leads_pipeline.privacy.sweeping import delete_leftovers, log_forgotten_deliveries, sweep_what_appeared
from leads_pipeline.settings import Settings
from leads_pipeline.storage.data_folder import DataFolder

MOST_CLOCK_DIFFERENCE: Final = timedelta(hours=1)
_WEEK: Final = timedelta(days=7)


@dataclass(slots=True)
class Night:
    """The result of a night, as counts without personal data. `troubles` say what couldn't be done, and why."""

    counts: dict[str, int] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)

    @property
    def came_back(self) -> bool:
        """Whether the list refuses leads that were there although no request was under way: a restored backup's."""
        return not self.counts.get("requests_not_shown_done") and bool(self.counts.get("windows_rewritten"))


def keep_clean(
    data: DataFolder,
    settings: Settings,
    now: datetime,
    portal_time: Callable[[str], datetime | None],
) -> Night:
    """Do it all. A step that fails stops no other one. The next night repeats it.

    `portal_time` asks the service of that address for its clock.
    """
    night = Night()
    steps: dict[str, Callable[[], None]] = {
        "What killed processes left couldn't be deleted": lambda: delete_leftovers(data),
        "The suppression list couldn't be applied": lambda: _apply_list(data, now, night),
        "Personal fields couldn't be cut out": lambda: _cut(data, settings, now, night, portal_time),
        "Old answers that couldn't be read couldn't be deleted": lambda: data.quarantine.forget_answers(
            now - RETENTION
        ),
    }
    for trouble, step in steps.items():
        try:
            step()
        except LeadsPipelineError as error:
            night.troubles.append(f"{trouble}: {error}")
    return night


def _apply_list(data: DataFolder, now: datetime, night: Night) -> None:
    night.counts["requests_not_shown_done"] = len(open_entries(data.gate.entries.read()))
    log_forgotten_deliveries(data)
    # A folder that is behind is swept by the publication that follows.
    if data.is_behind or not data.gate.entries.read():
        return
    swept = sweep_what_appeared(data)
    night.counts["windows_rewritten"] = swept.windows
    night.troubles += [f"{what} couldn't be read or written: {why}" for what, why in swept.failed.items()]
    # Requests of commands that were interrupted, and published since.
    if open_entries(data.gate.entries.read()) and not data.is_behind:
        carry_out(data, lambda: None, now)


def _cut(
    data: DataFolder,
    settings: Settings,
    now: datetime,
    night: Night,
    portal_time: Callable[[str], datetime | None],
) -> None:
    if settings.keep_personal_days is None:
        return
    check_clock(settings, now, portal_time)
    days = list(cut_days(data, _weekly(due_before(now, settings.zone, settings.keep_personal_days), data)))
    night.counts |= {
        "days_cut": sum(day.error is None for day in days),
        "leads_cut": sum(day.leads for day in days if day.error is None),
    }
    night.troubles += [
        f"The {day.kind.name} leads of {day.day} keep their personal fields: {day.error}" for day in days if day.error
    ]


def _weekly(due: date, data: DataFolder) -> date:
    """Return the day before which leads are made anonymous tonight: the day that is due, once a week.

    After it, leads.duckdb is built anew, which takes minutes with millions of leads. On the other nights, what came
    into the days of before is made anonymous, and what failed is tried again.
    """
    before = data.state.retained_before()
    return due if before is None or due - before >= _WEEK else before


def check_clock(settings: Settings, now: datetime, portal_time: Callable[[str], datetime | None]) -> None:
    """Raise SettingsError if this machine's clock and the portal's differ, and UnreachableError.

    Fields that are cut out are lost for good, so a wrong clock must not decide it alone.
    """
    if settings.base_url is None:
        return
    theirs = portal_time(settings.base_url)
    if theirs is None or abs(theirs - now) > MOST_CLOCK_DIFFERENCE:
        said = f"says {theirs:%Y-%m-%d %H:%M}" if theirs else "can't be read: it sends no Date"
        raise SettingsError(
            f"This machine's clock says {now:%Y-%m-%d %H:%M} UTC. The portal's {said}. They have to agree within an "
            "hour. Set this machine's clock: timedatectl set-ntp true"
        )
