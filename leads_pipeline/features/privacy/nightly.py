"""The nightly privacy work: the suppression list, then retention.

Belongs here: both in their order, and what they did, as counts. Doesn't: each of them (sweeping.py,
retain.py), other work of the night (orchestration/night.py), publishing what it changed
(features/publication_steps.py).
"""

import logging
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Final

from leads_pipeline.errors import SettingsError
from leads_pipeline.features.privacy.carrying_out import carry_out
from leads_pipeline.features.privacy.gatekeeper import list_of
from leads_pipeline.features.privacy.receipt import note_confirmations
from leads_pipeline.features.privacy.requests import open_entries
from leads_pipeline.features.privacy.retain import cut_days, due_before
from leads_pipeline.features.privacy.settings import PrivacySettings
from leads_pipeline.features.privacy.sweeping import clear_ledgers, sweep_what_appeared
from leads_pipeline.orchestration.night import Night
from leads_pipeline.portal.http import server_time
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.settings import Settings

MOST_CLOCK_DIFFERENCE: Final = timedelta(hours=1)
_WEEK: Final = timedelta(days=7)

logger = logging.getLogger(__name__)


def work_of_night(
    data: DataFolder,
    settings: Settings,
    now: datetime,
    night: Night,
    portal_time: Callable[[str], datetime | None] = server_time,
) -> None:
    """Apply the list, then make old leads anonymous.

    `portal_time` asks the service of that address for its clock.
    """
    night.attempt("The suppression list couldn't be applied", lambda: _apply_list(data, now, night))
    night.attempt(
        "Personal fields couldn't be cut out", lambda: _cut(data, settings, now, night, portal_time)
    )
    came_back = night.counts.get("windows_rewritten") and not night.counts.get(
        "requests_not_shown_done"
    )
    if came_back:
        night.warnings.append(
            "Leads of people who were erased were in the data folder again, and were taken out. "
            "Was a backup restored? Then look into quarantine/: the list isn't applied there."
        )


def _apply_list(data: DataFolder, now: datetime, night: Night) -> None:
    night.counts["requests_not_shown_done"] = len(open_entries(list_of(data).read()))
    clear_ledgers(data)
    for line in note_confirmations(data):  # another machine may have the receipt
        logger.info("%s", line)

    # A folder that is behind is swept by the publication that follows.
    if data.is_behind_list or not list_of(data).read():
        return

    swept = sweep_what_appeared(data)
    night.counts["windows_rewritten"] = swept.windows
    night.troubles += [
        f"{what} couldn't be read or written: {why}" for what, why in swept.failed.items()
    ]

    # Requests of commands that were interrupted, and published since.
    if open_entries(list_of(data).read()) and not data.is_behind_list:
        carry_out(data, lambda: None, now)


def _cut(
    data: DataFolder,
    settings: Settings,
    now: datetime,
    night: Night,
    portal_time: Callable[[str], datetime | None],
) -> None:
    keep_days = settings.of(PrivacySettings).keep_personal_days
    if keep_days is None:
        return

    check_clock(settings, now, portal_time)
    due = due_before(now, settings.zone, keep_days)
    days = list(cut_days(data, _weekly(due, data)))
    night.counts |= {
        "days_cut": sum(day.error is None for day in days),
        "leads_cut": sum(day.leads for day in days if day.error is None),
    }
    night.troubles += [
        f"The {day.kind.name} leads of {day.day} keep their personal fields: {day.error}"
        for day in days
        if day.error
    ]


def _weekly(due: date, data: DataFolder) -> date:
    """Return the day before which leads are made anonymous tonight.

    Once a week it is the day that is due. Then leads.duckdb is built anew, which takes minutes with
    millions of leads. On the other nights it is the same day as before: leads that have come into
    earlier days are made anonymous, and failed days are tried again.
    """
    before = data.state.anonymous_before()
    return due if before is None or due - before >= _WEEK else before


def check_clock(
    settings: Settings, now: datetime, portal_time: Callable[[str], datetime | None]
) -> None:
    """Raise SettingsError if this machine's clock and the portal's differ, and UnreachableError.

    Fields that are cut out are lost for good, so a wrong clock must not decide it alone.
    """
    if settings.base_url is None:
        return

    theirs = portal_time(settings.base_url)
    if theirs is None or abs(theirs - now) > MOST_CLOCK_DIFFERENCE:
        said = f"says {theirs:%Y-%m-%d %H:%M}" if theirs else "can't be read: it sends no Date"
        raise SettingsError(
            f"This machine's clock says {now:%Y-%m-%d %H:%M} UTC. The portal's {said}. They have "
            "to agree within an hour. Set this machine's clock: timedatectl set-ntp true"
        )
