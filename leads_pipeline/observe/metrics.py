"""The figures of observe/health.py as Prometheus reads them.

Belongs here: names and forms of the metrics. Doesn't: the figures, or serving them (cli/).
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Final, cast

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.observe.health import Health

# Monitors ask every quarter of a minute or so, each for itself; looking takes seconds for hundreds of branches.
LOOK_SECONDS: Final = 30.0

WELL: Final = "1 where nobody has to look into anything, else 0"

logger = logging.getLogger(__name__)


def exposition(look: Callable[[], Health]) -> str:
    """The figures in Prometheus' text format. Raises what `look` raises."""
    registry = CollectorRegistry()
    registry.register(cast("Collector", _Figures(look)))
    text: str = generate_latest(registry).decode()
    return text


def serve_metrics(
    look: Callable[[], Health], host: str, port: int, *, clock: Callable[[], float] = time.monotonic
) -> None:
    """Answer at /metrics from now on, in a thread of its own, with figures that are at most LOOK_SECONDS old."""
    registry = CollectorRegistry()
    registry.register(cast("Collector", _Figures(_NowAndThen(look, clock))))
    start_http_server(port, host, registry)


class _NowAndThen:
    """Looks again only when the last look is old. While it can't look, it knows nothing, and says so in the log."""

    def __init__(self, look: Callable[[], Health], clock: Callable[[], float]) -> None:
        self._look = look
        self._clock = clock
        self._lock = threading.Lock()
        self._due_at = float("-inf")
        self._health: Health | None = None

    def __call__(self) -> Health | None:
        with self._lock:
            if self._clock() >= self._due_at:
                try:
                    self._health = self._look()
                except LeadsPipelineError as error:
                    self._health = None
                    logger.warning("The figures can't be had: %s", error)
                self._due_at = self._clock() + LOOK_SECONDS
            return self._health


class _Figures:
    """One gauge a figure. A moment that never was has no sample, so that its age is no nonsense."""

    def __init__(self, look: Callable[[], Health | None]) -> None:
        self._look = look

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registering doesn't look."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """The figures of this moment; where they can't be had, that alone."""
        health = self._look()
        if health is None:
            yield _gauge("well", WELL, 0)
        else:
            yield from _gauges(health)


def _gauges(health: Health) -> Iterator[Metric]:
    yield _gauge("well", WELL, int(health.is_well))
    moments = {
        "last_landing": ("when an answer of the portal was last landed", health.last_landing_at),
        "last_publication": ("when leads.duckdb was last brought up to date", health.last_publication_at),
        "last_backup": ("when the last backup was made", health.last_backup_at),
        "daemon_seen": ("when the quietest loop of the daemon was last alive", health.daemon_seen_at),
        "next_deletion": (
            "when the portal begins to delete the first window that isn't landed",
            health.next_deletion_at,
        ),
    }
    for name, (what, moment) in moments.items():
        yield _gauge(f"{name}_timestamp_seconds", f"Unix time, {what}", *_unix(moment))
    windows = {"missing": health.missing, "failed": health.failed}
    yield _labelled("windows", "windows that the portal still has and that aren't landed", "state", windows.items())
    reasons = health.failed_by_reason.items()
    yield _labelled("failed_windows", "failed windows by why they fail", "reason", reasons)
    yield _gauge("pulling", "1 while a pull is under way, else 0", int(health.is_pulling))
    yield _gauge("damaged", "files that are damaged or missing", health.damaged)
    yield _gauge("quarantined_files", "files in quarantine/, replaced since or not", health.quarantined_files)
    yield _labelled("size_bytes", "how large what grows is", "what", health.sizes.items())
    yield _gauge("free_bytes", "what is free on the disk of the data folder", health.free_bytes)


def _unix(moment: datetime | None) -> Iterator[float]:
    if moment is not None:
        yield moment.timestamp()


def _gauge(name: str, what: str, *value: float) -> Metric:
    gauge = GaugeMetricFamily(f"leads_pipeline_{name}", what)
    for one in value:
        gauge.add_metric([], one)
    return gauge


def _labelled(name: str, what: str, label: str, values: Iterable[tuple[str, float]]) -> Metric:
    gauge = GaugeMetricFamily(f"leads_pipeline_{name}", what, labels=[label])
    for key, value in values:
        gauge.add_metric([key], value)
    return gauge
