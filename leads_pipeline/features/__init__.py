"""The features: each a folder that the core doesn't know.

To take one out, delete its folder and its line here.
"""

from importlib import import_module
from pkgutil import resolve_name
from typing import Any, Final

from leads_pipeline.extensions import FINDER_MODULES, SETTINGS_MODELS
from leads_pipeline.features.feature import Feature

_NAMES: Final = (
    "alerts",
    "backup",
    "export",
    "own_tables",
    "pushes",
    "report",
)

FEATURES: Final[tuple[Feature, ...]] = tuple(import_module(f"{__name__}.{name}").FEATURE for name in _NAMES)

FINDER_MODULES.extend(one.finders for one in FEATURES if one.finders)
SETTINGS_MODELS.extend(one.settings for one in FEATURES if one.settings)


def brought(field: str) -> list[Any]:
    """Load what the features bring in a field of Feature, in their order."""
    return [resolve_name(place) for one in FEATURES if (place := getattr(one, field))]
