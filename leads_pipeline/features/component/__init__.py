"""The component: the definitions with a prefix, for projects of `dg`.

`leads_pipeline/__init__.py` names it, so that `dg` finds it as
`leads_pipeline.LeadsPipelineComponent`.
"""

from typing import Final

from leads_pipeline.features.feature import Feature

FEATURE: Final = Feature(name="component")
