"""What features add to the core: lists that the core reads, and that `features/__init__.py` fills.

Each entry but a folder is a name, as `module:object` or of a module. It is loaded when somebody
needs it: `--help` doesn't wait for pydantic. `feature.py` says what each is.
"""

from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Final

FINDER_MODULES: Final = ["leads_pipeline.health.findings"]
SETTINGS_MODELS: Final[list[str]] = []
BUCKETS: Final[list[str]] = []
GATEKEEPERS: Final[list[str]] = []
FIGURES: Final[list[str]] = []
HOLDERS: Final[list[str]] = []
QUESTIONS: Final[list[str]] = []
VERIFIERS: Final[list[str]] = []
NEEDED_BY_FEATURES: Final[list[str]] = []
DEMOS: Final[list[str]] = []
DAGSTER_YAML: Final[list[str]] = []
PULLED_TODAY: Final[list[str]] = []
TABLES: Final[list[str]] = []
MART_FOLDERS: Final[list[Path]] = []


def loaded(names: list[str]) -> list[Any]:
    """Load what these names stand for, in their order."""
    return [resolve_name(name) for name in names]
