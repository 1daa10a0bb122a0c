"""What a person with fresh credentials asks first: does it work, and if not, what is to be done?

Belongs here: looking at settings, secret, clocks, tokens, services and data folder, one finding each. Doesn't: showing
the findings (cli/), or changing anything but the token store.
"""

from leads_pipeline.observe.doctor.findings import MOST_NAMED, Finding, Light, some_of
from leads_pipeline.observe.doctor.folder import examine_backup, examine_space, same_portal, writable
from leads_pipeline.observe.doctor.services import (
    examine,
    examine_env_file,
    examine_home,
    examine_names,
)

__all__ = [
    "MOST_NAMED",
    "Finding",
    "Light",
    "examine",
    "examine_backup",
    "examine_env_file",
    "examine_home",
    "examine_names",
    "examine_space",
    "same_portal",
    "some_of",
    "writable",
]
