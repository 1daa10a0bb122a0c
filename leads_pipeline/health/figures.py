"""The figures of an installation: `status` shows them, `metrics` serves them.

There is one figure for one thing.

Belongs here: which figures there are, and their form for Prometheus. Doesn't: problems
(findings.py), printing (cli/).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Self

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from leads_pipeline.domain.window import RETENTION
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.extensions import FIGURES, loaded
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
            leads=_leads(facts),
            windows={state.value: states[state] for state in WindowState},
            last_landing_at=max(fetches, default=None),
            last_publication_at=facts.publications.published_at
            if (folder / WAREHOUSE_FILE).exists()
            else None,
            last_backup_at=facts.data.state.last_backup(),
            service_seen_at=facts.service[0] if facts.service else None,
            next_deletion_at=min(deletions, default=None),
            size_bytes={
                WAREHOUSE_FILE: _size(folder / WAREHOUSE_FILE),
                "tables": _size(folder / "tables"),
                "dagster": _size(facts.settings.dagster_folder),
            },
            free_bytes=facts.free_bytes,
            findings=tuple(find(facts)),
            of_features=tuple(of_feature(facts.data) for of_feature in loaded(FIGURES)),
        )

    def as_json(self) -> dict[str, Any]:
        """All of them by name, as `status --json` prints them."""
        told = asdict(self) | {"is_well": self.is_well}
        for one in told.pop("of_features"):
            told |= {one["name"]: one["by_state"], f"{one['last_name']}_at": one["last_at"]}
            if one["place"]:
                told[f"{one['name']}_by_{one['place']}"] = one["by_place"]
        return told

    @property
    def is_well(self) -> bool:
        """Whether no error is open."""
        return all(finding.level is not Level.ERROR for finding in self.findings)


def _leads(facts: Facts) -> dict[str, int] | None:
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


# --- for Prometheus -------------------------------------------------------------------------------

_MOMENTS: Final = {
    "last_landing": "an answer of the portal was last landed",
    "last_publication": "leads.duckdb was last brought up to date",
    "last_backup": "the last backup was made",
    "service_seen": "the service last gave a sign of life",
    "next_deletion": "the portal begins to delete the first window that has not landed",
}


def registry(figures_now: Callable[[], Figures]) -> CollectorRegistry:
    """Return the registry that prometheus-client serves or prints.

    It calls `figures_now` each time that it is asked.
    """
    made = CollectorRegistry()
    made.register(_Gauges(figures_now))
    return made


class _Gauges(Collector):
    """One gauge a figure. Things that never happened have no value."""

    def __init__(self, figures_now: Callable[[], Figures]) -> None:
        self._figures_now = figures_now

    def collect(self) -> Iterator[Metric]:
        """Yield the figures of this moment.

        If they can't be had, `leads_pipeline_well` alone is there, and is 0.
        """
        try:
            figures = self._figures_now()
        except LeadsPipelineError:
            yield _gauge("well", "1 if no error is open, else 0", {"": 0})
            return

        yield _gauge("well", "1 if no error is open, else 0", {"": int(figures.is_well)})
        levels = Counter(finding.level for finding in figures.findings)
        yield _gauge(
            "findings",
            "open findings by level",
            {level.value: levels[level] for level in Level},
            "level",
        )
        yield _gauge(
            "windows",
            "windows by state, of those that the portal still has",
            figures.windows,
            "state",
        )

        for one in figures.of_features:
            yield _gauge(one.name, one.what, one.by_state, "state")
            if one.place:
                yield _gauge_by_place(one)
            yield _moment(one.last_name, one.last_what, one.last_at)

        yield _gauge("leads", "leads in leads.duckdb", figures.leads or {}, "kind")
        for name, what in _MOMENTS.items():
            yield _moment(name, what, getattr(figures, f"{name}_at"))

        yield _gauge("size_bytes", "size of a file or a folder", figures.size_bytes, "what")
        yield _gauge("free_bytes", "free on the disk of the data folder", {"": figures.free_bytes})


def _moment(name: str, what: str, at: datetime | None) -> Metric:
    return _gauge(
        f"{name}_timestamp_seconds", f"Unix time when {what}", {"": at.timestamp()} if at else {}
    )


def _gauge_by_place(one: CountedByState) -> Metric:
    name = f"leads_pipeline_{one.name}_by_{one.place}"
    gauge = GaugeMetricFamily(
        name, f"{one.what}, for each {one.place}", labels=[one.place, "state"]
    )
    for place, by_state in one.by_place.items():
        for state, count in by_state.items():
            gauge.add_metric([place, state], count)
    return gauge


def _gauge(name: str, what: str, values: Mapping[str, float], label: str = "") -> Metric:
    gauge = GaugeMetricFamily(f"leads_pipeline_{name}", what, labels=[label] if label else [])
    for key, value in values.items():
        gauge.add_metric([key] if label else [], value)
    return gauge
