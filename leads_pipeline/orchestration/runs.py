"""Runs without the UI: the same assets on the same Dagster instance.

Belongs here: running a job in this process, and how a pull went. Doesn't: what the assets do, how a
result is shown (cli/).
"""

import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field
from typing import Any, TextIO
from uuid import uuid4

from dagster import AssetKey, DagsterEventType, DagsterInstance, Definitions, EventLogEntry

from leads_pipeline.domain.contract import LeadKind
from leads_pipeline.orchestration.asking import pull_config, raw_key, window_tags
from leads_pipeline.orchestration.dagster_compat import CANT_STORE, GOES_ON, INTERRUPTED
from leads_pipeline.orchestration.dead_runs import MACHINE_TAG
from leads_pipeline.orchestration.names import PULL_JOB


@dataclass(slots=True)
class PullReport:
    """How a pull went: how many windows landed, and why each of the others failed.

    `landed` counts the windows of each kind. `failed` has the reason and the message of each
    failed one. `error` says why the run failed if no window did.
    """

    landed: dict[str, int] = field(default_factory=dict)
    failed: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    error: str | None = None

    @property
    def succeeded(self) -> bool:
        """Whether every window landed."""
        return not self.failed and self.error is None

    def note(self, entry: EventLogEntry) -> bool:
        """Add one of the run's events. Return whether it ends a window."""
        event = entry.dagster_event
        if event is None or event.asset_key is None or event.partition is None:
            return False

        kind = event.asset_key.path[-1].removeprefix("raw_")
        if event.event_type is DagsterEventType.ASSET_MATERIALIZATION:
            self.landed[kind] = self.landed.get(kind, 0) + 1
            return True

        if event.event_type is DagsterEventType.ASSET_OBSERVATION:
            metadata = event.asset_observation_data.asset_observation.metadata
            self.failed[kind, event.partition] = (
                str(metadata["reason"].value),
                str(metadata["error"].value),
            )
            return True

        return False


def pull(
    definitions: Definitions,
    instance: DagsterInstance,
    keys: Mapping[LeadKind, Sequence[str]],
    on_progress: Callable[[PullReport], None] = lambda _: None,
) -> PullReport:
    """Pull these windows, all of them, in one run. `on_progress` is called as each ends.

    Raises KeyboardInterrupt if ctrl-C ends the run. What is landed stays.
    """
    report = PullReport()

    def listen(entry: EventLogEntry) -> None:
        if report.note(entry):
            on_progress(report)

    error = run_job(
        definitions,
        instance,
        PULL_JOB,
        assets=[raw_key(kind) for kind in keys],
        tags=window_tags(keys, "command line"),
        run_config=pull_config(keys),
        listen=listen,
    )
    if not report.failed:
        report.error = error

    return report


def run_job(
    definitions: Definitions,
    instance: DagsterInstance,
    name: str,
    *,
    assets: Sequence[AssetKey] | None = None,
    tags: Mapping[str, str] | None = None,
    run_config: Mapping[str, Any] | None = None,
    listen: Callable[[EventLogEntry], None] | None = None,
) -> str | None:
    """Run a job to its end.

    Return None if all went well, else an asset's own words or the first error's.
    """
    run_id = str(uuid4())
    if listen is not None:
        instance.add_event_listener(run_id, listen)

    with _keeping_output(), redirect_stderr(_WithoutErrorsOfStorage(sys.stderr)):
        result = definitions.resolve_job_def(name).execute_in_process(
            run_id=run_id,
            instance=instance,
            asset_selection=assets,
            tags={MACHINE_TAG: platform.node(), **(tags or {})},
            raise_on_error=False,
            # Dagster's log would hide what the command prints. The UI has it all.
            run_config={
                "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
                **(run_config or {}),
            },
        )

    if result.success:
        return None

    failures = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    errors = [failure.error for failure in failures if failure.error is not None]

    if any(error.cls_name == INTERRUPTED for error in errors):
        raise KeyboardInterrupt

    # Dagster's own error only says which asset failed.
    in_own_words = [
        failure.user_failure_data.description for failure in failures if failure.user_failure_data
    ]
    causes = [(error.cause or error).message.strip() for error in errors]
    return next(
        filter(None, [*in_own_words, *causes]),
        f"Run {run_id} of {name} failed. The Dagster UI shows why.",
    )


@contextmanager
def _keeping_output() -> Iterator[None]:
    """Keep this process's output, which Dagster points at log files.

    If the disk is full, Dagster doesn't point it back.
    """
    kept = {number: os.dup(number) for number in (1, 2)}
    try:
        yield
    finally:
        for number, copy in kept.items():
            os.dup2(copy, number)
            os.close(copy)


class _WithoutErrorsOfStorage:
    """The standard error output without Dagster's lines about events that it can't store.

    The run raises the error.
    """

    def __init__(self, output: TextIO) -> None:
        self._output = output

    def write(self, text: str) -> int:
        """Write the text."""
        if text.startswith((*CANT_STORE, GOES_ON)):
            return len(text)
        return self._output.write(text)

    def __getattr__(self, name: str) -> Any:
        """Be the output in all else."""
        return getattr(self._output, name)
