"""Dagster's home: where its own state lies, and the dagster.yaml that a new one begins with.

Belongs here: writing the dagster.yaml beside this file with what features add, and what a home
says. Doesn't: the event log (event_log.py).
"""

import re
from pathlib import Path

from leads_pipeline.extensions import brought
from leads_pipeline.raw.durable import replace_file
from leads_pipeline.settings import Settings


def dagster_home(settings: Settings) -> Path:
    """Return the folder of Dagster's own state, with a new dagster.yaml if it has none.

    A dagster.yaml that exists belongs to the user: it is neither read nor changed here.

    Raises SettingsError if a package is missing for what the settings want.
    """
    sections = [of_feature(settings) for of_feature in brought("dagster_yaml")]
    home = settings.dagster_folder
    file = home / "dagster.yaml"
    if not file.exists():
        text = Path(__file__).with_name("dagster.yaml").read_text() + "".join(sections)
        replace_file(file, text.encode())
    return home


def keeps_its_own_state(home: Path) -> bool:
    """Whether Dagster's runs and events lie in the home itself, not in a shared database."""
    text = (home / "dagster.yaml").read_text(errors="replace")
    return re.search(r"^storage:", text, re.MULTILINE) is None
