"""The checks `windows` and `files` on raw: what observe/ finds, as Dagster shows it.

Belongs here: specs and results. Doesn't: the findings (observe/findings.py).
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from dagster import AssetCheckResult, AssetCheckSeverity, AssetCheckSpec

from leads_pipeline.domain.contract import LeadKind
from leads_pipeline.observe.findings import FINDERS, Level, find
from leads_pipeline.observe.known import Known
from leads_pipeline.settings import Settings
from leads_pipeline.storage.data_folder import DataFolder

_FINDERS: Final = {
    "windows": [finder for name, finder in FINDERS.items() if name.startswith("windows-")],
    "files": [FINDERS["files-damaged"], FINDERS["spool"]],
}
_DESCRIPTIONS: Final = {
    "windows": "No window is refused, failing, late or lost",
    "files": "No file is damaged or missing",
}


def finding_specs(asset: str) -> list[AssetCheckSpec]:
    """The checks on the raw leads of a kind."""
    return [AssetCheckSpec(check, asset=asset, description=text) for check, text in _DESCRIPTIONS.items()]


def finding_results(settings: Settings, data: DataFolder, kind: LeadKind, now: datetime) -> Iterator[AssetCheckResult]:
    """What they come to. Hints leave a check green. A run yields them before it fails: they say why."""
    known = Known.of(settings, data, now, (kind,))
    for check, finders in _FINDERS.items():
        found = [one for one in find(known, finders) if one.level is not Level.HINT]
        is_error = any(one.level is Level.ERROR for one in found)
        yield AssetCheckResult(
            check_name=check,
            passed=not found,
            severity=AssetCheckSeverity.ERROR if is_error else AssetCheckSeverity.WARN,
            description="\n".join(f"- {one.message} {one.what_to_do}" for one in found) or "No problems.",
            metadata={"findings": len(found)},
        )
