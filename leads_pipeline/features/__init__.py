"""The features: each a folder that the core doesn't know.

To take one out, delete its folder and its line here.
"""

from importlib import import_module
from pathlib import Path
from typing import Any, Final

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


def _named(field: str) -> list[str]:
    """What the features bring in a field of Feature, in their order."""
    return [name for one in FEATURES if (name := getattr(one, field))]


extensions.FINDER_MODULES.extend(_named("finders"))
extensions.SETTINGS_MODELS.extend(_named("settings"))
extensions.BUCKETS.extend(_named("bucket"))
extensions.GATEKEEPERS.extend(_named("gatekeeper"))
extensions.FIGURES.extend(_named("figures"))
extensions.HOLDERS.extend(_named("holds_people"))
extensions.QUESTIONS.extend(_named("questions"))
extensions.VERIFIERS.extend(_named("verifier"))
extensions.NEEDED_BY_FEATURES.extend(_named("needed"))
extensions.DEMOS.extend(_named("demo"))
extensions.DAGSTER_YAML.extend(_named("dagster_yaml"))
extensions.PULLED_TODAY.extend(_named("pulled_today"))
extensions.TABLES.extend(_named("table"))
extensions.MART_FOLDERS.extend(
    Path(__file__).parent / one.name / "sql" for one in FEATURES if one.has_marts
)


def brought(field: str) -> list[Any]:
    """Load what the features bring in a field of Feature, in their order."""
    return extensions.loaded(_named(field))
