"""The figures for Prometheus: one gauge a figure.

Belongs here: their names and form. Doesn't: which figures there are (health/figures.py).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.health.figures import CountedByState, Figures
from leads_pipeline.health.findings import Level

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
