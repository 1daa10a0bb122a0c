"""What features add to the core, by the fields of `features/feature.py`, which says what each is.

`features/__init__.py` fills it. Each entry is a name, as `module:object` or of a module. It is
loaded when somebody needs it: `--help` doesn't wait for pydantic.
"""

from collections import defaultdict
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Final, Literal

Field = Literal[
    "assets",
    "bucket",
    "dagster_yaml",
    "definitions",
    "demo",
    "during_pull",
    "figures",
    "finders",
    "follow_list",
    "former_gate",
    "gatekeeper",
    "holds_people",
    "inputs",
    "loading_steps",
    "made_tables",
    "needed",
    "night",
    "published_asset",
    "pulled_today",
    "questions",
    "settings",
    "steps",
    "table",
    "verifier",
]

# The names in each field, in the order of the features.
NAMES: Final[defaultdict[Field, list[str]]] = defaultdict(list)

# The folders with marts of features.
MART_FOLDERS: Final[list[Path]] = []


def brought(field: Field) -> list[Any]:
    """Load what the features bring in a field of Feature, in their order."""
    return [resolve_name(name) for name in NAMES[field]]
