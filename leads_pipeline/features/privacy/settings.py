"""The settings of privacy."""

from typing import Annotated, Final

from leads_pipeline.domain.window import SHORTEST_RETENTION
from leads_pipeline.settings import AbsolutePath, FeatureSettings, setting, whole_number

_PEOPLE: Final = "Personal data"
_WHY_35_DAYS: Final = (
    " The portal keeps leads for 30 days and checks compare the last 35, so less isn't possible."
)


class PrivacySettings(FeatureSettings):
    """Where the suppression list is, and how long leads name people."""

    privacy_dir: AbsolutePath = setting(
        "LEADS_PRIVACY_DIR", _PEOPLE, link="guides/answer-a-person.md#the-suppression-list"
    )
    """The folder of the list of erased, objecting and restricted people; `privacy` in the data
    folder if it is empty. Set it to a folder that isn't restored together with the data, as a
    restored backup would bring an old list back"""
    keep_personal_days: Annotated[
        int | None, whole_number(SHORTEST_RETENTION.days, 3650, _WHY_35_DAYS)
    ] = setting(
        "LEADS_KEEP_PERSONAL_DAYS",
        _PEOPLE,
        link="guides/answer-a-person.md#keep-a-retention-of-your-own",
        proposal="365",
    )
    """After how many days leads become anonymous, for good: 35 to 3650. If it is empty, they stay
    as they are"""
