"""The figures of an installation: `status` shows them, `metrics` serves them.

There is one figure for one thing.

Belongs here: which figures there are. Doesn't: problems (findings.py), printing (cli/), their form
for Prometheus (features/metrics/).
"""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from leads_pipeline.domain.window import RETENTION
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.extensions import brought
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.findings import Finding, Level, find
from leads_pipeline.raw.windows import WindowState
from leads_pipeline.warehouse.duck import WAREHOUSE_FILE
from leads_pipeline.warehouse.published import LeadsFile


@dataclass(frozen=True, slots=True)
class CountedByState:
    """The figures of a feature: how many things are in each state, and when the last one was done.

    `by_state` is empty if there never was any. `by_place` has the same for each `place`, such as a
    destination. Names and words are those of `status --json` and of the metrics.
    """

    name: str
    what: str
    by_state: Mapping[str, int]
    last_name: str
    last_what: str
    last_at: datetime | None
    place: str = ""
    by_place: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a moment, in UTC.

    A moment is None if the thing never happened, or isn't there any more.

    `leads` counts those in leads.duckdb by kind. It is empty if nothing was published, None if the
    file can't be read. `windows` counts those that the portal still has, by state.
    `next_deletion_at` is when the portal begins to delete the first window that has not landed.
    """

    at: datetime
    leads: Mapping[str, int] | None
    windows: Mapping[str, int]
    last_landing_at: datetime | None
    last_publication_at: datetime | None
    last_backup_at: datetime | None
    service_seen_at: datetime | None
    next_deletion_at: datetime | None
    size_bytes: Mapping[str, int]
    free_bytes: int
    findings: tuple[Finding, ...]
    of_features: tuple[CountedByState, ...]

    @classmethod
    def of(cls, facts: Facts) -> Self:
        """Put them together. Raises StorageError."""
        states = Counter(row.state for row in facts.windows)
        fetches = [row.fetched_at for row in facts.recent if row.fetched_at]
        deletions = [
            row.window.start + RETENTION
            for row in facts.windows
            if row.state in (WindowState.FAILED, WindowState.MISSING)
        ]
        folder = facts.data.folder

        return cls(
            at=facts.now,
            leads=_leads_by_kind(facts),
            windows={state.value: states[state] for state in WindowState},
            last_landing_at=max(fetches, default=None),
            last_publication_at=facts.publications.published_at
            if (folder / WAREHOUSE_FILE).exists()
            else None,
            last_backup_at=facts.data.state.last_backup(),
            service_seen_at=facts.service.seen_at if facts.service else None,
            next_deletion_at=min(deletions, default=None),
            size_bytes={
                WAREHOUSE_FILE: _size(folder / WAREHOUSE_FILE),
                "tables": _size(folder / "tables"),
                "dagster": _size(facts.settings.dagster_folder),
            },
            free_bytes=facts.free_bytes,
            findings=tuple(find(facts)),
            of_features=tuple(of_feature(facts.data) for of_feature in brought("figures")),
        )

    def as_json(self) -> dict[str, Any]:
        """All of them by name, as `status --json` prints them."""
        figures = asdict(self)
        figures["is_well"] = self.is_well
        for one in figures.pop("of_features"):
            figures[one["name"]] = one["by_state"]
            figures[f"{one['last_name']}_at"] = one["last_at"]
            if one["place"]:
                figures[f"{one['name']}_by_{one['place']}"] = one["by_place"]
        return figures

    @property
    def is_well(self) -> bool:
        """Whether no error is open."""
        return all(finding.level is not Level.ERROR for finding in self.findings)


def _leads_by_kind(facts: Facts) -> dict[str, int] | None:
    if not facts.leads_duckdb.was_published:
        return {}
    with suppress(LeadsPipelineError):  # which is a finding
        return LeadsFile(facts.data).lead_counts()
    return None


def _size(path: Path) -> int:
    """The bytes of a file, or of all files in a folder.

    A file that vanishes meanwhile counts nothing.
    """
    try:
        if not path.is_dir():
            return path.stat().st_size
        return sum(_size(entry) for entry in path.resolve().iterdir() if not entry.is_symlink())
    except FileNotFoundError:
        return 0
