"""What features add to the core: lists that the core reads, and that `features/__init__.py` fills.

Each entry is a name, loaded when somebody needs it: `--help` doesn't wait for pydantic.
"""

from typing import Final

# The modules of finders.
FINDER_MODULES: Final = ["leads_pipeline.observe.findings"]

# The settings of features, each a FeatureSettings as `module:class`, in the order in which documents show them.
SETTINGS_MODELS: Final[list[str]] = []
