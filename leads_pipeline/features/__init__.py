"""The features: each a folder that the core doesn't know.

To take one out, delete its folder and its line here.
"""

from importlib import import_module
from pathlib import Path
from typing import Final, get_args

from leads_pipeline import extensions
from leads_pipeline.features.feature import Feature

_NAMES: Final = (
    "alerts",
    "backup",
    "bucket",
    "calendar",
    "component",
    "delivery",
    "doctor",
    "export",
    "inventory",
    "lake",
    "loading_ahead",
    "marts",
    "metrics",
    "own_tables",
    "privacy",
    "pushes",
    "quick_event_log",
    "report",
    "service",
)

FEATURES: Final[tuple[Feature, ...]] = tuple(
    import_module(f"{__name__}.{name}").FEATURE for name in _NAMES
)


for _feature in FEATURES:
    for _field in get_args(extensions.Field):
        if _name := getattr(_feature, _field):
            extensions.NAMES[_field].append(_name)
    if _feature.has_marts:
        extensions.MART_FOLDERS.append(Path(__file__).parent / _feature.name / "sql")
