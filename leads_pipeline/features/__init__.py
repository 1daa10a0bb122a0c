"""The features: each a folder that the core doesn't know.

To take one out, delete its folder and its line here.
"""

from importlib import import_module
from typing import Final

from leads_pipeline.features.feature import Feature
from leads_pipeline.observe import FINDER_MODULES

_NAMES: Final = (
    "backup",
    "export",
    "own_tables",
    "pushes",
    "report",
)

FEATURES: Final[tuple[Feature, ...]] = tuple(import_module(f"{__name__}.{name}").FEATURE for name in _NAMES)

FINDER_MODULES.extend(one.finders for one in FEATURES if one.finders)
